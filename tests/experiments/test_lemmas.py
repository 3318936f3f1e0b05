"""Lemma D.1 on recorded runs, against whole matrices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.experiments import Experiment, Plan, execute
from superarm.experiments.lemmas import check_mismatch
from superarm.problems import DriftingFunction
from superarm.simulation import Run
from superarm.streams import Streams

ROUNDS = 12


def recorded(out: Path, policies: dict[str, Any], problem: dict[str, Any]) -> Run:
    given = {"id": "mine", "rounds": ROUNDS, "seeds": 2, "problem": problem, "policies": policies}
    execute(Plan.make(Experiment.from_mapping(given, "here"), out=out))
    return Run.load(out)


@pytest.mark.parametrize("policy", ["r-gp-ucb", "random"])
def test_lemma_d_1_by_whole_matrices(policy: str, tmp_path: Path) -> None:
    """It is about any choices; with so much noise it is not far from what happens."""
    options: dict[str, Any] = {"side": 4, "epsilon": 0.05, "noise_std": 1.5}
    problem = {"name": "drifting-function", **options}
    run, N = recorded(tmp_path / "run", {policy: {}}, problem), 5
    for seed in run.seeds:
        world = DriftingFunction(seed=seed, horizon=ROUNDS, **options)
        arms, noise, streams = world.offer(1).arms.features, 2.25, Streams(seed, "noise")
        rows: list[int] = []
        y: list[float] = []
        shares = [0.0, 0.0]
        for step, chosen in enumerate(run.choices(policy, 0, seed)[:, 0].tolist(), start=1):
            if step % N == 1:
                rows, y = [], []
            n = len(rows)
            moments = []
            for keep in (1.0, np.sqrt(0.95)):
                D = keep ** np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
                k = world.model.kernel(arms[rows], arms) * keep ** np.arange(n, 0, -1)[:, None]
                K = world.model.kernel(arms[rows]) * D + noise * np.eye(n)
                solved = np.linalg.solve(K, k)
                moments.append([solved.T @ y, np.sqrt(1.0 - np.einsum("ij,ij->j", k, solved))])
            if n:
                s, largest = 1.0 / noise, np.abs(y).max()
                allowed = [(s + s**2) * N**3 * 0.05 * largest, np.sqrt((3 * s + s**2) * N**3 * 0.05)]
                off = np.abs(np.subtract(*moments)).max(axis=1)
                shares = np.maximum(shares, off / allowed).tolist()
            offer = world.offer(step)
            rows.append(chosen)
            y.append((world.means(offer) + world.noise(offer, streams.at(step)))[chosen])
        found = check_mismatch(run, policy, seed, world, N, 0.05)
        assert list(found) == pytest.approx(shares, rel=1e-6)
        assert 0.0 < found.mean <= 1.0
        assert 0.0 < found.std <= 1.0
