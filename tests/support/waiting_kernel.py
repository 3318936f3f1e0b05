"""A kernel that holds up whoever calls it, for tests of threads and forks."""

from __future__ import annotations

import threading
from typing import Any

from superarm.core import Floats
from superarm.kernels import Kernel


class WaitingKernel:
    """A user-defined kernel that waits once, in the middle of an update, while ``armed``.

    ``entered`` is set when it begins to wait; set ``go_on`` to let it return.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.armed = False
        self.entered = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, X: Any, Y: Any = None) -> Floats:
        if self.armed:
            self.armed = False
            self.entered.set()
            assert self.go_on.wait(60.0)
        return self.kernel(X, Y)

    def diag(self, X: Any) -> Floats:
        return self.kernel.diag(X)
