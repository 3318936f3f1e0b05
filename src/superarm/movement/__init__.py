"""What it costs to go on from what was done before."""

from .switching import Distance as Distance
from .switching import Switch as Switch
