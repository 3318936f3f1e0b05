"""Charts of runs with movement: running totals, a tree, and crossings."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.core.errors import SpecError, StateError
from superarm.lab import report as reports
from superarm.lab.experiments import Experiment, Plan, execute, load_experiment
from superarm.lab.results.charts import run_charts
from superarm.lab.simulation.illustrations import (
    TreeMasses,
    write_illustration,
    write_masses,
)
from superarm.lab.simulation.run import Run
from superarm.lab.simulation.run_spec import write_spec
from superarm.lab.simulation.trace import Trace, write_trace
from superarm.movement import PointMetric, TreeDescent, frt_tree

CURVES = [
    {"metric": "energy", "where": {"rho": 4.0}},
    {"metric": "regret"},
    {"metric": "absent"},
]


def make_run(directory: Path, **extra: Any) -> Run:
    settings = [{"rho": 1.0}, {"rho": 4.0}]
    spec = {
        "experiment": "x",
        "rounds": 30,
        "first_seed": 0,
        "seeds": 2,
        "policies": ["one", "other"],
    }
    write_spec(directory, {**spec, "settings": settings, **extra})
    for index in range(2):
        for number, policy in enumerate(spec["policies"]):
            for seed in range(2):
                level = (index + 1.0) * (number + 1.0) + seed
                series = {"regret": np.full(30, level), "energy": np.full(30, -level)}
                trace = Trace(
                    policy=policy, setting_index=index, seed=seed, series=series
                )
                write_trace(directory, trace)
    return Run.load(directory)


def test_running_totals_of_the_settings_that_are_named(tmp_path: Path) -> None:
    run = make_run(tmp_path, chart={"curves": CURVES})
    (picture,) = run_charts(run)["totals"]
    labels = [(panel.title, panel.y_label) for panel in picture.panels]  # type: ignore[union-attr]
    assert labels == [
        ("rho = 4.0", "energy"),
        ("rho = 1.0", "cumulative regret"),
        ("rho = 4.0", "cumulative regret"),
    ]
    one, other = picture.panels[0].series  # type: ignore[union-attr]
    np.testing.assert_allclose(
        one.y, -2.5 * np.arange(1, 31)
    )  # seeds have −2 and −3 in every round
    np.testing.assert_allclose(other.y, -4.5 * np.arange(1, 31))
    assert (one.label, other.label) == ("one  −75", "other  −135")
    assert run_charts(make_run(tmp_path / "plain"))["totals"] == []


def test_settings_are_selected_by_lists_and_by_unswept_keys(tmp_path: Path) -> None:
    """As in claims: ``where`` means the same to both."""
    both, none = {"rho": [1.0, 4.0], "side": 3}, {"side": 4}
    curves = [{"metric": "energy", "where": where} for where in (both, none)]
    run = make_run(
        tmp_path,
        chart={"curves": curves},
        parameters={"problem": {"name": "y", "side": 3}},
    )
    (picture,) = run_charts(run)["totals"]
    assert [panel.title for panel in picture.panels] == ["rho = 1.0", "rho = 4.0"]  # type: ignore[union-attr]


def test_a_tree_is_drawn_by_walking_around_it(tmp_path: Path) -> None:
    tree = frt_tree(
        PointMetric(points=np.arange(6.0)[:, None]), np.random.default_rng(0)
    )
    run = make_run(tmp_path)
    assert run.tree() is None
    assert run_charts(run)["tree"] == []
    write_illustration(tmp_path, 0, tree)
    read = run.tree()
    assert read is not None
    np.testing.assert_array_equal(read.parent, tree.parent)
    (picture,) = run_charts(run)["tree"]
    (line,) = picture.panels[0].series  # type: ignore[union-attr]
    points = list(zip(line.x, line.y, strict=True))
    edges = {frozenset(pair) for pair in pairwise(points)}
    assert len(edges) == len(tree.parent) - 1  # each edge, there and back
    assert len(line.x) == 2 * len(edges) + 1
    leaves = {(line.x[index], line.y[index]) for index in line.marked}
    assert sorted(x for x, _ in leaves) == list(range(6))
    assert line.y.max() == 0.0
    assert line.y.min() == -len(tree.levels)


def test_a_damaged_tree_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    path = tmp_path / "trees" / "s0.npz"
    path.parent.mkdir()
    np.savez(path, parent=np.array([-1, 0]), weight=np.zeros(2), leaf=np.array([1]))
    with pytest.raises(StateError, match=r"s0\.npz"):
        run.tree()


@pytest.mark.parametrize(
    "curves",
    [
        *([{}], [{"where": {}}], [{"metric": "regret", "what": 1}], 3),
        *([{"metric": 3}], [{"metric": "regret", "where": 3}]),
    ],
)
def test_empty_curves_are_rejected(curves: Any, tmp_path: Path) -> None:
    spec = {"id": "x", "rounds": 3, "seeds": 1, "problem": {"name": "movement-field"}}
    with pytest.raises(SpecError, match=r"x: \[chart\]: .*(curve|where is 3)"):
        Experiment.from_mapping(
            {**spec, "policies": {"gp-md": {}}, "chart": {"curves": curves}}, "x"
        )


def test_curves_of_missing_metrics_are_rejected_before_anything_runs(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.toml"
    head = 'id="x"\nrounds=2\nseeds=1\n[problem]\nname="movement-field"\nside=2\n[policies.stationary]\n'
    path.write_text(head + '[chart]\ncurves=[{metric="totl_cost"}]\n', encoding="utf-8")
    with pytest.raises(
        SpecError, match=r"nothing measures 'totl_cost'; did you mean 'total_cost'"
    ):
        Plan.make(load_experiment(str(path)), out=tmp_path / "out")
    path.write_text(
        head + '[chart]\ncurves=[{metric="total_cost", where={roh=1}}]\n',
        encoding="utf-8",
    )
    with pytest.raises(
        SpecError, match=r"curves: 'roh' is not a parameter here; did you mean 'rho'"
    ):
        load_experiment(str(path))


def test_run_from_spec_to_page(tmp_path: Path) -> None:
    experiment = Experiment.from_mapping(
        {
            "id": "mine",
            "rounds": 10,
            "seeds": 2,
            "problem": {
                "name": "movement-field",
                "side": 3,
                "contexts": 3,
                "episode": 5,
            },
            "sweep": {"rho": [0.1, 10.0]},
            "policies": {
                "gp-md": {"trees": 2},
                "md-known": {},
                "cgp-lcb": {},
                "offline": {},
            },
            "chart": {
                "tree": True,
                "curves": [{"metric": "movement_cost", "where": {"rho": 0.1}}],
            },
        },
        "mine",
    )
    summary = execute(Plan.make(experiment, out=tmp_path / "run"))
    metrics = {row["metric"] for row in summary["rows"]}
    assert metrics == {
        "cumulative_regret", "total_cost", "service_cost", "movement_cost", "expected_total_cost",
    }  # fmt: skip
    for row in summary["rows"]:
        if row["policy"] == "offline" and row["metric"] == "cumulative_regret":
            assert row["mean"] == pytest.approx(0.0, abs=1e-12)
    run = Run.load(tmp_path / "run")
    tree = run.tree(1)
    assert tree is not None
    assert len(tree) == 9
    reports.write_report(run, [], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "A tree over the actions" in page
    sentence = page[page.index("Ranking policies needs") :].partition("</p>")[0]
    assert not any(
        knows in sentence for knows in ("offline", "md-known")
    )  # no rivals of learners
    assert "Over the rounds" in page


def test_probabilities_are_those_of_the_last_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the run was made longer, or stopped between its files."""
    experiment = Experiment.from_mapping(
        {
            "id": "mine",
            "rounds": 9,
            "seeds": 1,
            "problem": {
                "name": "movement-field",
                "side": 3,
                "contexts": 3,
                "episode": 5,
            },
            "policies": {
                "gp-md": {"trees": 2},
                "md-known": {"trees": 2},
                "cgp-lcb": {},
            },
            "chart": {"tree": True},
        },
        "mine",
    )
    execute(Plan.make(experiment, out=tmp_path / "whole"))
    names = sorted(path.name for path in (tmp_path / "whole" / "trees").iterdir())
    assert names == ["q0.npz", "s0.npz"]
    execute(Plan.make(experiment, out=tmp_path / "grown", rounds=7))
    execute(Plan.make(experiment, out=tmp_path / "grown"), resume=True)

    def stop(*args: object) -> None:
        raise KeyboardInterrupt

    for written in ("write_illustration", "write_masses", "write_trace"):
        out = tmp_path / written
        plan = Plan.make(experiment, out=out)
        with monkeypatch.context() as patched:
            patched.setattr(f"superarm.lab.experiments.playing.{written}", stop)
            with pytest.raises(KeyboardInterrupt):
                execute(plan)
        execute(plan, resume=True)

    # Only gp-md, whose tree is shown, has its trace.
    plan = Plan.make(experiment, out=tmp_path / "second trace")
    traces_written = 0

    def stop_at_second(out: Path, trace: Trace) -> None:
        nonlocal traces_written
        traces_written += 1
        if traces_written == 2:
            raise KeyboardInterrupt
        write_trace(out, trace)

    with monkeypatch.context() as patched:
        patched.setattr("superarm.lab.experiments.playing.write_trace", stop_at_second)
        with pytest.raises(KeyboardInterrupt):
            execute(plan)
    execute(plan, resume=True)
    others = (
        "grown",
        "write_illustration",
        "write_masses",
        "write_trace",
        "second trace",
    )
    for name in names:
        content = (tmp_path / "whole" / "trees" / name).read_bytes()
        for other in others:
            assert (tmp_path / other / "trees" / name).read_bytes() == content, (
                other,
                name,
            )


def test_probabilities_are_written_on_the_tree(tmp_path: Path) -> None:
    """Appendices C.3 and C.4: z at the vertices, and q on the edges, where there is mass."""
    tree = frt_tree(
        PointMetric(points=np.arange(6.0)[:, None]), np.random.default_rng(0)
    )
    descent = TreeDescent(tree)
    q = descent.step(descent.point_mass(0), [4.0, 2.0, 2.0, 0.0, 1.0, 1.0])
    run = make_run(tmp_path)
    assert run.tree_masses() is None
    write_illustration(tmp_path, 0, tree)
    write_masses(tmp_path, 0, run.policies, TreeMasses(tree, q, "other"))
    read = run.tree_masses()
    assert read is not None
    assert read.policy == "other"
    np.testing.assert_array_equal(read.q, q)
    _, picture = run_charts(run)["tree"]
    z = tree.masses(descent.distribution(q))
    vertices, edges = picture.panels
    noted = [int(text) for series in vertices.series for _, text in series.notes]  # type: ignore[union-attr]
    assert noted == [
        round(100.0 * probability) for probability in z if probability >= 0.015
    ]
    assert noted[0] == 100
    on_edges = [int(text) for series in edges.series for _, text in series.notes]  # type: ignore[union-attr]
    assert on_edges == [
        round(100.0 * probability)
        for probability, mass in zip(q[1:], z[1:], strict=True)
        if mass >= 0.015
    ]


@pytest.mark.parametrize(
    "wrong", [{"q": np.full(3, 0.5)}, {"policy": np.array(7)}, {"q": None}]
)
def test_damaged_probabilities_are_named(wrong: dict[str, Any], tmp_path: Path) -> None:
    run = make_run(tmp_path)
    tree = frt_tree(
        PointMetric(points=np.arange(4.0)[:, None]), np.random.default_rng(0)
    )
    arrays: dict[str, Any] = {
        "parent": tree.parent,
        "weight": tree.weight,
        "leaf": tree.leaf,
    }
    arrays |= {"q": np.full(len(tree.parent), 0.5), "policy": np.array(0), **wrong}
    if arrays["q"] is None:
        arrays["q"] = np.full(len(tree.parent), 1.5)
    (tmp_path / "trees").mkdir()
    np.savez(tmp_path / "trees" / "q0.npz", **arrays)
    with pytest.raises(StateError, match=r"q0\.npz"):
        run.tree_masses()
