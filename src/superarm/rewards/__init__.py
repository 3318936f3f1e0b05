"""Rewards: what a super arm is worth, given what its arms yield.

Each is monotone (an arm that yields more never lowers the worth) and Lipschitz: the worth changes by
at most ``lipschitz`` · Σ|change of an outcome|. Problems measure regret with it, and bounds use its
constant B.
"""

from .coverage import Coverage as Coverage
from .sums import LogSum as LogSum
from .sums import Sum as Sum
from .sums import total as total
