"""The spec of a bandit, as plain JSON by registry names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from superarm.core import Policy
from superarm.core.errors import SpecError
from superarm.core.inputs import as_count, as_positive
from superarm.core.registry import build, check_table, spec_of
from superarm.core.serialization import from_json, to_json
from superarm.core.tables import Encoding

from .codec import require_unicode

_MOST_COLUMNS = 1 << 14
_KINDS: dict[str, Any] = {
    "policy": Mapping[str, Any],
    "encoding": Mapping[str, Any],
    "id_column": str,
    "seed": int,
    "max_age": float,
    "hash_columns": int,
}


@dataclass(frozen=True, kw_only=True)
class BanditSpec:
    """The spec of a bandit: its policy and settings.

    Args:
        policy: The spec of the policy, by registry names.
        encoding: How rows of tables become features; ``None`` if features are numbers already.
        id_column: The column of a table that contains the ids of arms.
        seed: The seed of everything that the policy draws.
        max_age: Seconds after which a decision that still awaits rewards is abandoned; ``None``: never.
        hash_columns: Columns that JSON objects are hashed into, for a bandit that answers Personalizer's
            requests. Each decision then records the probability of every arm. ``None``: it
            does not answer them.
    """

    policy: Mapping[str, Any]
    encoding: Encoding | None = None
    id_column: str = "id"
    seed: int = 0
    max_age: float | None = None
    hash_columns: int | None = None

    def __post_init__(self) -> None:
        as_count(self.seed, "seed", 0)
        if self.max_age is not None:
            as_positive(self.max_age, "max_age")
        if self.hash_columns is not None:
            as_count(self.hash_columns, "hash_columns", 4, _MOST_COLUMNS)

    @classmethod
    def from_user(cls, spec: Any, default: BanditSpec | None = None) -> BanditSpec:
        """The spec that a user wrote: a policy, the spec of one, or a table with ``policy``.

        Args:
            spec: What the user wrote.
            default: Where everything else comes from if the user wrote a policy alone.
        """
        complete = cls._complete(spec, default)
        require_unicode(complete.as_json(), "the spec of a bandit")
        return complete

    @classmethod
    def _complete(cls, spec: Any, default: BanditSpec | None) -> BanditSpec:
        if isinstance(spec, BanditSpec):
            return spec
        # A policy that wraps another has a policy and a name.
        if isinstance(spec, Mapping) and "policy" in spec and "name" not in spec:
            return cls.from_json(spec)
        if isinstance(spec, Mapping):
            policy = dict(spec)
            if default is not None:
                return default.with_policy(policy)
            return cls(policy=policy)
        if isinstance(spec, Policy):
            policy = spec_of(spec)
            if default is not None:
                return default.with_policy(policy)
            encoding = getattr(spec, "encoding", None)
            return cls(policy=policy, encoding=encoding)
        raise SpecError(
            "spec must be a policy or a table such as "
            f"{{'name': 'index', 'posterior': …, 'rule': …, 'oracle': …}}, got {spec!r:.60}"
        )

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> BanditSpec:
        """The spec in a journal or a request.

        Args:
            table: What :meth:`as_json` returned, or a policy alone.
        """
        if "name" in table:  # a policy has a name, the spec of a bandit has none
            table = {"policy": table}
        check_table(table, _KINDS, "the spec of a bandit", required=["policy"])
        values = dict(table)
        values["policy"] = from_json(table["policy"])
        if "encoding" in table:
            values["encoding"] = Encoding.from_scalars(from_json(table["encoding"]))
        return cls(**values)

    def as_json(self) -> dict[str, Any]:
        """The spec as plain JSON."""
        table: dict[str, Any] = {"policy": to_json(self.policy), "seed": self.seed}
        if self.encoding is not None:
            table["encoding"] = to_json(self.encoding.as_scalars())
            table["id_column"] = self.id_column
        if self.max_age is not None:
            table["max_age"] = self.max_age
        if self.hash_columns is not None:
            table["hash_columns"] = self.hash_columns
        return table

    def build_policy(self) -> Policy:
        """A policy that has learned nothing yet."""
        policy: Policy = build("policy", self.policy)
        return policy

    def with_policy(self, policy: Mapping[str, Any]) -> BanditSpec:
        """The same spec with another policy.

        Args:
            policy: The spec of the policy.
        """
        return replace(self, policy=policy)
