"""Fixed arms that are played many times: one posterior, and the two forms in which it is kept."""

from .posterior import FiniteGP as FiniteGP
