"""Charts of runs on changing arms: ratios to a policy, regret against T, how time grows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.lab.results.charts import run_charts
from superarm.lab.simulation import Run, Trace, write_trace
from superarm.lab.simulation.run_spec import write_spec

RATIO = {"name": "reward_ratio", "metric": "reward", "versus": "best"}


def write_run(
    directory: Path,
    rewards: dict[str, list[list[float]]],
    seconds: Any = None,
    **spec: Any,
) -> Run:
    """Rewards round by round, by policy and seed; a reward is also 1 less than the regret."""
    seeds, rounds = (
        len(next(iter(rewards.values()))),
        len(next(iter(rewards.values()))[0]),
    )
    known = {
        "experiment": "x",
        "rounds": rounds,
        "first_seed": 0,
        "seeds": seeds,
        "settings": [{}],
    }
    write_spec(directory, {**known, "policies": list(rewards), **spec})
    for policy, every in rewards.items():
        for seed, values in enumerate(every):
            series = {"regret": np.array(values) + 1.0, "reward": np.array(values)}
            trace = Trace(policy=policy, seed=seed, series=series, seconds=seconds)
            write_trace(directory, trace)
    return Run.load(directory)


def test_running_ratios_are_taken_seed_by_seed(tmp_path: Path) -> None:
    rewards = {"mine": [[1.0, 2.0], [4.0, 0.0]], "best": [[2.0, 2.0], [4.0, 4.0]]}
    (picture,) = run_charts(write_run(tmp_path, rewards, derived=[RATIO]))["derived"]
    (chart,) = picture.panels
    (series,) = chart.series  # type: ignore[union-attr]
    assert series.label == "mine  0.625"
    np.testing.assert_allclose(series.y, [(0.5 + 1.0) / 2.0, (0.75 + 0.5) / 2.0])
    np.testing.assert_allclose(
        series.half, [0.25, 0.125]
    )  # half the range: one standard error of two
    assert chart.y_label == "reward, relative to best"  # type: ignore[union-attr]
    np.testing.assert_allclose(chart.y_range(), (0.5 - 0.04 * 0.5, 1.0 + 0.04 * 0.5))  # type: ignore[union-attr]
    assert "means nothing" not in picture.caption


@pytest.mark.parametrize("last", [-4.0, -2.0])
def test_ratio_to_a_nonpositive_total_is_reported(last: float, tmp_path: Path) -> None:
    rewards = {"mine": [[1.0, 1.0], [1.0, 1.0]], "best": [[2.0, last], [4.0, 4.0]]}
    (picture,) = run_charts(write_run(tmp_path, rewards, derived=[RATIO]))["derived"]
    assert (
        "Where the total of best is not above 0 in every seed, a ratio to it"
        in picture.caption
    )


def test_only_a_ratio_to_zero_is_unknown(tmp_path: Path) -> None:
    """Totals of the reference: 2, 0, then −4. The curve has a gap, not a jump to 0 or infinity."""
    rewards = {"mine": [[1.0, 1.0, 1.0]], "best": [[2.0, -2.0, -4.0]]}
    (picture,) = run_charts(write_run(tmp_path, rewards, derived=[RATIO]))["derived"]
    (series,) = picture.panels[0].series  # type: ignore[union-attr]
    np.testing.assert_allclose(series.y, [0.5, np.nan, -0.75])


def test_regret_against_the_number_of_rounds(tmp_path: Path) -> None:
    """Rerun policies have their own total for every T, others that of their first rounds."""
    rewards = {"again": [[0.0, 1.0, 2.0, 3.0]], "once": [[5.0, 6.0, 7.0, 8.0]]}
    run = write_run(tmp_path, rewards, horizons=[2])
    write_run(tmp_path / "horizons" / "2", {"again": [[20.0, 30.0]]})
    (picture,) = run_charts(run)["horizons"]
    rerun, once = picture.panels[0].series  # type: ignore[union-attr]
    assert rerun.x.tolist() == once.x.tolist() == [2, 4]
    assert rerun.y.tolist() == [52.0, 10.0]
    assert once.y.tolist() == [13.0, 30.0]
    assert picture.caption.startswith(
        "Policies run again for every T, which they must know in advance: again;"
    )


def test_growth_of_time_is_reported_where_present(tmp_path: Path) -> None:
    rounds = 400
    for name, power in {"flat": 0.0, "square": 2.0}.items():
        seconds = (1e-6 * np.arange(1, rounds + 1) ** power).astype(np.float32)
        run = write_run(tmp_path / name, {"mine": [[0.0] * rounds]}, seconds)
        (picture,) = run_charts(run)["seconds"]
        (series,) = picture.panels[0].series  # type: ignore[union-attr]
        # Blocks of rounds are averaged, which bends a power only a little.
        assert (", t" in series.label) == (name == "square")
        assert name == "flat" or series.label.endswith(("t²·⁰⁰", "t¹·⁹⁹", "t²·⁰¹"))
