"""Policies that find routes."""

from .navigation import known_cost as known_cost
from .navigation import prior as prior
from .navigation import route_bucb as route_bucb
from .navigation import route_greedy as route_greedy
from .navigation import route_rule as route_rule
from .navigation import route_ts as route_ts
from .navigation import route_ucb as route_ucb
