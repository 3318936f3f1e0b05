"""What the commands of live bandits do."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from superarm.client import Client
from superarm.core.errors import NotFoundError, SpecError
from superarm.core.files import read_json, read_text, read_toml
from superarm.core.serialization import from_json
from superarm.live import Answer, Bandit, Storage, create_bandit, load_bandit
from superarm.live.access import DEFAULT_SCOPES, make_token
from superarm.live.bandits import NOBODY
from superarm.live.explain import ArmReasons, Explanation
from superarm.live.replay import Replay

from .common import print_json, say

_MOST_BYTES = 1 << 28  # of a file of arms


class Embedded:
    """The bandits of a storage, with the verbs of :class:`superarm.client.Client`.

    Args:
        storage: The storage.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def create_bandit(self, name: str, *, spec: Any) -> Bandit:
        """A new bandit.

        Args:
            name: Its name.
            spec: What it is made of.
        """
        return create_bandit(name, spec=spec, storage=self._storage)

    def load_bandit(self, name: str) -> Bandit:
        """A bandit by name.

        Args:
            name: Its name.
        """
        return load_bandit(name, storage=self._storage)

    def bandits(self) -> list[str]:
        """Names of all bandits."""
        return [row.name for row in self._storage.journal.bandits(NOBODY)]


@contextmanager
def open_place(options: Mapping[str, Any]) -> Iterator[Client | Embedded]:
    """A service or a storage, by the options ``--storage`` and ``--token``.

    Args:
        options: The options.
    """
    url = options["storage"]
    if url.startswith(("http://", "https://")):
        with Client(url, token=options["token"]) as client:
            yield client
        return
    with Storage(url) as storage:
        yield Embedded(storage)


# --- files ---------------------------------------------------------------------------------


def read_spec(path: Path) -> Any:
    """A spec as a file.

    Args:
        path: The file, .json or .toml.
    """
    if path.suffix == ".toml":
        return read_toml(path, "a bandit's spec")
    return read_json(path, _MOST_BYTES, "a bandit's spec")


def read_arms(path: Path | None) -> Any:
    """Arms as a file: JSON as it is; a table with one row for each arm.

    Args:
        path: The file, .json or .csv; ``None``: the named arms.
    """
    if path is None:
        return None
    if path.suffix == ".json":
        return read_json(path, _MOST_BYTES, "arms")
    if path.suffix == ".csv":
        rows = list(csv.DictReader(io.StringIO(read_text(path, _MOST_BYTES))))
        return _rows_by_id(rows, path)
    raise SpecError(f"{path} must be a .json or .csv file")


def _rows_by_id(rows: Sequence[Mapping[str, str]], path: Path) -> Any:
    """Rows by the column ``id``: numbers only become a list, others stay a table."""
    if not rows or "id" not in rows[0]:
        raise SpecError(f"{path} must have a header with a column 'id', and rows")
    by_id: dict[str, Any] = {}
    for row in rows:
        cells = {name: _value(text) for name, text in row.items() if name != "id"}
        is_numeric = all(isinstance(cell, float) for cell in cells.values())
        by_id[row["id"]] = list(cells.values()) if is_numeric else cells
    return by_id


def _value(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def read_structure(path: Path | None) -> Any:
    """The constraints of a round as a file.

    Args:
        path: The file, .json; ``None``: none.
    """
    if path is None:
        return None
    return from_json(read_json(path, _MOST_BYTES, "a structure"))


def read_rewards(texts: Sequence[str]) -> dict[str, float]:
    """Rewards that were typed as ARM=REWARD.

    Args:
        texts: What was typed.
    """
    rewards: dict[str, float] = {}
    for text in texts:
        arm, equals, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            equals = ""
        if not equals or arm in rewards:
            raise SpecError(f"give each reward once, as ARM=REWARD, got {text!r}")
        rewards[arm] = value
    return rewards


# --- answers -------------------------------------------------------------------------------


def print_details(details: Mapping[str, Any]) -> None:
    """Print a bandit.

    Args:
        details: Its name, events, pending decisions and spec.
    """
    say(f"{details['name']}: {details['spec']['policy']['name']}")
    say(f"  events   {details['events']}")
    say(f"  pending  {details['pending']}")


def answer_json(answer: Answer) -> dict[str, Any]:
    """A decision as JSON.

    Args:
        answer: The decision.
    """
    table = asdict(answer)
    if answer.guarantee is not None:
        table["guarantee"] = answer.guarantee._asdict()
    return table


def print_answer(answer: Answer) -> None:
    """Print a decision.

    Args:
        answer: The decision.
    """
    say(f"decision {answer.id}")
    for arm in answer.arms:
        beliefs = ""
        if arm in answer.mean and arm in answer.std:
            beliefs = f"  {answer.mean[arm]:.4g} ± {answer.std[arm]:.2g}"
        say(f"  {arm}{beliefs}")


def explanation_json(explanation: Explanation) -> dict[str, Any]:
    """An explanation as JSON.

    Args:
        explanation: The explanation.
    """
    table = asdict(explanation)
    for arm, reasons in zip(table["arms"], explanation.arms, strict=True):
        arm["teachers"] = [teacher._asdict() for teacher in reasons.teachers]
    return table


def print_explanation(explanation: Explanation) -> None:
    """Print why a bandit decided as it did.

    Args:
        explanation: The explanation.
    """
    for arm in explanation.arms:
        say(_arm_line(arm))
        for teacher in arm.teachers:
            origin = "history" if teacher.decision is None else teacher.decision
            say(
                f"    taught by {teacher.arm} = {teacher.reward:.4g} ({origin}): "
                f"{100 * teacher.share:.0f} % of the variance"
            )
    if explanation.runner_up:
        arms = ", ".join(map(str, explanation.runner_up))
        margin = explanation.margin
        behind = "" if margin is None else f", {margin:.3g} behind"
        say(f"next best: {arms}{behind}")


def _arm_line(arm: ArmReasons) -> str:
    parts = [str(arm.arm)]
    if arm.mean is not None and arm.std is not None:
        parts.append(f"{arm.mean:.4g} ± {arm.std:.2g}")
    if arm.index is not None:
        parts.append(f"index {arm.index:.4g}")
    if arm.column is not None and arm.effect is not None:
        parts.append(f"mostly by {arm.column} ({arm.effect:+.3g})")
    return "  ".join(parts)


# --- operators -----------------------------------------------------------------------------


def replay_journal(
    url: str,
    name: str,
    verify: bool,
    report: Callable[[int, int], None] | None,
) -> Replay:
    """Fold a bandit's journal from its first event.

    Args:
        url: The storage.
        name: The bandit.
        verify: Whether to decide everything again.
        report: Called with the events done and all events.
    """
    with Storage(url) as storage:
        bandit = load_bandit(name, storage=storage)
        total = bandit.seq

        def show(replay: Replay) -> None:
            if report is not None:
                report(replay.events, total)

        return bandit.verify(show, decide=verify)


def print_replay(replay: Replay, verify: bool, as_json: bool) -> None:
    """Print what a replay found. Exits with 1 if a decision came out differently.

    Args:
        replay: What it found.
        verify: Whether everything was decided again.
        as_json: Whether to print JSON.
    """
    if as_json:
        print_json({**asdict(replay), "same": replay.same})
    elif not verify:
        say(f"Folded {replay.events} events, {replay.decisions} decisions among them.")
    elif replay.same:
        say(f"All {replay.decisions} decisions came out as they were recorded.")
    else:
        say("\n".join(replay.differences))
    if not replay.same:
        sys.exit(1)


def create_token(url: str, tenant: str, name: str, scopes: Sequence[str]) -> str:
    """A new token.

    Args:
        url: The storage.
        tenant: Whose bandits it opens.
        name: Its name.
        scopes: What it allows; empty: read, ask and tell.
    """
    with Storage(url) as storage:
        secret, row = make_token(tenant, name, scopes or DEFAULT_SCOPES)
        storage.journal.add_token(row)
    return secret


def list_tokens(url: str) -> list[dict[str, Any]]:
    """All tokens of a storage, without what is secret.

    Args:
        url: The storage.
    """
    with Storage(url) as storage:
        rows = storage.journal.tokens()
    tokens = []
    for row in rows:
        scopes = row.scopes.split()
        tokens.append({"tenant": row.tenant, "name": row.name, "scopes": scopes})
    return tokens


def remove_token(url: str, tenant: str, name: str) -> None:
    """Remove a token.

    Args:
        url: The storage.
        tenant: Whose token it is.
        name: Its name.
    """
    with Storage(url) as storage:
        if not storage.journal.remove_token(tenant, name):
            raise NotFoundError(f"there is no token {name!r} of tenant {tenant!r}")


def check_storage(url: str) -> list[str]:
    """What is wrong with a storage.

    Args:
        url: The storage.
    """
    with Storage(url) as storage:
        return storage.journal.check()


def back_up(url: str, path: Path) -> None:
    """Copy a storage to a file.

    Args:
        url: The storage.
        path: The file, which must not exist.
    """
    with Storage(url) as storage:
        storage.journal.backup(path)
