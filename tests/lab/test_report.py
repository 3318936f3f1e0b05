"""The report: complete, static, small."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.lab import report as reports
from superarm.lab.report.svg import svg_chart
from superarm.lab.results.axes import spread_labels, ticks
from superarm.lab.results.bounds import Bound, RegretBounds
from superarm.lab.results.charts import run_charts
from superarm.lab.results.curves import growth_exponent, spaced_rounds
from superarm.lab.results.formats import plus_minus, readable_seconds, significant
from superarm.lab.results.pictures import Chart, Series
from superarm.lab.results.settings import sweeps
from superarm.lab.results.styles import policy_styles
from superarm.lab.simulation.run import Run
from superarm.lab.simulation.run_spec import write_spec
from superarm.lab.simulation.trace import Trace, write_trace

CLAIMS = [
    {"text": "a beats b", "verdict": "holds", "evidence": "1 < 2"},
    {"text": "b is fast", "verdict": "does not hold", "evidence": {"seconds": 3.5}},
]
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Checker(HTMLParser):
    """Collects tags and refuses unbalanced ones."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def make_run(
    directory: Path,
    policies: tuple[str, ...] = ("igp-ucb", "gp-ucb"),
    *,
    rounds: int = 60,
    seeds: int = 3,
    settings: tuple[dict[str, Any], ...] = ({},),
    seconds: bool = True,
    **extra: Any,
) -> Run:
    """A run whose k-th policy has regret t^(0.4 + k/10)."""
    spec = {
        "experiment": "tests/one",
        "title": "A test",
        "rounds": rounds,
        "first_seed": 0,
    }
    spec |= {
        "seeds": seeds,
        "policies": list(policies),
        "settings": list(settings),
        "version": "0.1.0",
    }
    write_spec(directory, spec | extra)
    rng = np.random.default_rng(7)
    steps = np.arange(1, rounds + 1)
    for index in range(len(settings)):
        for place, policy in enumerate(policies):
            for seed in range(seeds):
                total = (
                    (index + 1.0) * steps ** (0.4 + place / 10) * rng.uniform(0.9, 1.1)
                )
                trace = Trace(
                    policy=policy,
                    setting_index=index,
                    seed=seed,
                    series={"regret": np.diff(total, prepend=0.0)},
                    seconds=rng.uniform(1e-5, 2e-5, rounds).astype(np.float32)
                    if seconds
                    else None,
                )
                write_trace(directory, trace)
    return Run.load(directory)


def written(run: Run, directory: Path, **options: Any) -> str:
    return reports.write_report(
        run, CLAIMS, directory / "report.html", **options
    ).path.read_text("utf-8")


def test_contents_and_accessibility(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        paper="A paper",
        parameters={"delta": 0.1, "kernel": {"name": "matern"}},
        settled=[{"noise": "1 % of the range"}],
    )
    notes = ["First note.", "Second note."]
    text = written(run, tmp_path, notes=notes, command=("superarm", "run", "tests/one"))
    checker = Checker(text)
    assert ("html", {"lang": "en"}) in checker.tags
    charts = [attributes for tag, attributes in checker.tags if tag == "svg"]
    assert len(charts) == 3
    assert all(
        chart["role"] == "img" and len(chart["aria-label"] or "") > 20
        for chart in charts
    )
    for wanted in (
        *(
            "A test",
            "A paper",
            "First note.",
            "Second note.",
            "Ranking policies needs at least 4 seeds.",
            "✓ holds",
        ),
        *(
            "✗ does not hold",
            "{&quot;seconds&quot;: 3.5}",
            "delta",
            "1 % of the range",
            "0.1.0",
        ),
        *(
            "matern",
            "How unclear points were read",
            "2 claims: 1 holds, 1 does not hold",
            "t⁰·⁴⁰",
            "prefers-color-scheme:dark",
        ),
        "superarm run tests/one --rounds 60 --seed 0 --seeds 3 --policies igp-ucb,gp-ucb --out OUT",
    ):
        assert wanted in text, wanted


def test_report_is_self_contained_and_runs_no_script(tmp_path: Path) -> None:
    text = written(make_run(tmp_path), tmp_path)
    checker = Checker(text)
    assert not {tag for tag, _ in checker.tags} & {
        "script",
        "link",
        "iframe",
        "img",
        "object",
    }
    assert "default-src 'none'" in text
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert "url(" not in text
    assert str(tmp_path) not in text


def test_external_text_is_escaped(tmp_path: Path) -> None:
    evil = '<script>alert("x")</script>'
    run = make_run(
        tmp_path,
        (evil, "gp-ucb"),
        settings=({evil: 1}, {evil: 2}),
        title=evil,
        paper=evil,
        parameters={evil: [evil]},
        settled=[{evil: evil}] * 2,
    )
    claims = [{"text": evil, "verdict": "holds", "evidence": evil}]
    report = reports.write_report(run, claims, tmp_path / "report.html", notes=[evil])
    index = reports.write_index([report], tmp_path / "index.html", title=evil)
    for path in (report.path, index):
        tags = Checker(path.read_text("utf-8")).tags
        assert "script" not in {tag for tag, _ in tags}
        assert not [
            name
            for _, attributes in tags
            for name in attributes
            if name.startswith("on")
        ]


def test_sweeps_and_many_settings(tmp_path: Path) -> None:
    settings = tuple(
        {"k": k, "kernel": name} for name in ("se", "matern") for k in (1, 2, 5)
    )
    run = make_run(tmp_path, settings=settings)
    assert [panel.fixed for panel in sweeps(run)] == [
        {"kernel": "se"},
        {"kernel": "matern"},
    ]
    by_kernel = sweeps(run, "kernel")  # texts, in the order of the settings
    assert [panel.values for panel in by_kernel] == [["se", "matern"]] * 3
    assert [panel.fixed for panel in by_kernel] == [{"k": 1}, {"k": 2}, {"k": 5}]
    text = written(run, tmp_path, command=("superarm", "run", "tests/one"))
    assert "Sweep over k" in text
    assert "in 6 of 6 settings" in text
    assert (
        "--set &#x27;k=[1, 2, 5]&#x27; --set &#x27;kernel=[&quot;se&quot;, &quot;matern&quot;]&#x27;"
        in text
    )


def test_report_marks_synthetic_data_and_reduced_runs(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", settled=[{"data": "a city, synthetic data"}])
    report = reports.write_report(
        run, CLAIMS, tmp_path / "a.html", full_size=(1000, 25)
    )
    index = reports.write_index([report], tmp_path / "index.html")
    for path in (report.path, index):
        text = path.read_text("utf-8")
        assert '<p class="banner">Synthetic data: a city.</p>' in text
        assert (
            "Smaller than the full experiment: 60 of 1,000 rounds, 3 of 25 seeds."
            in text
        )
    full = reports.write_report(
        make_run(tmp_path / "b"), [], tmp_path / "b.html", full_size=(60, 3)
    )
    text = full.path.read_text("utf-8")
    assert "Reduced" not in text
    assert 'class="banner"' not in text
    assert "started from Python" in text


def test_noise_is_shown_in_table_and_headline(tmp_path: Path) -> None:
    totals = {"a": (9.0, 11.0), "b": (10.0, 10.2), "c": (50.0, 51.0)}
    _write_totals(tmp_path, {policy: values * 2 for policy, values in totals.items()})
    claims = [
        {"text": "t", "verdict": "undecided", "evidence": "a − b seed by seed 0 ± 1"}
    ]
    report = reports.write_report(Run.load(tmp_path), claims, tmp_path / "r.html")
    assert report.headline == (
        "Lowest mean regret: a, 10.0 ± 0.6; b, 10.1 ± 0.1. In a comparison of all 3 policies, "
        "4 seeds do not separate these."
    )
    text = report.path.read_text("utf-8")
    assert "? undecided" in text
    assert "; the claim is undecided." in text


def _write_totals(directory: Path, totals: dict[str, tuple[float, ...]]) -> None:
    """A run with these total regrets, seed by seed."""
    make_run(directory, tuple(totals), seeds=len(next(iter(totals.values()))))
    for policy, values in totals.items():
        for seed, total in enumerate(values):
            series = {"regret": np.full(60, total / 60)}
            write_trace(
                directory,
                Trace(policy=policy, setting_index=0, seed=seed, series=series),
            )


@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_few_seeds_give_no_ranking(seeds: int, tmp_path: Path) -> None:
    _write_totals(tmp_path, {"a": (10.0,) * seeds, "b": (500.0,) * seeds})
    report = reports.write_report(Run.load(tmp_path), [], tmp_path / "r.html")
    few = "Ranking policies needs at least 4 seeds."
    assert report.headline == f"{few} Mean regret: a, 10; b, 500."


def test_best_of_many_ties_unless_its_lead_exceeds_chance(
    tmp_path: Path,
) -> None:
    """Rivals lie 4.5 ± 1 above the best; of five seeds and one rival 3.75 are needed, of nine 6.97."""
    away = np.sqrt(5.0) * np.array([-1.0, -1.0, 0.0, 1.0, 1.0])
    leads: tuple[float, ...] = tuple((14.5 + away).tolist())
    best = (10.0,) * 5
    for rivals, headline in (
        (1, "Lowest regret: a, 10; next "),
        (9, "Lowest mean regret: a, 10; "),
    ):
        out = tmp_path / str(rivals)
        _write_totals(
            out, {"a": best, **{f"b-{number}": leads for number in range(rivals)}}
        )
        report = reports.write_report(Run.load(out), [], out / "r.html")
        assert report.headline.startswith(headline)


def test_settings_show_what_was_swept_and_options_by_policy(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        settings=tuple(
            {"xi": xi, "igp-ucb.delta": 0.1, "depth": 1} for xi in (0.01, 0.1)
        ),
        parameters={
            "problem": {"name": "landscape", "k": 3},
            "policies": {
                "igp-ucb": {"xi": 0.5, "rule": {"name": "ucb", "beta": 2.0}},
                "gp-ucb": {"delta": 0.25},
            },
        },
    )
    text = written(run, tmp_path)
    row = '<tr><th scope="row">igp-ucb</th><td>ucb (beta = 2)</td><td>–</td></tr>'
    assert row in text  # its xi was swept
    assert '<tr><th scope="row">gp-ucb</th><td>–</td><td>0.25</td></tr>' in text
    for key, values in (("xi", "0.01, 0.1"), ("igp-ucb.delta", "0.1"), ("depth", "1")):
        assert f'<tr><th scope="row">{key}</th><td>{values}</td></tr>' in text
    assert '<tr><th scope="row">k</th><td>3</td></tr>' in text
    assert (
        "{&quot;" not in text[text.index("<h2>Settings") : text.index("<h2>Reproduce")]
    )


@pytest.mark.parametrize("name", ["drifting-function", "of somebody's own"])
def test_a_policy_keeps_an_option_that_is_called_like_a_swept_key_of_the_problem(
    name: str, tmp_path: Path
) -> None:
    run = make_run(
        tmp_path,
        settings=({"epsilon": 0.01}, {"epsilon": 0.03}),
        parameters={
            "problem": {
                "name": name,
                **({} if name == "drifting-function" else {"epsilon": 0.1}),
            },
            "policies": {
                "igp-ucb": {},
                "gp-ucb": {"policy": "tv-gp-ucb", "epsilon": 0.0},
            },
        },
    )
    text = written(run, tmp_path)
    assert '<tr><th scope="row">epsilon</th><td>0.01, 0.03</td></tr>' in text
    assert '<tr><th scope="row">gp-ucb</th><td>tv-gp-ucb</td><td>0</td></tr>' in text
    assert '<tr><th scope="row">epsilon</th><td>0.1</td></tr>' not in text


def test_every_policy_has_a_bound_or_a_reason(tmp_path: Path) -> None:
    run = make_run(tmp_path, settings=({"k": 1}, {"k": 2}))
    rounds = np.arange(1.0, 61.0)
    first, *others = run.policies
    bound = Bound("A bound", rounds, rounds - 1.0, "assumes <much>")
    missing = {policy: f"no bound because of {policy}" for policy in others}
    text = written(
        run,
        tmp_path,
        bounds=RegretBounds({first: bound}, missing, "Taken for granted."),
    )
    assert text.count(">A bound</text>") == 1  # only in the chart of the first setting
    assert text.count('<td class="number">59</td><td>assumes &lt;much&gt;.</td>') == 1
    for policy in others:
        assert (
            f'<td class="number">–</td><td>no bound because of {policy}.</td>' in text
        )
    assert "Bounds from theory, for k = 1" in text
    assert "Taken for granted." in text
    bare = written(run, tmp_path, bounds=RegretBounds({}, {first: "no", **missing}))
    assert "Dotted" not in bare
    assert "Bounds from theory" not in written(run, tmp_path)


def test_one_time_per_round_in_labels_and_table(tmp_path: Path) -> None:
    """The mean over seeds and rounds, without the first round of each seed."""
    run = make_run(tmp_path)
    text = written(run, tmp_path)
    mean = float(run.seconds("igp-ucb")[:, 1:].mean(dtype=float))
    assert run.seconds_per_round("igp-ucb") == pytest.approx(mean)
    assert f">igp-ucb  {readable_seconds(mean)}" in text
    assert f'<td class="number">{readable_seconds(mean)}</td>' in text
    single = make_run(tmp_path / "one", rounds=1)
    assert single.seconds_per_round("gp-ucb") == pytest.approx(
        single.seconds("gp-ucb").mean()
    )


@pytest.mark.parametrize(("power", "growth"), [(1.0, ", t¹·⁰⁰"), (0.0, ""), (-1.0, "")])
def test_time_labels_report_only_growth(
    power: float, growth: str, tmp_path: Path
) -> None:
    make_run(tmp_path, ("mine",), rounds=100, seeds=1)
    seconds = (1e-5 * np.arange(1.0, 101.0) ** power).astype(np.float32)
    series = {"regret": np.ones(100)}
    trace = Trace(
        policy="mine", setting_index=0, seed=0, series=series, seconds=seconds
    )
    write_trace(tmp_path, trace)
    (picture,) = run_charts(Run.load(tmp_path))["seconds"]
    mean = readable_seconds(float(seconds[1:].mean(dtype=float)))
    assert picture.panels[0].series[0].label == f"mine  {mean}{growth}"


def test_one_seed_one_round_no_timings_no_regret(tmp_path: Path) -> None:
    assert "no timings" in written(make_run(tmp_path / "a", seconds=False), tmp_path)
    assert "One seed." in written(make_run(tmp_path / "b", seeds=1, rounds=1), tmp_path)
    run = make_run(tmp_path / "c", ("only",), seeds=1)
    write_trace(
        run.directory,
        Trace(policy="only", setting_index=0, seed=0, series={"regret": np.zeros(60)}),
    )
    text = written(Run.load(run.directory), tmp_path)
    Checker(text)
    assert not re.search(r"\bnan\b|\binf\b", text)


def test_index_links_reports_and_joins_claims(tmp_path: Path) -> None:
    first = reports.write_report(
        make_run(tmp_path / "a b"), CLAIMS, tmp_path / "a b" / "report.html"
    )
    second = reports.write_report(
        make_run(tmp_path / "c"), [], tmp_path / "c" / "report.html"
    )
    text = reports.write_index([first, second], tmp_path / "index.html").read_text(
        "utf-8"
    )
    links = {attributes["href"] for tag, attributes in Checker(text).tags if tag == "a"}
    assert links == {"a%20b/report.html", "c/report.html"}
    assert "2 experiments; 2 claims: 1 holds, 1 does not hold" in text
    assert text.count("<svg") == 2


def test_the_same_run_gives_the_same_page(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert written(run, tmp_path / "x") == written(Run.load(tmp_path), tmp_path / "y")


@pytest.mark.slow
def test_a_full_size_run_gives_a_small_page(tmp_path: Path) -> None:
    run = make_run(
        tmp_path, tuple(f"policy-{i}" for i in range(7)), rounds=30_000, seeds=25
    )
    text = written(run, tmp_path)
    assert len(text) < 300_000


def test_charts_with_nothing_to_draw() -> None:
    for log in (False, True):
        for series in ((), (Series("flat", np.array([1, 2]), np.zeros(2)),)):
            chart = Chart(series=series, x_label="x", y_label="y", log_x=log, log_y=log)
            svg = svg_chart(chart)
            Checker(svg)
            assert "nan" not in svg


def test_numbers_for_reading() -> None:
    assert [
        significant(x) for x in (0.0, -12345.0, 99.96, 1e-9, -1.6371e9, float("nan"))
    ] == [*("0", "−12,300", "100", "10⁻⁹", "−1.64·10⁹", "–")]
    assert [readable_seconds(x) for x in (2.5, 0.0031, 4.2e-5, 3e-8)] == [
        *("2.5 s", "3.1 ms", "42 µs", "30 ns")
    ]
    assert (plus_minus(0.0, 0.0), plus_minus(29.0, 0.0)) == ("0", "29")
    assert ticks(0.0, 1.0)[-1] == 1.0
    assert ticks(3.0, 3.0) == [3.0]


def test_labels_keep_their_distance_and_order() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        wishes = rng.uniform(0, 100, 8)
        placed = np.array(spread_labels(list(wishes), 10.0, 0.0, 100.0))
        assert np.diff(np.sort(placed)).min() >= 10.0 - 1e-9
        assert placed.min() >= -1e-9
        assert placed.max() <= 100.0 + 1e-9
        np.testing.assert_array_equal(np.argsort(wishes), np.argsort(placed))


def test_colours_are_stable_and_distinct() -> None:
    many = [f"p{i}" for i in range(24)]
    assert len(set(policy_styles(many).values())) == 24
    assert len(policy_styles([*many, "one more"])) == 25
    single, together = (
        policy_styles(["gp-ts"]),
        policy_styles(["mine", "gp-ucb", "gp-ts", "igp-ucb"]),
    )
    assert single["gp-ts"] == together["gp-ts"]


def test_growth_exponent_recovers_the_power(tmp_path: Path) -> None:
    run = make_run(tmp_path, rounds=2000)
    assert growth_exponent(run, "igp-ucb") == pytest.approx(0.4, abs=1e-6)
    assert growth_exponent(run, "gp-ucb") == pytest.approx(0.5, abs=1e-6)


def test_thinning_keeps_both_ends() -> None:
    for rounds in (1, 2, 599, 30_000):
        for log in (False, True):
            chosen = spaced_rounds(rounds, log=log)
            assert (chosen[0], chosen[-1]) == (1, rounds)
            assert len(chosen) <= 600


def test_metrics_that_are_not_totals_have_their_own_table(tmp_path: Path) -> None:
    rows = [
        {
            "policy": "igp-ucb",
            "metric": "<ratio>",
            "setting": {},
            "mean": 0.5,
            "stderr": 0.01,
        },
        {
            "policy": "nobody",
            "metric": "<ratio>",
            "setting": {},
            "mean": 0.7,
            "stderr": 0.01,
        },
        {
            "policy": "gp-ucb",
            "metric": "over_nothing",
            "setting": {"horizon": 9},
            "mean": None,
            "stderr": None,
        },
    ]
    text = written(make_run(tmp_path), tmp_path, further=rows)
    assert '&lt;ratio&gt;</th><th scope="col" class="number">over nothing</th>' in text
    assert (
        'igp-ucb</th><td class="number">0.500 ± 0.010</td><td class="number">–</td>'
        in text
    )
    assert '<td class="number">–</td><td>horizon = 9</td>' in text
    assert "nobody" not in text
    assert "Further results" not in written(make_run(tmp_path / "b"), tmp_path)


@pytest.mark.parametrize("known", ["benchmark", "genie"])
def test_policies_that_use_the_truth_are_not_ranked(known: str, tmp_path: Path) -> None:
    run = make_run(tmp_path, (known, "gp-ucb"), seeds=4)
    text = written(run, tmp_path)
    assert re.search(r"Lowest regret[^.]*gp-ucb", text)
    assert not re.search(rf"Lowest regret[^.<]*{known}", text)
    assert "1×" in text  # relative to the best of the others


@pytest.mark.parametrize("log", [False, True])
def test_ticks_of_the_smallest_numbers(log: bool) -> None:
    """Between numbers that have lost their digits there is nothing to mark."""
    assert ticks(5e-324, 1e-323, log=log) == [5e-324]
    assert ticks(5e-324, 1.0, log=log)[-1] == 1.0
