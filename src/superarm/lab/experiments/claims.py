"""What a paper says, as data, and whether a run bears it out.

A claim is a table in an experiment's TOML: its ``text``, the ``check`` by name, and the check's
parameters. A check turns a claim into *margins*: by how much it is true, one number per seed, which
policies share. A claim holds if the mean of every margin is decidedly above zero; it does not hold if
one is decidedly below zero; otherwise it is undecided. :mod:`superarm.lab.results.verdicts` says what
decides: chance, skewness, seeds unlike these and records that seeds share must be excluded. Fewer than
four seeds decide nothing. Where a margin is zero in every seed, but for rounding, the claim does not
hold: a tie is not "below".

==================  ============================================================================
``below``           every ``policy`` has less than ``ratio`` (1) times the total of every ``versus``
``above``           … more than …
``between``         more than ``least`` and less than ``most`` times the total of ``versus``
``similar``         the totals differ by less than ``tolerance`` of the larger
``rises``           the total rises from each value of the swept number ``key`` to the next
``falls``           … falls …
``upward-trend``    the least-squares slope of the total over the ranks of ``key`` is above zero;
                    single steps may go down
``downward-trend``  … below zero; single steps may go up
``flat``            at every value of ``key`` the total is within ``tolerance`` of the mean over them
``alike``           between any two values of ``key``, texts or numbers, the totals differ by less
                    than ``tolerance`` of the larger
``steadier``        the total of every ``policy`` changes less over the values of ``key`` than that of
                    every ``versus``: the largest mean over the least, by the jackknife over seeds
``crosses``         below ``versus`` at the least value of ``key`` and above it at the greatest
``under``           the total of every ``policy`` is less than the number ``limit``
``over``            … more than …
``widens``          the gap between the running totals of ``versus`` and ``policy`` has an upward trend
                    over ten evenly spaced rounds: its least-squares slope is above zero
==================  ============================================================================

In any claim, ``metric`` (regret) says which total, or mean per round, is meant; ``seconds`` is the time
of a round. ``relative_to`` divides it by that of another policy; ``where`` picks the settings that the
claim is about, by a value or a list of them, and ``among`` the values of ``key``; ``of = "spread"``
compares the seeds' distances from their median (Brown and Forsythe) in place of the totals.
``of = "swing"`` compares how far the mean over rounds 1 to t
moves, up and down, while t goes from the middle of the run to its end: little where a curve is steady.
``of = "growth"`` compares exponents: p where the running total grows like t^p over the last half of
the rounds, and with ``metric = "seconds"`` where the time of a round does. ``rounds = [first, last]``
restricts a claim to these rounds, both included; a shorter run does not judge it.
A claim about policies, settings or metrics that a run does not have is not judged, and the run says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, product
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats
from superarm.core.errors import SpecError
from superarm.core.registry import require_kind
from superarm.lab.results.averages import average, noise_limit
from superarm.lab.results.curves import Curve, growth_of, seconds_by_seed, thinned
from superarm.lab.results.formats import (
    count_text,
    plus_minus,
    setting_prefix,
    setting_text,
    significant,
)
from superarm.lab.results.settings import matches, sharing_of, sweeps, synthetic_data
from superarm.lab.results.totals import outcomes, per_round
from superarm.lab.results.verdicts import (
    LEAST_SEEDS,
    ROUNDING,
    Lead,
    Sharing,
    lead_of,
    needed_errors,
    unlike_share,
)
from superarm.lab.simulation.run import Run

_SECONDS = "seconds"
_GAPS = 10  # rounds at which a gap is looked at
Word = Literal["holds", "does not hold", "undecided"]


class Verdict(NamedTuple):
    """One claim after a run."""

    text: str
    verdict: Word
    evidence: str

    def as_json(self) -> dict[str, Any]:
        told = {"holds": self.verdict == "holds", "verdict": self.verdict}
        return {"text": self.text, **told, "evidence": self.evidence}


def judge(run: Run, claims: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """Every claim that this run can speak to, once per setting or panel of settings."""
    verdicts = []
    for claim in claims:
        check_claim(claim, run.experiment)
        for setting, settings in _places(run, claim):
            word, evidence = _judged(_Totals(run, claim, settings))
            evidence = setting_prefix(setting) + evidence
            evidence += f" ({count_text(len(run.seeds), 'seed')}, T = {run.rounds})"
            evidence += (
                ", on synthetic data" if synthetic_data(run, settings[0]) else ""
            )
            verdicts.append(Verdict(str(claim["text"]), word, evidence))
    return verdicts


def not_judged(run: Run, claims: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The other claims, each with what a run would need to speak to it."""
    silent = (claim for claim in claims if not any(_places(run, claim)))
    return [
        {"text": str(claim["text"]), "needs": _needs(run, claim)} for claim in silent
    ]


def _needs(run: Run, claim: Mapping[str, Any]) -> list[str]:
    absent = [
        name for name in dict.fromkeys(policies_of(claim)) if name not in run.policies
    ]
    if absent:
        return absent
    if "key" in claim and not _panels(run, claim):
        values = (
            f" of {', '.join(map(str, claim['among']))}" if "among" in claim else ""
        )
        return [f"a sweep over {claim['key']}{values}"]
    if not any(
        matches(run, setting, claim.get("where", {})) for setting in run.settings
    ):
        where = {
            key: " or ".join(map(str, value)) if isinstance(value, list) else value
            for key, value in claim["where"].items()
        }
        return [f"a setting with {setting_text(where)}"]
    if run.rounds < _last_round(claim):
        return [f"{_last_round(claim):,} rounds"]
    return [f"the metric {_metric(claim)}"]


def _metric(claim: Mapping[str, Any]) -> str:
    return str(claim.get("metric", "regret"))


def _places(
    run: Run, claim: Mapping[str, Any]
) -> Iterator[tuple[Mapping[str, Any], list[int]]]:
    """What is judged as one: a setting, or those that differ in ``key`` alone, in its order."""
    if "key" in claim:
        places = _panels(run, claim)
    else:
        places = [(setting, [index]) for index, setting in enumerate(run.settings)]
    metric = _metric(claim)
    played = set(policies_of(claim)) <= set(run.policies)
    long_enough = run.rounds >= _last_round(claim)
    for setting, settings in places:
        measured = all(
            run.is_timed(index)
            if metric == _SECONDS
            else metric in run.metrics_at(index)
            for index in settings
        )
        if (
            matches(run, setting, claim.get("where", {}))
            and measured
            and played
            and long_enough
        ):
            yield setting, settings


def _last_round(claim: Mapping[str, Any]) -> int:
    """The last round that a claim names; 1 where it is about all of them."""
    return int(claim["rounds"][1]) if "rounds" in claim else 1


def _panels(
    run: Run, claim: Mapping[str, Any]
) -> list[tuple[Mapping[str, Any], list[int]]]:
    """Settings that differ in the claim's ``key`` alone, where all values that it names are there."""
    panels = []
    for panel in sweeps(run, claim["key"]):
        named = claim.get("among", panel.values)
        ordered = not any(isinstance(value, str) for value in panel.values)
        if not ordered and claim["check"] not in _OF_ANY_VALUES:
            continue
        if set(named) <= set(panel.values):
            places = zip(panel.values, panel.settings, strict=True)
            panels.append(
                (panel.fixed, [index for value, index in places if value in named])
            )
    return panels


# --- margins -----------------------------------------------------------------------------


class Margin(NamedTuple):
    """By how much a claim is true, seed by seed: ``sign`` × ``values``, told as ``values``."""

    what: str
    values: Floats
    scale: float
    """The size of the totals that are compared, or of the larger."""
    sign: float = 1.0
    tie_holds: bool = False

    def lead(self, sharing: Sharing) -> Lead:
        return lead_of(self.sign * self.values, scale=self.scale, sharing=sharing)

    def strength(self, sharing: Sharing, comparisons: int) -> float:
        """Beyond 1 it is decidedly true, beyond −1 decidedly false."""
        lead = self.lead(sharing)
        if lead.tied and lead.seeds >= LEAST_SEEDS:
            return float("inf") if self.tie_holds else float("-inf")  # a tie is no lead
        return lead.strength(comparisons)


class _Totals:
    """The totals that a claim is about, in the settings that are judged as one."""

    def __init__(self, run: Run, claim: Mapping[str, Any], settings: list[int]) -> None:
        self.run, self.claim, self.settings = run, claim, settings
        self.metric = _metric(claim)

    def at(self, policy: str, place: int = 0) -> Floats:
        if self.claim.get("of") == "swing":
            sums = self.run.cumulative(policy, self.settings[place], self.metric)
            means = (sums / np.arange(1, sums.shape[1] + 1))[:, sums.shape[1] // 2 :]
            swing: Floats = np.abs(np.diff(means)).sum(axis=1)
            return _beyond_rounding(swing, np.abs(means).max(axis=1))
        if self.claim.get("of") == "growth":
            return self._growth(policy, place)
        totals = self._plain(policy, place)
        if "relative_to" in self.claim:
            over = self._plain(self.claim["relative_to"], place)
            totals = totals / np.where(
                over == 0.0, np.nan, over
            )  # over nothing, nothing is decided
        if self.claim.get("of") == "spread":
            middle = np.median(totals)
            totals = _beyond_rounding(np.abs(totals - middle), np.abs(middle))
        return totals

    def _plain(self, policy: str, place: int) -> Floats:
        index = self.settings[place]
        if "rounds" in self.claim:
            return self._within(policy, index)
        if self.metric == _SECONDS:
            return self.run.seconds_of_seeds(policy, index)
        return outcomes(self.run, policy, index, self.metric).astype(np.float64)

    def _within(self, policy: str, index: int) -> Floats:
        """The total over the claim's rounds, or their mean where the metric is one, (seeds,)."""
        first, last = (int(number) for number in self.claim["rounds"])
        if self.metric == _SECONDS:
            seconds = self.run.seconds(policy, index)[:, first - 1 : last].astype(
                np.float64
            )
            return np.asarray(seconds.mean(axis=1))
        means = per_round(self.run, policy, index, self.metric, first - 1, last)
        is_mean = self.run.metric(self.metric, index).kind == "per round"
        return means if is_mean else means * (last - first + 1)

    def _growth(self, policy: str, place: int) -> Floats:
        """The exponent of each seed, (seeds,); NaN where a total is not above zero."""
        index = self.settings[place]
        if self.metric == _SECONDS:
            curves = seconds_by_seed(self.run, policy, index)
        else:
            rounds = thinned(self.run.rounds, log=True)
            sums = self.run.cumulative(policy, index, self.metric)[:, rounds - 1]
            curves = [Curve(rounds, each) for each in sums]
        return np.array([growth_of(curve) for curve in curves])

    @property
    def text(self) -> str:
        """What is compared, in words."""
        text = self.run.metric(self.metric, self.settings[0]).text
        if self.metric == _SECONDS:
            text = "time per round (s)"
        if "rounds" in self.claim:
            first, last = self.claim["rounds"]
            text += (
                f" in round {last}"
                if first == last
                else f" in rounds {first} to {last}"
            )
        if "relative_to" in self.claim:
            text += f" relative to that of {self.claim['relative_to']}"
        if self.claim.get("of") == "swing":
            text = text.replace("cumulative", "average")
        return f"{self.claim['of']} of {text}" if "of" in self.claim else text

    def told(self, policy: str, place: int = 0) -> str:
        mean, stderr = average(self.at(policy, place))
        return significant(mean) + (f" ± {significant(stderr, 2)}" if stderr else "")

    def value(self, place: int) -> str:
        """The value of ``key``, for reading."""
        value = self.run.settings[self.settings[place]][self.claim["key"]]
        return value if isinstance(value, str) else f"{value:g}"


def _beyond_rounding(values: Floats, sizes: Floats) -> Floats:
    """Differences, (n,), but 0 where rounding of what they are differences of, sizes, explains them."""
    return np.where(np.abs(values) <= ROUNDING * sizes, 0.0, values)


def _judged(totals: _Totals) -> tuple[Word, str]:
    evidence, seeds = "; ".join(_told(totals)), len(totals.run.seeds)
    if seeds < LEAST_SEEDS:
        few = f"{count_text(seeds, 'seed')} cannot decide, {LEAST_SEEDS} or more can"
        return "undecided", f"{evidence}; undecided: {few}"
    margins = [*_CHECKS[totals.claim["check"]].margins(totals)]
    sharing = sharing_of(totals.run, totals.settings)
    if sharing.independent < LEAST_SEEDS:
        worth = (
            f"these {seeds} seeds are worth {sharing.independent:.1f} independent ones"
        )
        return (
            "undecided",
            f"{evidence}; undecided: {worth}, {LEAST_SEEDS} or more can decide",
        )
    strengths = [margin.strength(sharing, len(margins)) for margin in margins]
    strength = min(strengths)
    weakest = margins[strengths.index(strength)]
    lead = weakest.lead(sharing)
    limit = needed_errors(lead.seeds, lead.comparisons(len(margins)))
    mean = weakest.sign * lead.mean + 0.0  # and no −0
    evidence += f"; {weakest.what} seed by seed {plus_minus(mean, lead.stderr)}"
    evidence += f" ({_errors_text(lead, sharing)}; {limit:.3g} needed)"
    if abs(strength) > 1.0:
        return ("holds" if strength > 0.0 else "does not hold"), evidence
    return "undecided", evidence + _doubt(lead, limit)


def _errors_text(lead: Lead, sharing: Sharing) -> str:
    """How far a lead is from zero, in standard errors."""
    if lead.tied or np.isinf(lead.t):
        return "the same in every seed"
    number = significant(abs(lead.t), 2)
    text = f"{number} standard error{'s' * (number != '1')}"
    corrected = significant(abs(lead.corrected), 2)
    if corrected != number:
        text += f", {corrected} corrected for skewness"
    if sharing.share:
        text += (
            f", corrected for the {100 * sharing.share:.0f} % of data that seeds share"
        )
    return text


def _doubt(lead: Lead, limit: float) -> str:
    """Why a lead that is beyond chance decides nothing; empty for one that is not."""
    if not abs(lead.t) > limit:
        return ""
    if abs(lead.corrected) <= limit:
        return f"; undecided: the {lead.seeds} seeds are skewed, and may miss rare bad ones"
    return (
        f"; undecided: up to {100 * unlike_share(lead.seeds):.0f} % of all seeds may be unlike these "
        f"{lead.seeds}, and could outweigh a lead of {100 * abs(lead.mean) / lead.scale:.2g} %; run "
        f"at least {lead.seeds_needed:,} seeds"
    )


def _told(totals: _Totals) -> Iterator[str]:
    """Every total that the claim is about, the least first, and where they cross."""
    metric = totals.text
    names = list(dict.fromkeys(_compared_policies(totals.claim)))
    if "key" in totals.claim:
        places = range(len(totals.settings))
        for name in names:
            values = ", ".join(
                f"{totals.value(at)}: {totals.told(name, at)}" for at in places
            )
            yield f"{metric} of {name} at {totals.claim['key']} = {values}"
    else:
        names.sort(key=lambda name: float(totals.at(name).mean()))
        yield f"{metric}: " + ", ".join(f"{name} {totals.told(name)}" for name in names)
    if totals.claim["check"] == "steadier":
        ratios = ", ".join(
            f"{name} {significant(_largest_over_least(totals, name))}" for name in names
        )
        yield f"ratio of the largest to the smallest: {ratios}"
    if totals.claim["check"] == "widens":
        yield from (_gaps_text(totals, *pair) for pair in _pairs(totals))
    if totals.claim["check"] == "crosses":
        yield from (_crossing(totals, *pair) for pair in _pairs(totals))


def _names(value: str | Sequence[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _pairs(totals: _Totals) -> Iterator[tuple[str, str]]:
    """What a claim says, it says of every policy against every rival."""
    return product(_names(totals.claim["policy"]), _names(totals.claim["versus"]))


def _compared(totals: _Totals, **signs: float) -> Iterator[Margin]:
    """Against every rival times what the claim gives under these names, from the side of each sign."""
    for (policy, rival), (key, sign) in product(_pairs(totals), signs.items()):
        yield _against(totals, policy, rival, float(totals.claim.get(key, 1.0)), sign)


def _against(
    totals: _Totals, policy: str, rival: str, ratio: float, sign: float, place: int = 0
) -> Margin:
    # A product, not the quotient: right also where totals are zero or negative.
    factor = "" if ratio == 1.0 else f"{ratio:g} × "
    own, limit = totals.at(policy, place), ratio * totals.at(rival, place)
    return Margin(f"{policy} − {factor}{rival}", own - limit, _larger(own, limit), sign)


def _larger(one: Floats, other: Floats) -> float:
    """The size of the larger of two totals."""
    return float(max(abs(one.mean()), abs(other.mean())))


def _limited(totals: _Totals, sign: float) -> Iterator[Margin]:
    """The total of every policy, less the number that limits it."""
    limit = float(totals.claim["limit"])
    for policy in _names(totals.claim["policy"]):
        own = totals.at(policy)
        scale = max(abs(float(own.mean())), abs(limit))
        yield Margin(f"{policy} − {limit:g}", own - limit, scale, sign)


def _similar(totals: _Totals) -> Iterator[Margin]:
    for policy, rival in _pairs(totals):
        pair = totals.at(policy), totals.at(rival)
        larger = max(pair, key=lambda each: abs(float(each.mean())))
        yield from _near(
            totals, f"{policy} − {rival}", pair[0] - pair[1], "the larger", larger
        )


def _near(
    totals: _Totals, what: str, difference: Floats, unit: str, level: Floats
) -> Iterator[Margin]:
    """``difference`` is less than ``tolerance`` × ``level``, both ways."""
    tolerance = float(totals.claim["tolerance"])
    room = tolerance * np.sign(level.mean()) * level
    scale = abs(float(level.mean()))
    for sign in (1.0, -1.0):
        inside = room - sign * difference
        if np.any(inside) or np.any(level):  # where all is zero, it is all the same
            text = f"{100 * tolerance:g} % of {unit} {'−+'[sign < 0]} ({what})"
            yield Margin(text, inside, scale)
        else:
            yield Margin(what, difference, scale, tie_holds=True)


def _steps(totals: _Totals, sign: float) -> Iterator[Margin]:
    """The change of a total from each value of ``key`` to the next."""
    for policy, place in product(
        _names(totals.claim["policy"]), range(len(totals.settings) - 1)
    ):
        before, after = totals.at(policy, place), totals.at(policy, place + 1)
        what = f"change of {policy} from {totals.value(place)} to {totals.value(place + 1)}"
        yield Margin(what, after - before, _larger(before, after), sign)


def _trend(totals: _Totals, sign: float) -> Iterator[Margin]:
    """The change of a total over all values of ``key``, by least squares over their ranks."""
    for policy in _names(totals.claim["policy"]):
        every = np.stack(
            [totals.at(policy, place) for place in range(len(totals.settings))]
        )
        ranks = np.arange(len(every)) - (len(every) - 1) / 2.0
        # From the first value: rounding would make a change of totals that are all the same.
        change = (len(every) - 1) * (ranks @ (every - every[0])) / (ranks @ ranks)
        scale = float(np.abs(every.mean(axis=1)).max())
        yield Margin(f"trend of {policy} over all values", change, scale, sign)


def _flat(totals: _Totals) -> Iterator[Margin]:
    for policy in _names(totals.claim["policy"]):
        every = np.stack(
            [totals.at(policy, place) for place in range(len(totals.settings))]
        )
        level: Floats = every.mean(axis=0)
        for place, values in enumerate(every):
            what = f"{policy} at {totals.value(place)} − the mean"
            yield from _near(totals, what, values - level, "the mean", level)


def _alike(totals: _Totals) -> Iterator[Margin]:
    """The totals at any two values of ``key``, as :func:`_similar` compares two policies."""
    for policy in _names(totals.claim["policy"]):
        for one, other in combinations(range(len(totals.settings)), 2):
            first = totals.at(policy, one)
            second = totals.at(policy, other)
            larger = max(first, second, key=lambda values: abs(float(values.mean())))
            what = f"{policy} at {totals.value(one)} − at {totals.value(other)}"
            yield from _near(totals, what, first - second, "the larger", larger)


def _steadier(totals: _Totals) -> Iterator[Margin]:
    """ln(largest/least) of each rival less that of the policy."""
    for policy, rival in _pairs(totals):
        own = _pseudo_variations(totals, policy)
        other = _pseudo_variations(totals, rival)
        what = f"ln(largest/least) of {rival} − of {policy}"
        yield Margin(what, other - own, _larger(own, other))


def _largest_over_least(totals: _Totals, policy: str) -> float:
    """Of the means over seeds at all values of ``key``."""
    means = [
        float(totals.at(policy, place).mean()) for place in range(len(totals.settings))
    ]
    return max(means) / min(means) if min(means) > 0.0 else float("nan")


def _pseudo_variations(totals: _Totals, policy: str) -> Floats:
    """Jackknife pseudo-values of ln(largest/least), (seeds,); NaN where a mean is not above zero.

    n θ − (n − 1) θ₋ᵢ with θ₋ᵢ computed without seed i: their mean estimates θ, and their standard error
    its uncertainty, although θ compares means over seeds and has no value in a single seed.
    The jackknife wants one value of ``key`` to stand out as the largest and one as the least. Where all
    means are equal, θ is noise alone, and of two such policies one is called steadier in up to a tenth
    of all runs of 30 seeds, not in 1 %.
    """
    every = np.stack(
        [totals.at(policy, place) for place in range(len(totals.settings))]
    )
    count = every.shape[1]
    sums = every.sum(axis=1, keepdims=True)
    without = (sums - every) / (
        count - 1
    )  # means over the other seeds, (values, seeds)
    if min(without.min(), sums.min()) <= 0.0:
        return np.full(count, np.nan)
    whole = float(np.log(sums.max() / sums.min()))
    parts = np.log(without.max(axis=0) / without.min(axis=0))
    return np.asarray(count * whole - (count - 1) * parts)


def _crosses(totals: _Totals) -> Iterator[Margin]:
    for policy, rival in _pairs(totals):
        for place, sign in ((0, -1.0), (len(totals.settings) - 1, 1.0)):
            margin = _against(totals, policy, rival, 1.0, sign, place)
            yield margin._replace(what=f"{margin.what} at {totals.value(place)}")


def _crossing(totals: _Totals, policy: str, rival: str) -> str:
    """Where the totals of a seed cross, by lines between values of ``key``, with an interval.

    Lines are drawn over the logarithm of ``key`` where all values are above zero.
    """
    places = range(len(totals.settings))
    settings = [totals.run.settings[index] for index in totals.settings]
    values = np.array([float(setting[totals.claim["key"]]) for setting in settings])
    log = values.min() > 0.0
    scale = np.log(values) if log else values
    found = []
    lead = np.stack(
        [totals.at(policy, place) - totals.at(rival, place) for place in places]
    )
    for seed in lead.T:
        changes = np.flatnonzero((seed[:-1] < 0.0) & (seed[1:] >= 0.0))
        if len(changes) == 1 and (seed < 0.0).sum() == changes[0] + 1:  # crosses once
            place = changes[0]
            share = seed[place] / (seed[place] - seed[place + 1])
            found.append(scale[place] + share * (scale[place + 1] - scale[place]))
    seeds = f"{len(found)} of {count_text(lead.shape[1], 'seed')}"
    count = f"{policy} and {rival} cross once in {seeds}"
    if len(found) < 2:
        return count
    sharing = sharing_of(totals.run, totals.settings)
    mean, stderr, *_ = lead_of(np.array(found), sharing=sharing)
    reach = stderr * noise_limit(len(found))
    ends = np.array([mean, mean - reach, mean + reach])
    middle, low, high = map(significant, np.exp(ends) if log else ends)
    return (
        f"{count}, at {totals.claim['key']} = {middle} (95 % interval {low} to {high})"
    )


class _Gaps(NamedTuple):
    """How far two running totals are apart at some rounds."""

    rounds: NDArray[np.intp]
    values: Floats
    """Of ``versus`` less that of ``policy``, (seeds, rounds)."""


def _gaps(totals: _Totals, policy: str, rival: str) -> _Gaps:
    run = totals.run
    edges = np.linspace(0, run.rounds, min(_GAPS, run.rounds) + 1)
    rounds = np.rint(edges[1:]).astype(np.intp)

    def running_total(name: str) -> Floats:
        sums = run.cumulative(name, totals.settings[0], totals.metric)
        return np.asarray(sums[:, rounds - 1], dtype=np.float64)

    return _Gaps(rounds, running_total(rival) - running_total(policy))


def _widening(totals: _Totals) -> Iterator[Margin]:
    """The change of a gap from the first of these rounds to the last, by least squares."""
    for policy, rival in _pairs(totals):
        gaps = _gaps(totals, policy, rival)
        away = gaps.rounds - gaps.rounds.mean()
        span = float(gaps.rounds[-1] - gaps.rounds[0])
        change = (
            span
            * ((gaps.values - gaps.values[:, :1]) @ away)
            / max(1.0, float(away @ away))
        )
        scale = _larger(totals.at(policy), totals.at(rival))
        yield Margin(f"trend of the gap {rival} − {policy} over the run", change, scale)


def _gaps_text(totals: _Totals, policy: str, rival: str) -> str:
    gaps = _gaps(totals, policy, rival)
    means = gaps.values.mean(axis=0)
    shown = ", ".join(
        f"{t}: {significant(gap)}" for t, gap in zip(gaps.rounds, means, strict=True)
    )
    return f"gap {rival} − {policy} after round {shown}"


# --- claims as data ----------------------------------------------------------------------


class _Check(NamedTuple):
    margins: Callable[[_Totals], Iterator[Margin]]
    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()


_CHECKS = {
    "below": _Check(partial(_compared, ratio=-1.0), ("policy", "versus"), ("ratio",)),
    "above": _Check(partial(_compared, ratio=1.0), ("policy", "versus"), ("ratio",)),
    "between": _Check(
        partial(_compared, least=1.0, most=-1.0), ("policy", "versus", "least", "most")
    ),
    "similar": _Check(_similar, ("policy", "versus", "tolerance")),
    "rises": _Check(partial(_steps, sign=1.0), ("policy", "key"), ("among",)),
    "falls": _Check(partial(_steps, sign=-1.0), ("policy", "key"), ("among",)),
    "upward-trend": _Check(partial(_trend, sign=1.0), ("policy", "key"), ("among",)),
    "downward-trend": _Check(partial(_trend, sign=-1.0), ("policy", "key"), ("among",)),
    "flat": _Check(_flat, ("policy", "key", "tolerance"), ("among",)),
    "alike": _Check(_alike, ("policy", "key", "tolerance")),
    "steadier": _Check(_steadier, ("policy", "versus", "key"), ("among",)),
    "crosses": _Check(_crosses, ("policy", "versus", "key"), ("among",)),
    "under": _Check(partial(_limited, sign=-1.0), ("policy", "limit")),
    "over": _Check(partial(_limited, sign=1.0), ("policy", "limit")),
    "widens": _Check(_widening, ("policy", "versus")),
}
_OF_ANY_VALUES = ("alike", "steadier")
"""Checks for which the order of the values of ``key`` does not matter: they may be texts."""
_OF = ("spread", "swing", "growth")
_OF_ALL = ("text", "check", "metric", "relative_to", "where", "of", "rounds")
_KINDS = {
    **dict.fromkeys(("metric", "relative_to", "key", "of"), str),
    **dict.fromkeys(("ratio", "least", "most", "tolerance", "limit"), float),
    **dict.fromkeys(("policy", "versus"), str | Sequence[str]),
    "where": Mapping[str, Any],
    "among": Sequence[float],
    "rounds": Sequence[int],
}


def check_claim(claim: object, where: str) -> None:
    """Refuse a claim that could not be judged, before anything runs."""
    if not isinstance(claim, Mapping):
        raise SpecError(f"{where}: a claim must be a table ([[claims]]), not {claim!r}")
    text, check = claim.get("text"), claim.get("check")
    if not isinstance(text, str) or not text:
        raise SpecError(f"{where}: a claim needs a text; this one has {dict(claim)}")
    if not isinstance(check, str) or check not in _CHECKS:
        raise SpecError(
            f"{where}: claim {text!r} has the check {check!r}; choose one of {sorted(_CHECKS)}"
        )
    needed, optional = set(_CHECKS[check].needed), set(_CHECKS[check].optional)
    given = set(claim) - set(_OF_ALL)
    if not needed <= given <= needed | optional:
        also = f" and may have {sorted(optional)}" if optional else ""
        raise SpecError(
            f"{where}: claim {text!r}: the check {check!r} takes {sorted(needed)}{also}, "
            f"but {sorted(given)} are given"
        )
    for key in sorted(set(claim) - {"text", "check"}):
        require_kind(claim[key], _KINDS[key], f"{where}: claim {text!r}: {key}")
        if claim[key] in ("", [], {}) or claim[key] != claim[key]:
            raise SpecError(
                f"{where}: claim {text!r}: {key} is {claim[key]!r}; give a value"
            )
    twice = set(_names(claim["policy"])) & set(_names(claim.get("versus", [])))
    of = claim.get("of", "spread")
    apart = claim.get("metric") == _SECONDS or "relative_to" in claim
    whole = of in ("swing", "growth")
    rounds = [*claim.get("rounds", (1, 1))]
    ordered = len(rounds) == 2 and 1 <= rounds[0] <= rounds[1]
    plain = (
        not {"of", "rounds", "relative_to"} & set(claim)
        and claim.get("metric") != _SECONDS
    )
    for wrong, message in (
        (
            check == "widens" and not plain,
            "'widens' is about running totals of a metric alone",
        ),
        (of not in _OF, f"of is {of!r}; it can be {', '.join(map(repr, _OF))}"),
        (
            of == "swing" and apart,
            "of = 'swing' cannot be used with metric = 'seconds' or relative_to",
        ),
        (
            of == "growth" and "relative_to" in claim,
            "of = 'growth' cannot be used with relative_to",
        ),
        (whole and "rounds" in claim, f"of = {of!r} cannot be used with rounds"),
        (
            not ordered,
            f"rounds must be [first, last] with 1 <= first <= last, got {rounds}",
        ),
        *(
            (
                not 0.0 < claim.get(key, 1.0) < np.inf,
                f"{key} must be above 0 and finite",
            )
            for key in ("ratio", "most", "tolerance")
        ),
        (claim.get("least", 0.0) < 0.0, "least must not be below 0"),
        (
            len(set(claim.get("among", (0, 1)))) < 2,
            "among must name two values or more",
        ),
        (
            claim.get("least", 0.0) >= claim.get("most", np.inf),
            "least must be below most",
        ),
        (twice, f"{', '.join(sorted(twice))} is compared with itself"),
        (
            claim.get("key") in claim.get("where", {}),
            "where holds the key that varies; leave it out",
        ),
    ):
        if wrong:
            raise SpecError(f"{where}: claim {text!r}: {message}")


def policies_of(claim: Mapping[str, Any]) -> list[str]:
    return [*_compared_policies(claim), *_names(claim.get("relative_to", []))]


def _compared_policies(claim: Mapping[str, Any]) -> list[str]:
    return [
        name
        for key in ("policy", "versus")
        if key in claim
        for name in _names(claim[key])
    ]
