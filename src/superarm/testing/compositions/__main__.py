"""``python -m superarm.testing.compositions [--out FILE] [--import FILE.py]``: write the page."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import click

from superarm.core.errors import SuperarmError
from superarm.core.plugins import import_parts
from superarm.core.threads import pin_blas_threads

from . import (
    Composition,
    Dimensions,
    Outcome,
    dimensions,
    every_composition,
    page,
    play_all,
)


@click.command()
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write; default: print the page.",
)
@click.option(
    "--import", "imports", multiple=True, help="A module with parts of your own."
)
def main(out: Path | None, imports: tuple[str, ...]) -> None:
    """Play every composition of registered parts and write which of them run. It takes minutes.

    A composition that neither runs nor is refused is a defect: its traceback is printed, and nothing
    is written.
    """
    pin_blas_threads()
    try:
        for path in imports:
            import_parts(path)
        values = dimensions()
        outcomes, defects = _play(values)
    except SuperarmError as error:
        raise click.ClickException(str(error)) from error
    for defect in defects:
        traceback.print_exception(defect)
    if defects:
        raise click.ClickException(f"defects: {len(defects)}; see their tracebacks")
    text = page(values, outcomes)
    if out is None:
        click.echo(text, nl=False)
    else:
        out.write_text(text, encoding="utf-8")


def _play(
    values: Dimensions,
) -> tuple[dict[Composition, Outcome], list[Exception]]:
    """The outcomes of all compositions, and the errors of those that failed."""
    outcomes: dict[Composition, Outcome] = {}
    defects: list[Exception] = []
    compositions = list(every_composition(values))
    with click.progressbar(compositions, file=sys.stderr) as bar:
        for result in play_all(bar):
            if result.outcome is not None:
                outcomes[result.composition] = result.outcome
            if result.defect is not None:
                defects.append(result.defect)
    return outcomes, defects


if __name__ == "__main__":
    main()
