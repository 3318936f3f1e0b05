"""GPS traces as routes: which edges were driven, when, and what one or several of them took.

``matching`` finds the route behind a trace, on the map of ``street_map``; ``energies`` finds what its
edges took; ``traces`` checks and splits traces. Matching needs the extra ``gps``.
"""

from .energies import TraceSection as TraceSection
from .energies import energies_along as energies_along
from .matching import MOST_POINTS as MOST_POINTS
from .matching import MatchedTrace as MatchedTrace
from .matching import match_trace as match_trace
from .traces import pieces_of as pieces_of
