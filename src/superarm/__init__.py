"""superarm learns while it decides among combinations."""

__version__ = "0.1.0"
