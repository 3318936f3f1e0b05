"""The numbers behind curves and tables, how policies look, and how numbers are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats
from superarm.core.errors import StateError
from superarm.lab.simulation.run import Run

from .verdicts import Sharing

# Okabe & Ito's colours without the yellow that vanishes on white, told apart by colour-blind eyes;
# then brown, grey, and four more for runs of many policies.
PALETTE = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
    *("#8A6D3B", "#7F7F7F", "#6F3FA0", "#A3123F", "#7F8C1A", "#0B5563"),
)
_DASHES = 3
_RAISED = str.maketrans("-.0123456789", "⁻·⁰¹²³⁴⁵⁶⁷⁸⁹")
# Viridis between the ends that vanish on white and on black.
_SHADES = np.array(
    [[0x3A, 0x54, 0x8C], [0x26, 0x82, 0x8E], [0x35, 0xB7, 0x79], [0x8E, 0xD0, 0x48]]
)
Band = Literal["stderr", "std"]
"""Half the height of a band: the standard error of the mean, or the deviation between seeds."""
_SYNTHETIC = (
    ", synthetic data"  # how problems end the origin of data that they generated
)


class Curve(NamedTuple):
    """A mean over seeds at some rounds."""

    rounds: NDArray[np.intp]
    mean: Floats


class Average(NamedTuple):
    """One number's mean over seeds, with its standard error (0 for a single seed)."""

    mean: float
    stderr: float


class PolicyStyle(NamedTuple):
    """A place in the palette or a colour of its own, and a dash pattern; baselines are thin."""

    colour: int | str
    dash: int = 0
    thin: bool = False

    @property
    def hex(self) -> str:
        return PALETTE[self.colour] if isinstance(self.colour, int) else self.colour


# Policies of one paper differ in colour, and look the same in every figure. On roads the posterior
# also has a dash pattern: none for Gaussian processes, dashes for independent roads, dots for
# variational posteriors.
_KNOWN = {
    name: PolicyStyle(colour, dash, thin)
    for dash, thin, colours in (
        (
            *(0, False),
            {
                **{
                    "igp-ucb": 0,
                    "gp-ucb": 1,
                    "gp-ts": 2,
                    "gp-ei": 3,
                    "gp-pi": 4,
                    "kernel-ucb": 5,
                },
                **{
                    "random": 7,
                    "gp-bucb": 0,
                    "bayes-ucb": 1,
                    "bayes-gp-ucb": 1,
                    "oclok-ucb": 0,
                },
                **{
                    "acc-ucb": 1,
                    "cc-mab": 4,
                    "tv-gp-ucb": 0,
                    "r-gp-ucb": 2,
                    "gp-md": 0,
                },
                **{"gp-ts-joint": 10, "gp-ts-potential": 8},
            },
        ),
        (
            1,
            False,
            {
                "bi-ucb": 4,
                "bi-bucb": 5,
                "bi-ts": 3,
                "gp-ucb-half": 4,
                "gp-bucb-half": 5,
            },
        ),
        (2, False, {"svgp-ucb": 9, "svgp-bucb": 8, "svgp-ts": 10}),
        (0, True, {"fastest": 7, "shortest": 6, "gp-greedy": 9}),
        (2, True, {"prior": 11, "prior-potential": 8, "genie": 6}),
    )
    for name, colour in colours.items()
}


def policy_styles(policies: Sequence[str]) -> dict[str, PolicyStyle]:
    """Known policies keep their look; others take free colours, then dashes tell them apart.

    >>> policy_styles(["mine", "igp-ucb"])["igp-ucb"]
    PolicyStyle(colour=0, dash=0, thin=False)
    """
    every = [PolicyStyle(c, d) for d in range(_DASHES) for c in range(len(PALETTE))]
    styles: dict[str, PolicyStyle] = {}
    for known in (True, False):
        for policy in policies:
            wanted = _KNOWN.get(policy)
            taken = {style[:2] for style in styles.values()}
            if known and wanted is not None and wanted[:2] not in taken:
                styles[policy] = wanted
            elif not known and policy not in styles:
                free = [style for style in every if style[:2] not in taken] or every
                styles[policy] = min(
                    free, key=lambda style: style.colour in {c for c, _ in taken}
                )
    return {policy: styles[policy] for policy in policies}


def shade(place: int, count: int) -> str:
    """One of ``count`` colours from light to dark, seen on white and on black.

    >>> shade(0, 2), shade(1, 2)
    ('#8ed048', '#3a548c')
    """
    at = (len(_SHADES) - 1) * (1.0 - place / max(count - 1, 1))
    mixed = [np.interp(at, range(len(_SHADES)), channel) for channel in _SHADES.T]
    return "#" + bytes(np.rint(mixed).astype(np.uint8)).hex()


def outcomes(run: Run, policy: str, setting_index: int, metric: str) -> Floats:
    """What a metric came to after all rounds, their sum or their mean, (seeds,)."""
    among = run.rounds if run.metric(metric, setting_index).kind == "per round" else 1
    return run.cumulative(policy, setting_index, metric)[:, -1] / among


def per_round(
    run: Run,
    policy: str,
    setting_index: int,
    metric: str,
    start: int = 0,
    stop: int | None = None,
) -> Floats:
    """A metric's mean over rounds, as a slice of them: after ``start`` of them, up to ``stop``."""
    stop = run.rounds if stop is None else stop
    totals = run.cumulative(policy, setting_index, metric)
    return (totals[:, stop - 1] - (totals[:, start - 1] if start else 0.0)) / (
        stop - start
    )


def thinned(rounds: int, points: int = 600, log: bool = False) -> NDArray[np.intp]:
    """At most ``points`` rounds of 1 … ``rounds``, ends included, evenly spaced on the axis."""
    space = np.geomspace if log else np.linspace
    return np.unique(np.rint(space(1, rounds, min(points, rounds))).astype(np.intp))


def mean_stderr(values: Floats) -> tuple[Floats, Floats]:
    """Mean over the first axis and its standard error."""
    count = len(values)
    spread = (
        values.std(axis=0, ddof=1) / np.sqrt(count)
        if count > 1
        else np.zeros(values.shape[1:])
    )
    return values.mean(axis=0), spread


def mean_band(values: Floats, band: Band) -> tuple[Floats, Floats]:
    """Mean over the first axis and half the height of a band around it."""
    mean, stderr = mean_stderr(values)
    return mean, stderr * np.sqrt(len(values)) if band == "std" else stderr


def band_text(run: Run, band: Band) -> str:
    half = {"stderr": "standard error", "std": "standard deviation"}[band]
    return (
        f"mean ± 1 {half} over {len(run.seeds)} seeds"
        if len(run.seeds) > 1
        else "one seed"
    )


def average(values: Floats) -> Average:
    """Of one number per seed.

    >>> average(np.array([1.0, 3.0]))
    Average(mean=2.0, stderr=1.0)
    """
    mean, stderr = mean_stderr(values)
    return Average(float(mean), float(stderr))


def noise_limit(seeds: int) -> float:
    """Standard errors to either end of a 95 % interval for a mean over seeds, by Student's t.

    >>> [round(noise_limit(seeds), 2) for seeds in (2, 3, 5, 25)]
    [12.71, 4.3, 2.78, 2.06]
    """
    from scipy.special import stdtrit

    return float(stdtrit(seeds - 1, 0.975))


def sharing_of(run: Run, settings: Sequence[int]) -> Sharing:
    """What seeds have in common in the setting in which they have most."""
    share = max(run.shared_data(index) for index in settings)
    independent = min(run.independent_seeds(index) for index in settings)
    return Sharing(share, independent)


def synthetic_data(run: Run, setting_index: int | None = None) -> str:
    """What the data of a setting (by default: of any) are, if they are synthetic; else empty."""
    if setting_index is not None:
        told = run.interpretations(setting_index).get("data", "")
        return told.removesuffix(_SYNTHETIC) if told.endswith(_SYNTHETIC) else ""
    every = [synthetic_data(run, index) for index in range(len(run.settings))]
    made = [*filter(None, every)]
    some = (
        f" (in {len(made)} of {len(every)} settings)" if len(made) < len(every) else ""
    )
    return "; ".join(dict.fromkeys(made)) + some if made else ""


def regret_curve(
    run: Run, policy: str, setting_index: int = 0, points: int = 600
) -> Curve:
    """Cumulative regret, averaged over seeds, in rounds that are evenly spaced on a log axis."""
    rounds = thinned(run.rounds, points, log=True)
    return Curve(
        rounds, run.cumulative(policy, setting_index)[:, rounds - 1].mean(axis=0)
    )


def power_text(exponent: float) -> str:
    """How regret grows, in one line; a dash where nobody knows.

    >>> power_text(0.5), power_text(-0.05)
    ('t⁰·⁵⁰', 't⁻⁰·⁰⁵')
    """
    return "t" + f"{exponent:.2f}".translate(_RAISED) if np.isfinite(exponent) else "–"


def growth_exponent(run: Run, policy: str, setting_index: int = 0) -> float:
    """The slope p of regret ∝ t^p, fitted on log–log axes over the last half; NaN where undefined."""
    return growth_of(regret_curve(run, policy, setting_index))


def growth_of(curve: Curve) -> float:
    """The slope p of a curve ∝ t^p over the last half of its rounds; NaN where undefined."""
    late = 2 * curve.rounds >= curve.rounds[-1]
    rounds, mean = curve.rounds[late], curve.mean[late]
    if len(rounds) < 3 or mean.min() <= 0.0:
        return float("nan")
    return float(np.polyfit(np.log(rounds), np.log(mean), 1)[0])


def seconds_curve(
    run: Run, policy: str, setting_index: int = 0, points: int = 120
) -> Curve:
    """Mean seconds per round over all seeds, in consecutive stretches that end at ``rounds``."""
    seconds = run.seconds(policy, setting_index)[:, min(1, run.rounds - 1) :]
    count = seconds.shape[1]
    edges = np.unique(np.linspace(0, count, min(points, count) + 1).astype(np.intp))
    means = np.array([seconds[:, a:b].mean(dtype=float) for a, b in pairwise(edges)])
    return Curve(edges[1:] + run.rounds - count, means)


def seconds_by_seed(
    run: Run, policy: str, setting_index: int = 0, points: int = 30
) -> list[Curve]:
    """For each seed, the median seconds of a round in consecutive stretches that end at ``rounds``.

    Medians, because a busy machine or a collection of garbage makes single rounds long.
    """
    seconds = run.seconds(policy, setting_index)[:, min(1, run.rounds - 1) :]
    count = seconds.shape[1]
    edges = np.unique(np.linspace(0, count, min(points, count) + 1).astype(np.intp))
    ends = edges[1:] + run.rounds - count
    medians = np.stack(
        [np.median(seconds[:, a:b], axis=1) for a, b in pairwise(edges)], axis=1
    )
    return [Curve(ends, each.astype(np.float64)) for each in medians]


class Sweep(NamedTuple):
    """One panel of a sweep: the settings that differ in ``key`` alone."""

    key: str
    fixed: Mapping[str, Any]
    values: list[Any]
    settings: list[int]


def sweeps(run: Run, key: str | None = None) -> list[Sweep]:
    """The run's settings as panels along ``key`` (by default the swept key with most numbers), in its
    order. A key with texts is taken only where it is named; its order is that of the settings."""
    values: dict[str, set[Any]] = {}
    for setting in run.settings:
        for name, value in setting.items():
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if number or (name == key and isinstance(value, str)):
                values.setdefault(name, set()).add(value)
    swept = [name for name, found in values.items() if len(found) > 1]
    key = key or max(swept, key=lambda name: len(values[name]), default="")
    if key not in values:
        return []
    panels: dict[str, Sweep] = {}
    settings = [*enumerate(run.settings)]
    if not any(isinstance(value, str) for value in values[key]):
        settings.sort(key=lambda each: each[1].get(key, 0))
    for index, setting in settings:
        fixed = {name: value for name, value in setting.items() if name != key}
        panel = panels.setdefault(
            repr(sorted(fixed.items())), Sweep(key, fixed, [], [])
        )
        if key in setting:
            panel.values.append(setting[key])
            panel.settings.append(index)
    return [panel for panel in panels.values() if len(panel.values) > 1]


def spread_labels(
    positions: Sequence[float], gap: float, low: float, high: float
) -> list[float]:
    """Move positions as little as possible so that they lie ``gap`` apart within [low, high].

    >>> spread_labels([5.0, 5.0, 40.0], 10.0, 0.0, 100.0)
    [0.0, 10.0, 40.0]
    """
    from scipy.optimize import isotonic_regression

    wishes, room = (
        np.asarray(positions, dtype=np.float64),
        gap * np.arange(len(positions)),
    )
    order = np.argsort(wishes, kind="stable")
    moved = isotonic_regression(
        wishes[order] - room
    ).x  # least squares among what keeps its order
    placed = np.empty(len(wishes))
    placed[order] = np.clip(moved, low, max(low, high - (len(wishes) - 1) * gap)) + room
    return [float(each) for each in placed]


def significant(value: float, digits: int = 3) -> str:
    """A number for reading.

    >>> [significant(x) for x in (12345.6, -0.012345, 2.0, 1.5e-7)]
    ['12,300', '−0.0123', '2', '1.5·10⁻⁷']
    """
    if not np.isfinite(value):
        return "–"
    if value < 0.0:
        return "−" + significant(-value, digits)
    rounded = float(f"{value:.{digits}g}")
    if rounded != 0.0 and not 1e-4 <= abs(rounded) < 1e9:
        digit, power = f"{rounded:.{digits}g}".split("e")
        return (
            (f"{digit}·" if digit != "1" else "")
            + "10"
            + str(int(power)).translate(_RAISED)
        )
    decimals = (
        max(0, digits - 1 - int(np.floor(np.log10(abs(rounded))))) if rounded else 0
    )
    text = f"{rounded:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def plus_minus(mean: float, stderr: float) -> str:
    """A mean to three digits, and its standard error to the same place, unless that is nil.

    >>> plus_minus(171.23, 6.98), plus_minus(13612.0, 457.0), plus_minus(2.0, 0.0)
    ('171 ± 7', '13,600 ± 460', '2')
    """
    if stderr == 0.0:
        return significant(mean)
    if not (np.isfinite(mean) and np.isfinite(stderr)) or not 1e-3 <= abs(mean) < 1e3:
        return f"{significant(mean)} ± {significant(stderr, 2)}"
    if mean < 0.0:
        return "−" + plus_minus(-mean, stderr)
    decimals = max(0, 2 - int(np.floor(np.log10(mean))))
    error = f"{stderr:,.{decimals}f}"
    told = error if float(error.replace(",", "")) else significant(stderr, 2)
    return f"{mean:,.{decimals}f} ± {told}"


def ticks(low: float, high: float, log: bool = False) -> list[float]:
    """Round numbers within [low, high], about five.

    >>> ticks(0.0, 30000.0), ticks(2e-5, 7e-3, log=True)
    ([0.0, 5000.0, 10000.0, 15000.0, 20000.0, 25000.0, 30000.0], [3e-05, 0.0001, 0.0003, 0.001, 0.003])
    """
    if not high > low:
        return [low]
    if log:
        decades = float(np.log10(high / low))
        steps = (1, 2, 5) if decades < 1.5 else (1, 3) if decades < 3.0 else (1,)
        powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
        every = [float(f"{step}e{power}") for power in powers for step in steps]
        return [value for value in every if low * 0.999 <= value <= high * 1.001]
    least = (high - low) / 7.0
    power = 10.0 ** np.floor(np.log10(least))
    step = float(
        power
        * next(nice for nice in (1, 2, 2.5, 5, 10) if nice * power >= least * 0.999)
    )
    first, last = int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9))
    return [round(number * step, 12) for number in range(first, last + 1)]


def count_text(count: int, noun: str) -> str:
    """``1 seed``, ``2 seeds``."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def readable_seconds(seconds: float) -> str:
    """Seconds with the unit that fits.

    >>> readable_seconds(0.00025)
    '250 µs'
    """
    units = ("s", 1.0), ("ms", 1e3), ("µs", 1e6)
    unit, scale = next((each for each in units if seconds * each[1] >= 1), ("ns", 1e9))
    return f"{significant(seconds * scale)} {unit}"


def readable_duration(seconds: float) -> str:
    """Seconds as a duration for people to read.

    >>> [readable_duration(seconds) for seconds in (0.8, 42.4, 754.0, 18732.0)]
    ['0.8 s', '42 s', '12 min 34 s', '5 h 12 min']
    """
    if seconds < 10.0:
        return f"{seconds:.1f} s"
    if seconds < 60.0:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(round(seconds / 60.0), 60)
    return f"{hours} h {minutes} min"


def matches(run: Run, setting: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Whether a setting has the values that ``where`` names, one or a list for each key.

    What is not swept has the value that the problem was given.
    """
    given = {**(run.spec.get("parameters") or {}).get("problem", {}), **setting}
    found = ((given.get(key), value) for key, value in where.items())
    return all(
        has == value or (isinstance(value, list) and has in value)
        for has, value in found
    )


def given_to(run: Run, owner: str, setting_index: int) -> dict[str, Any]:
    """What "problem", "feedback" or a policy was given in a setting, whose keys may name its owner."""
    parameters = run.spec.get("parameters") or {}
    own = (
        parameters
        if owner in ("problem", "feedback")
        else parameters.get("policies") or {}
    )
    setting = run.settings[setting_index]
    named = {key.removeprefix(f"{owner}."): value for key, value in setting.items()}
    given = own.get(owner) or {}
    if not isinstance(given, Mapping):
        raise StateError(
            f"{run.directory / 'run.json'} is damaged: {owner} must be a table, got {given!r:.40}"
        )
    return {**given, **setting, **named}


def feedback_at_once(run: Run, setting_index: int) -> bool:
    """Whether all rewards of a round were known before the next, and none was lost."""
    feedback, problem = (
        given_to(run, owner, setting_index) for owner in ("feedback", "problem")
    )
    late = feedback.get("latest") or problem.get("late") is not None
    return not late and not feedback.get("lost")


def setting_text(setting: Mapping[str, Any]) -> str:
    """A setting in one line: ``lengthscale = 0.2, k = 5``."""
    return ", ".join(f"{key} = {value}" for key, value in setting.items())


def setting_prefix(setting: Mapping[str, Any]) -> str:
    """What stands before evidence from one setting of several; empty where there is only one.

    >>> setting_prefix({"k": 5}), setting_prefix({})
    ('[k = 5] ', '')
    """
    return f"[{setting_text(setting)}] " if setting else ""


def mean_text(values: Floats) -> str:
    """A mean over seeds with its standard error.

    >>> mean_text(np.array([1.0, 3.0]))
    '2.00 ± 1.00'
    """
    return plus_minus(*average(values))
