"""The contract of oracles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np

from superarm.core import Floats, Ints, Oracle, Rng, Selection
from superarm.core.errors import InfeasibleError, InputError

from .helpers import assert_equal, frozen, generator, raises, untouched


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
        chosen = desirability[positions]
        return float(chosen.sum())

    def admissible(self, desirability: Floats) -> Floats:
        """Numbers that the oracle accepts, made from any; −∞, NaN and +∞ must stay unchanged.

        Args:
            desirability: Any numbers, (n,).
        """
        return desirability

    def _feasible_sets(self) -> list[Ints]:
        structure = self.structure(self.n)
        feasible_sets = []
        for members in self.feasible(self.n, structure):
            positions = np.array(list(members), dtype=np.intp)
            feasible_sets.append(positions)
        return feasible_sets

    def _uniform(self, seed: int) -> Floats:
        rng = generator(seed)
        numbers = rng.random(self.n)
        return self.admissible(numbers)

    def _select(
        self,
        desirability: Floats,
        seed: int = 0,
        rescore: Any = None,
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
            return self._largest_sums(inputs, feasible_sets)
        optima = []
        for desirability in inputs:
            values = [
                self.objective(desirability, members) for members in feasible_sets
            ]
            optima.append(max(values))
        return optima

    def _largest_sums(
        self,
        inputs: list[Floats],
        feasible_sets: list[Ints],
    ) -> list[float]:
        """The optima of the default objective, as one product of matrices."""
        count = len(feasible_sets)
        incidence = np.zeros((count, self.n))
        for row, members in enumerate(feasible_sets):
            incidence[row, members] = 1.0
        desirabilities = np.array(inputs)
        sums = desirabilities @ incidence.T  # (inputs, sets)
        largest = sums.max(axis=1)
        return list(map(float, largest))

    def test_it_keeps_its_guarantee(self) -> None:
        feasible_sets = self._feasible_sets()
        first = self._select(self._uniform(seed=2))
        # A share of a negative optimum would be no promise.
        is_exact = first.guarantee.alpha == 1.0
        inputs = self._inputs(signed=is_exact)
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
            numbers = rng.random(self.n)
            desirability = self.admissible(numbers)
            barred_count = 1 + number % self.n
            order = rng.permutation(self.n)
            barred = order[:barred_count]
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
        last = self.n - 1
        for position in (0, last):
            self._check_refused(position, np.nan)
            self._check_refused(position, np.inf)
        empty = np.empty(0)
        with raises(InputError, "an empty offer"):
            self._select(empty)

    def _check_refused(self, position: int, bad: float) -> None:
        numbers = np.linspace(0.0, 1.0, self.n)
        desirability = self.admissible(numbers)
        desirability[position] = bad
        with raises(InputError, f"desirability[{position}] = {bad}"):
            self._select(desirability)

    def test_the_deterministic_flag_is_true(self) -> None:
        oracle = self.make_oracle()
        structure = self.structure(self.n)
        desirability = frozen(self._uniform(seed=4))
        rng = generator()
        first = oracle.select(desirability, structure, rng)
        same_seed = self._select(desirability)
        assert_equal(first.positions, same_seed.positions)
        if not oracle.deterministic:
            return
        message = "a deterministic oracle must leave its generator alone"
        assert untouched(rng), message
        other_seed = self._select(desirability, seed=9)
        assert_equal(first.positions, other_seed.positions)

    def test_rescoring_keeps_to_feasible_sets(self) -> None:
        desirability = frozen(self._uniform(seed=6))

        def rescore(chosen: Ints) -> Floats:
            different = set(chosen.tolist())
            count = len(chosen)
            assert len(different) == count
            return frozen(desirability / (1.0 + count))

        if not self.rescores:
            with raises(InputError, "a rescoring that the oracle does not do"):
                self._select(desirability, rescore=rescore)
            return
        selection = self._select(desirability, rescore=rescore)
        feasible_sets = self._feasible_sets()
        _assert_feasible(selection.positions, feasible_sets)


def _assert_feasible(positions: Ints, feasible_sets: list[Ints]) -> None:
    chosen = sorted(positions.tolist())
    different = set(chosen)
    assert len(different) == len(chosen), f"{chosen} names an arm twice"
    for members in feasible_sets:
        if sorted(members.tolist()) == chosen:
            return
    raise AssertionError(f"{chosen} is not feasible")


def _small_integers(n: int, rng: Rng) -> Floats:
    """Many ties."""
    integers = rng.integers(0, 4, n)
    return integers.astype(np.float64)


def _tenths(n: int, rng: Rng) -> Floats:
    """Ties that rounding may break, such as 0.1 + 0.2 and 0.3."""
    return np.round(rng.random(n), 1)


def _one_large_arm(n: int, rng: Rng) -> Floats:
    """The best arm may be worth less than those that it excludes together."""
    desirability = rng.random(n)
    arm = rng.integers(n)
    desirability[arm] = rng.uniform(1.0, n)
    return desirability


def _nearly_equal(n: int, rng: Rng) -> Floats:
    """Sets of one size differ by about 1e-6."""
    return 1.0 + 1e-6 * rng.random(n)


_MISLEADING = (_small_integers, _tenths, _one_large_arm, _nearly_equal)
