"""Simulation: policies against problems, and their runs on disk."""

from .executors import spread as spread
from .lateness import Lateness as Lateness
from .run import Run as Run
from .runner import simulate as simulate
from .trace import Trace as Trace
from .trace import cell_name as cell_name
from .trace import read_trace as read_trace
from .trace import write_trace as write_trace
