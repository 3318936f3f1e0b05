"""The commands. Each imports what it needs when it runs, so that ``--help`` stays instant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from superarm import __version__

from .common import (
    Command,
    Commands,
    common_options,
    importing,
    print_json,
    say,
    seeded,
)
from .live_commands import COMMANDS as LIVE_COMMANDS

_PATH = click.Path(path_type=Path)
_COUNT = click.IntRange(min=1)
_NET = "Road network: a .net.xml or .osm file, a folder of tables, or luxembourg, monaco or city."
_HEIGHTS = "Heights for the network: an SRTM tile (.hgt) or a folder of them."
_SET = "Set a parameter to a TOML value; a list sweeps. May be repeated."
_RESUME = "Resume an interrupted run in --out, or extend it with more --rounds."
_EXECUTOR = (
    "Local processes, or Dask: the cluster at --scheduler, or workers on this machine."
)
_SCHEDULER = "Address of a Dask scheduler, such as tcp://10.0.0.1:8786; default: $DASK_SCHEDULER_ADDRESS."
_STATE = (
    "A learned state, of a run (RUN/states/CELL.npz) or of a fleet; default: none, the energy model "
    "alone."
)
_WARM_START = (
    "Warm-start a policy from a state, such as RUN/states/CELL.npz. May be repeated."
)
_SETTING = "A parameter of the vehicle (mass, …), the roads (uturns) or a city (edges, city_seed)."
_PLACE = "Where the trip begins: an edge id, latitude,longitude in degrees, or a street name."
_VEHICLE = (
    "A vehicle as TOML (mass, …, battery_wh, reserve_wh), or one of several by name."
)
_CLASS = (
    "Vehicle class that the roads must admit: passenger, taxi, delivery, truck, bus, emergency, "
    "bicycle, pedestrian."
)
_CLOSED = "Close an edge or a street. May be repeated."
_TRIPS = "Table of trips by edge, by trip or by GPS point, .csv (see docs/cli.md). May be repeated."
_LEARNED = "The state file to write; if it exists, learning resumes from it."
_ENERGY = (
    "raw: energies of edges include kinetic energy, as a battery's own readings do. net: they do not. "
    "auto: detect it for each vehicle."
)
_OUTLIERS = (
    "How to treat energies far from their forecast; default: the state's own, or weigh."
)
_DEMO = "Directory of the run, report.html and learning.svg; replaces an earlier demo."
_SHOWN: dict[str, Any] = {"show_default": True}


def _choice(name: str, *choices: str, description: str) -> Callable[[Command], Command]:
    """An option with a few values, the first by default."""
    return click.option(
        name,
        type=click.Choice(choices),
        default=choices[0],
        help=description,
        **_SHOWN,
    )


_band = click.option(
    "--band",
    type=click.Choice(["stderr", "std"]),
    help="Bands: standard error, or standard deviation over seeds; default: the experiment's own.",
)


_flat = click.option(
    "--flat", is_flag=True, default=None, help="Treat all roads as level."
)


_SIZE_OPTIONS = (
    click.option(
        "--seeds",
        type=_COUNT,
        help="Number of seeds; default: the experiment's own.",
    ),
    click.option(
        "--rounds",
        type=_COUNT,
        help="Number of rounds; default: the experiment's own.",
    ),
    click.option(
        "--policies",
        help="Policies, separated by commas; default: the experiment's own.",
    ),
    click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help=_SET),
    click.option(
        "--out",
        type=_PATH,
        help="Directory of the results; default: runs/NAME-001, -002, …",
    ),
    click.option("--resume", is_flag=True, help=_RESUME),
    click.option(
        "--jobs", type=_COUNT, help="Number of processes; default: one per core."
    ),
)


def _sizes(command: Any) -> Any:
    """Add the options of commands that run experiments."""
    for option in reversed(_SIZE_OPTIONS):  # the decorator applied last comes first
        command = option(command)
    return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="superarm")
def superarm() -> None:
    """Gaussian-process bandits that learn while they choose combinations.

    Start with `superarm demo`. `superarm list` lists all parts and experiments.
    """


@superarm.command()
@click.argument("experiment")
@_sizes
@click.option("--net", help=f"{_NET} For problems on roads.")
@click.option(
    "--from", "start", help="Edge where trips begin; default: chosen for you."
)
@click.option("--to", "goal", help="Edge where trips end; default: chosen for you.")
@click.option("--elevation", type=_PATH, help=_HEIGHTS)
@_flat
@click.option(
    "--state", "states", multiple=True, metavar="[POLICY=]FILE", help=_WARM_START
)
@_choice("--executor", "local", "dask", description=_EXECUTOR)
@click.option("--scheduler", metavar="ADDRESS", help=_SCHEDULER)
@seeded
@common_options
@importing
def run(
    experiment: str,
    executor: str,
    scheduler: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Run an experiment.

    EXPERIMENT is an id (`superarm list experiments` lists them) or a file of your own, FILE.toml.
    """
    from . import places, running

    place_options = {name: options.pop(name) for name in places.Place._fields}
    place = places.Place(**place_options)
    request = running.Request(**options)
    summary = running.run_one(experiment, request, place, executor, scheduler)
    if as_json:
        print_json(summary)
    else:
        running.print_summary(summary)


@superarm.command()
@click.argument("target", metavar="all|PAPER[/FIGURE]")
@_band
@_sizes
@seeded
@common_options
@importing
def reproduce(target: str, band: Any, as_json: bool, **options: Any) -> None:
    """Run a paper's experiments and draw its figures.

    PAPER is a group of experiments, such as kernelized; FIGURE is one of them, or the number of a
    figure: kernelized/rkhs-se, kernelized/1a. The default size is the paper's. all runs the experiments
    of every paper, which takes hours; you can stop it and continue with --out DIR --resume.
    """
    from . import reproducing, running

    request = running.Request(**options)
    summary = reproducing.reproduce(target, request, band)
    if as_json:
        print_json(summary)
    else:
        reproducing.print_reproduction(summary)


@superarm.command()
@click.argument("directory", metavar="RUN", type=_PATH)
@click.option("--bound", is_flag=True, help="Draw theoretical bounds on the regret.")
@_band
@common_options
@importing
def report(directory: Path, as_json: bool, **options: Any) -> None:
    """Write a run's report and figures.

    The report is RUN/report.html; the figures are SVG files in RUN/figures.
    """
    from . import running

    page, figures = running.report(directory, **options)
    report_path = str(page.path)
    figure_paths = [str(path) for path in figures]
    if as_json:
        print_json({"report": report_path, "figures": figure_paths})
    else:
        say("\n".join([report_path, *figure_paths]))


@superarm.command()
@click.option("--net", required=True, help=_NET)
@click.option("--from", "start", required=True, metavar="PLACE", help=_PLACE)
@click.option(
    "--to", "goal", required=True, metavar="PLACE", help="Where the trip ends."
)
@click.option("--elevation", type=_PATH, help=_HEIGHTS)
@_flat
@click.option("--state", type=_PATH, help=_STATE)
@click.option("--vehicle", metavar="FILE[#NAME]", help=_VEHICLE)
@click.option("--class", "vehicle_class", default="passenger", **_SHOWN, help=_CLASS)
@click.option("--close", multiple=True, metavar="EDGE", help=_CLOSED)
@click.option(
    "--close-file",
    type=_PATH,
    help="Close the roads of a GeoJSON file: lines and areas.",
)
@click.option(
    "--depart", metavar="TIME", help="When the trip begins: HH:MM, or a date and time."
)
@click.option(
    "--charge", metavar="WH|%", help="The battery's charge at the start; default: full."
)
@click.option(
    "--anyway",
    is_flag=True,
    help="Print a route on which the charge may fall below the reserve.",
)
@_choice(
    "--routing",
    "potential",
    "rectified",
    description="How to handle negative edge costs: with height potentials, or by rectifying each edge "
    "(Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025), Algorithm 2).",
)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help=_SETTING)
@click.option("--geojson", is_flag=True, help="Print one line of GeoJSON on stdout.")
@common_options
@importing
def route(geojson: bool, as_json: bool, quiet: bool, **options: Any) -> None:
    """Find the route of least expected energy.

    Prints the route with a 95 % interval of its energy, and compares it with the fastest and the
    shortest route.
    """
    if geojson and as_json:
        raise click.UsageError("--json and --geojson both print to stdout; choose one")
    from . import routing

    answer = routing.find_route(**options)
    if geojson:
        print_json(answer.as_geojson())
    elif as_json:
        print_json(answer.as_json())
    else:
        routing.print_route(answer)


@superarm.command()
@click.option("--net", required=True, help=_NET)
@click.option("--trips", type=_PATH, multiple=True, required=True, help=_TRIPS)
@click.option("--state", type=_PATH, required=True, help=_LEARNED)
@click.option(
    "--vehicles",
    type=_PATH,
    help="A TOML file with a table for each vehicle: [van-1], mass = …",
)
@click.option("--elevation", type=_PATH, help=_HEIGHTS)
@_flat
@click.option(
    "--outliers", type=click.Choice(["weigh", "keep", "refuse"]), help=_OUTLIERS
)
@click.option(
    "--half-life",
    type=click.FloatRange(1.0),
    metavar="TRIPS",
    help="Number of later trips after which a trip counts half; default: the state's own, or never.",
)
@click.option(
    "--accept-unlikely", is_flag=True, help="Also learn trips that look wrong."
)
@_choice("--energy", "auto", "net", "raw", description=_ENERGY)
@click.option(
    "--hours",
    is_flag=True,
    default=None,
    help="Learn how each road varies over the day; the log needs a column time.",
)
@common_options
def learn(as_json: bool, quiet: bool, **options: Any) -> None:
    """Learn from a fleet's log of trips.

    Learns each trip once, even if several logs contain it. `superarm route --state FILE` uses the
    result.
    """
    from . import learning

    lesson, graph = learning.learn(**options)
    if as_json:
        print_json(lesson.as_json(graph))
    else:
        learning.print_lesson(lesson, graph, options["state"])


@superarm.command()
@click.option("--out", type=_PATH, default=Path("demo"), **_SHOWN, help=_DEMO)
@click.option(
    "--rounds",
    type=click.IntRange(10, 2000),
    default=50,
    **_SHOWN,
    help="Number of rounds.",
)
@click.option(
    "--delay",
    type=click.FloatRange(0.0),
    default=0.05,
    **_SHOWN,
    help="Seconds per frame.",
)
@seeded
@common_options
def demo(as_json: bool, quiet: bool, **options: Any) -> None:
    """Watch an electric car learn its way through a city.

    Ends with a table and a report. Needs no data and no extras.
    """
    from superarm.lab.demo import run_demo

    result = run_demo(quiet=quiet, silent=as_json, **options)
    if as_json:
        print_json(result)


@superarm.command("list")
@click.argument("family", required=False)
@common_options
@importing
def list_family(family: str | None, as_json: bool, **_: Any) -> None:
    """List parts and experiments.

    FAMILY is a family of parts, such as kernels, or experiments. Without it, lists the families.
    """
    from .listing import list_family

    list_family(family, as_json)


@superarm.command()
@click.argument("name")
@common_options
@importing
def show(name: str, as_json: bool, **_: Any) -> None:
    """Explain a part or an experiment.

    NAME is a part (matern, or kernel/matern to name its family), an experiment (navigation/betas) or
    a file of your own (FILE.toml). Lists the parameters with their types, defaults and meanings.
    """
    from . import listing

    listing.show(name, as_json)


@superarm.group()
def data() -> None:
    """List and locate the data sets of the experiments."""


@data.command("list")
@common_options
def data_list(as_json: bool, **_: Any) -> None:
    """List every data set, its origin and its terms."""
    from .listing import list_data

    list_data(as_json)


@data.command("path")
@click.argument("name")
@common_options
def data_path(name: str, as_json: bool, **_: Any) -> None:
    """Print the path of a data set."""
    from superarm.core.data_files import find

    path = find(name)
    if as_json:
        print_json({"name": name, "path": str(path)})
    else:
        say(path)


@superarm.command()
@common_options
def doctor(as_json: bool, **_: Any) -> None:
    """Check the installation.

    Prints versions and missing extras, and compares the engines with a plain solve.
    """
    from .doctor import check_installation

    check_installation(as_json)


for _command in LIVE_COMMANDS:
    superarm.add_command(_command)
