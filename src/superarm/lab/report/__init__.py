"""A run as one self-contained HTML page: no script, nothing loaded, no matplotlib needed.

:func:`write_report` returns a :class:`Report`; :func:`write_index` joins several in a gallery::

    reports = [write_report(Run.load(d), claims, d / "report.html") for d in directories]
    write_index(reports, root / "index.html")

Everything that comes from a run is escaped: names and notes are text, never markup.
"""

from .gallery import write_index as write_index
from .writing import Report as Report
from .writing import write_report as write_report
