"""Feature hashing: JSON objects as rows of numbers, the same in every process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.core.errors import InputError
from superarm.core.inputs import as_number

Features = Sequence[Mapping[str, Any]]
"""Features as Personalizer takes them: a list of JSON objects."""

_DEEPEST = 16  # objects within objects
_MOST_FEATURES = 250_000  # of a request, pairs included
_LARGEST = 1e6  # a number; the model is linear in it
_LONGEST_NAME = 100  # characters of a feature's name in a message
_SEPARATOR = "\x1f"  # between the parts of a path


def hash_features(
    context: Features, actions: Sequence[Features], columns: int
) -> Floats:
    """Features of a context and of actions as numbers, (n, columns).

    A row has three parts: a quarter of the columns for the features of the context, a quarter for those of
    the action, and the rest for all pairs of both, so that a linear model learns which action suits
    which context. Each feature has a name and a value:

    - a number at the path ``a.b`` has the name (number, a, b) and its own value: scale it to about 1;
    - text, true and false have the name (text, a, b, value) and the value 1;
    - the items of a list are features at the path of the list; a number also has its place in its name;
    - null is no feature; the objects of ``context`` count as one.

    A pair has the product of the values. Feature i is added to column h(i) of its part, with the sign
    s(i) [weinberger2009feature]: h and s are taken from the blake2b hash of the name, or of both
    hashes for a pair, so they never differ between processes or versions.

    Args:
        context: Features of the context.
        actions: Features of each action.
        columns: Columns of the result.
    """
    of_context = _features(context, "contextFeatures")
    of_actions = [_features(action, "features") for action in actions]
    _check_size(of_context, of_actions)
    quarter = columns // 4
    context_part = range(quarter)
    action_part = range(quarter, 2 * quarter)
    pairs_part = range(2 * quarter, columns)
    context_row = [0.0] * columns  # a list, because it is filled one by one
    for feature in of_context:
        _add(context_row, context_part, feature)
    rows = []
    for of_action in of_actions:
        row = context_row.copy()
        for feature in of_action:
            _add(row, action_part, feature)
            for other in of_context:
                digest = _hash(other.digest + feature.digest)
                pair = _Feature(digest, other.value * feature.value)
                _add(row, pairs_part, pair)
        rows.append(row)
    return np.array(rows)


class _Feature(NamedTuple):
    digest: bytes
    """The hash of its name."""
    value: float


def _features(objects: Features, where: str) -> list[_Feature]:
    features: list[_Feature] = []
    for item in objects:
        features += _walk(item, (), where)
    return features


def _check_size(of_context: list[_Feature], of_actions: list[list[_Feature]]) -> None:
    """Refuse a request whose features would take seconds to hash."""
    size = sum(len(of_action) for of_action in of_actions)
    pairs = size * len(of_context)
    if pairs + size > _MOST_FEATURES:
        raise InputError(
            f"{len(of_context)} context features and {size} action features are {pairs + size} with all "
            f"pairs, more than the limit of {_MOST_FEATURES}; send fewer"
        )


def _walk(value: Any, path: tuple[str, ...], where: str) -> Iterator[_Feature]:
    """The features of a JSON value."""
    if len(path) > _DEEPEST:
        raise InputError(
            f"{where} is nested more than {_DEEPEST} levels deep; flatten it"
        )
    match value:
        case Mapping():
            for key, item in value.items():
                yield from _walk(item, (*path, key), where)
        case list() | tuple():
            for place, item in enumerate(value):
                yield from _walk(item, _item_path(item, path, place), where)
        case bool():
            yield _text_feature(str(value).lower(), path)
        case str():
            yield _text_feature(value, path)
        case None:
            return
        case _:
            yield _number_feature(value, path, where)


def _item_path(item: Any, path: tuple[str, ...], place: int) -> tuple[str, ...]:
    """The path of a list's item. Numbers and nested lists have their place in it."""
    if isinstance(item, str | bool | Mapping):
        return path
    return (*path, str(place))


def _text_feature(text: str, path: tuple[str, ...]) -> _Feature:
    return _Feature(_hash_name("text", *path, text), 1.0)


def _number_feature(value: Any, path: tuple[str, ...], where: str) -> _Feature:
    name = ascii(".".join(path))[:_LONGEST_NAME]
    number = as_number(value, f"{where}: {name}", -_LARGEST, _LARGEST)
    return _Feature(_hash_name("number", *path), number)


def _hash_name(*parts: str) -> bytes:
    return _hash(_SEPARATOR.join(parts).encode("utf-8", "surrogatepass"))


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=8).digest()


def _add(row: list[float], part: range, feature: _Feature) -> None:
    """Add a feature to its column in a part of a row."""
    number = int.from_bytes(feature.digest, "big")
    sign = 1.0 if number & 1 else -1.0
    row[part[(number >> 1) % len(part)]] += sign * feature.value
