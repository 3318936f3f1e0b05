"""Searches by a customisable contraction hierarchy.

=================  ====================================================================
``n``, ``c``       edges, and turns from one into the next
rank               an edge's place in the elimination order; edges are named by it here
``m``              arcs: pairs of edges, the lower rank its tail and the higher its head
``up``, ``down``   least cost of a way from tail to head, and from head to tail, (m,)
``via``            the edge below both in the middle of that way, −1: a single turn, (m,)
=================  ====================================================================

*Topology.* Edges are contracted in the elimination order of the network's ``turn_graph``: all edges
behind a contracted one that turns join to it become joined to each other. Arcs are the entries of a sparse
factor with this order, and the elimination tree is that of the factor. No cost plays a part.

*Customisation.* Way by way over lower edges, from the bottom: up(a, b) ≤ down(v, a) + up(v, b) and
down(a, b) ≤ down(v, b) + up(v, a) for every v below a and b [dibbelt2016customizable]. Where few costs
change, only the arcs that depend on them are customised again.

*Shortening.* Where a way over higher edges costs less than an arc, some cheapest route does without the
arc, and searches leave it out. After a partial customisation they use all arcs.

*Routes.* Some cheapest way rises to its highest edge and falls from there. It is found where the climbs
from the start and from the goal, each along a path of the elimination tree, have the least sum.

*Closures.* A cheapest route without closed edges is the cheapest. Where it has one, A* goes over turns, guided
by the cost of the rest of the way if nothing were closed. Closures that come again and again are customised.

*Rounding.* Costs are added as floats, in an order of their own. For a route of k edges the error is at most
2·k·2⁻⁵³ of its cost, edges and turns together. It counts once in what shortening leaves out and once in the
search, on both sides of a comparison: of two routes whose costs differ by less than 8·k·2⁻⁵³ of them,
either may be found. Nothing else is approximate.
"""

from .metric import Metric as Metric
from .metric import customised as customised
from .metric import recustomised as recustomised
from .search import HierarchySearch as HierarchySearch
from .topology import Hierarchy as Hierarchy
from .topology import Topology as Topology
from .topology import contract as contract
from .topology import hierarchy_of as hierarchy_of
