"""A bandit in this process and one behind a service have the same verbs."""

from __future__ import annotations

import inspect

import pytest

from superarm.client import RemoteBandit
from superarm.live import Bandit
from superarm.live.verbs import BanditVerbs

VERBS = sorted(name for name in vars(BanditVerbs) if not name.startswith("_"))
METHODS = [name for name in VERBS if inspect.isfunction(getattr(BanditVerbs, name))]
IMPLEMENTATIONS = [Bandit, RemoteBandit]
# Parameters that only one of them has.
FURTHER = {(RemoteBandit, "events"): ["follow"]}


def test_the_protocol_states_the_verbs() -> None:
    assert {"ask", "tell", "observe", "predict", "spec", "pending"} <= set(VERBS)


@pytest.mark.parametrize("kind", IMPLEMENTATIONS)
def test_every_verb_is_implemented_and_documented(kind: type) -> None:
    for name in VERBS:
        stated = inspect.getattr_static(BanditVerbs, name)
        implemented = inspect.getattr_static(kind, name)
        assert implemented is not stated, f"{kind.__name__} lacks {name}"
        assert type(implemented) is type(stated)
        assert inspect.getdoc(getattr(kind, name))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("kind", IMPLEMENTATIONS)
def test_signatures_are_those_of_the_protocol(kind: type, name: str) -> None:
    stated = inspect.signature(getattr(BanditVerbs, name), eval_str=True)
    implemented = inspect.signature(getattr(kind, name), eval_str=True)
    further = FURTHER.get((kind, name), [])
    parameters = [
        parameter
        for parameter in implemented.parameters.values()
        if parameter.name not in further
    ]
    assert parameters == list(stated.parameters.values())
    assert implemented.return_annotation == stated.return_annotation
    for extra in further:
        assert implemented.parameters[extra].kind is inspect.Parameter.KEYWORD_ONLY
