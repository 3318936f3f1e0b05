"""Keys of the JSON summary that commands print about a run."""

SUMMARY_KEYS = [
    "experiment",
    "rounds",
    "seeds",
    "metrics",
    "rows",
    "claims",
    "not_judged",
    "out",
]
