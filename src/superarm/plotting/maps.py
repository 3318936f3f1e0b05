"""Road maps: the network with its trips (Fig. 1), and where policies drove (Figs 6–9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.errors import InputError, require_extra
from superarm.networks import RoadMap
from superarm.results.curves import counted, made_data, setting_text
from superarm.results.roads import (
    Window,
    best_policy,
    in_window,
    main_policies,
    middle,
    round_length,
    trip_key,
    trip_name,
    trip_settings,
    usual_route,
    visits,
    window_around,
)
from superarm.simulation.trace import Run

from .look import INK, MUTED, blank, look, plain_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

_ROAD = "#aab3bc"
_ROUTES = ("#0060c8", "#d62728", "#009e73", "#b0409f")  # A and B blue and red, as in the paper


# --- networks ----------------------------------------------------------------------------


class _Trip(NamedTuple):
    run: Run
    setting_index: int
    roads: RoadMap

    def route(self) -> Ints:
        best = best_policy(self.run, self.setting_index)
        return usual_route(self.run, best, self.setting_index, self.run.seeds[0])


def plot_network(run: Run, setting_index: int = 0) -> Figure:
    """The whole network with the trip's ends and the best route that was found.

    That is the one driven most often in the last tenth of the rounds by the policy that had least
    regret there.
    """
    trip = _Trip(run, setting_index, _roads_of(run, setting_index))
    best = best_policy(run, setting_index)
    with look():
        figure = blank(8.5, _height(8.5, _whole(trip.roads)) + 0.8)
        axes = figure.add_subplot()
        _draw_network(axes, [trip], [f"route of {best}"])
        made = "synthetic data" if made_data(run, setting_index) else ""
        words = (
            *(run.experiment, setting_text(run.settings[setting_index])),
            *(f"{counted(len(trip.roads), 'edge')}, wider where faster", made),
        )
        caption = " · ".join(word for word in words if word)
        axes.set_title(plain_text(trip_name(run, setting_index)), pad=24)
        axes.text(0, 1.02, plain_text(caption), transform=axes.transAxes, color=MUTED, fontsize=10)
    return figure


def plot_networks(runs: Sequence[Run]) -> Figure:
    """Every network of some runs once, side by side, with all trips on it: Fig. 1.

    Sorted by name; a trip that several runs make is drawn with the route of the first of them.
    """
    networks: dict[bytes, dict[tuple[int, int], _Trip]] = {}
    trips_of = [(run, index) for run in runs for index in trip_settings(run)]
    for run, index in sorted(trips_of, key=lambda trip: trip_name(*trip)):
        roads = _roads_of(run, index)
        network, start, goal = trip_key(roads)
        networks.setdefault(network, {}).setdefault((start, goal), _Trip(run, index, roads))
    if not networks:
        raise InputError("none of these runs has a road map; nothing to draw")
    groups = [list(trips.values()) for trips in networks.values()]
    shapes = [_whole(trips[0].roads) for trips in groups]
    with look():
        height = min(5.2, 13.0 / sum(shape.aspect for shape in shapes))
        figure = blank(height * sum(shape.aspect for shape in shapes) + 0.4, height + 1.1)
        grid = figure.add_gridspec(1, len(groups), width_ratios=[shape.aspect for shape in shapes])
        for place, trips in enumerate(groups):
            axes = figure.add_subplot(grid[place])
            names = [trip_name(trip.run, trip.setting_index) for trip in trips]
            _draw_network(axes, trips, names)
            places = {name.rpartition(" ")[0] for name in names}
            title = places.pop() if len(places) == 1 and "" not in places else names[0]
            axes.set_title(plain_text(title), pad=24)
            caption = f"{counted(len(trips[0].roads), 'edge')}, wider where faster"
            axes.text(0, 1.02, caption, transform=axes.transAxes, color=MUTED, fontsize=10)
    return figure


def _draw_network(axes: Axes, trips: Sequence[_Trip], names: Sequence[str]) -> None:
    roads = trips[0].roads
    _frame(axes, _whole(roads))
    _draw_roads(axes, roads, np.arange(len(roads)), widest=2.2)
    for place, (trip, name) in enumerate(zip(trips, names, strict=True)):
        colour = _ROUTES[place % len(_ROUTES)]
        route = _lines([roads.course(int(edge)) for edge in trip.route()])
        route.set(color=colour, linewidth=2.6, capstyle="round", zorder=3)
        route.set_label(plain_text(name))
        axes.add_collection(route)
        _mark_ends(axes, trip.roads, colour)
    for marker, name in (("o", "start"), ("s", "goal")):
        axes.scatter([], [], marker=marker, s=40, facecolor="white", edgecolor=MUTED, label=name)
    handles, told = axes.get_legend_handles_labels()
    below = (0.5, 0.0)
    axes.legend(handles, told, loc="upper center", bbox_to_anchor=below, ncols=4, frameon=False)


# --- exploration -------------------------------------------------------------------------


def plot_exploration(
    run: Run, setting_index: int = 0, policies: Sequence[str] | None = None, seed: int | None = None
) -> Figure:
    """Where policies drove over all rounds, and what they are still unsure of: one panel each.

    By default those of :func:`superarm.results.roads.main_policies`, of the first seed. Policies that
    learn nothing have no uncertainty, and no second panel.
    """
    chosen = _exploration_policies(run, policies)
    seed = run.seeds[0] if seed is None else seed
    roads = _roads_of(run, setting_index)
    counts = {each: visits(run, each, setting_index, (seed,), len(roads)) for each in chosen}
    doubts = {each: _final_std(run, each, setting_index, seed) for each in chosen}
    everywhere = np.flatnonzero(sum(counts.values()))
    window = window_around(roads, everywhere)
    shown = in_window(roads, window)
    # Learners first, so that rows of uncertainty are full.
    chosen.sort(key=lambda each: doubts[each] is None)
    with look():
        wide = 2 if len(chosen) in (2, 4) else 3  # rows without holes where it can be
        rows = [chosen[at : at + wide] for at in range(0, len(chosen), wide)]
        kinds = [(row, what) for row in rows for what in _row_kinds(row, doubts)]
        columns = max(len(row) for row in rows)
        width = 4.3 if columns > 1 else 7.0
        panel_height = _height(width, window) + 0.45
        figure = blank(width * columns, panel_height * len(kinds) + 1.6)
        grid = figure.add_gridspec(len(kinds), columns)
        scales = _Scales.of(counts, doubts, shown)
        for line, (row, what) in enumerate(kinds):
            for column, policy in enumerate(row):
                doubt = doubts[policy]
                if what == "std" and doubt is None:
                    continue
                axes = figure.add_subplot(grid[line, column])
                _frame(axes, window)
                if what == "std" and doubt is not None:
                    _draw_std(axes, roads, shown, doubt, scales)
                    title = f"{policy} · uncertainty at the end"
                else:
                    _draw_visits(axes, roads, shown, counts[policy], scales)
                    title = f"{policy} · distinct edges: {np.count_nonzero(counts[policy]):,}"
                axes.set_title(plain_text(title), fontsize=10.5, pad=5)
                _mark_ends(axes, roads, INK, small=True)
        _exploration_keys(figure, scales, run, setting_index, seed)
    return figure


def _exploration_policies(run: Run, policies: Sequence[str] | None) -> list[str]:
    if policies is not None:
        missing = [each for each in policies if each not in run.policies]
        if missing or not policies:
            raise InputError(f"policies {missing} are not in this run; it has {list(run.policies)}")
        return list(policies)
    return main_policies(run)


def _row_kinds(row: Sequence[str], doubts: dict[str, Floats | None]) -> tuple[str, ...]:
    return ("visits", "std") if any(doubts[each] is not None for each in row) else ("visits",)


def _final_std(run: Run, policy: str, setting_index: int, seed: int) -> Floats | None:
    audit = run.audit(policy, setting_index, seed)
    return None if audit is None else audit.get("std")


class _Scales(NamedTuple):
    """Colour scales that all panels of a figure share."""

    visits: ScalarMappable
    most: int
    std: ScalarMappable | None

    @classmethod
    def of(cls, counts: dict[str, Ints], doubts: dict[str, Floats | None], shown: Ints) -> _Scales:
        colours, mappable = (require_extra(f"matplotlib.{part}", "plot") for part in ("colors", "cm"))
        maps = require_extra("matplotlib", "plot").colormaps
        most = max(2, *(int(each.max(initial=0)) for each in counts.values()))
        # The palest end of a map vanishes on white: it is left out.
        dark = colours.ListedColormap(maps["viridis_r"](np.linspace(0.12, 1.0, 256)))
        seen = [each[shown] for each in doubts.values() if each is not None]
        std = None
        if seen:
            pale = colours.ListedColormap(maps["magma_r"](np.linspace(0.1, 0.92, 256)))
            # A few edges are far more uncertain than all others; they take the last colour.
            highest = max(float(np.quantile(np.concatenate(seen), 0.98)), 1e-12)
            std = mappable.ScalarMappable(colours.Normalize(0.0, highest), pale)
        return cls(mappable.ScalarMappable(colours.LogNorm(1, most), dark), most, std)


def _draw_visits(axes: Axes, roads: RoadMap, shown: Ints, counts: Ints, scales: _Scales) -> None:
    _draw_roads(axes, roads, shown, widest=1.1)
    driven = np.flatnonzero(counts)
    driven = driven[np.argsort(counts[driven], kind="stable")]  # the most driven on top
    width = 0.9 + 2.6 * np.log(counts[driven]) / np.log(scales.most)
    lines = _lines([roads.course(int(edge)) for edge in driven])
    lines.set(color=scales.visits.to_rgba(counts[driven]), linewidth=width, capstyle="round", zorder=3)
    axes.add_collection(lines)


def _draw_std(axes: Axes, roads: RoadMap, shown: Ints, std: Floats, scales: _Scales) -> None:
    if scales.std is None:
        return
    order = shown[np.argsort(-std[shown], kind="stable")]  # what is known lies on top
    lines = _lines([roads.course(int(edge)) for edge in order])
    lines.set(color=scales.std.to_rgba(std[order]), linewidth=1.1, capstyle="round", rasterized=True)
    axes.add_collection(lines)


def _exploration_keys(figure: Figure, scales: _Scales, run: Run, setting_index: int, seed: int) -> None:
    where = list(figure.axes)
    bars = [  # the first lies lowest
        (scales.std, "standard deviation of an edge's energy at the end (Wh)"),
        (scales.visits, "visits (log)"),
    ]
    for mappable, label in bars:
        if mappable is None:
            continue
        extend = "max" if mappable is scales.std else "neither"
        bar = figure.colorbar(
            mappable, ax=where, location="bottom", aspect=60, pad=0.015, shrink=0.7, extend=extend
        )
        bar.set_label(label, fontsize=10)
        bar.ax.tick_params(length=0, labelsize=9.5)
        bar.outline.set_visible(False)
        if mappable is scales.visits:
            steps = [each for each in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if each <= scales.most]
            bar.set_ticks(steps, labels=[f"{each:,}" for each in steps])
            bar.ax.minorticks_off()
    made = "synthetic data" if made_data(run, setting_index) else ""
    words = (
        *(f"Exploration of {trip_name(run, setting_index)}", f"{counted(run.rounds, 'round')}"),
        *(f"seed {seed}", made),
    )
    title = " · ".join(word for word in words if word)
    figure.suptitle(plain_text(title), x=0.01, ha="left", fontsize=14, fontweight="bold")


# --- parts of a map ----------------------------------------------------------------------


def _roads_of(run: Run, setting_index: int) -> RoadMap:
    roads = run.road_map(setting_index)
    if roads is None:
        raise InputError(
            f"setting {setting_index} of {run.experiment} has no road map: its arms are no roads"
        )
    return roads


def _whole(roads: RoadMap) -> Window:
    return window_around(roads, np.arange(len(roads)), margin=0.02)


def _height(width: float, window: Window) -> float:
    return width / window.aspect


def _lines(courses: Sequence[Floats]) -> Any:
    lines = require_extra("matplotlib.collections", "plot").LineCollection(courses)
    lines.set_in_layout(False)  # it lies inside its axes; to measure thousands of roads takes seconds
    return lines


def _frame(axes: Axes, window: Window) -> None:
    """No ticks, equal scales, a bar for the scale."""
    right, top = window.left + window.width, window.bottom + window.height
    axes.set(xlim=(window.left, right), ylim=(window.bottom, top), xticks=[], yticks=[])
    axes.set_aspect("equal")
    axes.grid(False)
    axes.spines[:].set_visible(False)
    length = round_length(window.width / 4.0)
    text = f"{length / 1000:g} km" if length >= 1000 else f"{length:g} m"
    y = window.bottom + 0.03 * window.height
    x = right - 0.02 * window.width
    axes.plot([x - length, x], [y, y], color=INK, linewidth=2, solid_capstyle="butt", zorder=6)
    label = axes.annotate(text, (x - length / 2, y), xytext=(0, 3), textcoords="offset points")
    label.set(ha="center", va="bottom", fontsize=8.5, color=INK, zorder=6)


def _draw_roads(axes: Axes, roads: RoadMap, shown: Ints, widest: float) -> None:
    """Roads in grey, wider where the speed limit is higher."""
    fastest = max(float(roads.speed.max()), 1e-9)
    lines = _lines([roads.course(int(edge)) for edge in shown])
    # Pixels, also in an SVG: thousands of roads that nobody needs to take apart.
    lines.set(color=_ROAD, linewidth=0.35 + (widest - 0.35) * (roads.speed[shown] / fastest) ** 2)
    lines.set(rasterized=True, zorder=1)
    axes.add_collection(lines)


def _mark_ends(axes: Axes, roads: RoadMap, colour: str, small: bool = False) -> None:
    """A disc where the trip starts and a square where it ends, both at the middle of their edge."""
    for edge, marker in ((roads.start, "o"), (roads.goal, "s")):
        x, y = middle(roads.course(edge))
        spot = axes.scatter([x], [y], marker=marker, s=48 if small else 62, zorder=5)
        spot.set(facecolor="white", edgecolor=colour, linewidth=1.8 if small else 2.2)
        spot.set_gid("start" if marker == "o" else "goal")
