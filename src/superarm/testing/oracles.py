"""The contract of oracles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np

from superarm.core import Floats, Ints, Oracle, Selection
from superarm.core.errors import InfeasibleError, InputError

from .helpers import frozen, generator, raises, untouched


class OracleContract(ABC):
    """The promises of every oracle, compared with brute force over :meth:`feasible`.

    Override :meth:`structure` if offers have one, :meth:`objective` if it is not the sum, and
    :meth:`admissible` if not every number can be a desirability.
    """

    n = 7  # arms on offer: small enough for brute force
    rounds = 60
    rescores = True  # whether the oracle accepts ``rescore``; if not, it must refuse it

    @abstractmethod
    def make_oracle(self) -> Oracle:
        """The oracle to test."""

    @abstractmethod
    def feasible(self, n: int, structure: object) -> Iterable[Iterable[int]]:
        """Every feasible set of positions.

        Args:
            n: The number of arms on offer.
            structure: The structure of the offer.
        """

    def structure(self, n: int) -> object:
        """The structure of an offer.

        Args:
            n: The number of arms on offer.
        """
        return None

    def objective(self, desirability: Floats, positions: Ints) -> float:
        """What the oracle maximises.

        Args:
            desirability: One number per arm, (n,).
            positions: The chosen arms, (k,).
        """
        return float(desirability[positions].sum())

    def admissible(self, desirability: Floats) -> Floats:
        """Numbers that the oracle accepts, made from any; −∞, NaN and +∞ must stay unchanged.

        Args:
            desirability: Any numbers, (n,).
        """
        return desirability

    def _feasible_sets(self) -> list[Ints]:
        sets = self.feasible(self.n, self.structure(self.n))
        return [np.array(list(members), dtype=np.intp) for members in sets]

    def _select(
        self, desirability: Floats, seed: int = 0, rescore: Any = None
    ) -> Selection:
        oracle = self.make_oracle()
        structure = self.structure(len(desirability))
        rng = generator(seed)
        return oracle.select(frozen(desirability), structure, rng, rescore)

    def _check_feasible(self, positions: Ints) -> None:
        chosen = sorted(positions.tolist())
        assert len(set(chosen)) == len(chosen), f"{chosen} names an arm twice"
        feasible_sets = [sorted(members.tolist()) for members in self._feasible_sets()]
        assert chosen in feasible_sets, f"{chosen} is not feasible"

    def test_it_keeps_its_guarantee(self) -> None:
        feasible_sets = self._feasible_sets()
        rng = generator(2)
        first = self._select(self.admissible(generator(2).random(self.n)))
        alpha = first.guarantee.alpha
        for number in range(self.rounds):
            desirability = rng.random(self.n)
            # A share of a negative optimum would be no promise.
            if alpha == 1.0 and number % 2:
                desirability = rng.standard_normal(self.n)
            if number % 5 == 0:
                desirability = np.round(desirability, 1)  # ties
            desirability = self.admissible(desirability)
            selection = self._select(desirability, seed=number)
            alpha, probability = selection.guarantee
            assert 0.0 < alpha <= 1.0
            assert 0.0 < probability <= 1.0
            self._check_feasible(selection.positions)
            values = [
                self.objective(desirability, members) for members in feasible_sets
            ]
            best = max(values)
            value = self.objective(desirability, selection.positions)
            if probability == 1.0:
                assert value >= alpha * best - 1e-12, (
                    f"{value} against {alpha} x {best}"
                )

    def test_arms_at_minus_infinity_are_never_chosen(self) -> None:
        feasible_sets = self._feasible_sets()
        rng = generator(3)
        for number in range(self.rounds):
            desirability = self.admissible(rng.random(self.n))
            barred_count = 1 + number % self.n
            barred = rng.permutation(self.n)[:barred_count]
            desirability[barred] = -np.inf
            is_feasible = any(
                np.isfinite(desirability[members]).all() for members in feasible_sets
            )
            if not is_feasible:
                with raises(InfeasibleError, "an offer without a feasible super arm"):
                    self._select(desirability)
                continue
            chosen = self._select(desirability).positions
            self._check_feasible(chosen)
            assert np.isfinite(desirability[chosen]).all(), "an arm at -inf was chosen"

    def test_bad_desirabilities_are_refused(self) -> None:
        for position in (0, self.n - 1):
            for bad in (np.nan, np.inf):
                desirability = self.admissible(np.linspace(0.0, 1.0, self.n))
                desirability[position] = bad
                with raises(InputError, f"desirability[{position}] = {bad}"):
                    self._select(desirability)
        with raises(InputError, "an empty offer"):
            self._select(np.empty(0))

    def test_the_deterministic_flag_is_true(self) -> None:
        oracle = self.make_oracle()
        rng = generator()
        desirability = frozen(self.admissible(generator(4).random(self.n)))
        first = oracle.select(desirability, self.structure(self.n), rng).positions
        same_seed = self._select(desirability).positions
        np.testing.assert_array_equal(first, same_seed)
        if oracle.deterministic:
            assert untouched(rng), (
                "a deterministic oracle must leave its generator alone"
            )
            other_seed = self._select(desirability, seed=9).positions
            np.testing.assert_array_equal(first, other_seed)

    def test_rescoring_keeps_to_feasible_sets(self) -> None:
        desirability = frozen(self.admissible(generator(6).random(self.n)))

        def rescore(chosen: Ints) -> Floats:
            assert len(set(chosen.tolist())) == len(chosen)
            return frozen(desirability / (1.0 + len(chosen)))

        if not self.rescores:
            with raises(InputError, "a rescoring that the oracle does not do"):
                self._select(desirability, rescore=rescore)
            return
        selection = self._select(desirability, rescore=rescore)
        self._check_feasible(selection.positions)
