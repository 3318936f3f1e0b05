"""Claims: each check true and false, evidence with numbers, malformed ones refused early."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.errors import SpecError
from superarm.experiments import Experiment, experiment_ids, judge, load_experiment
from superarm.experiments.claims import judge_variances
from superarm.simulation import Run, Trace, write_trace
from superarm.simulation.trace import write_spec

Totals = dict[str, list[float]]


def make_run(
    directory: Path, totals: Totals, settings: list[dict[str, Any]] | None = None, **metrics: Totals
) -> Run:
    """A run of two rounds whose totals, one per seed, are given; the same in every setting."""
    settings = settings or [{}]
    seeds = len(next(iter(totals.values())))
    spec = {"experiment": "x", "rounds": 2, "first_seed": 0, "seeds": seeds}
    write_spec(directory, {**spec, "policies": list(totals), "settings": settings})
    for index, setting in enumerate(settings):
        for policy, values in totals.items():
            for seed, total in enumerate(values):
                series = {"regret": np.array([0.25 * total, 0.75 * total])}
                for name, others in metrics.items():
                    series[name] = np.array([others[policy][seed], 0.0])
                trace = Trace(
                    policy=policy, setting=setting, setting_index=index, seed=seed, series=series
                )
                write_trace(directory, trace)
    return Run.load(directory)


def claim(check: str, **keys: Any) -> dict[str, Any]:
    return {"text": f"{check} of something", "check": check, **keys}


TOTALS = {"good": [1.0, 3.0], "fair": [4.0, 4.0], "poor": [10.0, 30.0]}
REWARDS = {"good": [9.0, 11.0], "fair": [5.0, 5.0], "poor": [1.0, 1.0]}


@pytest.mark.parametrize(
    ("told", "holds"),
    [
        (claim("ratio-at-most", policy="good", versus="poor", ratio=0.1), True),
        (claim("ratio-at-most", policy="good", versus="poor", ratio=0.09), False),
        (claim("ratio-at-least", policy="poor", versus="good", ratio=10), True),
        (claim("ratio-at-least", policy="poor", versus="good", ratio=10.1), False),
        (claim("ratio-at-least", policy="good", versus="fair", ratio=2, metric="reward"), True),
        (claim("ratio-at-least", policy="good", versus="fair", ratio=2.1, metric="reward"), False),
        (claim("ratio-between", policy="good", versus="fair", least=0.5, most=0.6), True),
        (claim("ratio-between", policy="good", versus="fair", least=0.4, most=0.49), False),
        (claim("ratio-between", policy="good", versus="fair", least=0.51, most=0.6), False),
        (claim("about-equal", policy="good", versus="fair", tolerance=0.5), True),
        (claim("about-equal", policy="fair", versus="good", tolerance=0.49), False),
        (claim("lowest", policy="good", among=["fair", "poor"]), True),
        (claim("lowest", policy="fair", among=["good", "poor"]), False),
        (claim("lowest", policies=["poor", "good"], among=["fair"]), True),
        (claim("lowest", policies=["poor", "fair"], among=["good"]), False),
    ],
)
def test_checks_hold_and_fail_with_numbers(told: dict[str, Any], holds: bool, tmp_path: Path) -> None:
    (verdict,) = judge(make_run(tmp_path, TOTALS, reward=REWARDS), [told])
    assert verdict.holds is holds
    assert verdict.text == told["text"]
    assert verdict.as_json() == {"text": told["text"], "holds": holds, "evidence": verdict.evidence}
    named = [told.get(key) for key in ("policy", "versus") if key in told]
    assert all(str(name) in verdict.evidence for name in named)
    assert len(re.findall(r"\d", verdict.evidence)) >= 4
    assert "(2 seeds, T = 2)" in verdict.evidence


@pytest.mark.parametrize(
    ("left", "right", "ratio", "most", "least"),
    [
        (0.0, 0.0, 0.5, True, True),
        (1.0, 0.0, 0.5, False, True),
        (-10.0, -5.0, 0.5, True, False),  # totals below zero: the product decides, not the quotient
        (-1.0, 5.0, 0.5, True, False),
    ],
)
def test_ratios_of_zero_and_negative_totals(
    left: float, right: float, ratio: float, most: bool, least: bool, tmp_path: Path
) -> None:
    run = make_run(tmp_path, {"a": [left], "b": [right]})
    keys = {"policy": "a", "versus": "b", "ratio": ratio}
    verdicts = judge(run, [claim("ratio-at-most", **keys), claim("ratio-at-least", **keys)])
    assert [verdict.holds for verdict in verdicts] == [most, least]
    assert not any(re.search(r"\b(inf|nan)\b", verdict.evidence) for verdict in verdicts)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (claim("ratio-at-most", policy="a", versus="b", ratio=1), "a − b seed by seed -2.00 ± 0.50"),
        (claim("ratio-at-most", policy="a", versus="b", ratio=0.9), "a − 0.9 × b seed by seed"),
        (claim("lowest", policy="a", among=["b", "c"]), "a − b seed by seed -2.00 ± 0.50"),
        (claim("lowest", policy="b", among=["a", "c"]), "b − a seed by seed 2.00 ± 0.50"),
        (claim("about-equal", policy="b", versus="a", tolerance=0.5), "b − a seed by seed 2.00 ± 0.50"),
    ],
)
def test_the_evidence_compares_seed_by_seed(told: dict[str, Any], words: str, tmp_path: Path) -> None:
    """Seeds differ far more than policies do; the difference of policies is plain all the same."""
    run = make_run(tmp_path, {"a": [1.0, 21.0], "b": [3.5, 22.5], "c": [50.0, 90.0]})
    (verdict,) = judge(run, [told])
    assert words in verdict.evidence


@pytest.mark.parametrize("check", ["ratio-at-most", "ratio-between", "about-equal", "lowest"])
@pytest.mark.parametrize(
    ("totals", "noisy"),
    [
        ([[9.0, 11.0, 10.1], [10.5, 9.0, 10.0]], True),
        ([[1.0, 1.1, 1.2], [9.0, 9.5, 9.7]], False),
        ([[10.0], [10.1]], False),  # one seed says nothing about noise
    ],
)
def test_within_noise_is_said_where_two_standard_errors_reach_the_limit(
    check: str, totals: list[list[float]], noisy: bool, tmp_path: Path
) -> None:
    keys: dict[str, dict[str, Any]] = {
        "ratio-at-most": {"versus": "b", "ratio": 1},
        "ratio-between": {"versus": "b", "least": 1, "most": 2},
        "about-equal": {"versus": "b", "tolerance": 0.01},
        "lowest": {"among": ["b"]},
    }
    run = make_run(tmp_path, {"a": totals[0], "b": totals[1]})
    (verdict,) = judge(run, [claim(check, policy="a", **keys[check])])
    assert ("within noise" in verdict.evidence) == noisy
    seeds = len(totals[0])
    assert f"({seeds} seed{'s' * (seeds > 1)}, T = 2)" in verdict.evidence


def test_made_data_are_said_in_every_claim(tmp_path: Path) -> None:
    keys = {"policy": "good", "versus": "poor", "ratio": 1}
    settings = [{"source": "synthetic"}, {"source": "real"}, {"k": 1}]
    run = make_run(tmp_path, TOTALS, settings=settings)
    spec = {**run.spec, "settled": {"data": "a city, synthetic data"}}
    verdicts = judge(Run(tmp_path, spec), [claim("ratio-at-most", **keys)])
    assert [each.evidence.endswith("on synthetic data") for each in verdicts] == [True, False, True]
    verdicts = judge(run, [claim("ratio-at-most", **keys)])
    assert [each.evidence.endswith("on synthetic data") for each in verdicts] == [True, False, False]


def test_claims_about_policies_that_were_not_run_are_skipped(tmp_path: Path) -> None:
    run = make_run(tmp_path, TOTALS)
    told = [
        claim("ratio-at-most", policy="good", versus="absent", ratio=1),
        claim("lowest", policy="good", among=["fair", "absent"]),
        claim("lowest", policies=["good", "absent"], among=["fair"]),
    ]
    assert judge(run, told) == []
    assert judge(run, []) == []


def test_a_metric_that_was_not_measured_does_not_lose_the_run(tmp_path: Path) -> None:
    told = claim("ratio-at-most", policy="good", versus="poor", ratio=1, metric="profit")
    (verdict,) = judge(make_run(tmp_path, TOTALS), [told])
    assert not verdict.holds
    assert "no 'profit'" in verdict.evidence


def test_one_verdict_per_setting_that_names_it(tmp_path: Path) -> None:
    run = make_run(tmp_path, TOTALS, settings=[{"k": 1, "xi": 0.1}, {"k": 2, "xi": 0.1}])
    verdicts = judge(run, [claim("ratio-at-most", policy="good", versus="poor", ratio=1)])
    assert [verdict.evidence.partition("]")[0] for verdict in verdicts] == [
        "[k = 1, xi = 0.1",
        "[k = 2, xi = 0.1",
    ]


BASE = {
    "id": "x",
    "rounds": 2,
    "seeds": 1,
    "problem": {"name": "landscape"},
    "policies": {"random": {}},
}


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({}, "needs a text"),
        ({"text": 3, "check": "lowest"}, "needs a text"),
        ({"text": "t"}, "choose one of ['about-equal', 'lowest', 'no-trend', 'ratio-at-least', "),
        (claim("ratio-between", policy="a", versus="b", least=0.4), "'most'"),
        ({"text": "t", "check": ["lowest"]}, "has the check ['lowest']"),
        (claim("ratio-at-mots", policy="a", versus="b", ratio=1), "'ratio-at-mots'"),
        (claim("ratio-at-most", policy="a", versus="b"), "takes ['policy', 'ratio', 'versus']"),
        (claim("ratio-at-most", policy="a", versus="b", ratio=1, limit=2), "'limit'"),
        (
            claim("ratio-at-most", policy="a", versus="b", ratio="1"),
            "ratio is '1'; it must be a finite",
        ),
        (claim("ratio-at-most", policy="a", versus="b", ratio=True), "ratio is True"),
        (claim("ratio-at-most", policy="a", versus="b", ratio=float("nan")), "ratio is nan"),
        (claim("ratio-at-most", policy=1, versus="b", ratio=1), "policy is 1; it must be a name"),
        (claim("ratio-at-most", policy="a", versus="b", ratio=1, metric=2), "metric is 2"),
        (claim("about-equal", policy="a", versus="b", ratio=1), "'tolerance'"),
        (claim("lowest", policy="a"), "'among'"),
        (claim("lowest", among=["a"]), "'policy'"),
        (claim("lowest", policy="a", policies=["b"], among=["c"]), "takes ['among', 'policies']"),
        (claim("lowest", policy="a", among="bc"), "among is 'bc'; it must be a list of names"),
        (claim("lowest", policies=[], among=["a"]), "policies is []"),
    ],
)
def test_malformed_claims_are_refused_before_anything_runs(told: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=r"^here: ") as caught:
        Experiment.from_mapping({**BASE, "claims": [told]}, "here")
    assert words in str(caught.value)


def test_a_file_claims_only_about_policies_there_are(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    head = (
        'id="x"\nrounds=2\nseeds=1\n[problem]\nname="landscape"\n[policies.mine]\npolicy="random"\n'
        '[[claims]]\ntext="t"\ncheck="ratio-at-most"\nratio=1\npolicy="mine"\nversus='
    )
    path.write_text(head + '"gp-ie"\n', encoding="utf-8")
    with pytest.raises(SpecError, match="'gp-ie', which is no policy here"):
        load_experiment(str(path))
    path.write_text(head + '"gp-ei"\n', encoding="utf-8")  # --policies may add what is registered
    narrowed = load_experiment(str(path)).with_policies(["gp-ei"]).with_setting({})
    assert len(narrowed.claims) == 1


@pytest.mark.parametrize("name", experiment_ids())
def test_shipped_claims_are_about_listed_policies(name: str) -> None:
    shipped = load_experiment(name)
    for told in shipped.claims:
        named = [told[key] for key in ("policy", "versus") if key in told]
        everyone = {*named, *told.get("policies", []), *told.get("among", [])}
        assert everyone <= set(shipped.policies)


def sweep_run(directory: Path, totals: dict[float, list[float]]) -> Run:
    """A run of one policy whose totals, one per seed, depend on the swept ``width``."""
    settings = [{"route": "a", "width": width} for width in totals]
    seeds = len(next(iter(totals.values())))
    spec = {"experiment": "x", "rounds": 1, "first_seed": 0, "seeds": seeds}
    write_spec(directory, {**spec, "policies": ["mine"], "settings": settings})
    for index, values in enumerate(totals.values()):
        for seed, total in enumerate(values):
            trace = Trace(
                policy="mine",
                setting=settings[index],
                setting_index=index,
                seed=seed,
                series={"regret": np.array([total])},
            )
            write_trace(directory, trace)
    return Run.load(directory)


@pytest.mark.parametrize(
    ("totals", "holds", "words"),
    [
        ({2.0: [5.0, 6.0], 0.5: [1.0, 2.0], 1.0: [2.0, 3.5]}, True, "at width = 0.5: 1.5"),
        ({0.5: [5.0, 6.0], 1.0: [4.0, 4.0], 2.0: [3.0, 1.0]}, False, "slope per value"),
        ({0.5: [1.0, 9.0], 1.0: [3.0, 4.0], 2.0: [9.0, 2.0]}, True, "within noise"),
    ],
)
def test_rises_with_is_judged_once_over_all_values(
    totals: dict[float, list[float]], holds: bool, words: str, tmp_path: Path
) -> None:
    told = claim("rises-with", policy="mine", key="width")
    (verdict,) = judge(sweep_run(tmp_path, totals), [told])
    assert verdict.holds is holds
    assert words in verdict.evidence


@pytest.mark.parametrize(
    ("totals", "holds"),
    [
        ({0.5: [1.0, 9.0], 1.0: [3.0, 4.0], 2.0: [9.0, 2.0]}, True),
        ({0.5: [1.0, 2.0], 1.0: [2.0, 3.0], 2.0: [3.0, 4.5]}, False),
    ],
)
def test_no_trend_is_a_slope_within_noise(
    totals: dict[float, list[float]], holds: bool, tmp_path: Path
) -> None:
    told = claim("no-trend", policy="mine", key="width")
    (verdict,) = judge(sweep_run(tmp_path, totals), [told])
    assert verdict.holds is holds
    assert "slope per value" in verdict.evidence


def test_of_one_seed_nobody_can_say_what_is_chance(tmp_path: Path) -> None:
    told = claim("no-trend", policy="mine", key="width")
    assert judge(sweep_run(tmp_path, {1.0: [1.0], 2.0: [2.0]}), [told]) == []


def test_nothing_rises_with_a_single_value(tmp_path: Path) -> None:
    told = claim("rises-with", policy="mine", key="width")
    assert judge(sweep_run(tmp_path, {1.0: [1.0, 2.0]}), [told]) == []


def audited_run(directory: Path, variance: float, **options: Any) -> Run:
    """Two cells of one policy; allowed is 2(λ* + ς²)·I = 2(0.3 + 0.2)·(0.4 + 0.6) = 1 in each."""
    spec = {"experiment": "x", "rounds": 2, "first_seed": 0, "seeds": 2, "noise_variance": [0.2]}
    policies = {"parameters": {"policies": {"mine": options}}, "audited": ["mine"]}
    write_spec(directory, {**spec, **policies, "policies": ["mine"], "settings": [{}]})
    for seed, used in enumerate((0.5, variance)):
        audit = {
            "variance": np.array([0.75 * used, 0.25 * used], dtype=np.float32),
            "largest_eigenvalue": np.array([0.3, 0.1], dtype=np.float32),
            "information": np.array([0.4, 0.6], dtype=np.float32),
            "score": np.zeros(2, dtype=np.float32),
            "within": np.ones((2, 3), dtype=np.float32),
        }
        series = {"regret": np.zeros(2)}
        trace = Trace(policy="mine", setting={}, setting_index=0, seed=seed, series=series, audit=audit)
        write_trace(directory, trace)
    return Run.load(directory)


@pytest.mark.parametrize(("variance", "holds"), [(0.99, True), (1.02, False)])
def test_lemma_a12_is_judged_in_every_audited_cell(
    variance: float, holds: bool, tmp_path: Path
) -> None:
    (verdict,) = judge_variances(audited_run(tmp_path, variance))
    assert verdict.holds is holds
    assert "mine, seed 1" in verdict.evidence
    assert "2 cells" in verdict.evidence


def test_lemma_a12_says_nothing_of_approximate_or_unrecorded_posteriors(tmp_path: Path) -> None:
    assert judge_variances(audited_run(tmp_path / "a", 2.0, posterior="variational")) == []
    assert judge_variances(make_run(tmp_path / "b", TOTALS)) == []
