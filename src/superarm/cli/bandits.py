"""The bandits of a storage or a service, and what they answer, on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from superarm.client import Client
from superarm.core.errors import FileError, InputError, NotFoundError, SpecError
from superarm.live import Answer, Bandit, Storage, create_bandit, load_bandit
from superarm.live.bandits import NOBODY
from superarm.live.explain import ArmReasons, Explanation
from superarm.live.names import require_name
from superarm.live.verbs import BanditVerbs

from .common import say

_SQLITE = "sqlite:///"
_LEAST_SHARE = 0.005  # of the prior variance; less would be shown as 0 %


class EmbeddedBandits:
    """The bandits of a storage, with the verbs of :class:`superarm.client.Client`.

    Args:
        storage: The storage.
        tenant: Whose bandits.
    """

    def __init__(self, storage: Storage, tenant: str) -> None:
        self._storage = storage
        self._tenant = tenant

    def create_bandit(self, name: str, *, spec: Any) -> Bandit:
        """A new bandit.

        Args:
            name: Its name.
            spec: Its spec.
        """
        return create_bandit(
            name, spec=spec, storage=self._storage, tenant=self._tenant
        )

    def load_bandit(self, name: str) -> Bandit:
        """A bandit by name.

        Args:
            name: Its name.
        """
        return load_stored_bandit(name, self._storage, self._tenant)

    def bandits(self) -> list[str]:
        """Names of all bandits of the tenant."""
        return [row.name for row in self._storage.journal.bandits(self._tenant)]


def load_stored_bandit(name: str, storage: Storage, tenant: str) -> Bandit:
    """A bandit of a storage by name.

    Args:
        name: Its name.
        storage: The storage.
        tenant: Whose bandit it is.
    """
    try:
        return load_bandit(name, storage=storage, tenant=tenant)
    except NotFoundError:
        if tenant == NOBODY:
            raise
        raise NotFoundError(
            f"tenant {tenant!r} has no bandit {name!r} in {storage.journal.url}"
        ) from None


def is_service(url: str) -> bool:
    """Whether a URL is that of a service; otherwise it is that of a storage.

    Args:
        url: The value of ``--storage``.
    """
    return url.startswith(("http://", "https://"))


class Location(NamedTuple):
    """The values of ``--storage``, ``--tenant`` and ``--token``."""

    url: str
    """``http://…`` for a service, otherwise a storage."""
    tenant: str
    token: str | None
    """The token of the service, if it needs one."""


@contextmanager
def open_bandits(
    location: Location, *, create: bool = False
) -> Iterator[Client | EmbeddedBandits]:
    """The bandits of a service or a storage.

    Args:
        location: Where they are.
        create: Whether to create a storage that does not exist.
    """
    if is_service(location.url):
        if location.tenant != NOBODY:
            raise SpecError(
                "--tenant is for storages; a service takes the tenant from the token"
            )
        with usage_errors(), Client(location.url, token=location.token) as client:
            yield client
        return
    if location.tenant != NOBODY:
        with usage_errors():
            require_name(location.tenant, "the name of a tenant")
    with open_storage(location.url, create=create) as storage:
        yield EmbeddedBandits(storage, location.tenant)


@contextmanager
def open_bandit(name: str, location: Location) -> Iterator[BanditVerbs]:
    """One bandit of a service or a storage.

    Args:
        name: Its name.
        location: Where it is.
    """
    with open_bandits(location) as bandits:
        yield bandits.load_bandit(name)


@contextmanager
def open_storage(
    url: str, *, create: bool = False, upgrade: bool = False
) -> Iterator[Storage]:
    """A storage by its URL.

    Args:
        url: The URL.
        create: Whether to create a file that does not exist; otherwise it is refused.
        upgrade: Whether to upgrade a storage of an earlier version.
    """
    with usage_errors():
        if not create:
            _require_file(url)
        with Storage(url, upgrade=upgrade) as storage:
            yield storage


def _require_file(url: str) -> None:
    path = url.removeprefix(_SQLITE)
    if url.startswith(_SQLITE) and path and not Path(path).exists():
        raise SpecError(
            f"{path} does not exist; check the path, or create it with `superarm bandits create`"
        )


@contextmanager
def usage_errors() -> Iterator[None]:
    """Raise every :class:`InputError` as :class:`SpecError`, which exits with 2.

    Files with a wrong content still exit with 1. An answer of a service does not contain the kind of
    error, so all kinds must have the same exit code.
    """
    try:
        yield
    except (FileError, SpecError):
        raise
    except InputError as error:
        raise SpecError(str(error)) from error


# --- answers -------------------------------------------------------------------------------


def details_json(bandit: BanditVerbs) -> dict[str, Any]:
    """A bandit as JSON.

    Args:
        bandit: The bandit.
    """
    return {
        "name": bandit.name,
        "events": bandit.seq,
        "pending": len(bandit.pending),
        "spec": bandit.spec.as_json(),
    }


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
        line = f"  {arm}"
        if arm in answer.mean and arm in answer.std:
            line += f"  {answer.mean[arm]:.4g} ± {answer.std[arm]:.2g}"
        say(line)


def explanation_json(explanation: Explanation) -> dict[str, Any]:
    """An explanation as JSON.

    Args:
        explanation: The explanation.
    """
    return {
        "decision": explanation.decision,
        "arms": [_reasons_json(arm) for arm in explanation.arms],
        "runner_up": [_reasons_json(arm) for arm in explanation.runner_up],
        "margin": explanation.margin,
        "teachers_refusal": explanation.teachers_refusal,
    }


def _reasons_json(reasons: ArmReasons) -> dict[str, Any]:
    table = asdict(reasons)
    table["teachers"] = [teacher._asdict() for teacher in reasons.teachers]
    return table


def print_explanation(explanation: Explanation) -> None:
    """Print why a bandit decided as it did.

    Args:
        explanation: The explanation.
    """
    for arm in explanation.arms:
        _print_reasons(arm)
    if explanation.runner_up:
        arms = ", ".join(str(arm.arm) for arm in explanation.runner_up)
        line = f"runner-up: {arms}"
        if explanation.margin is not None:
            line += f", {explanation.margin:.3g} behind"
        say(line)
        for arm in explanation.runner_up:
            _print_reasons(arm)
    if explanation.teachers_refusal is not None:
        say(f"no teachers: {explanation.teachers_refusal}")


def _print_reasons(arm: ArmReasons) -> None:
    say(_arm_line(arm))
    for teacher in arm.teachers:
        if teacher.share < _LEAST_SHARE:
            continue
        origin = "history" if teacher.decision is None else teacher.decision
        say(
            f"    reward {teacher.reward:.4g} of {teacher.arm} ({origin}) explains "
            f"{100 * teacher.share:.0f} % of the prior variance"
        )


def _arm_line(arm: ArmReasons) -> str:
    parts = [str(arm.arm)]
    if arm.mean is not None and arm.std is not None:
        parts.append(f"{arm.mean:.4g} ± {arm.std:.2g}")
    if arm.index is not None:
        parts.append(f"index {arm.index:.4g}")
    if arm.column is not None and arm.effect is not None:
        parts.append(f"mostly because of {arm.column} ({arm.effect:+.3g})")
    return "  ".join(parts)
