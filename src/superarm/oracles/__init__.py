"""Oracles: from one desirability per arm to a feasible super arm."""

from .base import check_desirability as check_desirability
from .topk import BruteForce as BruteForce
from .topk import TopK as TopK
