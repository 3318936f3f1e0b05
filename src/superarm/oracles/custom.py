"""An oracle from any function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from superarm.core import EXACT, Floats, Guarantee, Rescore, Rng, Selection
from superarm.core.errors import InfeasibleError, InputError
from superarm.core.inputs import as_number, as_positions, read_only, require_type

from .base import check_chosen, check_desirability, refuse_rescore


@dataclass(frozen=True, kw_only=True, eq=False)
class CallableOracle:
    """An oracle from a function: ``function(desirability, structure)`` returns positions.

    The function must not choose arms at −inf, which are not available, nor write into its arguments. It
    returns ``None`` where nothing is feasible. Such an oracle cannot be stored in a file.

    Args:
        function: Returns the positions of the chosen arms.
        guarantee: What the function promises; exact by default.
        deterministic: Whether it needs no randomness; otherwise it takes the random generator as a
            third argument.

    >>> import numpy as np
    >>> best_pair = CallableOracle(function=lambda desirability, _: desirability.argsort()[-2:])
    >>> best_pair.select(np.array([0.1, 0.9, 0.5]), None, np.random.default_rng(0)).positions
    array([2, 1])
    """

    function: Callable[..., Any]
    guarantee: Guarantee = EXACT
    deterministic: bool = True

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InputError(f"function must be callable, got {self.function!r:.60}")
        require_type(self.deterministic, bool, "deterministic")
        example = ", such as Guarantee(alpha=0.5)"
        require_type(self.guarantee, Guarantee, "guarantee", example)
        parts = [as_number(part, "a part of guarantee") for part in self.guarantee]
        if not all(0.0 < part <= 1.0 for part in parts):
            raise InputError(
                f"guarantee is {self.guarantee}; both parts must be above 0 and at most 1"
            )

    def select(
        self,
        desirability: Floats,
        structure: object,
        rng: Rng,
        rescore: Rescore | None = None,
    ) -> Selection:
        check_desirability(desirability)
        name = getattr(self.function, "__name__", type(self.function).__name__)
        refuse_rescore(rescore, f"{name} chooses all arms at once")
        chosen = self._call(name, desirability, structure, rng)
        if chosen is None:
            raise InfeasibleError(
                f"{name} returned None: nothing is feasible among {len(desirability)} arms"
            )
        positions = as_positions(chosen, f"what {name} chose")
        check_chosen(name, positions, desirability)
        return Selection(
            action=positions, positions=positions, guarantee=self.guarantee
        )

    def _call(
        self, name: str, desirability: Floats, structure: object, rng: Rng
    ) -> Any:
        """The function's choice; its errors get a note of where they come from."""
        arguments: tuple[Any, ...] = (read_only(desirability), structure)
        signature = "desirability, structure"
        if not self.deterministic:
            arguments = (*arguments, rng)
            signature = "desirability, structure, rng"
        try:
            return self.function(*arguments)
        except Exception as error:
            error.add_note(f"in {name}({signature}), the function of a CallableOracle")
            raise
