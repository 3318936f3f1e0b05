"""A run as one self-contained HTML page without scripts, and its figures as SVG files.

:func:`write_report` returns a :class:`Report`; :func:`write_index` joins several in a gallery::

    reports = [write_report(Run.load(d), claims, d / "report.html") for d in directories]
    write_index(reports, root / "index.html")

:func:`save_run_figures` writes the pictures of a page as files.

Everything that comes from a run is escaped: names and notes are text, never markup.
"""

from .files import picture_svg as picture_svg
from .files import save_pictures as save_pictures
from .files import save_run_figures as save_run_figures
from .gallery import write_index as write_index
from .writing import Report as Report
from .writing import write_report as write_report
