"""What the demo found: a table and a sentence that a stranger understands."""

from __future__ import annotations

from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from superarm.core import Floats
from superarm.lab.results.averages import average
from superarm.lab.results.formats import count_text, plus_minus
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
    """How one policy fared, seed by seed."""

    policy: str
    energy: Floats  # Wh per trip on average over the last trips, (seeds,)
    regret: Floats  # total over all trips, Wh, (seeds,)


class Outcome(NamedTuple):
    """All policies, the cheapest at the end first."""

    rows: tuple[Row, ...]
    latest: int  # how many of the last trips ``energy`` is about
    rounds: int
    first_seed: int

    @classmethod
    def of(cls, run: Run) -> Outcome:
        latest = max(1, min(_LATEST, run.rounds // 2))
        rows = []
        for policy in run.policies:
            energy = per_round(run, policy, 0, "true_energy", run.rounds - latest)
            rows.append(Row(policy, energy, run.cumulative(policy)[:, -1]))
        rows.sort(key=lambda row: float(row.energy.mean()))
        return cls(tuple(rows), latest, run.rounds, run.seeds[0])

    def row(self, policy: str) -> Row:
        return next(row for row in self.rows if row.policy == policy)

    def saved(self, policy: str) -> float | None:
        """Percent of the fastest route's energy that a policy saves; None where there is none."""
        base = float(self.row("fastest").energy.mean())
        return (
            100.0 * (1.0 - float(self.row(policy).energy.mean()) / base)
            if base > 0.0
            else None
        )

    def as_json(self) -> list[dict[str, Any]]:
        """One flat row per policy."""
        return [
            {
                "policy": row.policy,
                "energy_wh": float(row.energy.mean()),
                "saved_percent": self.saved(row.policy),
                "regret_wh": float(row.regret.mean()),
            }
            for row in self.rows
        ]

    def seeds_text(self) -> str:
        """What differs between seeds, which of them is shown where, and what it needs by itself."""
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
        others = {"fastest": "the fastest route", "prior": "the energy model's route"}
        others["bi-ts"] = "learning road by road"
        parts = [
            _compared(learner, self.row(name), words) for name, words in others.items()
        ]
        return (
            f"In its last {self.latest} trips, on average over {len(learner.energy)} seeds, {LEARNER} "
            f"needed {learner.energy.mean():.0f} Wh per trip: {parts[0]}, {parts[1]} and {parts[2]}; "
            f"over all {self.rounds} trips {self._regret()}."
        )

    def _regret(self) -> str:
        learner, *others = sorted(self.rows, key=lambda row: row.policy != LEARNER)
        rival = min(others, key=lambda row: float(row.regret.mean()))
        difference = float((learner.regret - rival.regret).mean())
        if len(learner.regret) < LEAST_SEEDS:
            return f"{count_text(len(learner.regret), 'seed')} cannot rank it by regret"
        if within_noise(learner.regret - rival.regret):
            return f"its regret is within noise of that of {rival.policy}"
        if difference > 0.0:
            return f"{rival.policy} has lower regret"
        return f"its regret is the lowest, {-difference:.0f} Wh below that of {rival.policy}"


def _compared(learner: Row, other: Row, words: str) -> str:
    """How much less or more the learner took, seed by seed."""
    difference = float((learner.energy - other.energy).mean())
    if len(learner.energy) < LEAST_SEEDS:
        sign = f"{difference:+.0f}".replace("-", "−")
        return f"{sign} Wh against {words} ({count_text(len(learner.energy), 'seed')}: too few to tell)"
    if within_noise(learner.energy - other.energy):
        told = f"{difference:+.0f}".replace("-", "−")
        return f"about as much as {words} ({told} Wh, within noise)"
    return f"{abs(difference):.0f} Wh {'less' if difference < 0.0 else 'more'} than {words}"


def print_outcome(console: Console, outcome: Outcome) -> None:
    """The table and the sentence."""
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
        saved = outcome.saved(row.policy)
        table.add_row(
            row.policy,
            *([WHAT.get(row.policy, "")] if explained else []),
            plus_minus(*average(row.energy)),
            "" if saved is None or row.policy == "fastest" else f"{saved:.0f} %",
            plus_minus(*average(row.regret)),
            style="bold" if row.policy == LEARNER else None,
        )
    console.print(table)
    console.print(f"{outcome.seeds_text()}\n{outcome.conclusion()}", highlight=False)
