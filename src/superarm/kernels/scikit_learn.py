"""Our kernels under scikit-learn's interface."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from superarm.core import Floats
from superarm.core.errors import MissingExtraError

from .base import Kernel


@functools.cache
def wrapper_class() -> Any:
    """The wrapper class, defined on first use because it derives from scikit-learn's."""
    try:
        from sklearn.gaussian_process import kernels
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "sklearn":
            raise
        message = "scikit-learn is not installed"
        raise MissingExtraError(message, "pip install scikit-learn") from error

    class SuperarmKernel(kernels.Kernel):  # type: ignore[misc]
        """One of our kernels under scikit-learn's interface."""

        def __init__(self, kernel: Kernel) -> None:
            # Stored as it is, not a copy: sklearn.base.clone compares identities.
            self.kernel: Any = kernel

        def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
            return self.kernel(X, Y, eval_gradient=eval_gradient)

        def diag(self, X: Any) -> Any:
            return self.kernel.diag(X)

        def is_stationary(self) -> bool:
            return False  # not known to be: nothing in scikit-learn depends on it

        @property
        def theta(self) -> Any:
            return self.kernel.theta

        @theta.setter
        def theta(self, theta: Floats) -> None:
            self.kernel = self.kernel.clone_with_theta(theta)

        @property
        def bounds(self) -> Any:
            return self.kernel.bounds

        @property
        def hyperparameters(self) -> list[Any]:
            listed = []
            for i, bounds in enumerate(np.exp(self.kernel.bounds)):
                name = f"theta[{i}]"
                listed.append(kernels.Hyperparameter(name, "numeric", tuple(bounds)))
            return listed

        def __repr__(self) -> str:
            return f"{self.kernel!r}.as_sklearn()"

        def __reduce__(self) -> Any:
            # Pickle cannot find the class by its name, since a function defines it.
            return Kernel.as_sklearn, (self.kernel,)

    return SuperarmKernel
