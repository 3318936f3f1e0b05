"""Charts of trees over actions, and of the probabilities of a policy that walks on one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from superarm.core import Floats
from superarm.lab.simulation.illustrations import TreeMasses
from superarm.lab.simulation.run import Run
from superarm.movement import Tree

from .pictures import Chart, Picture, Series
from .styles import PolicyStyle

_LEAST_MASS = 0.015  # from which a probability is written on a tree
_STYLE = PolicyStyle(1, thin=True)


def tree_pictures(run: Run) -> list[Picture]:
    """Draw a run's tree over the actions, and the probabilities on it; nothing where it has none.

    Args:
        run: The run.
    """
    tree = run.tree()
    if tree is None:
        return []
    caption = (
        "A random tree in place of the metric: dots are actions, and edges are at most half as long "
        f"as those above them. Between these {len(tree)} actions, distances along the tree are never "
        "shorter than in the metric."
    )
    pictures = [Picture(name="tree", panels=(_tree_chart(tree),), caption=caption)]
    masses = run.tree_masses()
    if masses is not None:
        pictures.append(_masses_picture(run, masses))
    return pictures


def _masses_picture(run: Run, masses: TreeMasses) -> Picture:
    """z of the vertices and q of the edges above them, where there is any mass."""
    tree = masses.tree
    q = masses.q
    z = np.ones(len(q))
    for level in tree.levels:
        vertices = level.vertices
        parents = tree.parent[vertices]
        z[vertices] = z[parents] * q[vertices]  # eq. 11
    vertex_notes = {}
    edge_notes = {}
    for vertex in np.flatnonzero(z >= _LEAST_MASS).tolist():
        vertex_notes[vertex] = f"{100.0 * z[vertex]:.0f}"
        if vertex > 0:  # there is no edge above the root
            edge_notes[vertex] = f"{100.0 * q[vertex]:.0f}"
    panels = (
        _tree_chart(tree, vertex_notes, title="z of the vertices, in %"),
        _tree_chart(tree, edge_notes, toward_parent=0.2, title="q of the edges, in %"),
    )
    caption = (
        f"The tree that {masses.policy} walks on, after the last round of seed {run.seeds[0]}. z is the "
        "probability of being at one of the actions below a vertex, and q that of taking an edge, "
        "given the vertex above it: z is the product of q along the way. Where z is below "
        f"{100.0 * _LEAST_MASS:g} %, nothing is written."
    )
    return Picture(name="tree-masses", panels=panels, caption=caption, columns=2)


def _tree_chart(
    tree: Tree,
    notes: Mapping[int, str] | None = None,
    *,
    toward_parent: float = 0.0,
    title: str = "",
) -> Chart:
    """A tree, drawn by walking around it.

    Args:
        tree: The tree.
        notes: Texts of some vertices.
        toward_parent: Where the texts stand, as a share of the way from the vertex to its
            parent.
        title: Words above the chart.
    """
    depth = np.zeros(len(tree.parent))
    for level in tree.levels:
        parents = tree.parent[level.vertices]
        depth[level.vertices] = depth[parents] + 1.0
    x = tree.first + (tree.sizes - 1) / 2.0  # above the middle of its actions
    y = -depth
    walk = _walk_around(tree)
    leaves = [step for step, vertex in enumerate(walk) if tree.sizes[vertex] == 1]
    series = [Series("", x[walk], y[walk], _STYLE, marked=tuple(leaves))]
    if notes:
        series += _note_series(tree, x, y, notes, toward_parent)
    return Chart(
        series=tuple(series),
        title=title,
        x_label="actions, side by side",
        y_label="level of the tree",
        from_zero=False,
    )


def _walk_around(tree: Tree) -> list[int]:
    """Vertices along every edge, down and up again, from the root to the root."""
    vertices = range(len(tree.parent))
    unvisited = {vertex: list(vertices[tree.children(vertex)]) for vertex in vertices}
    vertex = 0
    walk = [vertex]
    while unvisited[vertex] or vertex != 0:
        children = unvisited[vertex]
        vertex = children.pop(0) if children else int(tree.parent[vertex])
        walk.append(vertex)
    return walk


def _note_series(
    tree: Tree, x: Floats, y: Floats, notes: Mapping[int, str], toward_parent: float
) -> list[Series]:
    """An invisible curve of one point for each text."""
    at_vertex = 1.0 - toward_parent
    series = []
    for vertex, text in notes.items():
        parent = max(int(tree.parent[vertex]), 0)
        note_x = at_vertex * x[vertex] + toward_parent * x[parent]
        note_y = at_vertex * y[vertex] + toward_parent * y[parent]
        point_x = np.array([note_x])
        point_y = np.array([note_y])
        note = ((0, text),)
        series.append(Series("", point_x, point_y, _STYLE, notes=note))
    return series
