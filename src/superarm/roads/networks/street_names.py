"""Streets by their names, as people write them."""

from __future__ import annotations

import difflib
import unicodedata
from typing import NamedTuple

from superarm.core.caching import cached_property
from superarm.core.errors import UnknownArmError

from .line_graph import LineGraph

# How alike names must be, to be meant or to be suggested, and how many are listed.
_ALIKE = 0.8
_HARDLY_ALIKE = 0.5
_MOST_NAMES = 5


class Street(NamedTuple):
    """The edges of a street."""

    name: str
    edges: list[int]


class StreetNames:
    """The streets of a line graph, by name.

    Args:
        graph: The roads.
    """

    def __init__(self, graph: LineGraph) -> None:
        self._graph = graph

    @cached_property
    def _streets(self) -> dict[str, Street]:
        """All streets, by their names in plain letters."""
        streets: dict[str, Street] = {}
        names = self._graph.street_names or ()
        for edge, name in enumerate(names):
            if name:
                new_street = Street(name, [])
                street = streets.setdefault(_plain(name), new_street)
                street.edges.append(edge)
        return streets

    def find(self, name: str) -> Street:
        """Find the street of this name, or of the one name that is like it.

        Args:
            name: The name, or a part of it that no other name has.
        """
        streets = self._streets
        plain = _plain(name)
        if plain and plain in streets:
            return streets[plain]
        is_known_edge = name in self._graph.network.edge_ids
        if not streets or not plain or is_known_edge:
            self._graph.number(name)  # raises an error about the edge
        matches = [street for street in streets if plain in street]
        if not matches:
            matches = self._alike(plain, _ALIKE)
        if len(matches) != 1:
            raise self._no_street(name, matches)
        return streets[matches[0]]

    def _alike(self, plain: str, cutoff: float) -> list[str]:
        return difflib.get_close_matches(
            plain, self._streets, n=_MOST_NAMES, cutoff=cutoff
        )

    def _no_street(self, name: str, matches: list[str]) -> UnknownArmError:
        network = self._graph.network.name
        suggestions = matches or self._alike(_plain(name), _HARDLY_ALIKE)
        listed = sorted(suggestions)[:_MOST_NAMES]
        quoted_names = [repr(self._streets[street].name) for street in listed]
        names = " or ".join(quoted_names)
        if matches:
            message = (
                f"{len(matches)} streets of {network} fit {name!r}, such as {names}; "
                "write more of the name"
            )
        else:
            message = f"network {network} has no edge and no street {name!r}"
            if suggestions:
                message += f"; did you mean {names}?"
        return UnknownArmError(message)


def _plain(name: str) -> str:
    """Return small letters without accents, one space between words."""
    letters = unicodedata.normalize("NFKD", name.casefold())
    plain = [letter for letter in letters if not unicodedata.combining(letter)]
    words = "".join(plain).split()
    return " ".join(words)
