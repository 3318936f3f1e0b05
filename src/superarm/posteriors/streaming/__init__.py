"""Arms that change from round to round: one posterior, and the forms that do its algebra."""

from .posterior import StreamingGP as StreamingGP
