"""The works that users meet, by title and year; :file:`docs/refs.bib` has the rest of each entry."""

from __future__ import annotations

import re

_TITLES = {
    "besbes2014stochastic": "Stochastic Multi-Armed-Bandit Problem with Non-stationary Rewards (2014)",
    "bogunovic2016time": "Time-Varying Gaussian Process Bandit Optimization (2016)",
    "chowdhury2017kernelized": "On Kernelized Multi-armed Bandits (2017)",
    "coester2019pure": "Pure Entropic Regularization for Metrical Task Systems (2019)",
    "fakcharoenphol2004tight": "A Tight Bound on Approximating Arbitrary Metrics by Tree "
    "Metrics (2004)",
    "krause2011contextual": "Contextual Gaussian Process Bandit Optimization (2011)",
    "ramesh2022movement": "Movement Penalized Bayesian Optimization with Application to Wind Energy "
    "Systems (2022)",
    "kaufmann2012bayesian": "On Bayesian Upper Confidence Bounds for Bandit Problems (2012)",
    "kushner1964new": "A New Method of Locating the Maximum Point … in the Presence of Noise (1964)",
    "mockus1975bayesian": "On Bayesian Methods for Seeking the Extremum (1975)",
    "nika2022oclok": "Contextual Combinatorial Bandits with Changing Action Sets via Gaussian "
    "Processes (2022)",
    "sandberg2025bayesian": "Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025)",
    "srinivas2010gaussian": "Gaussian Process Optimization in the Bandit Setting (2010)",
    "vakili2021information": "On Information Gain and Regret Bounds in Gaussian Process Bandits (2021)",
    "valko2013finite": "Finite-Time Analysis of Kernelised Contextual Bandits (2013)",
    "chen2018contextual": "Contextual Combinatorial Multi-armed Bandits with Volatile Arms and "
    "Submodular Reward (2018)",
    "nika2020contextual": "Contextual Combinatorial Volatile Multi-armed Bandit with Adaptive "
    "Discretization (2020)",
    "tang2014influence": "Influence Maximization: Near-Optimal Time Complexity Meets Practical "
    "Efficiency (2014)",
    "titsias2009variational": "Variational Learning of Inducing Variables in Sparse Gaussian "
    "Processes (2009)",
}


def spelled_out(text: str) -> str:
    """Keys of papers in a docstring replaced by their titles.

    >>> spelled_out("Improved GP-UCB [chowdhury2017kernelized, Algorithm 1].")
    'Improved GP-UCB [On Kernelized Multi-armed Bandits (2017), Algorithm 1].'
    """
    return re.sub(r"\b[a-z]+\d{4}[a-z]+\b", lambda found: _TITLES.get(found[0], found[0]), text)
