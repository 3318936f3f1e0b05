"""Decisions that are costly to change: switching costs, and metrical task systems on random trees."""

from .carrying import start_of as start_of
from .coupling import Coupling as Coupling
from .coupling import TreeCoupling as TreeCoupling
from .descent import TreeDescent as TreeDescent
from .forest import Forest as Forest
from .forest import Move as Move
from .forest import WalkState as WalkState
from .frt import frt_tree as frt_tree
from .metrics import ActionMetric as ActionMetric
from .metrics import MatrixMetric as MatrixMetric
from .metrics import PointMetric as PointMetric
from .metrics import metric_between as metric_between
from .metrics import shortest_path_metric as shortest_path_metric
from .offline import OfflinePath as OfflinePath
from .offline import offline_optimum as offline_optimum
from .switching import Distance as Distance
from .switching import Switch as Switch
from .tree import Tree as Tree
