"""The result of the demo: a table and a sentence that a stranger understands."""

from __future__ import annotations

from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from superarm.core import Floats
from superarm.lab.results.formats import count_text, mean_text
from superarm.lab.results.totals import per_round
from superarm.lab.results.verdicts import LEAST_SEEDS, within_noise
from superarm.lab.simulation import Run

from .learning import LEARNER

_TABLE_WIDTH = 80
_LATEST = 20
WHAT = {
    "gp-ts": "learns; roads share data",
    "bi-ts": "learns road by road",
    "prior": "the energy model alone",
    "fastest": "least time",
    "shortest": "least distance",
}


class Row(NamedTuple):
    """The numbers of one policy, seed by seed."""

    policy: str
    energy: Floats  # Wh per trip on average over the last trips, (seeds,)
    regret: Floats  # total over all trips, Wh, (seeds,)

    @property
    def mean_energy(self) -> float:
        """Wh per trip, on average over the last trips and over seeds."""
        return float(self.energy.mean())

    @property
    def mean_regret(self) -> float:
        """Total over all trips in Wh, on average over seeds."""
        return float(self.regret.mean())


class Outcome(NamedTuple):
    """All policies, the cheapest at the end first."""

    rows: tuple[Row, ...]
    latest: int  # the number of last trips over which ``energy`` is the mean
    rounds: int
    first_seed: int

    @classmethod
    def from_run(cls, run: Run) -> Outcome:
        """The outcome of a run.

        Args:
            run: A run of the demo's experiment.
        """
        latest = max(1, min(_LATEST, run.rounds // 2))
        start = run.rounds - latest
        rows = []
        for policy in run.policies:
            energy = per_round(run, policy, 0, "true_energy", start)
            regret = run.cumulative(policy)[:, -1]
            rows.append(Row(policy, energy, regret))
        rows.sort(key=lambda row: row.mean_energy)
        return cls(
            rows=tuple(rows),
            latest=latest,
            rounds=run.rounds,
            first_seed=run.seeds[0],
        )

    def row(self, policy: str) -> Row:
        """The numbers of a policy.

        Args:
            policy: Its name.
        """
        return next(row for row in self.rows if row.policy == policy)

    def saved(self, policy: str) -> float | None:
        """Percent of the fastest route's energy that a policy saves.

        ``None`` where that energy is not positive.

        Args:
            policy: The policy's name.
        """
        fastest = self.row("fastest").mean_energy
        if not fastest > 0.0:
            return None
        share = self.row(policy).mean_energy / fastest
        return 100.0 * (1.0 - share)

    def as_json(self) -> list[dict[str, Any]]:
        """One flat row per policy."""
        return [
            {
                "policy": row.policy,
                "energy_wh": row.mean_energy,
                "saved_percent": self.saved(row.policy),
                "regret_wh": row.mean_regret,
            }
            for row in self.rows
        ]

    def seeds_text(self) -> str:
        """Say what differs between seeds, and which of them the animation shows."""
        energy = self.row(LEARNER).energy
        fastest = self.row("fastest").energy
        return (
            f"The table shows means over {len(energy)} seeds (± standard error). All seeds have the "
            f"same city and trip; each draws its own road energies: {LEARNER} ends at "
            f"{energy.min():.0f} to {energy.max():.0f} Wh per trip. The animation shows seed "
            f"{self.first_seed}: {energy[0]:.0f} Wh, and {fastest[0]:.0f} Wh on the fastest route."
        )

    def conclusion(self) -> str:
        """One sentence that follows from the numbers, whoever wins."""
        learner = self.row(LEARNER)
        fastest = _compare(learner, self.row("fastest"), "the fastest route")
        prior = _compare(learner, self.row("prior"), "the energy model's route")
        separate = _compare(learner, self.row("bi-ts"), "learning road by road")
        return (
            f"In its last {self.latest} trips, on average over {len(learner.energy)} seeds, {LEARNER} "
            f"needed {learner.energy.mean():.0f} Wh per trip: {fastest}, {prior} and {separate}; "
            f"over all {self.rounds} trips {self._compare_regret()}."
        )

    def _compare_regret(self) -> str:
        learner = self.row(LEARNER)
        others = [row for row in self.rows if row.policy != LEARNER]
        rival = min(others, key=lambda row: row.mean_regret)
        differences = learner.regret - rival.regret
        difference = float(differences.mean())
        if len(differences) < LEAST_SEEDS:
            return f"{count_text(len(differences), 'seed')} cannot rank it by regret"
        if within_noise(differences):
            return f"its regret is within noise of that of {rival.policy}"
        if difference > 0.0:
            return f"{rival.policy} has lower regret"
        return f"its regret is the lowest, {-difference:.0f} Wh below that of {rival.policy}"


def _compare(learner: Row, other: Row, words: str) -> str:
    """Say how much less or more the learner took, seed by seed."""
    differences = learner.energy - other.energy
    difference = float(differences.mean())
    signed = f"{difference:+.0f}".replace("-", "−")
    if len(differences) < LEAST_SEEDS:
        seeds = count_text(len(differences), "seed")
        return f"{signed} Wh against {words} ({seeds}: too few to tell)"
    if within_noise(differences):
        return f"about as much as {words} ({signed} Wh, within noise)"
    side = "less" if difference < 0.0 else "more"
    return f"{abs(difference):.0f} Wh {side} than {words}"


def print_outcome(console: Console, outcome: Outcome) -> None:
    """Print the table and the sentence.

    Args:
        console: The console.
        outcome: The outcome.
    """
    table = Table(
        title=f"{outcome.rounds} trips, {len(outcome.rows[0].energy)} seeds",
        caption="Saved: against the fastest route. Regret: energy of all trips above the best "
        "route's, counted as in Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025).",
    )
    explained = console.width >= _TABLE_WIDTH
    table.add_column("policy")
    if explained:
        table.add_column("what it does", no_wrap=True)
    for title in (f"Wh per trip,\nlast {outcome.latest}", "saved", "regret, Wh"):
        table.add_column(title, justify="right")
    for row in outcome.rows:
        cells = [row.policy]
        if explained:
            cells.append(WHAT.get(row.policy, ""))
        saved = outcome.saved(row.policy)
        is_reference = saved is None or row.policy == "fastest"
        cells += [
            mean_text(row.energy),
            "" if is_reference else f"{saved:.0f} %",
            mean_text(row.regret),
        ]
        table.add_row(*cells, style="bold" if row.policy == LEARNER else None)
    console.print(table)
    console.print(f"{outcome.seeds_text()}\n{outcome.conclusion()}", highlight=False)
