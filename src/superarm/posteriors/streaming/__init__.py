"""Arms that change from round to round: one posterior, and the two forms in which it is kept."""

from .posterior import StreamingGP as StreamingGP
