"""Fixed arms whose rewards drift: one posterior, and the forms in which it is kept."""

from .posterior import DriftingGP as DriftingGP
