"""Oracles: from one desirability per arm to a feasible super arm."""

from .base import check_desirability as check_desirability
from .coverage import GreedyCoverage as GreedyCoverage
from .custom import CallableOracle as CallableOracle
from .group_top_k import Groups as Groups
from .group_top_k import GroupTopK as GroupTopK
from .knapsack import Knapsack as Knapsack
from .knapsack import Weights as Weights
from .matching import Matching as Matching
from .paths import ShortestPath as ShortestPath
from .paths import Trip as Trip
from .tim import TIM as TIM
from .topk import TopK as TopK
