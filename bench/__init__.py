"""superarm's engines and their peers, timed side by side: ``python -m bench SUITE``."""
