"""Many tells in a process of its own: ``python -m bench.service_memory FILE TELLS``.

Arms are a finite set, and every decision gets all its rewards, so nothing that a bandit must remember
grows with the number of tells. This prints the memory of the process after each tenth of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from superarm.core.threads import pin_blas_threads
from superarm.kernels import SquaredExponential
from superarm.live import Bandit, Storage, create_bandit
from superarm.live.answers import Tell
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import FiniteGP
from superarm.rules import UCB, Fixed

ARMS = 100
_PARTS = 10
_MIB = 1024.0  # KiB, in which Linux states them


class MemorySample(NamedTuple):
    """The memory of the process at one time."""

    tells: int
    mib: float
    """Resident set size."""


def create_finite(name: str, storage: Storage) -> Bandit:
    """A bandit that chooses all of its arms in every decision.

    Args:
        name: Its name.
        storage: Where its journal is.
    """
    arms = np.random.default_rng(4).random((ARMS, 2))
    posterior = FiniteGP(SquaredExponential(lengthscale=0.3), arms, noise_variance=0.01)
    rule = UCB(schedule=Fixed(value=2.0))
    policy = IndexPolicy(posterior=posterior, rule=rule, oracle=TopK(k=ARMS))
    bandit = create_bandit(name, spec=policy, storage=storage)
    bandit.name_arms(arms)
    return bandit


def tell_often(bandit: Bandit, tells: int) -> Iterator[int]:
    """Ask, and tell the reward of each arm separately; yields the tells so far.

    Args:
        bandit: The bandit, from :func:`create_finite`.
        tells: How many, a multiple of the arms.
    """
    rng = np.random.default_rng(5)
    for tells_so_far in range(ARMS, tells + 1, ARMS):
        answer = bandit.ask()
        rewards = rng.normal(size=len(answer.arms)).tolist()
        batch = [
            Tell(decision=answer.id, rewards={arm: reward})
            for arm, reward in zip(answer.arms, rewards, strict=True)
        ]
        for outcome in bandit.tell_many(batch):
            if outcome is not True:
                raise RuntimeError(f"a tell was not recorded: {outcome}")
        yield tells_so_far


def resident_mib() -> float:
    """The resident memory of this process now. The peak would hide growth below it."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / _MIB
    raise RuntimeError("/proc/self/status has no line VmRSS")


def sample(file: Path, tells: int) -> list[MemorySample]:
    """Memory after each tenth of the tells.

    Args:
        file: The new journal.
        tells: How many.
    """
    step = tells // _PARTS
    with Storage(f"sqlite:///{file}") as storage:
        bandit = create_finite("long", storage)
        return [
            MemorySample(count, resident_mib())
            for count in tell_often(bandit, tells)
            if count % step == 0
        ]


def sample_in_own_process(file: Path, tells: int) -> list[MemorySample]:
    """:func:`sample` in a process of its own, whose memory nothing else has used.

    Args:
        file: The new journal.
        tells: How many.
    """
    command = [sys.executable, "-m", "bench.service_memory", str(file), str(tells)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [MemorySample(*pair) for pair in json.loads(done.stdout)]


if __name__ == "__main__":
    pin_blas_threads()
    print(json.dumps(sample(Path(sys.argv[1]), int(sys.argv[2]))))
