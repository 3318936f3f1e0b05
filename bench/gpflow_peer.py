"""GPflow's Titsias posterior, timed in an environment of its own: python gpflow_peer.py IN.npz OUT.npz.

GPflow needs tensorflow and, with it, other versions of numpy. This file imports no superarm, and the
interpreter that ``SUPERARM_GPFLOW_PYTHON`` names runs it.
"""

import os
import sys
import time

os.environ.update(
    TF_CPP_MIN_LOG_LEVEL="3", OMP_NUM_THREADS="1", TF_NUM_INTRAOP_THREADS="1"
)
os.environ["TF_NUM_INTEROP_THREADS"] = "1"


def main(given: str, found: str) -> None:
    import gpflow
    import numpy as np

    data = np.load(given)
    noise = float(data["noise"])

    def moments() -> "tuple[np.ndarray, np.ndarray]":
        model = gpflow.models.SGPR(
            (data["arms"], data["rewards"][:, None]),
            kernel=gpflow.kernels.SquaredExponential(lengthscales=1.0, variance=1.0),
            inducing_variable=data["points"],
            noise_variance=noise,
        )
        mean, variance = model.predict_f(data["offered"])
        return mean.numpy()[:, 0], np.sqrt(variance.numpy()[:, 0])

    gpflow.config.set_default_jitter(float(data["jitter"]))
    moments()
    seconds = []
    for _ in range(int(data["repeats"])):
        start = time.perf_counter()
        mean, std = moments()
        seconds.append(time.perf_counter() - start)
    np.savez(found, mean=mean, std=std, seconds=np.median(seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
