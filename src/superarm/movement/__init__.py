"""Switching costs: what each arm costs after the previous action."""

from .switching import Distance as Distance
from .switching import Switch as Switch
