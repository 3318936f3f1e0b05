"""What policies begin with: nothing, a state that was kept, or a shorter run that is made longer.

A policy that begins with a state has learned from rounds up to some number. The rounds of the run are
numbered on from there: their offers and noise are new to it, every reward is learned once, and times go
on. So do those of policies that begin with nothing, because all meet the same rounds. If several begin
with states, the one that has come farthest counts.

A run that is made longer leaves the same bytes as one of that length. Where that is sure, a policy goes
on from its state; else it plays all rounds again.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from superarm.core import Policy, State
from superarm.core.capabilities import HorizonFree, Resumable
from superarm.core.errors import ConflictError, InputError, SpecError, StateError
from superarm.core.migrations import migrated
from superarm.core.registry import contradiction, describe, suggestion
from superarm.core.states import load_state, state_from_bytes
from superarm.lab.simulation import Trace, cell_name, read_trace
from superarm.lab.simulation.files import EARLIER
from superarm.models.worlds import World
from superarm.policies.base import Learner
from superarm.policies.ledger import last_step

from .spec import Experiment

# --- a state that was kept -----------------------------------------------------------------


class Start(NamedTuple):
    """A file with the state that a policy begins with."""

    file: Path
    digest: str  # sha256 of its bytes

    @classmethod
    def of(cls, file: Path) -> Start:
        load_state(file)  # says what is wrong with it
        return cls(file.resolve(), sha256(file.read_bytes()).hexdigest())

    def state(self) -> State:
        data = self.file.read_bytes()
        if sha256(data).hexdigest() != self.digest:
            raise ConflictError(
                f"{self.file} has changed since the run was asked for; run it again"
            )
        return state_from_bytes(data)

    @property
    def told(self) -> dict[str, str]:
        """What ``run.json`` says of it."""
        return {"file": self.file.name, "sha256": self.digest}


class WarmStarts(NamedTuple):
    """Which policies begin with which states, and the number of the first round."""

    by_policy: dict[str, Start]
    first: int


def find_starts(
    experiment: Experiment, given: Sequence[str], *, seed: int, rounds: int
) -> WarmStarts:
    """From ``FILE`` or ``POLICY=FILE``; a file alone is for the one policy that it is the state of."""
    starts: dict[str, Start] = {}
    alone: list[Start] = []
    for text in given:
        name, equals, file = text.partition("=")
        if not equals or (name not in experiment.policies and Path(text).exists()):
            alone.append(Start.of(Path(text)))
        elif name not in experiment.policies:
            told = suggestion(name, experiment.policies, "there are")
            raise SpecError(f"--state {text}: there is no policy {name!r}; {told}")
        elif name in starts:
            raise SpecError(
                f"--state names {name!r} twice; a policy begins with one state"
            )
        else:
            starts[name] = Start.of(Path(file))
    states = [start.state() for start in (*starts.values(), *alone)]
    first = 1 + max(map(last_step, states), default=0)
    for start in alone:
        world = experiment.build_problem(seed=seed, horizon=first - 1 + rounds)
        made = {
            name: experiment.build_policy(name, world) for name in experiment.policies
        }
        spec = migrated(start.state(), "policy").spec or {}
        unlike = {
            name: contradiction(made[name], spec) for name in made if name not in starts
        }
        owners = [name for name, found in unlike.items() if found is None]
        if not unlike:
            raise SpecError(
                f"{start.file} is left over: every policy begins with another state"
            )
        if not owners:
            told = f"{start.file} is the state of none of {[*unlike]}"
            named = {name: describe(made[name]).get("name") for name in unlike}
            if alike := [name for name in unlike if named[name] == spec.get("name")]:
                told += f": for {alike[0]}, {unlike[alike[0]]}; is it of other roads or settings?"
            raise SpecError(told)
        if len(owners) > 1:
            told = f"could be of any of {owners}; say whose it is: --state POLICY={start.file}"
            raise SpecError(f"{start.file} {told}")
        starts[owners[0]] = start
    return WarmStarts(starts, first)


def begun(policy: Policy, start: Start | None) -> Policy:
    """The policy with what its state holds; feedback that was on its way then never comes."""
    if start is None:
        return policy
    if not isinstance(policy, Learner):
        raise InputError("it learns nothing, so that it cannot begin with a state")
    restored = policy.restored(start.state())
    restored.give_up()
    return restored


# --- a shorter run -------------------------------------------------------------------------


class Cell(NamedTuple):
    """One policy in one setting with one seed, in a run."""

    out: Path
    policy: str
    setting_index: int
    seed: int


class Begun(NamedTuple):
    """A policy, and what it has done in a shorter run if it goes on from there."""

    policy: Policy
    trace: Trace | None


class RestartReason(NamedTuple):
    """A policy that plays all rounds again where a run is made longer, and why."""

    policy: str
    why: str


def earlier(
    cell: Cell, policy: Policy, world: World, rounds: int
) -> Begun | RestartReason | None:
    """The policy as a shorter run has left it, or why it cannot go on; ``None`` if there was no run."""
    folder, name = cell.out / EARLIER, f"{cell_name(*cell[1:])}.npz"
    if not (folder / "cells" / name).is_file():
        return None
    needed = {
        "the problem may depend on the number of rounds": isinstance(
            world, HorizonFree
        ),
        "no state of it is kept": (folder / "states" / name).is_file(),
        "what its state gives back may differ in the last digits": isinstance(
            policy, Resumable
        )
        and policy.same_bits,
        "the shorter run did not keep what it takes to go on": (
            folder / "left" / name
        ).is_file(),
    }
    if missing := [why for why, there in needed.items() if not there]:
        return RestartReason(cell.policy, missing[0])
    try:
        trace = read_trace(folder, *cell[1:], rounds)
        assert trace.state is not None
        restored = policy.restored(trace.state)
    except StateError as error:
        return RestartReason(cell.policy, str(error))
    return Begun(restored, trace) if trace.rounds < rounds else None
