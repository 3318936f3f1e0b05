"""Road networks: records, readers, generated cities, line graphs, and what driving costs."""

from .energy import Vehicle
from .road import LineGraph, RoadNetwork
from .tables import read_tables

__all__ = ["LineGraph", "RoadNetwork", "Vehicle", "read_tables"]
