"""The commands. Each imports what it needs when it runs, so that ``--help`` stays instant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from superarm import __version__

from .common import Commands, common_options, importing, print_json, say

if TYPE_CHECKING:
    from superarm.results.curves import Band


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="superarm")
def superarm() -> None:
    """Learn while you decide among combinations."""


_OUT = "Where results go; default: runs/NAME-001, -002, …"


_NET = "Road network: a .net.xml or .osm file, a folder of tables, or luxembourg, monaco, city."
_elevation = click.option(
    "--elevation",
    type=click.Path(path_type=Path),
    default=None,
    help="Heights for the network: an SRTM tile (.hgt) or a folder of them.",
)


def _sizes(command: Any) -> Any:
    """Options of the commands that run experiments."""
    for option in (
        click.option(
            "--jobs", type=click.IntRange(min=1), default=None, help="Processes; default: one per core."
        ),
        click.option(
            "--policies", default=None, help="Comma-separated; default: those of the experiment."
        ),
        click.option(
            "--rounds",
            type=click.IntRange(min=1),
            default=None,
            help="Rounds; default: the experiment's own.",
        ),
        click.option(
            "--seeds",
            type=click.IntRange(min=1),
            default=None,
            help="How many seeds, from --seed on; default: the experiment's own.",
        ),
        click.option(
            "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="TOML value; a list sweeps."
        ),
        click.option("--resume", is_flag=True, help="Go on in --out where a run was cut off."),
    ):
        command = option(command)
    return command


@superarm.command()
@click.argument("experiment")
@click.option(
    "--executor",
    type=click.Choice(["local", "dask"]),
    default="local",
    show_default=True,
    help="Processes here, or a Dask cluster ($DASK_SCHEDULER_ADDRESS, else one on this machine).",
)
@click.option("--out", type=click.Path(path_type=Path), default=None, help=_OUT)
@click.option("--net", default=None, help=f"{_NET} For problems on roads.")
@click.option("--from", "start", default=None, help="Edge where trips begin; default: suggested.")
@click.option("--to", "goal", default=None, help="Edge where trips end; default: suggested.")
@_elevation
@_sizes
@common_options
@importing
def run(
    experiment: str,
    executor: str,
    net: str | None,
    start: str | None,
    goal: str | None,
    elevation: Path | None,
    as_json: bool,
    **request: Any,
) -> None:
    """Run an EXPERIMENT by its id (`superarm list experiments`), or your own from FILE.toml."""
    from . import places, running

    place = places.Place(net, start, goal, elevation)
    summary = running.run_one(experiment, running.Request(**request), executor, place)
    if as_json:
        print_json(summary)
    else:
        running.print_summary(summary)


@superarm.command()
@click.argument("target", metavar="PAPER[/FIGURE]")
@click.option("--out", type=click.Path(path_type=Path), default=None, help=_OUT)
@_sizes
@common_options
@importing
def reproduce(target: str, as_json: bool, **request: Any) -> None:
    """Run a paper's experiments, by default at the paper's size, and draw its figures.

    PAPER is the group of its experiments, such as kernelized; FIGURE one experiment or figure
    number of it, such as kernelized/rkhs-se or kernelized/1a.
    """
    from . import running

    summary = running.reproduce(target, running.Request(**request))
    if as_json:
        print_json(summary)
    else:
        running.print_reproduction(summary)


@superarm.command()
@click.argument("directory", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--bound", is_flag=True, help="Draw the theoretical bound over the regret.")
@click.option(
    "--band",
    type=click.Choice(["stderr", "std"]),
    default="stderr",
    show_default=True,
    help="What surrounds means: their standard error, or the deviation between seeds.",
)
@common_options
@importing
def report(directory: Path, bound: bool, band: Band, as_json: bool, seed: int, quiet: bool) -> None:
    """Write RUN/report.html and, with the plot extra, figures as PNG and SVG."""
    from . import running

    written = running.report(directory, quiet=quiet, bound=bound, band=band)
    if as_json:
        figures = [str(path) for path in written.figures]
        print_json({"report": str(written.report.path), "figures": figures})
    else:
        for path in (written.report.path, *written.figures):
            say(path)


@superarm.command()
@click.option("--net", required=True, help=_NET)
@click.option("--from", "start", required=True, help="Id of the edge where the trip begins.")
@click.option("--to", "goal", required=True, help="Id of the edge where it ends.")
@_elevation
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    default=None,
    help="What a run has learned on this network: RUN/states/CELL.npz; default: the energy model.",
)
@click.option(
    "--routing",
    type=click.Choice(["potential", "rectified"]),
    default="potential",
    show_default=True,
    help="How costs are made positive: by height potentials, or as the paper does.",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Of the vehicle (mass, auxiliary_power, …), the model, or a city (edges, city_seed).",
)
@click.option("--geojson", is_flag=True, help="Print one line of GeoJSON on stdout.")
@common_options
@importing
def route(
    net: str,
    start: str,
    goal: str,
    elevation: Path | None,
    state: Path | None,
    routing: Any,
    overrides: tuple[str, ...],
    geojson: bool,
    as_json: bool,
    seed: int,
    quiet: bool,
) -> None:
    """Print the route of least expected energy, with its 95 % interval."""
    if geojson and as_json:
        raise click.UsageError("--json and --geojson both print to stdout; choose one")
    from . import routing as routes

    answer = routes.ask(
        net, start, goal, state=state, routing=routing, elevation=elevation, overrides=overrides
    )
    if geojson:
        print_json(answer.as_geojson())
    elif as_json:
        print_json(answer.as_json())
    else:
        routes.print_route(answer)


@superarm.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("demo"),
    show_default=True,
    help="Where the run, report.html and learning.svg go; an earlier demo makes way.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=10, max=2000),
    default=80,
    show_default=True,
    help="How long it learns.",
)
@click.option("--delay", type=click.FloatRange(min=0.0), default=0.05, help="Seconds per frame.")
@common_options
def demo(out: Path, rounds: int, delay: float, as_json: bool, seed: int, quiet: bool) -> None:
    """Watch a car learn its way through a city; ends with a table and a report."""
    from superarm.demo import run_demo

    result = run_demo(out=out, rounds=rounds, seed=seed, quiet=quiet or as_json, delay=delay)
    if as_json:
        print_json(result)


@superarm.command("list")
@click.argument("family", required=False)
@common_options
@importing
def list_family(family: str | None, as_json: bool, seed: int, quiet: bool) -> None:
    """List the parts of a FAMILY, or the experiments; without one, the families."""
    from . import listing

    listing.list_family(family, as_json)


@superarm.command()
@click.argument("name")
@common_options
@importing
def show(name: str, as_json: bool, seed: int, quiet: bool) -> None:
    """Explain a part or an experiment: what it is, its parameters and their defaults.

    NAME is that of a part (matern, or kernel/matern where several are called so), an experiment
    (navigation/betas) or a file of your own (FILE.toml).
    """
    from . import listing

    listing.show(name, as_json)


@superarm.group()
def data() -> None:
    """Data sets: what there is, where it lies, how to get it."""


@data.command("list")
@common_options
def data_list(as_json: bool, seed: int, quiet: bool) -> None:
    """Every data set, whether it is at hand, its origin and terms."""
    from . import listing

    listing.list_data(as_json)


@data.command("path")
@click.argument("name")
@common_options
def data_path(name: str, as_json: bool, seed: int, quiet: bool) -> None:
    """Where a data set lies."""
    from superarm.datasets import describe, find
    from superarm.registry import suggestion

    known = [dataset.name for dataset in describe()]
    if name not in known:
        raise click.UsageError(f"unknown data set {name!r}; {suggestion(name, known)}")
    path = find(name)
    if as_json:
        print_json({"name": name, "path": str(path)})
    else:
        say(path)


@superarm.command()
@common_options
def doctor(as_json: bool, seed: int, quiet: bool) -> None:
    """What is installed, what is missing, and whether the engines agree here."""
    from .doctor import check_installation

    check_installation(as_json)
