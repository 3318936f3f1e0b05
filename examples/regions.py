"""A server follows its users around the world: far from them, answers are slow; moving it costs, too.

``Forest`` walks by mirror descent on random trees, and learns the costs of an hour only when it comes.
For comparison: staying, always going where it is cheapest now, and the best with every hour known.
"""

from typing import NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.movement import Forest, MatrixMetric, metric_between, offline_optimum


class Place(NamedTuple):
    latitude: float
    longitude: float


REGIONS = {
    "Virginia": Place(38.9, -77.4),
    "Oregon": Place(45.9, -119.3),
    "São Paulo": Place(-23.5, -46.6),
    "Dublin": Place(53.3, -6.3),
    "Frankfurt": Place(50.1, 8.7),
    "Mumbai": Place(19.1, 72.9),
    "Singapore": Place(1.3, 103.8),
    "Tokyo": Place(35.7, 139.7),
    "Sydney": Place(-33.9, 151.2),
}
EARTH_RADIUS = 6.371  # thousands of kilometres
# Trees lengthen distances, here about sevenfold (``forest.stretch()``): costs count that much more.
STRETCH = 7.0


class Cost(NamedTuple):
    """What a way of moving costs."""

    service: float
    movement: float


def distance(start: Place, end: Place) -> float:
    """Thousands of kilometres along the surface, by the haversine formula."""
    latitude, longitude = np.radians(start)
    end_latitude, end_longitude = np.radians(end)
    across = np.sin((end_latitude - latitude) / 2) ** 2
    along = np.sin((end_longitude - longitude) / 2) ** 2
    haversine = across + np.cos(latitude) * np.cos(end_latitude) * along
    return float(2.0 * EARTH_RADIUS * np.arcsin(np.sqrt(haversine)))


def hourly_costs(metric: MatrixMetric, days: int, rng: np.random.Generator) -> Floats:
    """The mean distance of users from a server in each region, (hours, regions).

    Users are awake around three in the afternoon of their own time.
    """
    utc_hours = np.arange(24 * days)[:, None]
    time_zones = np.array([place.longitude / 15 for place in REGIONS.values()])
    local_hours = utc_hours + time_zones
    activity = np.exp(3.0 * np.cos((local_hours - 15.0) * np.pi / 12))
    users = activity * rng.gamma(4.0, size=activity.shape)
    shares = users / users.sum(axis=1, keepdims=True)
    return shares @ metric.distances


def walk(forest: Forest, number: int, costs: Floats, rng: np.random.Generator) -> Cost:
    """Walk on one tree of the forest, one hour after another."""
    state = forest.begin(0, number)
    service = 0.0
    movement = 0.0
    for hour_costs in costs:
        move = forest.move(state, hour_costs, rng)
        state = move.walk_state
        service += float(hour_costs @ move.distribution)
        movement += move.distance
    return Cost(service, movement)


def main(days: int = 10, trees: int = 50) -> dict[str, Cost]:
    """What each way of moving costs per day."""
    metric = metric_between(REGIONS.values(), distance)
    rng = np.random.default_rng(0)
    costs = hourly_costs(metric, days, rng)

    forest = Forest.grow(metric, rng, trees=trees, kappa=STRETCH)
    walks = [walk(forest, number, costs, rng) for number in range(trees)]

    cheapest = costs.argmin(axis=1)
    previous = np.append(0, cheapest[:-1])
    chase = metric.distances[previous, cheapest]
    optimum = offline_optimum(costs, metric, start=0)

    totals = {
        "stays": Cost(costs[:, 0].sum(), 0.0),
        "chases": Cost(costs.min(axis=1).sum(), chase.sum()),
        "walks": Cost(*np.mean(walks, axis=0)),
        "optimum": Cost(optimum.service.sum(), optimum.movement.sum()),
    }
    return {
        name: Cost(float(total.service) / days, float(total.movement) / days)
        for name, total in totals.items()
    }


if __name__ == "__main__":
    for name, (service, movement) in main().items():
        total = service + movement
        print(
            f"{name:8s} service {service:5.1f}  movement {movement:4.1f}  sum {total:5.1f}"
        )
