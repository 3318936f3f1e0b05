"""Fixed arms whose rewards drift: one posterior, and the forms that do its algebra."""

from .posterior import DriftingGP as DriftingGP
