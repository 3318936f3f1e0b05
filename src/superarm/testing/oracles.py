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
    """What every oracle promises, against brute force over :meth:`feasible`.

    Override :meth:`structure` if offers carry one, :meth:`objective` if it is not the sum,
    :meth:`admissible` if not every number can be a desirability, and set ``rescores`` to false
    for an oracle that refuses ``rescore``.
    """

    n = 7  # arms on offer: small enough for brute force
    rounds = 60
    rescores = (
        True  # whether the oracle builds a super arm step by step when it is asked to
    )

    @abstractmethod
    def make_oracle(self) -> Oracle: ...

    @abstractmethod
    def feasible(self, n: int, structure: object) -> Iterable[Iterable[int]]:
        """Every feasible set of positions."""

    def structure(self, n: int) -> object:
        """The round's constraint record."""
        return None

    def objective(self, desirability: Floats, positions: Ints) -> float:
        return float(desirability[positions].sum())

    def admissible(self, desirability: Floats) -> Floats:
        """Numbers that the oracle takes, made from any; −∞, NaN and +∞ must stay what they are."""
        return desirability

    def _family(self) -> list[Ints]:
        sets = self.feasible(self.n, self.structure(self.n))
        return [np.array(list(members), dtype=np.intp) for members in sets]

    def _select(
        self, desirability: Floats, seed: int = 0, rescore: Any = None
    ) -> Selection:
        structure = self.structure(len(desirability))
        return self.make_oracle().select(
            frozen(desirability), structure, generator(seed), rescore
        )

    def _check_feasible(self, positions: Ints) -> None:
        chosen = sorted(positions.tolist())
        assert len(set(chosen)) == len(chosen), f"{chosen} names an arm twice"
        family = [sorted(members.tolist()) for members in self._family()]
        assert chosen in family, f"{chosen} is not feasible"

    def test_it_keeps_its_guarantee(self) -> None:
        rng, family = generator(2), self._family()
        alpha, probability = self._select(
            self.admissible(generator(2).random(self.n))
        ).guarantee
        for each in range(self.rounds):
            desirability = rng.random(self.n)
            if alpha == 1.0 and each % 2:
                desirability = rng.standard_normal(self.n)
            if each % 5 == 0:
                desirability = np.round(desirability, 1)  # ties
            desirability = self.admissible(desirability)
            _, chosen, (alpha, probability) = self._select(desirability, seed=each)
            assert 0.0 < alpha <= 1.0
            assert 0.0 < probability <= 1.0
            self._check_feasible(chosen)
            best = max(self.objective(desirability, members) for members in family)
            value = self.objective(desirability, chosen)
            if probability == 1.0:
                assert value >= alpha * best - 1e-12, (
                    f"{value} against {alpha} x {best}"
                )

    def test_arms_at_minus_infinity_are_never_chosen(self) -> None:
        rng, family = generator(3), self._family()
        for each in range(self.rounds):
            desirability = self.admissible(rng.random(self.n))
            desirability[rng.permutation(self.n)[: 1 + each % self.n]] = -np.inf
            if any(np.isfinite(desirability[members]).all() for members in family):
                chosen = self._select(desirability).positions
                self._check_feasible(chosen)
                assert np.isfinite(desirability[chosen]).all(), (
                    "an arm at -inf was chosen"
                )
            else:
                with raises(InfeasibleError, "an offer without a feasible super arm"):
                    self._select(desirability)

    def test_bad_desirabilities_are_refused(self) -> None:
        for place in (0, self.n - 1):
            for bad in (np.nan, np.inf):
                desirability = self.admissible(np.linspace(0.0, 1.0, self.n))
                desirability[place] = bad
                with raises(InputError, f"desirability[{place}] = {bad}"):
                    self._select(desirability)
        with raises(InputError, "an empty offer"):
            self._select(np.empty(0))

    def test_the_deterministic_flag_is_true(self) -> None:
        oracle, rng = self.make_oracle(), generator()
        desirability = frozen(self.admissible(generator(4).random(self.n)))
        first = oracle.select(desirability, self.structure(self.n), rng).positions
        np.testing.assert_array_equal(first, self._select(desirability).positions)
        if oracle.deterministic:
            assert untouched(rng), (
                "a deterministic oracle must leave its generator alone"
            )
            np.testing.assert_array_equal(
                first, self._select(desirability, seed=9).positions
            )

    def test_rescoring_keeps_to_feasible_sets(self) -> None:
        desirability = frozen(self.admissible(generator(6).random(self.n)))

        def rescore(chosen: Ints) -> Floats:
            assert len(set(chosen.tolist())) == len(chosen)
            return frozen(desirability / (1.0 + len(chosen)))

        if self.rescores:
            self._check_feasible(self._select(desirability, rescore=rescore).positions)
            return
        with raises(InputError, "a rescoring that the oracle does not do"):
            self._select(desirability, rescore=rescore)
