"""Figures as SVG files: right numbers and labels, equal bytes, nothing that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
import pytest

from superarm.core import Floats
from superarm.lab.report import picture_svg, save_pictures, save_run_figures
from superarm.lab.results import charts
from superarm.lab.results.bounds import Bound, RegretBounds
from superarm.lab.results.charts import run_charts
from superarm.lab.results.pictures import Chart, Picture, Series
from superarm.lab.results.styles import PALETTE
from superarm.lab.simulation.run import Run
from superarm.lab.simulation.run_spec import write_spec
from superarm.lab.simulation.trace import Trace, write_trace

SVG = "{http://www.w3.org/2000/svg}"


def make_run(
    directory: Path,
    policies: tuple[str, ...] = ("igp-ucb", "gp-ucb", "a $ign"),
    *,
    rounds: int = 900,
    settings: tuple[dict[str, Any], ...] = ({},),
    still: bool = False,
) -> Run:
    """Three seeds of regret t^0.5 times the policy's place; none at all when ``still``."""
    spec = {
        "experiment": "tests/two",
        "title": "A title " * 15,
        "rounds": rounds,
        "first_seed": 0,
    }
    write_spec(
        directory,
        spec | {"seeds": 3, "policies": list(policies), "settings": list(settings)},
    )
    steps = np.sqrt(np.arange(rounds + 1.0))
    for index in range(len(settings)):
        for place, policy in enumerate(policies):
            for seed in range(3):
                regret = (
                    np.diff(steps)
                    * (place + 1)
                    * (seed + 1)
                    * (index + 1)
                    * (not still)
                )
                write_trace(
                    directory,
                    Trace(
                        policy=policy,
                        setting_index=index,
                        seed=seed,
                        series={"regret": regret},
                        seconds=np.full(rounds, 1e-5 * (place + 1), np.float32),
                    ),
                )
    return Run.load(directory)


class Curve(NamedTuple):
    """A line or a band as it is drawn, in the numbers of the chart."""

    colour: str
    x: Floats
    y: Floats


class Drawing:
    """A picture of one chart, and its SVG read back with the ticks as scales."""

    def __init__(self, picture: Picture, title: str, origin: list[str]) -> None:
        panel = picture.panels[0]
        assert isinstance(panel, Chart)
        self.chart = panel
        self.svg = picture_svg(picture, title, origin)
        root = ElementTree.fromstring(self.svg)
        self._texts = [*root.iter(f"{SVG}text")]
        self._paths = [*root.iter(f"{SVG}path")]
        self.texts = ["".join(text.itertext()) for text in self._texts]

    def lines(self) -> list[Curve]:
        paths = [path for path in self._paths if path.get("stroke-linejoin")]
        return [self._curve(path, "stroke:") for path in paths]

    def bands(self) -> list[Curve]:
        paths = [path for path in self._paths if path.get("d", "").endswith("Z")]
        return [self._curve(path, "fill:") for path in paths]

    def label_heights(self) -> list[float]:
        """Where the labels at line ends stand, in pixels."""
        labels = {series.label for series in self.chart.series}
        return [float(text.get("y", "")) for text in self._texts if text.text in labels]

    def _curve(self, path: ElementTree.Element, prefix: str) -> Curve:
        pairs = path.get("d", "").strip("MZ").split("L")
        points = np.array([pair.split() for pair in pairs], dtype=np.float64)
        chart = self.chart
        x = self._values(points[:, 0], "x", "middle", 0.0, chart.x_ticks(), chart.log_x)
        y = self._values(points[:, 1], "y", "end", 4.0, chart.y_ticks(), chart.log_y)
        return Curve(path.get("style", "").removeprefix(prefix), x, y)

    def _values(
        self,
        places: Floats,
        axis: str,
        anchor: str,
        offset: float,
        ticks: dict[float, str],
        log: bool,
    ) -> Floats:
        """Numbers of the chart at places in pixels, on the scale of its ticks."""
        positions = {}
        for text in self._texts:
            if text.get("text-anchor") == anchor:
                positions[text.text] = float(text.get(axis, "")) - offset
        values = np.array([*ticks])
        if log:
            values = np.log(values)
        slope, start = np.polyfit(
            [positions[label] for label in ticks.values()], values, 1
        )
        result: Floats = start + slope * places
        return np.exp(result) if log else result


def drawn(run: Run, about: str, place: int = 0, **options: Any) -> Drawing:
    """One of the run's charts as a file has it."""
    picture = run_charts(run, **options)[about][place]
    return Drawing(picture, run.title, [run.experiment])


def test_regret_draws_thinned_means_in_the_policies_colours(tmp_path: Path) -> None:
    drawing = drawn(make_run(tmp_path), "regret")
    curve = drawing.lines()[1]
    assert curve.colour == PALETTE[1]  # gp-ucb's own, in every figure
    assert len(curve.x) == 200
    assert curve.x[-1] == pytest.approx(900.0, abs=1.0)
    assert curve.y[-1] == pytest.approx(2 * 2 * 30.0, abs=0.3)
    assert "gp-ucb  120" in drawing.texts
    assert "a $ign  180" in drawing.texts
    assert "tests/two" in drawing.texts
    assert any("3 seeds" in text for text in drawing.texts)


def test_long_titles_and_captions_are_wrapped(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    drawing = drawn(run, "regret")
    lines = [text for text in drawing.texts if "title" in text]
    assert len(lines) > 1
    assert " ".join(lines) == run.title.strip()
    assert max(len(text) for text in drawing.texts) < 90


def test_bands_are_standard_errors_or_deviations(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    heights = {}
    for band, words in (("stderr", "standard error"), ("std", "standard deviation")):
        drawing = drawn(run, "regret", band=band)
        assert f"± 1 {words} over 3 seeds" in " ".join(drawing.texts)
        around = drawing.bands()[0]
        at_end = around.y[around.x == around.x.max()]
        heights[band] = (at_end.max() - at_end.min()) / 2.0
    totals = run.cumulative("igp-ucb")[:, -1]
    assert heights["std"] == pytest.approx(totals.std(ddof=1), abs=0.3)
    assert heights["stderr"] == pytest.approx(totals.std(ddof=1) / 3**0.5, abs=0.3)


def test_growth_labels_hold_the_slope_and_bounds_their_policys_colour(
    tmp_path: Path,
) -> None:
    bound = Bound(
        "theory", np.array([1.0, 2.0, 900.0]), np.array([0.0, 3.0, 300.0]), ""
    )
    drawing = drawn(
        make_run(tmp_path), "growth", bounds=RegretBounds({"gp-ucb": bound}, {})
    )
    assert any(text.startswith("igp-ucb") and "t⁰·⁵⁰" in text for text in drawing.texts)
    (line,) = (line for line in drawing.lines() if len(line.x) == 2)
    assert line.colour == PALETTE[1]
    # Zero has no place on a log axis.
    np.testing.assert_allclose(line.x, [2.0, 900.0], rtol=0.01)
    np.testing.assert_allclose(line.y, [3.0, 300.0], rtol=0.01)


def test_seconds_have_units(tmp_path: Path) -> None:
    drawing = drawn(make_run(tmp_path), "seconds")
    assert "gp-ucb  20 µs" in drawing.texts
    assert drawing.chart.log_y


def test_sweep(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", settings=({"k": 50}, {"k": 1}, {"k": 5}), rounds=9)
    drawing = drawn(run, "sweep")
    assert drawing.chart.log_x
    line = drawing.lines()[0]
    np.testing.assert_allclose(line.x, [1, 5, 50], rtol=0.01)
    np.testing.assert_allclose(line.y, [12, 18, 6], atol=0.1)
    assert run_charts(make_run(tmp_path / "b", rounds=5))["sweep"] == []


def test_labels_do_not_overlap(tmp_path: Path) -> None:
    drawing = drawn(make_run(tmp_path, tuple("abcdefghij")), "regret")
    heights = np.sort(drawing.label_heights())
    assert len(heights) == 10
    assert np.diff(heights).min() >= 16.8  # a line, up to rounding


def test_long_labels_are_shortened_and_have_a_title() -> None:
    rounds = np.arange(1.0, 4.0)
    label = f"{'a-name-<without>-end-' * 4}  12,300"
    series = (Series(label, rounds, rounds), Series("short  7", rounds, rounds))
    chart = Chart(series=series, y_label="y")
    picture = Picture(name="long", panels=(chart,), caption="")
    root = ElementTree.fromstring(picture_svg(picture))
    titled = [
        text for text in root.iter(f"{SVG}text") if text.find(f"{SVG}title") is not None
    ]
    (shortened,) = titled  # the other label has room
    (title,) = shortened
    assert title.text == label
    assert title.tail is not None
    assert title.tail.startswith("a-name-<without>")
    assert title.tail.endswith("…  12,300")  # the number stays
    width = int(root.attrib["width"])
    assert float(shortened.attrib["x"]) + 7.0 * len(title.tail) <= width


def test_panels_and_keys_do_not_overlap() -> None:
    """Panels stand in rows of ``columns``, and a long key takes several lines."""
    chart = Chart(series=(), y_label="y")
    key = tuple(("#123456", f"meaning number {number}") for number in range(12))
    picture = Picture(
        name="p", panels=(chart,) * 5, heading="k = 1", caption="", columns=2, key=key
    )
    root = ElementTree.fromstring(picture_svg(picture, "All"))
    panels = root.findall(f"{SVG}svg")
    corners = [(int(panel.get("x", "")), int(panel.get("y", ""))) for panel in panels]
    across = [x for x, _ in corners]
    down = [y for _, y in corners]
    assert across == [16, 472, 16, 472, 16]
    assert down[0] == down[1] < down[2] == down[3] < down[4]
    assert int(panels[0].get("height", "")) < down[2] - down[0]
    title, heading = root.findall(f"{SVG}text")[:2]
    assert (title.text, heading.text) == ("All", "k = 1")
    assert down[0] >= int(heading.get("y", "")) + 6
    swatches = [rect for rect in root.findall(f"{SVG}rect") if rect.get("x")]
    assert len(swatches) == len(key)
    assert len({rect.get("y") for rect in swatches}) > 1
    first, second = (float(rect.get("x", "")) for rect in swatches[:2])
    assert second - first > 24 + 7.5 * len(key[0][1])  # letters of wide fonts
    right = max(float(rect.get("x", "")) for rect in swatches)
    assert right < int(root.get("width", "")) - 100


@pytest.mark.parametrize("rounds", [1, 2, 40])
def test_runs_without_regret_or_with_few_rounds(tmp_path: Path, rounds: int) -> None:
    run = make_run(tmp_path, still=True, rounds=rounds)
    for about in ("regret", "growth", "seconds"):
        drawing = drawn(run, about)
        assert run.experiment in drawing.texts
        assert "nan" not in drawing.svg
    # Times are never zero: every policy has its line.
    written = " ".join(drawn(run, "seconds").texts)
    assert all(policy in written for policy in run.policies)


def test_equal_pictures_give_equal_bytes(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    one = save_run_figures(run, tmp_path / "one")
    other = save_run_figures(Run.load(tmp_path / "run"), tmp_path / "other")
    assert [path.name for path in one] == [path.name for path in other]
    assert {"regret.svg", "growth.svg", "seconds.svg"} <= {path.name for path in one}
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]


def test_figure_file_is_self_contained_and_runs_no_script(tmp_path: Path) -> None:
    """Colours are plain, names are text, and what XML cannot contain is replaced."""
    hostile = "<script>alert(1)</script> \x00\x1b\ud800 & \"'"
    line = Series(hostile, np.array([1, 2]), np.array([1.0, 2.0]))
    chart = Chart(series=(line,), title=hostile, x_label=hostile, y_label=hostile)
    picture = Picture(
        name="../p",
        panels=(chart,),
        heading=hostile,
        caption=hostile,
        key=(("#123456", hostile),),
    )
    (path,) = save_pictures([picture], hostile, tmp_path / "figures", [hostile])
    assert path.parent == tmp_path / "figures"
    paths = [path, *save_run_figures(make_run(tmp_path / "run"), tmp_path / "figures")]
    for path in paths:
        text = path.read_text(encoding="utf-8")
        root = ElementTree.fromstring(text)
        assert root.tag == f"{SVG}svg"
        tags = {element.tag.removeprefix(SVG) for element in root.iter()}
        assert tags <= {"svg", "g", "path", "rect", "circle", "text", "tspan", "use"}
        for element in root.iter():
            assert not any(name.startswith("on") for name in element.attrib)
        assert "var(" not in text
        assert "<script" not in text
        assert PALETTE[0] in text


def test_synthetic_data_are_named_in_every_figure(tmp_path: Path) -> None:
    run = make_run(tmp_path, settings=({"k": 1}, {"k": 2}), rounds=5)
    spec = {**run.spec, "settled": [{"data": "a city, synthetic data"}] * 2}
    synthetic = save_run_figures(Run(tmp_path, spec), tmp_path / "synthetic")
    assert len(synthetic) >= 7
    for path in synthetic:
        assert "tests/two · synthetic data</text>" in path.read_text("utf-8")
    for path in save_run_figures(run, tmp_path / "real"):
        assert "synthetic data" not in path.read_text("utf-8")


def test_an_axis_that_holds_no_round_number_is_drawn(tmp_path: Path) -> None:
    run = make_run(tmp_path, ("a", "b"), rounds=3)
    for name in run.cells:
        policy, seed = name[0], int(name[-5:])
        seconds = np.float32([1.31e-5, 1.32e-5, 1.33e-5])
        series = {"regret": np.ones(3)}
        where = {"setting_index": 0, "seed": seed, "policy": policy}
        write_trace(tmp_path, Trace(series=series, seconds=seconds, **where))
    drawing = drawn(Run.load(tmp_path), "seconds")
    assert drawing.chart.log_y
    assert "nan" not in drawing.svg


# --- lengths, ratios and times ---------------------------------------------------------------


def write_run(
    directory: Path, totals: dict[str, Any], rounds: int, **extra: Any
) -> None:
    """Two seeds, the second with twice the totals of the first; rewards are half of the regret."""
    spec = {"experiment": "tests/long", "rounds": rounds, "first_seed": 0, "seeds": 2}
    write_spec(directory, spec | {"policies": list(totals), "settings": [{}], **extra})
    for policy, total in totals.items():
        for seed in range(2):
            steps = np.diff(np.array(total) * (seed + 1.0), prepend=0.0)
            series = {"regret": steps, "reward": steps / 2.0}
            where: dict[str, Any] = {"policy": policy, "setting_index": 0, "seed": seed}
            write_trace(directory, Trace(series=series, **where))


def test_totals_against_the_number_of_rounds(tmp_path: Path) -> None:
    """A policy rerun for T = 2 and 3 has the totals of those runs, the other its own."""
    write_run(
        tmp_path, {"long": [1, 2, 4, 8], "known": [3, 6, 9, 12]}, 4, horizons=[2, 3]
    )
    write_run(tmp_path / "horizons" / "2", {"known": [1, 5]}, 2)
    write_run(tmp_path / "horizons" / "3", {"known": [1, 2, 7]}, 3)
    (picture,) = run_charts(Run.load(tmp_path))["horizons"]
    by_label = {series.label: series for series in picture.panels[0].series}
    assert list(by_label) == ["long  12", "known  18"]
    for label, expected in (
        ("long  12", [3.0, 6.0, 12.0]),
        ("known  18", [7.5, 10.5, 18.0]),
    ):
        np.testing.assert_array_equal(by_label[label].x, [2, 3, 4])
        np.testing.assert_allclose(by_label[label].y, expected)
    assert picture.caption.startswith(
        "Policies run again for every T, which they must know in advance: known;"
    )
    assert run_charts(make_run(tmp_path / "b", rounds=5))["horizons"] == []


def test_ratios_round_by_round(tmp_path: Path) -> None:
    """Each seed's own ratio or mean; rows of unknown metrics or policies are no charts."""
    derived = [
        {"name": "share", "metric": "reward", "versus": "best"},
        {"name": "plain", "versus": "best"},
        {"name": "rate", "metric": "reward", "per_round": True},
        {"name": "lost", "metric": "energy", "versus": "best"},
        {"name": "nobody", "versus": "gone"},
    ]
    write_run(tmp_path, {"best": [2, 4, 8], "mine": [1, 3, 4]}, 3, derived=derived)
    run = Run.load(tmp_path)
    assert run.derived == [
        {"name": "share", "metric": "reward", "versus": "best"},
        {"name": "plain", "metric": "regret", "versus": "best"},
        {"name": "rate", "metric": "reward"},
    ]
    pictures = run_charts(run)["derived"]
    assert [picture.name for picture in pictures] == ["share", "plain", "rate"]
    best, mine = pictures[2].panels[0].series
    assert (best.label, mine.label) == ("best  2", "mine  1")
    np.testing.assert_allclose(
        mine.y, [0.75, 3.0 * 0.75 / 2.0, 4.0 * 0.75 / 3.0]
    )  # of 1 and 2 times
    assert pictures[2].panels[0].y_label == "rate"
    assert pictures[2].panels[0].y_range()[0] == 0.0  # unlike ratios
    for picture in pictures[:2]:
        (series,) = picture.panels[0].series
        assert series.label == "mine  0.5"
        np.testing.assert_allclose(series.y, [0.5, 0.75, 0.5])
        assert picture.panels[0].y_label.endswith(", relative to best")


@pytest.mark.parametrize(
    ("power", "growth"), [(0.0, ""), (0.05, ""), (0.5, ", t⁰·⁵⁰"), (-0.5, "")]
)
def test_labels_report_growth_of_time(
    power: float, growth: str, tmp_path: Path
) -> None:
    """Times ∝ t^p over the last half; in the first half they are ten times as long."""
    write_spec(
        tmp_path,
        {"experiment": "tests/time", "rounds": 100, "first_seed": 0, "seeds": 1}
        | {"policies": ["mine"], "settings": [{}]},
    )
    rounds = np.arange(1, 101)
    seconds = (1e-4 * rounds**power * np.where(rounds < 50, 10.0, 1.0)).astype(
        np.float32
    )
    where: dict[str, Any] = {"policy": "mine", "setting_index": 0, "seed": 0}
    write_trace(
        tmp_path, Trace(series={"regret": np.ones(100)}, seconds=seconds, **where)
    )
    (picture,) = run_charts(Run.load(tmp_path))["seconds"]
    assert picture is not None
    label = picture.panels[0].series[0].label
    assert label.partition(",")[1] + label.partition(",")[2] == growth


def test_only_totals_that_are_far_apart_and_not_negative_need_a_log_axis() -> None:
    assert charts._are_far_apart([0.0, 1.0, 100.0])
    assert not charts._are_far_apart([1.0, 5.0])
    assert not charts._are_far_apart([-1.0, 1.0, 100.0])
