"""An oracle from any function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from superarm.core import EXACT, Floats, Guarantee, Rescore, Rng, Selection
from superarm.core.errors import InfeasibleError, InputError
from superarm.core.inputs import as_number, as_positions, read_only, require_type

from .base import check_chosen, check_desirability


@dataclass(frozen=True, kw_only=True, eq=False)
class CallableOracle:
    """Whatever a function chooses: ``function(desirability, structure)`` returns positions.

    ``guarantee`` is what the function promises. It must not choose arms at −inf, which are not
    available, nor write into what it is given; returning ``None`` says that nothing is feasible. If it
    needs randomness, it takes a third argument, the generator, and ``deterministic`` is false. Such an
    oracle cannot be stored in a file.

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
            raise InputError(f"function is {self.function!r:.60}; it must be callable")
        require_type(self.deterministic, bool, "deterministic")
        require_type(
            self.guarantee, Guarantee, "guarantee", ", such as Guarantee(alpha=0.5)"
        )
        if not all(
            0.0 < as_number(part, "a part of guarantee") <= 1.0
            for part in self.guarantee
        ):
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
        if rescore is not None:
            raise InputError(
                f"{name} chooses all arms at once, not arm by arm: leave stepwise out"
            )
        extra = () if self.deterministic else (rng,)
        try:
            chosen = self.function(read_only(desirability), structure, *extra)
        except Exception as error:
            told = "desirability, structure" + ", rng" * len(extra)
            error.add_note(f"in {name}({told}), the function of a CallableOracle")
            raise
        if chosen is None:
            told = (
                f"{name} says that nothing is feasible among {len(desirability)} arms"
            )
            raise InfeasibleError(told)
        positions = as_positions(chosen, f"what {name} chose")
        check_chosen(name, positions, desirability)
        return Selection(
            action=positions, positions=positions, guarantee=self.guarantee
        )
