"""The contract of oracles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np

from superarm.core import Floats, Ints, Oracle, Rng, Selection
from superarm.core.errors import InfeasibleError, InputError

from .helpers import frozen, generator, raises, untouched


class OracleContract(ABC):
    """The promises of every oracle, compared with brute force over :meth:`feasible`.

    Override :meth:`structure` if offers have one, :meth:`objective` if it is not the sum, and
    :meth:`admissible` if not every number can be a desirability.
    """

    n = 7  # arms on offer: small enough for brute force
    # An oracle that is wrong on 2 % of inputs passes m independent ones with probability
    # 0.98^m. That is at most 0.1 % from m = ln(0.001) / ln(0.98) = 342 on.
    rounds = 350
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

    def _inputs(self, signed: bool) -> list[Floats]:
        """Desirabilities: ``rounds`` plain ones, then ``rounds`` that mislead greedy choices."""
        rng = generator(2)
        inputs = []
        for number in range(self.rounds):
            plain = rng.random(self.n)
            if signed and number % 2:
                plain = rng.standard_normal(self.n)
            inputs.append(self.admissible(plain))
        for number in range(self.rounds):
            mislead = _MISLEADING[number % len(_MISLEADING)]
            misleading = mislead(self.n, rng)
            if signed and rng.random() < 0.5:
                misleading -= misleading.mean()
            inputs.append(self.admissible(misleading))
        return inputs

    def _optima(self, inputs: list[Floats], feasible_sets: list[Ints]) -> list[float]:
        """The largest objective of any feasible set, for each input."""
        if type(self).objective is OracleContract.objective:
            incidence = np.zeros((len(feasible_sets), self.n))
            for row, members in enumerate(feasible_sets):
                incidence[row, members] = 1.0
            sums = np.array(inputs) @ incidence.T  # (inputs, sets)
            largest: list[float] = sums.max(axis=1).tolist()
            return largest
        optima = []
        for desirability in inputs:
            values = [
                self.objective(desirability, members) for members in feasible_sets
            ]
            optima.append(max(values))
        return optima

    def test_it_keeps_its_guarantee(self) -> None:
        feasible_sets = self._feasible_sets()
        first = self._select(self.admissible(generator(2).random(self.n)))
        # A share of a negative optimum would be no promise.
        inputs = self._inputs(signed=first.guarantee.alpha == 1.0)
        optima = self._optima(inputs, feasible_sets)
        for seed, desirability in enumerate(inputs):
            selection = self._select(desirability, seed)
            alpha, probability = selection.guarantee
            assert 0.0 < alpha <= 1.0
            assert 0.0 < probability <= 1.0
            _assert_feasible(selection.positions, feasible_sets)
            if probability < 1.0:
                continue  # one draw cannot break such a promise
            value = self.objective(desirability, selection.positions)
            least = alpha * optima[seed]
            message = f"{value} for {desirability}; at least {least} is guaranteed"
            assert value >= least - 1e-12, message

    def test_arms_at_minus_infinity_are_never_chosen(self) -> None:
        feasible_sets = self._feasible_sets()
        rng = generator(3)
        for number in range(self.rounds):
            desirability = self.admissible(rng.random(self.n))
            barred_count = 1 + number % self.n
            barred = rng.permutation(self.n)[:barred_count]
            desirability[barred] = -np.inf
            available = np.isfinite(desirability)
            is_feasible = any(available[members].all() for members in feasible_sets)
            if not is_feasible:
                with raises(InfeasibleError, "an offer without a feasible super arm"):
                    self._select(desirability)
                continue
            chosen = self._select(desirability).positions
            _assert_feasible(chosen, feasible_sets)
            assert available[chosen].all(), "an arm at -inf was chosen"

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
        _assert_feasible(selection.positions, self._feasible_sets())


def _assert_feasible(positions: Ints, feasible_sets: list[Ints]) -> None:
    chosen = sorted(positions.tolist())
    assert len(set(chosen)) == len(chosen), f"{chosen} names an arm twice"
    is_feasible = any(sorted(members.tolist()) == chosen for members in feasible_sets)
    assert is_feasible, f"{chosen} is not feasible"


def _small_integers(n: int, rng: Rng) -> Floats:
    """Many ties."""
    return rng.integers(0, 4, n).astype(np.float64)


def _tenths(n: int, rng: Rng) -> Floats:
    """Ties that rounding may break, such as 0.1 + 0.2 and 0.3."""
    return np.round(rng.random(n), 1)


def _one_large_arm(n: int, rng: Rng) -> Floats:
    """The best arm may be worth less than those that it excludes together."""
    desirability = rng.random(n)
    desirability[rng.integers(n)] = rng.uniform(1.0, n)
    return desirability


def _nearly_equal(n: int, rng: Rng) -> Floats:
    """Sets of one size differ by about 1e-6."""
    return 1.0 + 1e-6 * rng.random(n)


_MISLEADING = (_small_integers, _tenths, _one_large_arm, _nearly_equal)
