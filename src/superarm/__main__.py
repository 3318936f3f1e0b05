"""``python -m superarm`` is the command ``superarm``."""

from superarm.cli import main

main()
