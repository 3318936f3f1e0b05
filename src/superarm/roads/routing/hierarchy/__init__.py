"""Searches by a customisable contraction hierarchy.

=================  ====================================================================
``n``, ``c``       edges, and turns from one into the next
rank               an edge's place in the elimination order; edges are named by it here
``u``, ``d``       arcs that rise from the lower of two ranks to the higher, and that fall
``up``, ``down``   least cost of a way from end to end over lower edges, (u,) and (d,)
``via``            the edge below both in the middle of that way, −1: a single turn
=================  ====================================================================

*Topology.* Edges are contracted in the elimination order of the network's ``turn_graph``: all edges
that lead into a contracted one become joined to all behind it. Rising and falling arcs are the entries of
the factors U and L of a sparse matrix in this order. Most pairs have an arc in one direction alone: the
order sorts the edges of a separator by direction. The elimination tree is that of the matrix without
directions. No cost plays a part.

*Customisation.* Way by way over lower edges, from the bottom: a way b → v → a over an edge v below both costs
down(b, v) + up(v, a), and the arc from b to a no more [dibbelt2016customizable]. Where few costs change, only
the arcs that depend on them are customised again.

*Routes.* Some cheapest way rises to its highest edge and falls from there. It is found where the climbs
from the start and from the goal, each along a path of the elimination tree, have the least sum.

*Closures.* A cheapest route without closed edges is the cheapest. Where it has one, A* goes over turns, guided
by the cost of the rest of the way if nothing were closed. Closures that come again and again are customised.

*Rounding.* Costs are added as floats, in an order of their own. For a route of k edges the error is at most
2·k·2⁻⁵³ of its cost, edges and turns together. It counts on both sides of a comparison: of two routes whose
costs differ by less than 4·k·2⁻⁵³ of them, either may be found. Nothing else is approximate.
"""

from .metric import Metric as Metric
from .metric import customised as customised
from .metric import recustomised as recustomised
from .search import HierarchySearch as HierarchySearch
from .topology import Hierarchy as Hierarchy
from .topology import Topology as Topology
from .topology import contract as contract
from .topology import hierarchy_of as hierarchy_of
