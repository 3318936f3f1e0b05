"""Oracles: from one desirability per arm to a feasible super arm."""

from .base import check_desirability as check_desirability
from .coverage import TIM as TIM
from .coverage import GreedyCoverage as GreedyCoverage
from .custom import CallableOracle as CallableOracle
from .limits import Groups as Groups
from .limits import GroupTopK as GroupTopK
from .limits import Knapsack as Knapsack
from .limits import Weights as Weights
from .matching import Matching as Matching
from .paths import ShortestPath as ShortestPath
from .paths import Trip as Trip
from .topk import TopK as TopK
