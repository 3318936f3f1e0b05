"""Figures of runs as files, drawn with matplotlib (the extra ``[plot]``) from traces alone.

They are the report's pictures, drawn once more: same numbers, same colours. Nothing touches pyplot
or the global settings. :func:`draw_picture` gives a :class:`matplotlib.figure.Figure`.
"""

from .figures import draw_picture
from .files import save_figure, save_pictures, save_run_figures

__all__ = ["draw_picture", "save_figure", "save_pictures", "save_run_figures"]
