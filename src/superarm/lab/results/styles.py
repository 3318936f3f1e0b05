"""The looks of policies: colours, dash patterns, and shades of a scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

# Okabe & Ito's colours without the yellow that vanishes on white, which colour-blind eyes
# can tell apart; then brown, grey, and four more for runs of many policies.
PALETTE = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#8A6D3B",
    "#7F7F7F",
    "#6F3FA0",
    "#A3123F",
    "#7F8C1A",
    "#0B5563",
)
_DASHES = 3
# Viridis between the ends that vanish on white and on black, dark to light.
_SHADES = np.array(
    [[0x3A, 0x54, 0x8C], [0x26, 0x82, 0x8E], [0x35, 0xB7, 0x79], [0x8E, 0xD0, 0x48]]
)


class PolicyStyle(NamedTuple):
    """The look of a curve.

    Args:
        colour: A position in the palette, or a colour of its own.
        dash: The number of a dash pattern; 0 is a solid line.
        thin: Whether the line is thin, as those of baselines are.
    """

    colour: int | str
    dash: int = 0
    thin: bool = False

    @property
    def hex(self) -> str:
        """The colour as ``#rrggbb``."""
        return PALETTE[self.colour] if isinstance(self.colour, int) else self.colour


_DASHED = 1
_DOTTED = 2
# Policies of one paper differ in colour, and look the same in every figure. On roads the
# posterior also has a dash pattern: none for Gaussian processes, dashes for independent
# roads, dots for variational posteriors.
_KNOWN = {
    "igp-ucb": PolicyStyle(0),
    "gp-ucb": PolicyStyle(1),
    "gp-ts": PolicyStyle(2),
    "gp-ei": PolicyStyle(3),
    "gp-pi": PolicyStyle(4),
    "kernel-ucb": PolicyStyle(5),
    "random": PolicyStyle(7),
    "gp-bucb": PolicyStyle(0),
    "bayes-ucb": PolicyStyle(1),
    "bayes-gp-ucb": PolicyStyle(1),
    "oclok-ucb": PolicyStyle(0),
    "acc-ucb": PolicyStyle(1),
    "cc-mab": PolicyStyle(4),
    "tv-gp-ucb": PolicyStyle(0),
    "r-gp-ucb": PolicyStyle(2),
    "gp-md": PolicyStyle(0),
    "gp-ts-joint": PolicyStyle(10),
    "gp-ts-potential": PolicyStyle(8),
    "bi-ucb": PolicyStyle(4, _DASHED),
    "bi-bucb": PolicyStyle(5, _DASHED),
    "bi-ts": PolicyStyle(3, _DASHED),
    "gp-ucb-half": PolicyStyle(4, _DASHED),
    "gp-bucb-half": PolicyStyle(5, _DASHED),
    "svgp-ucb": PolicyStyle(9, _DOTTED),
    "svgp-bucb": PolicyStyle(8, _DOTTED),
    "svgp-ts": PolicyStyle(10, _DOTTED),
    "fastest": PolicyStyle(7, thin=True),
    "shortest": PolicyStyle(6, thin=True),
    "gp-greedy": PolicyStyle(9, thin=True),
    "prior": PolicyStyle(11, _DOTTED, thin=True),
    "prior-potential": PolicyStyle(8, _DOTTED, thin=True),
    "genie": PolicyStyle(6, _DOTTED, thin=True),
}


def policy_styles(policies: Sequence[str]) -> dict[str, PolicyStyle]:
    """Choose a look for every policy of a figure.

    Known policies keep theirs. Others take free colours, then differ in dashes.

    Args:
        policies: Names of the policies.

    >>> policy_styles(["mine", "igp-ucb"])["igp-ucb"]
    PolicyStyle(colour=0, dash=0, thin=False)
    """
    styles: dict[str, PolicyStyle] = {}
    taken: set[tuple[int | str, int]] = set()  # colours and dashes
    for policy in policies:
        known = _KNOWN.get(policy)
        if known is not None and (known.colour, known.dash) not in taken:
            styles[policy] = known
            taken.add((known.colour, known.dash))
    for policy in policies:
        if policy not in styles:
            style = _free_style(taken)
            styles[policy] = style
            taken.add((style.colour, style.dash))
    return {policy: styles[policy] for policy in policies}


def _free_style(taken: set[tuple[int | str, int]]) -> PolicyStyle:
    """The first style that is not taken, of a new colour if there is one."""
    candidates = [
        style for style in _every_style() if (style.colour, style.dash) not in taken
    ]
    taken_colours = {colour for colour, _ in taken}
    for style in candidates:
        if style.colour not in taken_colours:
            return style
    if candidates:
        return candidates[0]
    return next(_every_style())  # a figure of so many policies repeats itself


def _every_style() -> Iterator[PolicyStyle]:
    for dash in range(_DASHES):
        for colour in range(len(PALETTE)):
            yield PolicyStyle(colour, dash)


def shade(position: int, count: int) -> str:
    """Return one of ``count`` colours from light to dark, visible on white and on black.

    Args:
        position: Its number, from 0.
        count: The number of colours.

    >>> shade(0, 2), shade(1, 2)
    ('#8ed048', '#3a548c')
    """
    last = len(_SHADES) - 1
    share = position / max(count - 1, 1)  # from light to dark
    place = last * (1.0 - share)
    places = range(len(_SHADES))
    rgb = [np.interp(place, places, channel) for channel in _SHADES.T]
    levels = np.rint(rgb).astype(np.uint8)
    return "#" + bytes(levels).hex()
