"""Oracles: from one desirability per arm to a feasible super arm."""

from .base import check_desirability as check_desirability
from .paths import ShortestPath as ShortestPath
from .paths import Trip as Trip
from .topk import TopK as TopK
