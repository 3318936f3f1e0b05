"""The software that made a decision: recorded with it, because another BLAS may round differently."""

from __future__ import annotations

from functools import cache

import numpy as np
import scipy

from superarm._version import __version__


@cache
def runtime() -> str:
    """The versions of superarm, numpy, scipy and numpy's BLAS, in one line."""
    config = np.show_config(mode="dicts")
    blas = config["Build Dependencies"]["blas"]
    return (
        f"superarm {__version__}, numpy {np.__version__}, scipy {scipy.__version__}, "
        f"{blas['name']} {blas['version']}"
    )
