"""A server follows its users around the world: far from them, answers are slow; moving it costs, too.

``Forest`` walks by mirror descent on random trees, and learns the costs of an hour only when it comes.
For comparison: staying, always going where it is cheapest now, and the best with every hour known.
"""

import numpy as np

from superarm.movement import Forest, metric_between, offline_optimum

REGIONS = {  # latitude, longitude
    "Virginia": (38.9, -77.4), "Oregon": (45.9, -119.3), "São Paulo": (-23.5, -46.6),
    "Dublin": (53.3, -6.3), "Frankfurt": (50.1, 8.7), "Mumbai": (19.1, 72.9),
    "Singapore": (1.3, 103.8), "Tokyo": (35.7, 139.7), "Sydney": (-33.9, 151.2),
}  # fmt: skip


def apart(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Thousands of kilometres along the surface, by the haversine formula."""
    (north, east), (up, right) = np.radians(one), np.radians(other)
    bow = (
        np.sin((up - north) / 2) ** 2
        + np.cos(north) * np.cos(up) * np.sin((right - east) / 2) ** 2
    )
    return float(2.0 * 6.371 * np.arcsin(np.sqrt(bow)))


def main(days: int = 10, trees: int = 50) -> dict[str, tuple[float, float]]:
    """What each costs per day: to serve, and to move."""
    metric, rng = metric_between(REGIONS.values(), apart), np.random.default_rng(0)
    solar = np.arange(24 * days)[:, None] + np.array(
        [east / 15 for _, east in REGIONS.values()]
    )
    users = np.exp(3.0 * np.cos((solar - 15.0) * np.pi / 12)) * rng.gamma(
        4.0, size=solar.shape
    )
    costs = users / users.sum(axis=1, keepdims=True) @ metric.distances
    # Trees lengthen distances, here about sevenfold (forest.stretch()): let costs count that much more.
    forest, walked = Forest.grow(metric, rng, trees=trees, kappa=7.0), np.zeros(2)
    for walk in range(trees):
        walk_state = forest.begin(0, walk)
        for row in costs:
            move = forest.move(walk_state, row, rng)
            walk_state = move.walk_state
            walked += np.array([row @ move.distribution, move.distance]) / trees
    best, cheapest = offline_optimum(costs, metric, start=0), costs.argmin(axis=1)
    way = metric.distances[np.append(0, cheapest[:-1]), cheapest]
    paid = {
        "stays": (costs[:, 0].sum(), 0.0),
        "chases": (costs.min(axis=1).sum(), way.sum()),
    }
    paid |= {
        "walks": tuple(walked),
        "optimum": (best.service.sum(), best.movement.sum()),
    }
    return {
        name: (float(served) / days, float(moved) / days)
        for name, (served, moved) in paid.items()
    }


if __name__ == "__main__":
    for name, (served, moved) in main().items():
        print(
            f"{name:8s} service {served:5.1f}  movement {moved:4.1f}  sum {served + moved:5.1f}"
        )
