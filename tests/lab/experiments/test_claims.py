"""Claims: each check true and false, evidence with numbers, malformed ones rejected early."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from superarm.core import LEVELS
from superarm.core.capabilities import Metric
from superarm.core.errors import SpecError
from superarm.lab.experiments import Experiment, experiment_ids, judge, load_experiment
from superarm.lab.experiments.audits import judge_variances
from superarm.lab.experiments.claims import not_judged, policies_of
from superarm.lab.results.curves import seconds_by_seed
from superarm.lab.results.formats import plus_minus, significant
from superarm.lab.results.verdicts import within_noise
from superarm.lab.simulation import Run, Trace, write_trace
from superarm.lab.simulation.run_spec import write_spec

Totals = dict[str, list[float]]


def make_run(
    directory: Path,
    totals: Totals,
    settings: list[dict[str, Any]] | None = None,
    **metrics: Totals,
) -> Run:
    """A run of two rounds whose totals, one per seed, are given; the same in every setting."""
    settings = settings or [{}]
    seeds = len(next(iter(totals.values())))
    spec = {"experiment": "x", "rounds": 2, "first_seed": 0, "seeds": seeds}
    write_spec(directory, {**spec, "policies": list(totals), "settings": settings})
    for index in range(len(settings)):
        for policy, values in totals.items():
            for seed, total in enumerate(values):
                series = {"regret": np.array([0.25 * total, 0.75 * total])}
                for name, others in metrics.items():
                    series[name] = np.array([others[policy][seed], 0.0])
                trace = Trace(
                    policy=policy, setting_index=index, seed=seed, series=series
                )
                write_trace(directory, trace)
    return Run.load(directory)


def claim(check: str, **keys: Any) -> dict[str, Any]:
    return {"text": f"{check} of something", "check": check, **keys}


def often(values: list[float]) -> list[float]:
    """These seeds repeated, 36 in all: enough that unlike seeds are rare."""
    return values * (36 // len(values))


FAIR = often([4.0, 4.0, 4.0])
TOTALS = {
    "good": often([1.0, 3.0, 2.0]),
    "fair": FAIR,
    "even": FAIR,
    "poor": often([10.0, 30.0, 20.0]),
}
SAME = often([5.0, 5.0, 5.0])
REWARDS = {
    "good": often([9.0, 11.0, 10.0]),
    "fair": SAME,
    "even": SAME,
    "poor": often([1.0, 1.0, 1.0]),
}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("claim_spec", "word"),
    [
        # Of 36 seeds 2.44 standard errors are needed; that of good's totals and rewards is 0.14.
        (claim("below", policy="good", versus="poor", ratio=0.2), "holds"),  # −2 of 4
        (
            claim("below", policy="good", versus="poor", ratio=0.1),
            "does not hold",
        ),  # a tie
        (
            claim("above", policy="good", versus="poor", ratio=0.1),
            "does not hold",
        ),  # a tie
        (claim("below", policy="fair", versus="even"), "does not hold"),
        (claim("below", policy="fair", versus="even", ratio=1.1), "holds"),
        (claim("below", policy="fair", versus="even", ratio=1.02), "holds"),
        (claim("above", policy="fair", versus="even", ratio=1.02), "does not hold"),
        (claim("above", policy="fair", versus="even", ratio=1.1), "does not hold"),
        (
            claim("above", policy="good", versus="fair", ratio=1.5, metric="reward"),
            "holds",
        ),
        (
            claim("above", policy="good", versus="fair", ratio=1.97, metric="reward"),
            "undecided",
        ),
        (
            claim("below", policy="good", versus="fair", ratio=2.03, metric="reward"),
            "undecided",
        ),
        (
            claim("below", policy="good", versus="fair", ratio=2.5, metric="reward"),
            "holds",
        ),
        (
            claim("below", policy="good", versus="fair", ratio=1.5, metric="reward"),
            "does not hold",
        ),
        (claim("between", policy="fair", versus="even", least=0.9, most=1.1), "holds"),
        (
            claim("between", policy="fair", versus="even", least=1.1, most=2),
            "does not hold",
        ),
        (
            claim("between", policy="fair", versus="even", least=0.1, most=0.9),
            "does not hold",
        ),
        (
            claim("between", policy="good", versus="fair", least=0.48, most=0.6),
            "undecided",
        ),
        (claim("similar", policy="fair", versus="good", tolerance=0.5), "undecided"),
        (
            claim("similar", policy="good", versus="fair", tolerance=0.6),
            "holds",
        ),  # 2.4 − 2 ± 0.14
        (claim("similar", policy="fair", versus="good", tolerance=0.6), "holds"),
        (
            claim(
                "similar", policy="fair", versus="good", tolerance=0.1, metric="reward"
            ),
            "does not hold",
        ),
        (
            claim("below", policy=["poor", "fair"], versus="good", metric="reward"),
            "holds",
        ),
        (
            claim(
                "below",
                policy=["poor", "fair"],
                versus=["good", "even"],
                metric="reward",
            ),
            "does not hold",
        ),
        (
            claim("below", policy="poor", versus=["good", "even"], metric="reward"),
            "holds",
        ),
    ],
)
def test_many_seeds_decide(
    claim_spec: dict[str, Any], word: str, tmp_path: Path
) -> None:
    (verdict,) = judge(make_run(tmp_path, TOTALS, reward=REWARDS), [claim_spec])
    assert verdict.verdict == word, verdict.evidence
    assert verdict.as_json() == {
        "text": claim_spec["text"],
        "holds": word == "holds",
        "verdict": word,
        "evidence": verdict.evidence,
    }
    assert all(name in verdict.evidence for name in policies_of(claim_spec))
    assert " needed)" in verdict.evidence
    assert verdict.evidence.endswith("(36 seeds, T = 2)")


@pytest.mark.parametrize("seeds", [1, 2, 3])
@pytest.mark.parametrize("check", ["below", "above", "similar"])
def test_three_seeds_are_inconclusive(check: str, seeds: int, tmp_path: Path) -> None:
    keys = {"tolerance": 0.1} if check == "similar" else {}
    claim_spec = claim(check, policy="a", versus="b", **keys)
    (verdict,) = judge(
        make_run(tmp_path / "few", {"a": [1.0] * seeds, "b": [9.0] * seeds}),
        [claim_spec],
    )
    assert verdict.verdict == "undecided"
    text = "needs at least 4 seeds"
    assert verdict.evidence.endswith(
        f"; {text} ({seeds} seed{'s' * (seeds > 1)}, T = 2)"
    )
    four = make_run(tmp_path / "four", {"a": [1.0] * 4, "b": [9.0] * 4})
    assert judge(four, [claim_spec])[0].verdict == (
        "holds" if check == "below" else "does not hold"
    )


@pytest.mark.parametrize(
    ("half_width", "word"), [(0.59, "holds"), (0.61, "undecided")], ids=["3.79", "3.67"]
)
def test_the_threshold_is_students_for_either_verdict(
    half_width: float, word: str, tmp_path: Path
) -> None:
    """b − a has mean 1 and, about it, (−h, −h, 0, h, h): standard error h/√5; five seeds need 3.747."""
    differences = 1.0 + half_width * np.array([-1.0, -1.0, 0.0, 1.0, 1.0])
    errors = 1.0 / (half_width / np.sqrt(5.0))
    assert (errors > 3.747) == (word == "holds")
    assert (
        within_noise(differences) == within_noise(-differences) == (word == "undecided")
    )
    run = make_run(tmp_path, {"a": [0.0] * 5, "b": differences.tolist()})
    below, above = judge(
        run,
        [
            claim("below", policy="a", versus="b"),
            claim("above", policy="a", versus="b"),
        ],
    )
    assert below.verdict == word
    assert above.verdict == ("does not hold" if word == "holds" else "undecided")
    assert "; 3.75 needed)" in below.evidence


def test_claim_fails_only_beyond_chance_for_its_worst_rival(
    tmp_path: Path,
) -> None:
    """a − b is 1 ± 0.2, 5 standard errors. Of five seeds 3.75 are needed, and 7.17 of the worst of ten
    rivals, which makes a claim fail. To be below all of them, b needs no more than 3.75 of each."""
    leads = 1.0 + 0.2 * np.sqrt(5.0) * np.array([-1.0, -1.0, 0.0, 1.0, 1.0])
    rivals = [f"rival-{number}" for number in range(9)]
    totals: Totals = {
        "a": leads.tolist(),
        "b": [0.0] * 5,
        **{name: [9.0] * 5 for name in rivals},
    }
    run = make_run(tmp_path, totals)
    single, many, other_way = judge(
        run,
        [
            claim("below", policy="a", versus="b"),
            claim("below", policy="a", versus=["b", *rivals]),
            claim("below", policy="b", versus=["a", *rivals]),
        ],
    )
    assert single.verdict == "does not hold"
    assert many.verdict == "undecided"
    assert "(5 standard errors; 7.17 needed)" in many.evidence
    assert other_way.verdict == "holds"
    assert "(5 standard errors; 3.75 needed)" in other_way.evidence


def test_skewed_seeds_are_inconclusive(tmp_path: Path) -> None:
    """t is 4.7, but one seed of five loses most of the lead; without skewness 2.9 are left."""
    run = make_run(tmp_path, {"a": [0.0] * 5, "b": [4.0, 4.0, 4.0, 4.0, 1.2]})
    (verdict,) = judge(run, [claim("below", policy="a", versus="b")])
    assert verdict.verdict == "undecided"
    assert (
        "corrected for skewness; 3.75 needed); undecided: the 5 seeds are skewed"
        in verdict.evidence
    )


def test_a_lead_must_outweigh_seeds_unlike_these(tmp_path: Path) -> None:
    """Five seeds miss what happens in 45 % of all seeds with 5 %; eleven what happens in 24 %."""
    for seeds, word in ((5, "undecided"), (10, "undecided"), (11, "holds")):
        run = make_run(
            tmp_path / str(seeds), {"a": [75.0] * seeds, "b": [100.0] * seeds}
        )
        (verdict,) = judge(run, [claim("below", policy="a", versus="b")])
        assert verdict.verdict == word, verdict.evidence
        if seeds == 5:
            assert (
                "; undecided: up to 45 % of all seeds may be unlike these 5, and could outweigh a "
                "lead of 25 %; run at least 11 seeds" in verdict.evidence
            )


def test_rounding_differences_are_inconclusive(tmp_path: Path) -> None:
    """A lead of 1e-12 on 1,000 is a tie, also where seeds differ in it."""
    exact = [1000.0, 2000.0, 500.0, 800.0, 900.0]
    less = [total * (1.0 - 1e-15 * (3 + seed)) for seed, total in enumerate(exact)]
    run = make_run(tmp_path, {"a": less, "b": exact})
    for check in ("below", "above"):
        (verdict,) = judge(run, [claim(check, policy="a", versus="b")])
        assert verdict.verdict == "does not hold"
        assert "a − b seed by seed 0 (the same in every seed" in verdict.evidence


def test_seeds_that_share_their_data_count_less(tmp_path: Path) -> None:
    """With a share ρ in common the error grows by √(1 + nρ/(1 − ρ)): √6 for n = 5 and ρ = 1/2."""
    leads = 1.0 + 0.1 * np.sqrt(5.0) * np.array([-1.0, -1.0, 0.0, 1.0, 1.0])
    run = make_run(tmp_path, {"a": [0.0] * 5, "b": leads.tolist()})
    claims = [claim("below", policy="a", versus="b")]
    assert "−1.00 ± 0.10 (10 standard errors" in judge(run, claims)[0].evidence
    (holds,) = judge(Run(tmp_path, {**run.spec, "shared_data": [0.5]}), claims)
    assert holds.verdict == "holds"
    assert (
        "−1.00 ± 0.24 (4.1 standard errors, corrected for the 50 % of data"
        in holds.evidence
    )
    (verdict,) = judge(Run(tmp_path, {**run.spec, "shared_data": [0.6]}), claims)
    assert verdict.verdict == "undecided"


@pytest.mark.parametrize(
    "claim_spec",
    [
        claim("between", versus="even", least=0.9, most=1.1),
        claim("similar", versus="even", tolerance=0.1),
        claim("below", versus="even", ratio=1.2),
    ],
)
def test_claim_about_several_policies_applies_to_each(
    claim_spec: Any, tmp_path: Path
) -> None:
    run = make_run(tmp_path, {**TOTALS, "worse": often([40.0, 40.0, 40.0])})

    def word(*policies: str) -> str:
        return judge(run, [{**claim_spec, "policy": list(policies)}])[0].verdict

    assert (word("fair"), word("worse")) == ("holds", "does not hold")
    assert word("fair", "worse") == word("worse", "fair") == "does not hold"
    swapped = {
        **claim_spec,
        "policy": "fair",
        "versus": ["even", "worse"],
        "check": "similar",
        "tolerance": 0.1,
    }
    for key in ("least", "most", "ratio"):
        swapped.pop(key, None)
    assert judge(run, [swapped])[0].verdict == "does not hold"


def test_the_evidence_compares_seed_by_seed_at_the_weakest_pair(tmp_path: Path) -> None:
    """Seeds differ far more than policies do; the difference of policies is plain all the same."""
    totals = {"a": [1.0, 21.0] * 2, "b": [3.5, 22.5] * 2, "c": [50.0, 90.0] * 2}
    run = make_run(tmp_path, totals)
    (verdict,) = judge(run, [claim("below", policy="a", versus=["c", "b"])])
    # a − b is (−2.5, −1.5) twice: mean −2, standard error √(1/3)/√4; the least total comes first.
    assert verdict.evidence == (
        "cumulative regret: a 11 ± 5.8, b 13 ± 5.5, c 70 ± 12; a − b seed by seed −2.00 ± 0.29 "
        "(6.9 standard errors; 4.54 needed); undecided: up to 53 % of all seeds may be unlike these 4, "
        "and could outweigh a lead of 15 %; run at least 18 seeds (4 seeds, T = 2)"
    )
    assert verdict.verdict == "undecided"


@pytest.mark.parametrize(
    ("leads", "text"),
    [([2.0, 0.0], "(1 standard error; "), ([321.0, 319.0], "(320 standard errors; ")],
)
def test_standard_errors_are_plain_numbers(
    leads: list[float], text: str, tmp_path: Path
) -> None:
    """Half d and half e, of five each, have the mean (d + e)/2 and the standard error |d − e|/6."""
    middle = sum(leads) / 2.0
    spread = [middle + 3.0 * (lead - middle) for lead in leads]
    run = make_run(tmp_path, {"a": [0.0] * 10, "b": spread * 5})
    (verdict,) = judge(run, [claim("below", policy="a", versus="b")])
    assert text in verdict.evidence


def test_totals_that_are_all_zero_are_similar(tmp_path: Path) -> None:
    run = make_run(tmp_path, {"a": [0.0] * 4, "b": [0.0] * 4, "c": [1.0, -1.0] * 2})
    (same,) = judge(run, [claim("similar", policy="a", versus="b", tolerance=0.1)])
    assert same.verdict == "holds"
    assert "a − b seed by seed 0 (the same in every seed" in same.evidence
    (other,) = judge(run, [claim("similar", policy="a", versus="c", tolerance=0.1)])
    assert other.verdict == "undecided"


def test_similar_leaves_room_by_the_mean_of_totals_of_either_sign(
    tmp_path: Path,
) -> None:
    """A share of the larger, seed by seed, whose sign is that of its mean: −25 for a, 20 for c."""
    below: Totals = {"a": [-20.0, -30.0] * 9, "b": [-20.1, -29.9] * 9}
    run = make_run(tmp_path, {**below, "c": [50.0, -10.0] * 9, "d": [49.0, -9.0] * 9})
    below_zero, mixed = judge(
        run,
        [
            claim("similar", policy="a", versus="b", tolerance=0.5),
            claim("similar", policy="c", versus="d", tolerance=0.5),
        ],
    )
    assert below_zero.verdict == "holds"
    # Half of the larger is 25 and −5; the difference is 1 and −1: in the mean 10, not 15.
    assert "(c − d) seed by seed 10.0 ± " in mixed.evidence


def test_totals_below_zero_are_compared_by_the_product(tmp_path: Path) -> None:
    run = make_run(tmp_path, {"a": [-10.0] * 4, "b": [-5.0] * 4})
    assert (
        judge(run, [claim("below", policy="a", versus="b", ratio=0.5)])[0].verdict
        == "holds"
    )


def test_every_verdict_mentions_synthetic_data(tmp_path: Path) -> None:
    keys = {"policy": "good", "versus": "poor", "ratio": 1}
    run = make_run(tmp_path, TOTALS, settings=[{"k": 1}, {"k": 2}])
    spec = {
        **run.spec,
        "settled": [{"data": "a city, synthetic data"}, {"data": "a city"}],
    }
    verdicts = judge(Run(tmp_path, spec), [claim("below", **keys)])
    assert [verdict.evidence.endswith("on synthetic data") for verdict in verdicts] == [
        True,
        False,
    ]
    verdicts = judge(run, [claim("below", **keys)])
    assert [verdict.evidence.endswith("on synthetic data") for verdict in verdicts] == [
        False,
        False,
    ]


def test_claims_about_policies_that_were_not_run_are_skipped(tmp_path: Path) -> None:
    run = make_run(tmp_path, TOTALS)
    claims = [
        claim("below", policy="good", versus="absent", ratio=1),
        claim("below", policy="good", versus=["fair", "absent"]),
        claim("below", policy=["good", "absent"], versus="fair"),
    ]
    assert judge(run, claims) == []
    assert judge(run, []) == []


def test_unjudged_claims_list_what_they_need(
    tmp_path: Path,
) -> None:
    run = make_run(
        tmp_path, TOTALS, settings=[{"k": 1, "on": "a"}, {"k": 2, "on": "a"}]
    )
    pair = {"policy": "good", "versus": "poor"}
    claims = [
        claim("below", **pair),
        claim("below", policy=["good", "bad"], versus=["poor", "worse"]),
        claim("below", **pair, metric="profit"),
        claim("rises", policy="good", key="on"),
        claim("rises", policy="good", key="k", where={"on": "b"}),
        claim("rises", policy="good", key="k", where={"on": ["b", "c"]}),
        claim("rises", policy="good", key="k"),
    ]
    assert [entry["needs"] for entry in not_judged(run, claims)] == [
        ["bad", "worse"],
        ["the metric profit"],
        ["a sweep over on"],
        ["a setting with on = b"],
        ["a setting with on = b or c"],
    ]
    assert len(judge(run, claims)) == 2 + 1


def test_a_metric_of_one_setting_is_judged_there(tmp_path: Path) -> None:
    run = make_run(
        tmp_path, TOTALS, settings=[{"problem.name": "a"}, {"problem.name": "b"}]
    )
    for policy, values in TOTALS.items():
        for seed in range(len(values)):
            series = {"regret": np.zeros(2), "profit": np.array([values[seed], 0.0])}
            write_trace(
                tmp_path,
                Trace(policy=policy, setting_index=1, seed=seed, series=series),
            )
    claims = [claim("above", policy="poor", versus="good", ratio=9, metric="profit")]
    (verdict,) = judge(run, claims)
    assert verdict.evidence.startswith("[problem.name = b]")
    assert not_judged(run, claims) == []


def test_one_verdict_per_setting_that_names_it(tmp_path: Path) -> None:
    run = make_run(
        tmp_path, TOTALS, settings=[{"k": 1, "xi": 0.1}, {"k": 2, "xi": 0.1}]
    )
    verdicts = judge(run, [claim("below", policy="good", versus="poor", ratio=1)])
    assert [verdict.evidence.partition("]")[0] for verdict in verdicts] == [
        "[k = 1, xi = 0.1",
        "[k = 2, xi = 0.1",
    ]


def test_relative_to_another_policy(tmp_path: Path) -> None:
    """A quarter and a half of the others in every seed, however much these differ."""
    totals = {"good": [1.0, 3.0], "half": [2.0, 6.0], "poor": [4.0, 12.0]}
    run = make_run(
        tmp_path, {policy: often(values) for policy, values in totals.items()}
    )
    claims = [
        claim("below", policy="good", versus="half", ratio=0.75, relative_to="poor"),
        claim("below", policy="good", versus="half", ratio=0.5, relative_to="poor"),
    ]
    first, second = judge(run, claims)
    assert first.verdict == "holds"
    assert first.evidence.startswith(
        "cumulative regret relative to that of poor: good 0.25, half 0.5; "
    )
    assert second.verdict == "does not hold"
    (silent,) = not_judged(run, [{**claims[0], "relative_to": "gone"}])
    assert silent["needs"] == ["gone"]


def test_claim_relative_to_zero_is_undecided(tmp_path: Path) -> None:
    run = make_run(tmp_path, {**TOTALS, "zero": often([0.0, 0.0, 0.0])})
    (verdict,) = judge(
        run, [claim("below", policy="good", versus="poor", relative_to="zero")]
    )
    assert verdict.verdict == "undecided"


def test_claim_relative_to_a_negative_total_is_judged(tmp_path: Path) -> None:
    """Division by −1 turns the order around."""
    run = make_run(tmp_path, {**TOTALS, "negative": often([-1.0, -1.0, -1.0])})
    below = claim("below", policy="good", versus="poor", relative_to="negative")
    (turned,) = judge(run, [below])
    (back,) = judge(run, [{**below, "policy": "poor", "versus": "good"}])
    assert (turned.verdict, back.verdict) == ("does not hold", "holds")


@pytest.mark.slow
def test_among_some_values_of_a_key(tmp_path: Path) -> None:
    run = make_run(tmp_path, TOTALS, settings=[{"k": 1}, {"k": 2}, {"k": 3}])
    for index, factor in enumerate((9.0, 1.0, 2.0)):
        for policy, values in TOTALS.items():
            for seed, total in enumerate(values):
                series = {"regret": np.array([factor * total, 0.0])}
                trace = Trace(
                    policy=policy, setting_index=index, seed=seed, series=series
                )
                write_trace(tmp_path, trace)
    claim_spec = claim("rises", policy="fair", key="k")
    assert [verdict.verdict for verdict in judge(run, [claim_spec])] == [
        "does not hold"
    ]
    (late,) = judge(run, [{**claim_spec, "among": [2, 3]}])
    assert late.verdict == "holds"
    assert "at k = 2: 4, 3: 8" in late.evidence
    (silent,) = not_judged(run, [{**claim_spec, "among": [2, 5]}])
    assert silent["needs"] == ["a sweep over k of 2, 5"]
    for few in ([2], [2, 2]):
        with pytest.raises(SpecError, match="among must name two values or more"):
            judge(run, [{**claim_spec, "among": few}])


def test_time_per_round_is_judged_where_it_was_recorded(tmp_path: Path) -> None:
    run = make_run(tmp_path, {"quick": FAIR, "slow": FAIR})
    for policy, seconds in {"quick": 1.0, "slow": 3.0}.items():
        for seed in range(len(FAIR)):
            series = {"regret": np.zeros(2)}
            timed = np.array(
                [9.0, seconds], dtype=np.float32
            )  # what warms up does not count
            write_trace(
                tmp_path,
                Trace(
                    policy=policy,
                    setting_index=0,
                    seed=seed,
                    series=series,
                    seconds=timed,
                ),
            )
    claim_spec = claim(
        "above", metric="seconds", policy="slow", versus="quick", ratio=2.5
    )
    (verdict,) = judge(run, [claim_spec])
    assert verdict.verdict == "holds"
    assert verdict.evidence.startswith("time per round (s): quick 1, slow 3; ")
    for path in (tmp_path / "timings").iterdir():
        path.unlink()
    assert judge(run, [claim_spec]) == []
    assert not_judged(run, [claim_spec])[0]["needs"] == ["the metric seconds"]


def test_unswept_keys_take_the_problems_value(tmp_path: Path) -> None:
    run = make_run(tmp_path, TOTALS)
    path = tmp_path / "run.json"
    spec = json.loads(path.read_text(encoding="utf-8"))
    spec["parameters"] = {"problem": {"name": "x", "k": 3}}
    path.write_text(json.dumps(spec), encoding="utf-8")
    run = Run.load(tmp_path)
    claim_spec = claim("below", policy="fair", versus="even", ratio=1.01)
    assert len(judge(run, [{**claim_spec, "where": {"k": 3}}])) == 1
    assert judge(run, [{**claim_spec, "where": {"k": 4}}]) == []


BASE = {
    "id": "x",
    "rounds": 2,
    "seeds": 1,
    "problem": {"name": "landscape"},
    "policies": {"random": {}},
}


@pytest.mark.parametrize(
    ("claim_spec", "words"),
    [
        ({}, "needs a text"),
        ({"text": 3, "check": "below"}, "needs a text"),
        (
            {"text": "t"},
            "needs a check; choose one of above, alike, below, between, crosses, ",
        ),
        (claim("between", policy="a", versus="b", least=0.4), "'most'"),
        ({"text": "t", "check": ["below"]}, "unknown check ['below']"),
        (
            claim("bellow", policy="a", versus="b"),
            "unknown check 'bellow'; did you mean 'below'?",
        ),
        (claim("below", policy="a"), "check 'below' needs 'versus'"),
        (
            claim("below", policy="a", versus="b", ratoi=2),
            "check 'below' has no parameter 'ratoi'; did you mean 'ratio'?",
        ),
        (claim("below", policy="a", versus="b", limit=2), "'limit'"),
        (
            claim("below", policy="a", versus="b", ratio="1"),
            "ratio must be a number, got '1'",
        ),
        (
            claim("below", policy="a", versus="b", ratio=True),
            "ratio must be a number, got True",
        ),
        (claim("below", policy="a", versus="b", ratio=float("nan")), "ratio is nan"),
        (
            claim("below", policy=1, versus="b"),
            "policy must be text or a list of text, got 1",
        ),
        (
            claim("below", policy="a", versus="b", metric=2),
            "metric must be text, got 2",
        ),
        (
            claim("below", policy="a", versus="b", where="k"),
            "where must be a table, got 'k'",
        ),
        (
            claim("below", policy="a", versus="b", of="range"),
            "of is 'range'; it can be 'spread'",
        ),
        (
            claim("below", policy="a", versus="b", of="swing", metric="seconds"),
            "metric = 'seconds'",
        ),
        (
            claim("below", policy="a", versus="b", of="swing", relative_to="c"),
            "or relative_to",
        ),
        (claim("similar", policy="a", versus="b", ratio=1), "no parameter 'ratio'"),
        (
            claim("similar", policy=["a", 2], versus="b", tolerance=1),
            "must be text or a list of text",
        ),
        (claim("below", policy=[], versus="a"), "policy is []"),
        (claim("rises", policy="a"), "'key'"),
        (
            claim("similar", policy="a", versus="b", tolerance=-0.1),
            "tolerance must be above 0",
        ),
        (claim("below", policy="a", versus="b", ratio=-1), "ratio must be above 0"),
        (
            claim("below", policy="a", versus="b", ratio=float("inf")),
            "ratio must be above 0 and finite",
        ),
        (
            claim("between", policy="a", versus="b", least=-1, most=1),
            "least must not be below 0",
        ),
        (
            claim("between", policy="a", versus="b", least=2, most=1),
            "least must be below most",
        ),
        (
            claim("between", policy="a", versus="b", least=0.5, most=0.5),
            "least must be below most",
        ),
        (claim("below", policy=["a", "b"], versus="b"), "b is compared with itself"),
        (claim("rises", policy="a", key="k", where={"k": 1}), "where holds the key"),
    ],
)
def test_malformed_claims_are_refused_before_anything_runs(
    claim_spec: dict[str, Any], words: str
) -> None:
    with pytest.raises(SpecError, match=r"^here: ") as caught:
        Experiment.from_mapping({**BASE, "claims": [claim_spec]}, "here")
    assert words in str(caught.value)


def test_a_file_claims_only_about_policies_there_are(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    head = (
        'id="x"\nrounds=2\nseeds=1\n[problem]\nname="landscape"\n[policies.mine]\npolicy="random"\n'
        '[[claims]]\ntext="t"\ncheck="below"\nratio=1\npolicy="mine"\nversus='
    )
    path.write_text(head + '"gp-ie"\n', encoding="utf-8")
    with pytest.raises(SpecError, match="'gp-ie', which is not a policy here"):
        load_experiment(str(path))
    path.write_text(
        head + '"gp-ei"\n', encoding="utf-8"
    )  # --policies may add what is registered
    narrowed = load_experiment(str(path)).with_policies(["gp-ei"]).with_setting({})
    assert len(narrowed.claims) == 1


@pytest.mark.parametrize("line", ["where={sied=5}", 'check="rises"\nkey="sied"'])
def test_mistyped_claim_parameter_is_rejected(line: str, tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    kind = "" if "check" in line else 'check="below"\nversus="gp-ei"\n'
    text = (
        'id="x"\nrounds=2\nseeds=1\n[problem]\nname="landscape"\n[policies.random]\n'
        f'[[claims]]\ntext="t"\npolicy="random"\n{kind}{line}\n'
    )
    path.write_text(text, encoding="utf-8")
    with pytest.raises(
        SpecError, match="'sied' is not a parameter here; did you mean 'side'"
    ):
        load_experiment(str(path))
    path.write_text(text.replace("sied", "side"), encoding="utf-8")
    assert len(load_experiment(str(path)).claims) == 1


@pytest.mark.parametrize("name", experiment_ids())
def test_shipped_claims_are_about_listed_policies(name: str) -> None:
    shipped = load_experiment(name)
    for claim_spec in shipped.claims:
        assert set(policies_of(claim_spec)) <= set(shipped.policies)


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
                setting_index=index,
                seed=seed,
                series={"regret": np.array([total])},
            )
            write_trace(directory, trace)
    return Run.load(directory)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("claim_spec", "totals", "word"),
    [
        # Every step counts: from 0.5 to 1 it rises, from 1 to 2 chance may explain it.
        (
            claim("rises", policy="mine", key="width"),
            {2.0: [5.0, 6.1], 0.5: [1.0, 2.0], 1.0: [9.0, 0.0]},
            "undecided",
        ),
        (
            claim("rises", policy="mine", key="width"),
            {2.0: [5.0, 6.1], 0.5: [1.0, 2.0], 1.0: [3.0, 4.0]},
            "holds",
        ),
        (  # it falls in four of five steps: no rise, but an upward trend
            claim("rises", policy="mine", key="width"),
            {1.0: [5.0], 2.0: [4.0], 3.0: [3.0], 4.0: [20.0], 5.0: [19.0], 6.0: [18.0]},
            "does not hold",
        ),
        (
            claim("upward-trend", policy="mine", key="width"),
            {1.0: [5.0], 2.0: [4.0], 3.0: [3.0], 4.0: [20.0], 5.0: [19.0], 6.0: [18.0]},
            "holds",
        ),
        # Slopes over the ranks of 0.5, 1, 2 are half of last − first: the change is last − first.
        (
            claim("upward-trend", policy="mine", key="width"),
            {2.0: [5.0, 6.1], 0.5: [1.0, 2.0], 1.0: [9.0, 0.0]},
            "holds",
        ),
        (
            claim("downward-trend", policy="mine", key="width"),
            {2.0: [5.0, 6.1], 0.5: [1.0, 2.0], 1.0: [9.0, 0.0]},
            "does not hold",
        ),
        (
            claim("falls", policy="mine", key="width"),
            {2.0: [5.0, 6.1], 0.5: [1.0, 2.0]},
            "does not hold",
        ),
        (
            claim("falls", policy="mine", key="width"),
            {2.0: [1.0, 2.0], 0.5: [5.0, 6.1]},
            "holds",
        ),
        (
            claim("downward-trend", policy="mine", key="width"),
            {2.0: [1.0, 2.0], 0.5: [5.0, 6.1]},
            "holds",
        ),
        (
            claim("rises", policy="mine", key="width"),
            {0.5: [1.0, 9.0], 2.0: [9.0, 2.0]},
            "undecided",
        ),
        # Flat: the change, within a tenth of the mean, and seen; seen and too large; not seen.
        (
            claim("flat", policy="mine", key="width", tolerance=0.1),
            {0.5: [10.0, 10.0], 2.0: [10.1, 10.1]},
            "holds",
        ),
        (
            claim("flat", policy="mine", key="width", tolerance=0.1),
            {0.5: [10.0, 10.0], 2.0: [15.0, 15.1]},
            "does not hold",
        ),
        (
            claim("flat", policy="mine", key="width", tolerance=0.1),
            {0.5: [15.0, 15.1], 2.0: [10.0, 10.0]},
            "does not hold",
        ),
        (
            claim("flat", policy="mine", key="width", tolerance=0.1),
            {0.5: [0.0, 28.0], 2.0: [29.0, -1.0]},
            "undecided",
        ),
        # The mean is 11.5: 10 and 13 are within a quarter of it, though 13 is not of 10.
        (
            claim("flat", policy="mine", key="width", tolerance=0.25),
            {0.5: [10.0] * 2, 1.0: [11.5] * 2, 2.0: [13.0] * 2},
            "holds",
        ),
        (  # a tenth of a level below zero is room all the same
            claim("flat", policy="mine", key="width", tolerance=0.1),
            {0.5: [-10.0] * 2, 2.0: [-10.1] * 2},
            "holds",
        ),
        (  # a mean of zero leaves no room, unless all totals are zero
            claim("flat", policy="mine", key="width", tolerance=0.1),
            {1.0: [-0.5] * 2, 2.0: [0.5] * 2},
            "does not hold",
        ),
        (
            claim("flat", policy="mine", key="width", tolerance=0.1),
            {1.0: [0.0] * 2, 2.0: [0.0] * 2},
            "holds",
        ),
        (  # neither rises nor falls, and is not flat
            claim("flat", policy="mine", key="width", tolerance=0.1),
            {0.5: [10.0, 10.1], 1.0: [30.0, 30.1], 2.0: [10.0, 10.1]},
            "does not hold",
        ),
        # Of the spread: |x − median| is 0.5 at 1 and 4 at 2.
        (
            claim("rises", policy="mine", key="width", of="spread"),
            {1.0: [1.0, 2.0, 1.0, 2.0], 2.0: [8.0, 0.0, 8.0, 0.0]},
            "holds",
        ),
        (
            claim("rises", policy="mine", key="width", where={"route": "a"}),
            {1.0: [1.0, 1.0], 2.0: [8.0, 8.0]},
            "holds",
        ),
    ],
)
def test_claims_across_settings_are_judged_once(
    claim_spec: dict[str, Any],
    totals: dict[float, list[float]],
    word: str,
    tmp_path: Path,
) -> None:
    run = sweep_run(
        tmp_path, {width: often(values) for width, values in totals.items()}
    )
    (verdict,) = judge(run, [claim_spec])
    assert verdict.verdict == word, verdict.evidence
    least = min(totals)
    assert f"at width = {least:g}: " in verdict.evidence
    assert verdict.evidence.startswith("[route = a] ")


@pytest.mark.parametrize(
    ("statistic", "totals", "change"),
    [
        # Last − first is 4 and 4.1, twice each: mean 4.05, standard error 0.05 √(4/3)/√4.
        (
            None,
            {0.5: [1.0, 2.0] * 2, 1.0: [9.0, 0.0] * 2, 2.0: [5.0, 6.1] * 2},
            "4.05 ± 0.03",
        ),
        # From the median, 0, the seeds are (0, 0, 0, 8) away: mean 2, deviation 4, over √4 seeds.
        ("spread", {1.0: [0.0] * 4, 2.0: [0.0, 0.0, 0.0, 8.0]}, "2.00 ± 2.00"),
    ],
)
def test_evidence_reports_the_trend_over_all_values(
    statistic: str | None, totals: dict[float, list[float]], change: str, tmp_path: Path
) -> None:
    claim_spec = claim(
        "upward-trend",
        policy="mine",
        key="width",
        **({"of": statistic} if statistic else {}),
    )
    (verdict,) = judge(sweep_run(tmp_path, totals), [claim_spec])
    assert f"trend of mine over all values seed by seed {change} (" in verdict.evidence


def test_the_evidence_names_the_weakest_step(tmp_path: Path) -> None:
    run = sweep_run(
        tmp_path, {1.0: [1.0] * 5, 2.0: [9.0] * 5, 4.0: [8.0] * 5, 8.0: [20.0] * 5}
    )
    (verdict,) = judge(run, [claim("rises", policy="mine", key="width")])
    assert (
        "; change of mine from 2 to 4 seed by seed −1 (the same in every seed"
        in verdict.evidence
    )


def test_a_swing_is_how_far_the_mean_over_rounds_moves_in_the_second_half(
    tmp_path: Path,
) -> None:
    """Means of 3, 3, 3, 3 stay; those of 0, 4, 0, 8 are 0, 2, 4/3, 3, from round 3 on 4/3 and 3."""
    write_spec(
        tmp_path,
        {
            "experiment": "x",
            "rounds": 4,
            "first_seed": 0,
            "seeds": 4,
            "policies": ["calm", "wild"],
        }
        | {"settings": [{}]},
    )
    for policy, rewards in (("calm", [3.0] * 4), ("wild", [0.0, 4.0, 0.0, 8.0])):
        for seed in range(4):
            series = {"regret": np.array(rewards)}
            write_trace(
                tmp_path,
                Trace(policy=policy, setting_index=0, seed=seed, series=series),
            )
    claim_spec = claim("below", policy="calm", versus="wild", of="swing")
    (verdict,) = judge(Run.load(tmp_path), [claim_spec])
    assert verdict.verdict == "holds"
    assert "swing of average regret: calm 0, wild 1.67; calm − wild" in verdict.evidence


@pytest.mark.parametrize("statistic", ["spread", "swing"])
def test_rounding_does_not_decide_spreads_and_swings(
    tmp_path: Path, statistic: str
) -> None:
    """The same number in every round and seed, but for rounding of the sums: neither moves."""
    rounds, seeds = 300, 5
    spec = {
        "experiment": "x",
        "rounds": rounds,
        "first_seed": 0,
        "seeds": seeds,
        "settings": [{}],
    }
    write_spec(tmp_path, {**spec, "policies": ["tenth", "half"]})
    for policy, reward in (("tenth", 0.1), ("half", 0.5)):
        for seed in range(seeds):
            rewards = np.full(rounds, reward)
            rewards[0] += (
                1e-14 * seed * (policy == "tenth")
            )  # sums of seeds in another order
            series = {"regret": rewards}
            write_trace(
                tmp_path,
                Trace(policy=policy, setting_index=0, seed=seed, series=series),
            )
    claims = [
        claim("below", policy="half", versus="tenth", of=statistic),
        claim("above", policy="half", versus="tenth", of=statistic),
    ]
    verdicts = judge(Run.load(tmp_path), claims)
    assert [verdict.verdict for verdict in verdicts] == ["does not hold"] * 2  # a tie
    assert (
        "half 0, tenth 0" in verdicts[0].evidence
        or "tenth 0, half 0" in verdicts[0].evidence
    )


def test_a_claim_is_about_the_settings_that_it_names(tmp_path: Path) -> None:
    run = make_run(tmp_path, TOTALS, settings=[{"k": 1}, {"k": 2}])
    (verdict,) = judge(
        run,
        [claim("below", policy="fair", versus="good", where={"k": 2}, metric="regret")],
    )
    assert verdict.evidence.startswith("[k = 2] ")
    assert (
        judge(run, [claim("below", policy="fair", versus="good", where={"k": 3})]) == []
    )
    absent = [claim("below", policy="fair", versus="good", where={"m": 1})]
    assert judge(run, absent) == []
    assert [entry["needs"] for entry in not_judged(run, absent)] == [
        ["a setting with m = 1"]
    ]


@pytest.mark.parametrize(
    ("mover", "stayer", "words"),
    [
        ({5.0: 9.0, 0.1: 1.0}, {5.0: 4.0, 0.1: 3.0}, ["holds", "does not hold"]),
        # Above only in the middle; above the rival's first value but not its last.
        (
            {0.1: 1.0, 1.0: 9.0, 5.0: 2.0},
            dict.fromkeys((0.1, 1.0, 5.0), 4.0),
            ["does not hold"] * 2,
        ),
        ({0.1: 1.0, 5.0: 3.5}, {0.1: 3.0, 5.0: 4.0}, ["does not hold"] * 2),
    ],
)
def test_crossing_is_below_at_first_and_above_at_last(
    mover: dict[float, float],
    stayer: dict[float, float],
    words: list[str],
    tmp_path: Path,
) -> None:
    settings = [{"rho": rho} for rho in mover]
    spec = {
        "experiment": "x",
        "rounds": 1,
        "first_seed": 0,
        "seeds": 25,
        "settings": settings,
    }
    write_spec(tmp_path, {**spec, "policies": ["mover", "stayer"]})
    for policy, totals in (("mover", mover), ("stayer", stayer)):
        for index, total in enumerate(totals.values()):
            for seed in range(25):
                series = {"regret": np.array([total])}
                trace = Trace(
                    policy=policy, setting_index=index, seed=seed, series=series
                )
                write_trace(tmp_path, trace)
    claims = [
        claim("crosses", policy="mover", versus="stayer", key="rho"),
        claim("crosses", policy="stayer", versus="mover", key="rho"),
    ]
    assert [verdict.verdict for verdict in judge(Run.load(tmp_path), claims)] == words


def crossing_run(directory: Path, mover: dict[float, list[float]]) -> Run:
    """A rival with the total 4 at every ρ."""
    seeds = len(next(iter(mover.values())))
    spec = {"experiment": "x", "rounds": 1, "first_seed": 0, "seeds": seeds}
    settings = [{"rho": rho} for rho in mover]
    write_spec(
        directory, {**spec, "settings": settings, "policies": ["mover", "stayer"]}
    )
    for index, totals in enumerate(mover.values()):
        for seed, total in enumerate(totals):
            for policy, value in (("mover", total), ("stayer", 4.0)):
                series = {"regret": np.array([value])}
                trace = Trace(
                    policy=policy, setting_index=index, seed=seed, series=series
                )
                write_trace(directory, trace)
    return Run.load(directory)


def test_crossings_are_reported_with_an_interval(tmp_path: Path) -> None:
    """On lines over ln ρ: halfway from 1 to 4 in one seed, and at a quarter of it in the other."""
    claim_spec = claim("crosses", policy="mover", versus="stayer", key="rho")
    run = crossing_run(
        tmp_path / "a", {1.0: [3.0, 3.5], 4.0: [5.0, 5.5], 16.0: [6.0, 6.0]}
    )
    (verdict,) = judge(run, [claim_spec])
    mean = np.exp(0.375 * np.log(4.0))
    reach = (
        12.706 * 0.125 * np.log(4.0)
    )  # Student's t of two seeds, times the error of the mean
    expected = f"at rho = {mean:.3g} (95 % interval {mean / np.exp(reach):.3g} to {mean * np.exp(reach):.3g})"
    assert (
        f"mover and stayer cross once in 2 of 2 seeds, {expected}" in verdict.evidence
    )
    # A line over ρ itself where it may be 0.
    run = crossing_run(tmp_path / "b", {0.0: [3.0, 3.0], 2.0: [5.0, 5.0]})
    (verdict,) = judge(run, [claim_spec])
    assert "at rho = 1 (95 % interval 1 to 1)" in verdict.evidence
    # There and back is not once; nor is never, or a tie from the start.
    run = crossing_run(
        tmp_path / "c",
        {1.0: [3.0, 3.0, 4.0], 2.0: [5.0, 3.0, 5.0], 3.0: [3.0, 3.0, 6.0]},
    )
    (verdict,) = judge(run, [claim_spec])
    assert "cross once in 0 of 3 seeds;" in verdict.evidence


def test_the_interval_of_a_crossing_is_that_of_the_seeds_that_cross(
    tmp_path: Path,
) -> None:
    """Of six seeds three cross; Student's t is that of three."""
    first, last = (
        [3.0, 3.0, 3.0, 9.0, 9.0, 9.0],
        [5.0 + 2.0, 5.0, 4.0 + 1.0 / 3.0, 9.0, 9.0, 9.0],
    )
    run = crossing_run(
        tmp_path,
        {0.0: first, 2.0: [4.0 + 1.0 / 3.0, 4.0, 3.5, 9.0, 9.0, 9.0], 4.0: last},
    )
    (verdict,) = judge(
        run, [claim("crosses", policy="mover", versus="stayer", key="rho")]
    )
    crossings = np.array([1.5, 2.0, 2.0 + 2.0 * 0.5 / (0.5 + 1.0 / 3.0)])
    mean, reach = (
        crossings.mean(),
        stats.t.ppf(0.975, 2) * crossings.std(ddof=1) / np.sqrt(3.0),
    )
    low, high = map(significant, (mean - reach, mean + reach))
    assert "cross once in 3 of 6 seeds" in verdict.evidence
    expected = f"at rho = {mean:.3g} (95 % interval {low} to {high})"
    assert expected in verdict.evidence


def test_where_may_list_values(tmp_path: Path) -> None:
    run = crossing_run(tmp_path, {1.0: [3.0, 3.5], 4.0: [5.0, 5.5], 16.0: [6.0, 6.0]})
    claim_spec = claim(
        "below", policy="mover", versus="stayer", where={"rho": [1.0, 16.0]}
    )
    assert [verdict.evidence[:12] for verdict in judge(run, [claim_spec])] == [
        "[rho = 1.0] ",
        "[rho = 16.0]",
    ]
    absent = claim("below", policy="mover", versus="stayer", where={"rho": [2.0]})
    assert judge(run, [absent]) == []


@pytest.mark.parametrize("check", ["rises", "falls", "upward-trend", "downward-trend"])
def test_a_tie_neither_rises_nor_falls(check: str, tmp_path: Path) -> None:
    """Of nine equal totals the ranks' products do not add up to zero exactly: 0.1 is not binary."""
    run = sweep_run(
        tmp_path, {float(width): [938.1, 0.1, 1e9 / 3, 7.7] for width in range(9)}
    )
    (verdict,) = judge(run, [claim(check, policy="mine", key="width")])
    assert verdict.verdict == "does not hold"
    assert "seed by seed 0 (the same in every seed" in verdict.evidence


def test_single_value_has_no_trend(tmp_path: Path) -> None:
    claim_spec = claim("rises", policy="mine", key="width")
    assert judge(sweep_run(tmp_path, {1.0: [1.0, 2.0]}), [claim_spec]) == []


def audited_run(
    directory: Path,
    variance: float,
    setting: dict[str, Any] | None = None,
    **options: Any,
) -> Run:
    """Two cells of one policy; allowed is 2(λ* + ς²)·I = 2(0.3 + 0.2)·(0.4 + 0.6) = 1 in each."""
    spec = {
        "experiment": "x",
        "rounds": 2,
        "first_seed": 0,
        "seeds": 2,
        "noise_variance": [0.2],
    }
    paper = options.pop("paper", "A paper (2025)")
    policies = {
        "parameters": {"policies": {"mine": options}},
        "audited": ["mine"],
        "paper": paper,
    }
    write_spec(
        directory,
        {**spec, **policies, "policies": ["mine"], "settings": [setting or {}]},
    )
    write_audits(directory, 0, (0.5, variance))
    return Run.load(directory)


def write_audits(directory: Path, index: int, variances: tuple[float, float]) -> None:
    """Two seeds of a setting, with λ* = 0.3, I = 1 and so much variance."""
    for seed, used in enumerate(variances):
        audit = {
            "variance": np.array([0.75 * used, 0.25 * used], dtype=np.float32),
            "largest_eigenvalue": np.array([0.3, 0.1], dtype=np.float32),
            "information": np.array([0.4, 0.6], dtype=np.float32),
            **{
                name: np.zeros(2, dtype=np.float32)
                for name in ("score", "true_score", "firsts")
            },
            **{
                name: np.ones((2, len(LEVELS)), dtype=np.float32)
                for name in ("within", "first", "true_within")
            },
        }
        series = {"regret": np.zeros(2)}
        trace = Trace(
            policy="mine", setting_index=index, seed=seed, series=series, audit=audit
        )
        write_trace(directory, trace)


def test_lemma_a12_takes_the_noise_of_each_setting(tmp_path: Path) -> None:
    """Allowed is 2(0.3 + 0.2) = 1 in the first setting, 2(0.3 + 0.7) = 2 in the second."""
    spec = audited_run(tmp_path, 0.9).spec
    write_spec(
        tmp_path,
        {**spec, "noise_variance": [0.2, 0.7], "settings": [{"k": 1}, {"k": 2}]},
    )
    write_audits(tmp_path, 1, (0.5, 1.9))
    verdicts = judge_variances(Run.load(tmp_path))
    assert [verdict.verdict for verdict in verdicts] == ["holds"] * 2
    assert "at most 90 % of" in verdicts[0].evidence
    assert "at most 95 % of" in verdicts[1].evidence


@pytest.mark.parametrize(
    ("variance", "word"), [(0.99, "holds"), (1.02, "does not hold")]
)
def test_lemma_a12_is_judged_in_every_audited_cell(
    variance: float, word: str, tmp_path: Path
) -> None:
    (verdict,) = judge_variances(audited_run(tmp_path, variance))
    assert verdict.verdict == word
    assert "mine, seed 1" in verdict.evidence
    assert "2 cells" in verdict.evidence


def test_lemma_a12_is_not_judged_for_user_experiments(tmp_path: Path) -> None:
    assert judge_variances(audited_run(tmp_path / "a", 0.99, paper="")) == []
    (slip,) = judge_variances(audited_run(tmp_path / "b", 1.02, paper=""))
    assert slip.verdict == "does not hold"


def test_lemma_a12_skips_approximate_and_unrecorded_posteriors(
    tmp_path: Path,
) -> None:
    assert (
        judge_variances(audited_run(tmp_path / "a", 2.0, posterior="variational")) == []
    )
    assert judge_variances(make_run(tmp_path / "b", TOTALS)) == []


@pytest.mark.parametrize("key", ["posterior", "mine.posterior"])
def test_lemma_a12_handles_a_swept_posterior(key: str, tmp_path: Path) -> None:
    assert (
        judge_variances(audited_run(tmp_path / "a", 2.0, {key: "variational-kept"}))
        == []
    )
    exact = audited_run(tmp_path / "b", 0.9, {key: "finite"}, posterior="variational")
    assert len(judge_variances(exact)) == 1


def test_lemma_a12_skips_late_feedback(tmp_path: Path) -> None:
    assert (
        judge_variances(audited_run(tmp_path / "a", 2.0, {"feedback.latest": 5})) == []
    )
    assert (
        judge_variances(audited_run(tmp_path / "b", 2.0, {"feedback.lost": 0.1})) == []
    )
    assert (
        len(judge_variances(audited_run(tmp_path / "c", 0.9, {"feedback.latest": 0})))
        == 1
    )


@pytest.mark.parametrize("names", [["still", "mover"], ["mover", "still"]])
def test_flat_is_judged_for_every_policy(names: list[str], tmp_path: Path) -> None:
    settings = [{"width": 1.0}, {"width": 2.0}]
    spec = {
        "experiment": "x",
        "rounds": 1,
        "first_seed": 0,
        "seeds": 25,
        "settings": settings,
    }
    write_spec(tmp_path, {**spec, "policies": names})
    for policy, totals in (("mover", [10.0, 20.0]), ("still", [10.0, 10.0])):
        for index, total in enumerate(totals):
            for seed in range(25):
                series = {"regret": np.array([total])}
                trace = Trace(
                    policy=policy, setting_index=index, seed=seed, series=series
                )
                write_trace(tmp_path, trace)
    claims = [
        claim("flat", policy=names, key="width", tolerance=0.2),
        claim("flat", policy=["still"], key="width", tolerance=0.2),
    ]
    verdicts = [verdict.verdict for verdict in judge(Run.load(tmp_path), claims)]
    assert verdicts == ["does not hold", "holds"]


def make_curves(
    directory: Path,
    curves: dict[str, Any],
    seconds: dict[str, Any] | None = None,
    seeds: int = 36,
) -> Run:
    """A run whose regret in each round is the same in every seed, up to a factor."""
    rounds = len(next(iter(curves.values())))
    spec = {"experiment": "x", "rounds": rounds, "first_seed": 0, "seeds": seeds}
    write_spec(directory, {**spec, "policies": list(curves), "settings": [{}]})
    for policy, curve in curves.items():
        for seed in range(seeds):
            factor = 1.0 + 0.01 * (seed % 3)
            time = (
                None
                if seconds is None
                else np.float32(factor) * seconds[policy].astype(np.float32)
            )
            series = {"regret": factor * np.asarray(curve, dtype=float)}
            write_trace(
                directory, Trace(policy=policy, seed=seed, series=series, seconds=time)
            )
    return Run.load(directory)


ROUNDS = np.arange(1.0, 101.0)
EARLY = {"quick": np.where(ROUNDS <= 20, 0.5, 3.0), "steady": np.ones(100)}


@pytest.mark.parametrize(
    ("rounds", "word"),
    [([1, 20], "holds"), ([21, 100], "does not hold"), ([100, 100], "does not hold")],
)
def test_a_claim_may_be_about_some_rounds(
    rounds: list[int], word: str, tmp_path: Path
) -> None:
    run = make_curves(tmp_path, EARLY)
    claim_spec = claim("below", policy="quick", versus="steady", rounds=rounds)
    (verdict,) = judge(run, [claim_spec])
    assert verdict.verdict == word
    where = (
        "in round 100"
        if rounds[0] == rounds[1]
        else f"in rounds {rounds[0]} to {rounds[1]}"
    )
    assert where in verdict.evidence


def test_totals_of_some_rounds_are_sums_of_these(tmp_path: Path) -> None:
    run = make_curves(tmp_path, EARLY, seeds=4)
    claim_spec = claim("below", policy="quick", versus="steady", rounds=[19, 22])
    (verdict,) = judge(run, [claim_spec])
    factor = np.mean([1.0, 1.01, 1.02, 1.0])
    assert f"quick {significant(7.0 * factor)}" in verdict.evidence  # 0.5 + 0.5 + 3 + 3
    assert f"steady {significant(4.0 * factor)}" in verdict.evidence


def test_means_and_times_of_some_rounds_are_means_of_these(tmp_path: Path) -> None:
    """Where the metric is a mean per round, and where it is time, nothing is added up."""
    spec = {
        "experiment": "x",
        "rounds": 6,
        "first_seed": 0,
        "seeds": 4,
        "policies": ["one", "two"],
    }
    described = Metric("hits", kind="per round")._asdict()
    write_spec(tmp_path, {**spec, "settings": [{}], "metrics": [{"hits": described}]})
    rounds = np.arange(1.0, 7.0)
    for policy, factor in (("one", 1.0), ("two", 10.0)):
        series = {"regret": np.ones(6), "hits": factor * rounds**2}
        seconds = (factor * rounds).astype(np.float32)
        for seed in range(4):
            write_trace(
                tmp_path,
                Trace(policy=policy, seed=seed, series=series, seconds=seconds),
            )
    claims = [
        claim("below", policy="one", versus="two", rounds=[2, 4], metric=metric)
        for metric in ("hits", "seconds")
    ]
    hits, seconds_verdict = judge(Run.load(tmp_path), claims)
    assert "in rounds 2 to 4: one 9.67, two 96.7;" in hits.evidence  # (4 + 9 + 16)/3
    assert "in rounds 2 to 4: one 3, two 30;" in seconds_verdict.evidence


def test_a_shorter_run_does_not_judge_later_rounds(tmp_path: Path) -> None:
    run = make_curves(tmp_path, EARLY, seeds=4)
    claim_spec = claim("below", policy="quick", versus="steady", rounds=[1, 101])
    assert judge(run, [claim_spec]) == []
    assert not_judged(run, [claim_spec])[0]["needs"] == ["101 rounds"]


@pytest.mark.parametrize(("power", "word"), [(0.5, "holds"), (1.5, "does not hold")])
def test_growth_is_the_exponent_of_the_running_total(
    power: float, word: str, tmp_path: Path
) -> None:
    sums = ROUNDS**power
    run = make_curves(tmp_path, {"one": np.diff(sums, prepend=0.0)})
    (verdict,) = judge(run, [claim("under", policy="one", of="growth", limit=1.0)])
    assert verdict.verdict == word
    assert f"one {power:g}" in verdict.evidence


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_growth_of_time_is_that_of_a_rounds_seconds(
    power: float, tmp_path: Path
) -> None:
    rounds = np.arange(1.0, 301.0)
    run = make_curves(tmp_path, {"one": np.ones(300)}, {"one": 1e-3 * rounds**power})
    near = claim("over", policy="one", of="growth", metric="seconds", limit=power - 0.2)
    far = claim("over", policy="one", of="growth", metric="seconds", limit=power + 0.2)
    assert [verdict.verdict for verdict in judge(run, [near, far])] == [
        "holds",
        "does not hold",
    ]


def test_seconds_by_seed_are_medians_of_stretches(tmp_path: Path) -> None:
    """Nine rounds in three stretches; the first round, which loads and compiles, is in none."""
    seconds = np.array([99.0, 1.0, 1.0, 50.0, 2.0, 2.0, 3.0, 3.0, 3.0, 40.0])
    run = make_curves(tmp_path, {"one": np.ones(10)}, {"one": seconds}, seeds=2)
    first, second = seconds_by_seed(run, "one", points=3)
    assert first.rounds.tolist() == [4, 7, 10]
    np.testing.assert_allclose(first.mean, [1.0, 2.0, 3.0])
    np.testing.assert_allclose(
        second.mean, [1.01, 2.02, 3.03], rtol=1e-6
    )  # single precision


@pytest.mark.parametrize(
    ("limit", "words"),
    [(1.5, ("does not hold", "holds")), (3.0, ("holds", "does not hold"))],
)
def test_totals_may_be_compared_with_a_number(
    limit: float, words: Any, tmp_path: Path
) -> None:
    run = make_curves(tmp_path, {"one": np.array([1.0, 1.0])})
    claims = [claim(check, policy="one", limit=limit) for check in ("under", "over")]
    assert tuple(verdict.verdict for verdict in judge(run, claims)) == words


def test_seeds_unlike_these_may_outweigh_a_lead_over_a_number(tmp_path: Path) -> None:
    """Up to 45 % of all seeds may be unlike five: a third of the total is no lead, though half of 1."""
    run = make_curves(tmp_path, {"one": np.array([1.5])}, seeds=5)
    (verdict,) = judge(run, [claim("over", policy="one", limit=1.0)])
    assert verdict.verdict == "undecided"
    assert "up to 45 % of all seeds may be unlike these 5" in verdict.evidence


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"rounds": [5]}, "rounds must be [first, last]"),
        ({"rounds": [5, 4]}, "rounds must be [first, last]"),
        ({"rounds": [0, 4]}, "rounds must be [first, last]"),
        ({"rounds": [1, 4], "of": "growth"}, "cannot be used with rounds"),
        ({"of": "growth", "relative_to": "two"}, "cannot be used with relative_to"),
        ({"of": "shape"}, "'spread', 'swing', 'growth'"),
    ],
)
def test_malformed_rounds_and_growth_are_refused(
    keys: dict[str, Any], words: str
) -> None:
    data = {
        "id": "x/y",
        "rounds": 9,
        "seeds": 1,
        "problem": {"name": "rkhs-function"},
        "policies": {"random": {}},
        "claims": [claim("under", policy="random", limit=1.0, **keys)],
    }
    with pytest.raises(SpecError, match=re.escape(words)):
        Experiment.from_mapping(data, "here")


def make_sweep(
    directory: Path, key: str, totals: dict[Any, dict[str, list[float]]]
) -> Run:
    """A run of one round with one setting for each value of ``key``, and these totals in it."""
    policies = list(next(iter(totals.values())))
    seeds = len(next(iter(totals.values()))[policies[0]])
    spec = {
        "experiment": "x",
        "rounds": 1,
        "first_seed": 0,
        "seeds": seeds,
        "policies": policies,
    }
    write_spec(directory, {**spec, "settings": [{key: value} for value in totals]})
    for index, by_policy in enumerate(totals.values()):
        for policy, values in by_policy.items():
            for seed, total in enumerate(values):
                series = {"regret": np.array([total])}
                trace = Trace(
                    policy=policy, setting_index=index, seed=seed, series=series
                )
                write_trace(directory, trace)
    return Run.load(directory)


@pytest.mark.parametrize(
    ("policy", "tolerance", "word"),
    [
        ("same", 0.1, "holds"),
        ("other", 0.1, "does not hold"),
        ("other", 0.6, "holds"),
        (["same", "other"], 0.1, "does not hold"),
    ],
)
def test_alike_compares_totals_between_text_values(
    policy: Any, tolerance: float, word: str, tmp_path: Path
) -> None:
    few = often([10.0, 11.0, 12.0])
    totals = {
        "rough": {"same": few, "other": few},
        "smooth": {"same": few, "other": [2.0 * total for total in few]},
    }
    run = make_sweep(tmp_path, "problem.name", totals)
    claim_spec = claim("alike", policy=policy, key="problem.name", tolerance=tolerance)
    (verdict,) = judge(run, [claim_spec])
    assert verdict.verdict == word
    assert "problem.name = rough: 11" in verdict.evidence


def test_alike_requires_every_pair_to_agree(tmp_path: Path) -> None:
    few = often([10.0, 11.0, 12.0])
    totals = {name: {"one": few} for name in ("rough", "between", "smooth")}
    totals["between"] = {"one": [2.0 * total for total in few]}
    run = make_sweep(tmp_path, "kernel", totals)
    (verdict,) = judge(run, [claim("alike", policy="one", key="kernel", tolerance=0.1)])
    assert verdict.verdict == "does not hold"


def test_texts_have_no_order(tmp_path: Path) -> None:
    few = often([10.0, 11.0, 12.0])
    run = make_sweep(
        tmp_path, "kernel", {"rough": {"one": few}, "smooth": {"one": few}}
    )
    for claim_spec in (
        claim("rises", policy="one", key="kernel"),
        claim("flat", policy="one", key="kernel", tolerance=0.1),
    ):
        assert judge(run, [claim_spec]) == []
        assert not_judged(run, [claim_spec])[0]["needs"] == ["a sweep over kernel"]


def variation_without(totals: list[list[float]], left_out: int) -> float:
    """ln(largest/least) of the means over all seeds but one."""
    means = [
        np.mean([x for seed, x in enumerate(row) if seed != left_out]) for row in totals
    ]
    return float(np.log(max(means) / min(means)))


def test_steadier_compares_the_largest_mean_with_the_least(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    factors = 1.0 + 0.1 * rng.random(36)
    moves = {0.1: 4.0, 0.2: 1.0, 0.4: 2.0}
    totals = {
        value: {
            "calm": (10.0 * move**0.25 * factors).tolist(),
            "wild": (0.1 * move * factors[::-1]).tolist(),
        }
        for value, move in moves.items()
    }
    run = make_sweep(tmp_path, "lengthscale", totals)
    claims = [
        claim("steadier", policy="calm", versus="wild", key="lengthscale"),
        claim("steadier", policy="wild", versus="calm", key="lengthscale"),
        claim(
            "steadier",
            policy="wild",
            versus="calm",
            key="lengthscale",
            among=[0.2, 0.4],
        ),
    ]
    verdicts = judge(run, claims)
    assert [verdict.verdict for verdict in verdicts] == [
        "holds",
        "does not hold",
        "does not hold",
    ]
    assert (
        "ratio of the largest to the smallest: calm 1.41, wild 4"
        in verdicts[0].evidence
    )
    lead = 0.75 * np.log(
        4.0
    )  # all kernels have the same seeds, so that nothing is left to chance
    assert (
        f"ln(largest/least) of wild − of calm seed by seed {significant(lead)}"
        in verdicts[0].evidence
    )


def test_steadier_uncertainty_matches_the_jackknife(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    levels = np.array([[1.0], [2.0]])
    samples = {name: (levels + rng.random((2, 12))).tolist() for name in ("one", "two")}
    totals = {
        value: {name: samples[name][row] for name in samples}
        for row, value in enumerate((0.1, 0.2))
    }
    run = make_sweep(tmp_path, "lengthscale", totals)
    (verdict,) = judge(
        run, [claim("steadier", policy="one", versus="two", key="lengthscale")]
    )
    values = []
    for seed in range(12):
        pseudo = {
            name: 12.0 * variation_without(samples[name], -1)
            - 11.0 * variation_without(samples[name], seed)
            for name in samples
        }
        values.append(pseudo["two"] - pseudo["one"])
    mean, stderr = np.mean(values), np.std(values, ddof=1) / np.sqrt(12)
    assert f"seed by seed {plus_minus(float(mean), float(stderr))}" in verdict.evidence


def test_totals_of_zero_are_not_judged_steady(tmp_path: Path) -> None:
    totals = {
        0.1: {"one": [0.0] * 9, "two": [1.0] * 9},
        0.2: {"one": [1.0] * 9, "two": [1.0] * 9},
    }
    run = make_sweep(tmp_path, "lengthscale", totals)
    (verdict,) = judge(
        run, [claim("steadier", policy="two", versus="one", key="lengthscale")]
    )
    assert verdict.verdict == "undecided"
    totals[0.1]["one"] = [9.0] + [0.0] * 8  # above zero, but not without the first seed
    run = make_sweep(tmp_path / "one", "lengthscale", totals)
    (verdict,) = judge(
        run, [claim("steadier", policy="two", versus="one", key="lengthscale")]
    )
    assert verdict.verdict == "undecided"


GAPS = {
    "steady": np.full(100, 1.0),
    "worse": np.where(ROUNDS <= 20, 1.0, 1.5),  # the gap opens in round 21
    "late": np.where(
        ROUNDS <= 20, 3.0, 0.5
    ),  # it is largest after round 20, and closes again
}


@pytest.mark.parametrize(
    ("rival", "word"), [("worse", "holds"), ("late", "does not hold")]
)
def test_a_gap_widens_if_its_trend_is_upward(
    rival: str, word: str, tmp_path: Path
) -> None:
    run = make_curves(tmp_path, GAPS)
    (verdict,) = judge(run, [claim("widens", policy="steady", versus=rival)])
    assert verdict.verdict == word
    assert f"gap {rival} − steady after round 10: " in verdict.evidence
    assert ", 100: " in verdict.evidence


def test_the_trend_of_a_gap_is_the_slope_of_a_line(tmp_path: Path) -> None:
    run = make_curves(tmp_path, GAPS, seeds=4)
    (verdict,) = judge(run, [claim("widens", policy="steady", versus="worse")])
    rounds = np.arange(10, 101, 10)
    slopes = []
    for own, other in zip(
        run.cumulative("steady"), run.cumulative("worse"), strict=True
    ):
        slopes.append(np.polyfit(rounds, (other - own)[rounds - 1], 1)[0])
    shown = f"trend of the gap worse − steady over the run seed by seed {90.0 * np.mean(slopes):.1f}"
    assert shown in verdict.evidence


def test_equal_totals_do_not_widen(tmp_path: Path) -> None:
    run = make_curves(tmp_path, {"one": np.ones(100), "two": np.ones(100)})
    (verdict,) = judge(run, [claim("widens", policy="one", versus="two")])
    assert verdict.verdict == "does not hold"


@pytest.mark.parametrize(
    "keys",
    [
        {"rounds": [1, 4]},
        {"of": "growth"},
        {"relative_to": "random"},
        {"metric": "seconds"},
    ],
)
def test_a_widening_gap_is_one_of_running_totals(keys: dict[str, Any]) -> None:
    data = {
        "id": "x/y",
        "rounds": 9,
        "seeds": 1,
        "problem": {"name": "rkhs-function"},
        "policies": {"random": {}, "gp-ei": {}},
        "claims": [claim("widens", policy="random", versus="gp-ei", **keys)],
    }
    with pytest.raises(SpecError, match="running totals of a metric alone"):
        Experiment.from_mapping(data, "here")


@pytest.mark.parametrize(
    ("independent", "word"), [(3.3, "undecided"), (12.0, "holds"), (None, "holds")]
)
def test_autocorrelated_seeds_may_be_too_few(
    independent: float | None, word: str, tmp_path: Path
) -> None:
    run = make_curves(tmp_path, EARLY)
    spec = {**run.spec, "independent_seeds": [independent]}
    claim_spec = claim("below", policy="steady", versus="quick", ratio=0.9)
    (verdict,) = judge(Run(tmp_path, spec), [claim_spec])
    assert verdict.verdict == word
    few = "needs at least 4 independent seeds; these 36 are worth 3.3"
    assert (few in verdict.evidence) == (word == "undecided")
