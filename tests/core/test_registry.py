"""Parts by name: nested specs, advice, and no imports by external names."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from superarm.core import registry
from superarm.core.errors import InputError, SpecError
from superarm.core.registry import (
    build,
    check_table,
    names,
    parameters_of,
    register,
    require_kind,
    spec_of,
)
from superarm.kernels import Matern, SquaredExponential
from superarm.oracles import TopK
from superarm.posteriors import FiniteGP, StreamingGP

FAMILIES = [
    "gain",
    "kernel",
    "oracle",
    "policy",
    "posterior",
    "problem",
    "rule",
    "schedule",
]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_filled(family: str) -> None:
    assert names(family) == sorted(names(family))
    assert names(family)
    for name in names(family):
        assert name == name.lower()
        assert isinstance(parameters_of(family, name), dict)


def test_nested_specs_round_trip() -> None:
    kernel = 2.0 * (
        SquaredExponential(lengthscale=(0.1, 0.2), columns=(0, 1)) + Matern(nu=1.5)
    )
    spec = json.loads(json.dumps(spec_of(kernel), allow_nan=False))
    assert build("kernel", spec) == kernel
    assert spec_of(build("kernel", spec)) == spec_of(kernel)
    assert build("oracle", spec_of(TopK(k=3))) == TopK(k=3)


def test_name_is_a_spec() -> None:
    assert build("oracle", "top-k") == TopK(k=1)
    assert build("oracle", "top-k", k=4) == TopK(k=4)


def test_posteriors_are_built_from_nested_specs() -> None:
    kernel = {"family": "kernel", "name": "squared-exponential", "lengthscale": 0.3}
    streaming = build(
        "posterior", {"name": "streaming", "kernel": kernel, "noise_variance": 0.1}
    )
    assert isinstance(streaming, StreamingGP)
    assert streaming.kernel == SquaredExponential(lengthscale=0.3)
    finite = build(
        "posterior",
        {
            "name": "finite",
            "kernel": kernel,
            "noise_variance": 0.1,
            "arms": [[0.0], [1.0]],
        },
    )
    assert isinstance(finite, FiniteGP)


@pytest.mark.parametrize(
    ("family", "spec", "words"),
    [
        ("kernel", "squared-exponentail", r"did you mean 'squared-exponential'\?"),
        (
            "kernel",
            {"name": "no such thing"},
            "'no such thing'; `superarm list kernel` lists them",
        ),
        ("kernel", {"lengthscale": 1.0}, "a kernel spec needs a name"),
        (
            "kernel",
            {"name": "matern", "lengthscal": 1.0},
            r"did you mean 'lengthscale'\?",
        ),
        ("schedule", {"name": "fixed"}, "'fixed' needs value"),
        ("posterior", {"name": "streaming"}, "needs kernel, noise_variance"),
        ("kernle", "matern", "unknown family 'kernle'"),
        ("kernel", {"name": ["matern"]}, "unknown kernel"),
        ("kernel", {"name": None}, "unknown kernel None"),
        ("kernel", 7, "a name or a table"),
        ("kernel", None, "a name or a table"),
        (
            "rule",
            {"name": "ucb", "schedule": {"family": ["rule"], "name": "x"}},
            "unknown family",
        ),
        (
            "rule",
            {"name": "ucb", "schedule": {"family": "os", "name": "system"}},
            "unknown family 'os'",
        ),
        ("oracle", {"name": "top-k", "__class__": "x"}, "no parameter '__class__'"),
    ],
    ids=str,
)
def test_mistakes_are_explained(family: str, spec: Any, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        build(family, spec)


@pytest.mark.parametrize("k", [0, -1, 1.5, "2", True, None, [1]], ids=str)
def test_bad_values_are_input_errors(k: Any) -> None:
    with pytest.raises(InputError, match="k must be"):
        build("oracle", {"name": "top-k", "k": k})


WRONG: dict[Any, tuple[Any, ...]] = {
    float: ("0.5", True, None, {}, {"a": 1}, [0.5], 10**400),
    int: ("3", 2.5, True, {"name": "x"}, [3], 10**400),
    bool: (1, "true", None, {}),
    str: (1, True, {}, ["a"]),
}


def _plain_parameters(family: str) -> list[tuple[str, str, Any]]:
    """Parameters of a family's parts that are declared as numbers, switches or texts."""
    return [
        (name, key, kind)
        for name in names(family)
        for key, kind in registry.kinds_of(registry.find(family, name)).items()
        if kind in WRONG and key in parameters_of(family, name)
    ]


# Before any test registers parts of its own.
PLAIN_PARAMETERS = {family: _plain_parameters(family) for family in FAMILIES}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_value_of_another_kind_is_named(family: str) -> None:
    for name, key, kind in PLAIN_PARAMETERS[family]:
        for value in WRONG[kind]:
            words = rf"^{family} '{name}': {key} must be .*, got "
            with pytest.raises(SpecError, match=words):
                build(family, {"name": name, key: value})


def test_plain_parameters_are_found() -> None:
    assert sum(map(len, PLAIN_PARAMETERS.values())) > 300


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        ("0.5", float, "must be a number, got '0.5'"),
        (10**400, float, "must be smaller"),
        (10**20, int, "must be smaller"),
        pytest.param(
            16**9999,
            float,
            "must be smaller, got an int that is too large to show",
            id="thousands of digits",
        ),
        (1, Literal["a", "b"], "must be one of 'a', 'b'"),
        ({}, float | tuple[float, ...], "must be a number or a list of numbers"),
        (
            [1.0, "x"],
            tuple[float, ...] | None,
            "must be a list of numbers",
        ),
        ("abc", Sequence[str], "must be a list of text"),
        ({"a": 1}, Mapping[str, str], "must be a table, each entry text"),
        (3, Mapping[str, Any], "must be a table"),
    ],
)
def test_expected_types_are_described_in_words(
    value: Any, kind: Any, words: str
) -> None:
    with pytest.raises(SpecError, match=f"^x {words}(, got .*)?$"):
        require_kind(value, kind, "x")


@pytest.mark.parametrize(
    "model", [1, None, {"kernel": {"name": "matern"}}, {"name": "matern"}]
)
@pytest.mark.parametrize("name", ["gp-ucb", "random", "route-ucb"])
def test_model_is_not_a_spec(name: str, model: Any) -> None:
    with pytest.raises(SpecError, match=r"model must be a Model .*, got "):
        build("policy", {"name": name, "model": model})


def test_a_graph_is_made_of_lists() -> None:
    with pytest.raises(InputError, match="indptr"):
        build("network", {"name": "sparse", "indptr": 1, "indices": -1})


def accepts(value: Any, kind: Any) -> bool:
    try:
        require_kind(value, kind, "x")
    except SpecError:
        return False
    return True


def test_values_that_match_a_type() -> None:
    for value in (1, 1.5, np.float32(1.5), np.int64(3), sys.float_info.max):
        assert accepts(value, float)
    assert not accepts("1.5", float)
    assert accepts([1, 2.0], float | tuple[float, ...])
    assert not accepts([1, "2.0"], float | tuple[float, ...])
    assert accepts("neither", Literal["a", "b"])  # the part itself lists valid texts
    assert not accepts(1, Literal["a", "b"])
    assert accepts({"a": {}}, Mapping[str, Mapping[str, Any]])
    assert not accepts({"a": 1}, Mapping[str, Mapping[str, Any]])


def test_types_for_type_checkers_are_not_validated() -> None:
    def part(x: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert registry.kinds_of(part) == {}


def test_no_module_is_imported_by_a_name_from_outside() -> None:
    for name in ("this", "antigravity:fly", "superarm.cli", "../kernels"):
        with pytest.raises(SpecError):
            build("kernel", {"name": name})
        with pytest.raises(SpecError):
            build(name, {"name": "matern"})
    assert "antigravity" not in sys.modules
    assert "this" not in sys.modules


def test_only_registered_parts_have_specs() -> None:
    @dataclass(frozen=True)
    class Private:
        value: float

    for part in (Private(1.0), object(), np.sin):
        with pytest.raises(SpecError, match="has no JSON spec"):
            spec_of(part)


@pytest.mark.parametrize(
    ("here", "there", "words"),
    [
        ({"name": "a", "k": 1}, {"name": "a", "k": 1.0}, None),  # numbers of one value
        (
            {"name": "a", "k": 1},
            {"name": "a", "k": True},
            "k is 1 here and True in the state",
        ),
        (
            {"name": "a", "k": 1},
            {"name": "a", "k": "1"},
            "k is 1 here and '1' in the state",
        ),
        ({"k": np.nan}, {"k": float("nan")}, None),
        (
            {"name": "a", "k": 1},
            {"name": "b", "k": 2},
            "it is 'a' here and 'b' in the state",
        ),
        ({"name": "a"}, {"name": "a", "k": 1}, "k is missing here and 1 in the state"),
        ({"name": "a", "k": 1}, {"name": "a"}, "k is 1 here and missing in the state"),
        ({"k": [1, 2]}, {"k": [1, 2, 3]}, "k is"),
        ({"k": [1, 2, 3]}, {"k": [1, 2]}, "k is"),
        (
            {"k": [1, {"l": 2}]},
            {"k": [1, {"l": 3}]},
            "k[1].l is 2 here and 3 in the state",
        ),
        ({"k": np.zeros(2)}, {"k": np.zeros(2, dtype=int)}, "k is float64 of"),
        (
            {"k": np.zeros(2)},
            {"k": np.zeros((1, 2))},
            "k is float64 of shape (2,) here",
        ),
        (
            {"k": np.zeros(2)},
            {"k": np.array([0.0, 1.0])},
            "k[1] is 0.0 here and 1.0 in the state",
        ),
        ({"k": np.zeros(2)}, {"k": [0.0, 0.0]}, "k is float64 of shape (2,) here"),
        ({"k": np.zeros(2)}, {"k": np.zeros(2)}, None),
    ],
    ids=str,
)
def test_differences_of_specs_are_found(
    here: Any, there: Any, words: str | None
) -> None:
    difference = registry.difference(here, there)
    assert (
        difference is None
        if words is None
        else difference is not None and difference.startswith(words)
    )


class Text(str):
    """A text of another type."""


# Values that are easily confused, but differ in type, sign or identity.
LOOKALIKES: list[list[Any]] = [
    [0, 0.0, -0.0, False, np.float64(0.0), None, ""],
    [1, 1.0, True, np.float64(1.0), "1"],
    [np.nan, float("nan"), np.float64(np.nan), "nan", np.inf],
    ["a", Text("a"), "b"],
    [[], [1], [True], [1.0]],
]


@st.composite
def similar_lists(draw: st.DrawFn) -> tuple[list[Any], list[Any]]:
    """Two lists of one length, equal but for at most one entry, which looks similar."""
    size = draw(st.integers(1, 4))
    if draw(st.booleans()):
        kind = st.sampled_from(LOOKALIKES).map(lambda values: values[0])
        here = [draw(kind)] * size
    else:
        any_value = st.sampled_from(LOOKALIKES).flatmap(st.sampled_from)
        here = [draw(any_value) for _ in range(size)]
    there = list(here)
    place = draw(st.integers(0, size - 1))
    lookalikes = next(
        values for values in LOOKALIKES if any(value is here[place] for value in values)
    )
    there[place] = draw(st.sampled_from(lookalikes))
    return here, there


@given(similar_lists())
@example(([2, 1], [2, True]))
@example(([2.0, 0.0], [2.0, False]))
@example(([2, 1], [2.0, 1.0]))
@example((["a", "b"], ["a", Text("b")]))
@example(([np.nan], [float("nan")]))
@settings(max_examples=300)
def test_lists_differ_where_their_entries_do(
    lists: tuple[list[Any], list[Any]],
) -> None:
    here, there = lists
    by_entry = [
        registry.difference(item, other, f"k[{index}]")
        for index, (item, other) in enumerate(zip(here, there, strict=True))
    ]
    first = next((message for message in by_entry if message is not None), None)
    assert registry.difference({"k": here}, {"k": there}) == first


def test_long_plain_lists_are_compared_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*values: object) -> bool:
        raise AssertionError(f"compared {values} alone")

    monkeypatch.setattr(registry.comparison, "_are_equal_values", refuse)
    for values in (["a", "b"], [1, 2], [1.0, np.nan]):
        assert registry.difference({"k": values}, {"k": list(values)}) is None


def test_names_are_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        registry.catalogue,
        "_parts",
        {family: dict(p) for family, p in registry.catalogue._parts.items()},
    )
    monkeypatch.setattr(registry.catalogue, "_names", dict(registry.catalogue._names))

    @register("oracle", "of-this-test")
    @dataclass(frozen=True, kw_only=True)
    class Mine:
        weights: Any = (1.0, 2.0)
        table: Any = None

    assert (
        register("oracle", "of-this-test")(Mine) is Mine
    )  # registering the same part twice is not a conflict
    with pytest.raises(SpecError, match="registered already"):
        register("oracle", "of-this-test")(TopK)
    with pytest.raises(SpecError, match="unknown family"):
        register("tools", "hammer")
    mine = Mine(
        weights=np.array([1.0, 2.0]), table={"a": np.float64(1.0), "b": [np.int64(2)]}
    )
    spec = spec_of(mine)
    weights = spec.pop("weights")
    assert weights.tolist() == [1.0, 2.0]
    assert not weights.flags.writeable
    assert mine.weights.flags.writeable
    assert spec == {"name": "of-this-test", "table": {"a": 1.0, "b": [2]}}
    json.dumps(spec)
    assert build("oracle", spec).table == {"a": 1.0, "b": [2]}
    with pytest.raises(SpecError, match="cannot be part of a spec"):
        spec_of(Mine(table=object()))


def test_a_table_is_checked_key_by_key() -> None:
    kinds = {"mass": float, "name": str}
    check_table({"mass": 1.0}, kinds, "van", required=["mass"])
    with pytest.raises(SpecError, match=r"^van: 'name' is missing$"):
        check_table({"mass": 1.0}, kinds, "van", required=["name"])
    with pytest.raises(SpecError, match=r"^van: mass must be a number, got 'heavy'$"):
        check_table({"mass": "heavy"}, kinds, "van")


def test_keys_that_were_taken_out_of_a_table_are_suggested() -> None:
    with pytest.raises(SpecError, match="did you mean 'extends'"):
        check_table({"extend": 1}, {"title": str}, "x", read_elsewhere=["extends"])
