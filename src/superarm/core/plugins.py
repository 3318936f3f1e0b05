"""Import of parts that are not superarm's own.

Only what the user names on their own machine is imported: a module, a file, or installed packages with
an entry point in the group ``superarm.parts``. No name ever comes from a run, a state or a request.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from .errors import SpecError
from .registry import forget_unimported

_imported: dict[str, None] = {}  # in order; a dict, because a set has none


def import_parts(source: Path | str) -> None:
    """Import a module or a file, so that it registers its parts.

    Args:
        source: The name of a module, or the path of a file that ends in ``.py``.
    """
    name = str(source)
    path = None
    if name.endswith(".py"):
        if not Path(source).is_file():
            raise SpecError(f"{source}: file not found")
        path = Path(source).resolve()
    elif Path(name).is_dir() and not name.isidentifier():
        raise SpecError(_folder_message(name))
    key = name if path is None else str(path)
    if key in _imported:
        return
    folder = str(Path.cwd())
    sys.path.insert(0, folder)  # as for ``python -m``, but only for this import
    try:
        if path is None:
            importlib.import_module(name)
        else:
            _run(path)
    except (Exception, SystemExit) as error:
        forget_unimported()
        advice = "; for a file give its path, which ends in .py" if path is None else ""
        raise SpecError(
            f"{source} cannot be imported: {type(error).__name__}: {error}{advice}"
        ) from error
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
    if path is None and _is_plain_folder(name):
        raise SpecError(_folder_message(name))
    _imported[key] = None


def _is_plain_folder(name: str) -> bool:
    """Whether an imported module is a folder without ``__init__.py``, which runs no code."""
    module = sys.modules[name]
    return hasattr(module, "__path__") and getattr(module, "__file__", None) is None


def _folder_message(name: str) -> str:
    return f"{name} is a folder; import one of its files ({Path(name) / 'FILE.py'})"


def imported() -> list[str]:
    """The sources imported so far, for worker processes that must import them, too."""
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
    sys.modules[name] = module  # where dataclasses look for their own module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
