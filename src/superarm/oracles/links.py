"""Links that carry influence from one node to another, for oracles that choose nodes.

An arm is a directed link that carries influence with some probability; its desirability, clipped to
[0, 1], is taken as that probability. To choose a node is to choose all links that leave it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import Floats, Guarantee, Ints, Selection
from superarm.core.capabilities import NeedsGains, OwnActions
from superarm.core.errors import InfeasibleError
from superarm.core.graphs import Pairs, renumbered


class ChoosesNodes(NeedsGains, OwnActions):
    """An oracle that reads desirabilities as probabilities of links and chooses the nodes they leave."""

    @property
    def without_gains(self) -> str:
        return "gives every link probability 0"

    @property
    def action_holds(self) -> str:
        return "nodes"


class Links(NamedTuple):
    """Available links, in the order of the nodes that they leave."""

    arms: Ints  # (m,) positions in the offer
    sources: Ints  # (s,) the nodes that some link leaves
    first: Ints  # (s + 1,) where the links of each source begin
    target: Ints  # (m,) numbered 0 … targets − 1
    targets: int
    p: Floats  # (m,) probabilities

    def leaving(self, source: int) -> slice:
        """The links that leave a source.

        Args:
            source: Its place in ``sources``.
        """
        start = int(self.first[source])
        stop = int(self.first[source + 1])
        return slice(start, stop)

    def select(self, chosen: list[int], guarantee: Guarantee) -> Selection:
        """The selection of some sources; its action is their nodes, in this order.

        Args:
            chosen: Places of the sources.
            guarantee: What the oracle promises.
        """
        arms = []
        for source in chosen:
            leaving = self.leaving(source)
            arms.append(self.arms[leaving])
        nodes = self.sources[chosen].tolist()
        return Selection(tuple(nodes), np.concatenate(arms), guarantee)


def available_links(desirability: Floats, pairs: Pairs, k: int) -> Links:
    """The links that are available; raises unless they leave at least ``k`` nodes.

    Args:
        desirability: One number per arm, −inf where it is not available, (n,).
        pairs: The nodes that each arm links, from left to right.
        k: How many nodes are to be chosen.
    """
    available = np.flatnonzero(desirability > -np.inf)
    by_source = np.argsort(pairs.left[available], kind="stable")
    arms = available[by_source]
    sources, starts = np.unique(pairs.left[arms], return_index=True)
    if len(sources) < k:
        raise InfeasibleError(
            f"k = {k} nodes are to be chosen, but links leave only {len(sources)}; offer links from "
            "more nodes, or lower k"
        )
    nodes, target = renumbered(pairs.right[arms])
    return Links(
        arms=arms,
        sources=sources,
        first=np.append(starts, len(arms)),
        target=target,
        targets=len(nodes),
        p=np.clip(desirability[arms], 0.0, 1.0),
    )
