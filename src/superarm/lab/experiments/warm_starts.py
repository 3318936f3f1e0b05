"""What policies begin with: nothing, a saved state, or a shorter run that is made longer.

A policy that begins with a state has learned from rounds up to some number. The rounds of the run are
numbered on from there: their offers and noise are new to it, every reward is learned once, and times
continue. So do the rounds of policies that begin with nothing, because all play the same rounds. If
several begin with states, the one that has come farthest counts.

A run that is made longer leaves the same bytes as one of that length. Where that is certain, a policy
continues from its state; otherwise it plays all rounds again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

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

# --- a saved state -------------------------------------------------------------------------


class Start(NamedTuple):
    """A file with the state that a policy begins with."""

    file: Path
    digest: str
    """sha256 of its bytes."""

    @classmethod
    def from_file(cls, file: Path) -> Start:
        """Read a file once; errors describe what is wrong with it.

        Args:
            file: a saved state.
        """
        load_state(file)
        return cls(file.resolve(), sha256(file.read_bytes()).hexdigest())

    def state(self) -> State:
        """The state, if the file is still the one that the run was started with."""
        data = self.file.read_bytes()
        if sha256(data).hexdigest() != self.digest:
            raise ConflictError(
                f"{self.file} changed after the run started; start the run again"
            )
        return state_from_bytes(data)

    def as_json(self) -> dict[str, str]:
        """The entry in ``run.json``."""
        return {"file": self.file.name, "sha256": self.digest}


class WarmStarts(NamedTuple):
    """Which policies begin with which states, and the number of the first round."""

    by_policy: dict[str, Start]
    first: int


def find_starts(
    experiment: Experiment, states: Sequence[str], *, seed: int, rounds: int
) -> WarmStarts:
    """Assign states to policies.

    Args:
        experiment: in its first setting.
        states: ``FILE`` or ``POLICY=FILE``; a file alone is for the one policy that it fits.
        seed: the first seed of the run.
        rounds: how many rounds are played.
    """
    starts: dict[str, Start] = {}
    unassigned: list[Start] = []
    for text in states:
        name, equals, file = text.partition("=")
        if not equals or (name not in experiment.policies and Path(text).exists()):
            unassigned.append(Start.from_file(Path(text)))
        elif name not in experiment.policies:
            advice = suggestion(name, experiment.policies, "there are")
            raise SpecError(f"--state {text}: there is no policy {name!r}; {advice}")
        elif name in starts:
            raise SpecError(
                f"--state names {name!r} twice; give one state for each policy"
            )
        else:
            starts[name] = Start.from_file(Path(file))
    all_starts = [*starts.values(), *unassigned]
    last_steps = [last_step(start.state()) for start in all_starts]
    last = max(last_steps, default=0)
    for start in unassigned:
        world = experiment.build_problem(seed=seed, horizon=last + rounds)
        policies = {
            name: experiment.build_policy(name, world) for name in experiment.policies
        }
        candidates = {
            name: policy for name, policy in policies.items() if name not in starts
        }
        owner = _owner_of(start, candidates)
        starts[owner] = start
    return WarmStarts(starts, first=last + 1)


def _owner_of(start: Start, candidates: Mapping[str, Policy]) -> str:
    """The one policy that a state fits.

    Args:
        start: the file with the state.
        candidates: the policies that no other state was named for.
    """
    spec = migrated(start.state(), "policy").spec or {}
    contradictions = {
        name: contradiction(policy, spec) for name, policy in candidates.items()
    }
    owners = [name for name, reason in contradictions.items() if reason is None]
    if not candidates:
        raise SpecError(
            f"--state {start.file}: every policy already has a state; leave this one out"
        )
    if not owners:
        message = f"--state {start.file} fits none of the policies {[*candidates]}"
        similar = _first_of_same_kind(candidates, spec)
        if similar is not None:
            message += (
                f": for {similar}, {contradictions[similar]}; use the roads and settings "
                "that the state was saved with"
            )
        raise SpecError(message)
    if len(owners) > 1:
        raise SpecError(
            f"--state {start.file} fits several policies, {owners}; name one: "
            f"--state POLICY={start.file}"
        )
    return owners[0]


def _first_of_same_kind(
    candidates: Mapping[str, Policy], spec: Mapping[str, Any]
) -> str | None:
    """The first policy that is registered under the name in a state's spec."""
    for name, policy in candidates.items():
        if describe(policy).get("name") == spec.get("name"):
            return name
    return None


def warm_start(policy: Policy, start: Start | None) -> Policy:
    """The policy as its state restores it; feedback that was pending then never comes.

    Args:
        policy: without any feedback.
        start: the file with its state; ``None`` where it begins with nothing.
    """
    if start is None:
        return policy
    if not isinstance(policy, Learner):
        raise InputError(
            "this policy learns nothing, so it cannot start from a state; leave out --state"
        )
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

    @property
    def file_name(self) -> str:
        """The name of its files in each folder of a run."""
        return f"{cell_name(self.policy, self.setting_index, self.seed)}.npz"


class StartedPolicy(NamedTuple):
    """A policy, and its trace in a shorter run if it continues from there."""

    policy: Policy
    trace: Trace | None

    @property
    def rounds(self) -> int:
        """Rounds that it has played in the shorter run."""
        return 0 if self.trace is None else self.trace.rounds


class RestartReason(NamedTuple):
    """A policy that plays all rounds again where a run is made longer, and why."""

    policy: str
    why: str


def resume_shorter_run(
    cell: Cell, policy: Policy, world: World, rounds: int
) -> StartedPolicy | RestartReason | None:
    """The policy as a shorter run has left it, or why it cannot continue; ``None`` if there was no run.

    Args:
        cell: which policy, setting and seed.
        policy: without any feedback.
        world: in which it plays.
        rounds: of the longer run.
    """
    folder = cell.out / EARLIER
    if not (folder / "cells" / cell.file_name).is_file():
        return None
    obstacle = _obstacle(cell, policy, world)
    if obstacle is not None:
        return RestartReason(cell.policy, obstacle)
    try:
        trace = read_trace(folder, cell.policy, cell.setting_index, cell.seed, rounds)
        assert trace.state is not None
        restored = policy.restored(trace.state)
    except StateError as error:
        return RestartReason(cell.policy, str(error))
    return StartedPolicy(restored, trace) if trace.rounds < rounds else None


def _obstacle(cell: Cell, policy: Policy, world: World) -> str | None:
    """Why a policy cannot continue from a shorter run; ``None`` where it can."""
    folder = cell.out / EARLIER
    if not isinstance(world, HorizonFree):
        return "the problem may depend on the number of rounds"
    if not (folder / "states" / cell.file_name).is_file():
        return "the shorter run stored no state of it"
    if not isinstance(policy, Resumable) or not policy.same_bits:
        return "a resumed run may differ from an uninterrupted one in the last digits"
    if not (folder / "left" / cell.file_name).is_file():
        return "the shorter run did not store its pending feedback"
    return None
