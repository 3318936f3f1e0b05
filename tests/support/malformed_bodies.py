"""Bodies that no client should send: torn, mistyped, too deep, too large, in other encodings."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from typing import Any

_TEXTS = (
    "",
    " ",
    "\x00",
    "a\x00b",
    "\ud800",  # half of a pair
    "é\u0301\u202e\ufeff",
    "日本語",
    "../../etc/passwd",
    "' OR 1=1 --",
    "x" * 100_000,
    "NaN",
    "\n",
)
_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    2**63,
    -(2**63) - 1,
    10**400,
    1e308,
    -1e308,
    5e-324,
    float("nan"),
    float("inf"),
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"type": "tuple", "items": [1]},
    *_TEXTS,
)
_LITERALS = (b"1e400", b"-1e400", b"NaN", b"Infinity", b"9" * 5000, b"1.0e", b"0x10")
_ENCODINGS = ("utf-16", "utf-32", "latin-1", "utf-7", "utf-8-sig", "cp037")


def malformed_body(rng: random.Random, valid: Any) -> bytes:
    """A body that is probably not valid.

    Args:
        rng: Chooses what is wrong.
        valid: A valid body, as JSON.
    """
    spoil = rng.choice(_SPOILERS)
    return spoil(rng, valid)


def _encode(value: Any) -> bytes:
    # Lone surrogates are escaped: they are valid JSON, but not text.
    return json.dumps(value).encode()


def _truncated(rng: random.Random, valid: Any) -> bytes:
    text = _encode(valid)
    return text[: rng.randrange(len(text))]


def _deeply_nested(rng: random.Random, valid: Any) -> bytes:
    depth = rng.choice((50, 1000, 100_000))
    opening, closing = rng.choice(((b"[", b"]"), (b'{"a":', b"}")))
    nested = opening * depth + b"0" + closing * depth
    if not isinstance(valid, dict) or not valid:
        return nested
    field = json.dumps(rng.choice(list(valid))).encode()
    return b"{" + field + b":" + nested + b"}"


def _with_literal(rng: random.Random, valid: Any) -> bytes:
    marker = "a number that is replaced"
    text = _encode(_mutated(rng, valid, marker))
    return text.replace(json.dumps(marker).encode(), rng.choice(_LITERALS))


def _mistyped(rng: random.Random, valid: Any) -> bytes:
    return _encode(_mutated(rng, valid, rng.choice(_VALUES)))


def _mutated_twice(rng: random.Random, valid: Any) -> bytes:
    once = _mutated(rng, valid, rng.choice(_VALUES))
    return _encode(_mutated(rng, once, rng.choice(_VALUES)))


def _with_other_keys(rng: random.Random, valid: Any) -> bytes:
    body = dict(valid) if isinstance(valid, dict) else {}
    if body and rng.random() < 0.5:
        del body[rng.choice(list(body))]
    body[rng.choice((*_TEXTS, "__class__", "tenant"))] = rng.choice(_VALUES)
    return _encode(body)


def _with_repeated_key(rng: random.Random, valid: Any) -> bytes:
    if not isinstance(valid, dict) or not valid:
        return _encode([valid, valid])
    field = rng.choice(list(valid))
    repeated = _encode({field: rng.choice(_VALUES)})
    return repeated[:-1] + b"," + _encode(valid)[1:]


def _in_other_encoding(rng: random.Random, valid: Any) -> bytes:
    text = json.dumps({"é": valid}, ensure_ascii=False)
    return text.encode(rng.choice(_ENCODINGS), "replace")


def _compressed(rng: random.Random, valid: Any) -> bytes:
    return gzip.compress(_encode(valid))


def _random_bytes(rng: random.Random, valid: Any) -> bytes:
    return rng.randbytes(rng.randrange(200))


def _flipped_bits(rng: random.Random, valid: Any) -> bytes:
    text = bytearray(_encode(valid))
    for _ in range(rng.randint(1, 4)):
        text[rng.randrange(len(text))] ^= 1 << rng.randrange(8)
    return bytes(text)


def _two_bodies(rng: random.Random, valid: Any) -> bytes:
    separator = rng.choice((b"", b"\n", b"\x00", b",", b"\r\n\r\n"))
    return _encode(valid) + separator + _encode(valid)


def _mutated(rng: random.Random, value: Any, replacement: Any) -> Any:
    """A copy of a value with one place replaced."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        field = rng.choice(list(value))
        if rng.random() < 0.1 and isinstance(replacement, str):
            return {**value, replacement: value[field]}
        return {**value, field: _mutated(rng, value[field], replacement)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        changed = _mutated(rng, value[place], replacement)
        return [*value[:place], changed, *value[place + 1 :]]
    return replacement


_SPOILERS: tuple[Callable[[random.Random, Any], bytes], ...] = (
    _truncated,
    _deeply_nested,
    _with_literal,
    _mistyped,
    _mistyped,
    _mutated_twice,
    _with_other_keys,
    _with_repeated_key,
    _in_other_encoding,
    _compressed,
    _random_bytes,
    _flipped_bits,
    _two_bodies,
)
