"""Parts that are not superarm's own.

Only what the user names on their own machine is imported: a module or a file, or packages that were
installed with an entry point in the group ``superarm.parts``. No name is ever taken from a run, a state
or a request.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from .errors import SpecError
from .registry import forget_unimported

_imported: dict[str, None] = {}


def import_parts(source: Path | str) -> None:
    """Import a module by its name, or a file that ends in ``.py``, so that it registers its parts."""
    text = str(source)
    path = None
    if text.endswith(".py"):
        if not Path(source).is_file():
            raise SpecError(f"{source} cannot be imported: there is no such file")
        path = Path(source).resolve()
    key = text if path is None else str(path)
    if key in _imported:
        return
    here = str(Path.cwd())
    sys.path.insert(0, here)  # as for ``python -m``, but for no other import than this
    try:
        if path is None:
            importlib.import_module(text)
        else:
            _run(path)
    except (Exception, SystemExit) as error:
        forget_unimported()
        advice = "; for a file give its path, which ends in .py" if path is None else ""
        told = f"{type(error).__name__}: {error}{advice}"
        raise SpecError(f"{source} cannot be imported: {told}") from error
    finally:
        if here in sys.path:
            sys.path.remove(here)
    _imported[key] = None


def imported() -> list[str]:
    """What was imported so far, for processes that must import it, too."""
    return list(_imported)


def _run(path: Path) -> None:
    name = f"superarm_parts_{path.stem}"
    if name in sys.modules:
        raise ValueError(
            f"another file called {path.name} was imported before it; rename one of them"
        )
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look for the module that they are in
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
