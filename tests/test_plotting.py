"""Figures: right numbers, equal bytes, no global state."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm import plotting
from superarm.errors import InputError, MissingExtraError
from superarm.results.bounds import Bound
from superarm.results.curves import PALETTE
from superarm.simulation.trace import Run, Trace, write_spec, write_trace

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")


def make_run(
    directory: Path,
    policies: tuple[str, ...] = ("igp-ucb", "gp-ucb", "a $ign"),
    *,
    rounds: int = 900,
    settings: tuple[dict[str, Any], ...] = ({},),
    still: bool = False,
) -> Run:
    """Three seeds of regret t^0.5 times the policy's place; none at all when ``still``."""
    spec = {"experiment": "tests/two", "title": "A title " * 15, "rounds": rounds, "first_seed": 0}
    write_spec(directory, spec | {"seeds": 3, "policies": list(policies), "settings": list(settings)})
    steps = np.sqrt(np.arange(rounds + 1.0))
    for index, setting in enumerate(settings):
        for place, policy in enumerate(policies):
            for seed in range(3):
                regret = np.diff(steps) * (place + 1) * (seed + 1) * (index + 1) * (not still)
                write_trace(
                    directory,
                    Trace(
                        policy=policy,
                        setting=setting,
                        setting_index=index,
                        seed=seed,
                        series={"regret": regret},
                        seconds=np.full(rounds, 1e-5 * (place + 1), np.float32),
                    ),
                )
    return Run.load(directory)


def texts(figure: Any) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_regret_draws_thinned_means_in_the_policies_colours(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    bound = Bound("theory bound", np.array([1.0, 900.0]), np.array([1.0, 300.0]), "")
    figure = plotting.plot_regret(run, bounds={"gp-ucb": bound})
    dotted = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 2]
    assert PALETTE[1] in [line.get_color() for line in dotted]  # its policy's colour
    curve = figure.axes[0].lines[1]
    assert curve.get_color() == PALETTE[1]  # gp-ucb's own, in every figure
    assert len(curve.get_xdata()) == 600
    assert curve.get_ydata()[-1] == pytest.approx(2 * 2 * 30.0)
    labels = texts(figure)
    assert "gp-ucb  120" in labels
    assert "theory bound  300" in labels
    assert any("tests/two" in label and "3 seeds" in label for label in labels)


def test_growth_labels_hold_the_slope(tmp_path: Path) -> None:
    labels = texts(plotting.plot_growth(make_run(tmp_path)))
    assert any(label.startswith("igp-ucb") and "0.50" in label for label in labels)


def test_seconds_have_units(tmp_path: Path) -> None:
    figure = plotting.plot_seconds(make_run(tmp_path))
    assert "gp-ucb  20 µs" in texts(figure)
    assert figure.axes[0].get_yscale() == "log"


def test_sweep(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", settings=({"k": 50}, {"k": 1}, {"k": 5}), rounds=9)
    axes = plotting.plot_sweep(run).axes[0]
    assert axes.get_xscale() == "log"
    np.testing.assert_allclose(axes.lines[0].get_xdata(), [1, 5, 50])
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [12, 18, 6])
    with pytest.raises(InputError, match="sweeps no number"):
        plotting.plot_sweep(make_run(tmp_path / "b", rounds=5))


def test_labels_do_not_overlap(tmp_path: Path) -> None:
    figure = plotting.plot_regret(make_run(tmp_path, tuple("abcdefghij")))
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts[1:]]
    assert len(boxes) == 10
    assert not [1 for i, box in enumerate(boxes) for other in boxes[:i] if box.overlaps(other)]


@pytest.mark.parametrize("rounds", [1, 2, 40])
def test_runs_without_regret_or_with_few_rounds(tmp_path: Path, rounds: int) -> None:
    run = make_run(tmp_path, still=True, rounds=rounds)
    for figure in (
        plotting.plot_regret(run),
        plotting.plot_regret(run, log=True),
        plotting.plot_growth(run),
        plotting.plot_seconds(run),
    ):
        figure.canvas.draw()
        written = " ".join(text.get_text() for text in figure.findobj(matplotlib.text.Text))
        assert run.experiment in written
    seconds = plotting.plot_seconds(run)  # times are never zero: every policy has its line
    written = " ".join(text.get_text() for text in seconds.findobj(matplotlib.text.Text))
    assert all(policy.replace("$", r"\$") in written for policy in run.policies)


def test_equal_figures_give_equal_bytes_and_leave_no_trace(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    before = dict(matplotlib.rcParams)
    one = plotting.save_figure(plotting.plot_regret(run), tmp_path / "figures" / "v1.0")
    other = plotting.save_figure(plotting.plot_regret(run), tmp_path / "other")
    assert [path.name for path in one] == ["v1.0.png", "v1.0.svg"]
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]
    assert b"<dc:date>" not in one[1].read_bytes()
    assert dict(matplotlib.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_a_users_settings_do_not_change_figures(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    one = plotting.save_figure(plotting.plot_growth(run), tmp_path / "one")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        other = plotting.save_figure(plotting.plot_growth(run), tmp_path / "other")
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]


def test_posterior_figures() -> None:
    x, y = np.linspace(0.0, 1.0, 20), np.linspace(0.0, 2.0, 15)
    surface = np.sin(3 * x)[None, :] * y[:, None]
    figure = plotting.plot_posterior_2d(
        x, y, surface, np.abs(surface), surface, [(0.2, 0.3), (0.5, 1.0)], (0.5, 2.0), "Found"
    )
    figure.canvas.draw()
    assert [axes.get_title(loc="left") for axes in figure.axes[::2]] == [  # bars between
        *("Truth", "Posterior mean", "Posterior uncertainty")
    ]
    assert figure.axes[0].images[0].get_clim() == figure.axes[2].images[0].get_clim()
    flat = np.zeros((15, 20))
    plotting.plot_posterior_2d(x, y, flat, flat, flat).canvas.draw()
    with pytest.raises(InputError, match="std has shape"):
        plotting.plot_posterior_2d(x, y, surface, surface.T, surface)
    line = plotting.plot_posterior_1d(x, x, x, truth=x, chosen_x=[0.5], chosen_y=[0.4])
    assert {"truth", "mean ± 2 std"} <= set(texts(line))


def test_without_matplotlib_the_pip_line_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path)
    for name in [each for each in sys.modules if each.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'superarm\[plot\]'"):
        plotting.plot_regret(run)


def test_a_bound_that_starts_at_zero_has_no_upright_line_on_a_log_axis(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    bound = Bound("theory", np.array([1.0, 2.0, 900.0]), np.array([0.0, 3.0, 300.0]), "")
    (drawn,) = (
        line
        for line in plotting.plot_regret(run, bounds={"gp-ucb": bound}, log=True).axes[0].lines
        if len(np.atleast_1d(line.get_ydata())) == 3 and line.get_color() == PALETTE[1]
        if line.get_xdata()[-1] == 900.0
    )
    np.testing.assert_array_equal(drawn.get_ydata(), [np.nan, 3.0, 300.0])


def test_made_data_are_named_in_every_figure(tmp_path: Path) -> None:
    run = make_run(tmp_path, settings=({"k": 1}, {"k": 2}))
    spec = {**run.spec, "settled": {"data": "a city, synthetic data"}}
    made = Run(tmp_path, spec)
    for draw in (
        plotting.plot_regret,
        plotting.plot_growth,
        plotting.plot_seconds,
        plotting.plot_sweep,
    ):
        assert any(text.endswith("synthetic data") for text in texts(draw(made)))
        assert not any("synthetic data" in text for text in texts(draw(run)))


def test_an_axis_that_holds_no_round_number_is_drawn(tmp_path: Path) -> None:
    run = make_run(tmp_path, ("a", "b"), rounds=3)
    for name in run.cells:
        policy, seed = name[0], int(name[-5:])
        seconds = np.float32([1.31e-5, 1.32e-5, 1.33e-5])
        series = {"regret": np.ones(3)}
        where = {"setting": {}, "setting_index": 0, "seed": seed, "policy": policy}
        write_trace(tmp_path, Trace(series=series, seconds=seconds, **where))
    figure = plotting.plot_seconds(Run.load(tmp_path))
    assert figure.axes[0].get_yscale() == "log"
    figure.canvas.draw()
