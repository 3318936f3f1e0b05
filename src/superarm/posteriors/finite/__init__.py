"""Fixed arms that are played many times: one posterior, and the two forms that do its algebra."""

from .posterior import FiniteGP as FiniteGP
