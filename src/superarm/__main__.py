"""``python -m superarm`` is the command ``superarm``."""

from .cli import main

main()
