"""The flow Offer → Decision → Feedback: its records and the protocols of its parts.

Notation, the same in every module

===============  =========================================================================
``n``, ``d``     arms on offer, feature columns
``k``            arms in a super arm
``positions``    where arms stand in an offer: integers into ``offer.arms``
``keys``         what a posterior calls arms: feature rows, or row numbers of a fixed set
``mean``, ``std``  of the latent reward, in the user's sign
``noise_std``    standard deviation of one observation around the latent reward
``desirability`` one number per arm on offer, larger is better; −inf is "not available"
``width``        always multiplies a standard deviation
``noise_variance``  always a variance
``step``         the round, counted from 1
===============  =========================================================================

Records are frozen. ``decide``, ``belief`` and ``predict`` never change state; ``commit``,
``learn`` and ``observe`` are the only methods that do, and ``play_table``, which is many of them.

A step names a round. Late feedback is matched with its decision by the step, so no two decisions of a
policy may share one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from superarm._lazy import lazy_names

if (
    TYPE_CHECKING
):  # numpy loads with the first of these names, so that ``--help`` stays instant
    from .arrays import Bools as Bools
    from .arrays import Direction as Direction
    from .arrays import Floats as Floats
    from .arrays import Gamma as Gamma
    from .arrays import Ints as Ints
    from .arrays import Rng as Rng
    from .levels import AT_95 as AT_95
    from .levels import LEVELS as LEVELS
    from .levels import QUANTILES as QUANTILES
    from .levels import levels_text as levels_text
    from .protocols import Belief as Belief
    from .protocols import Covariance as Covariance
    from .protocols import DecisionSet as DecisionSet
    from .protocols import Oracle as Oracle
    from .protocols import Policy as Policy
    from .protocols import Posterior as Posterior
    from .protocols import Problem as Problem
    from .protocols import Rescore as Rescore
    from .protocols import Reward as Reward
    from .protocols import Rule as Rule
    from .protocols import Schedule as Schedule
    from .protocols import SwitchingCost as SwitchingCost
    from .records import EXACT as EXACT
    from .records import MOST_STEPS as MOST_STEPS
    from .records import Arms as Arms
    from .records import Best as Best
    from .records import Decision as Decision
    from .records import Feedback as Feedback
    from .records import Forecast as Forecast
    from .records import Guarantee as Guarantee
    from .records import JointPrediction as JointPrediction
    from .records import Offer as Offer
    from .records import Prediction as Prediction
    from .records import Selection as Selection
    from .state import State as State

_HOMES = {
    "Bools": "arrays",
    "Direction": "arrays",
    "Floats": "arrays",
    "Gamma": "arrays",
    "Ints": "arrays",
    "Rng": "arrays",
    "AT_95": "levels",
    "LEVELS": "levels",
    "QUANTILES": "levels",
    "levels_text": "levels",
    "Belief": "protocols",
    "Covariance": "protocols",
    "DecisionSet": "protocols",
    "Oracle": "protocols",
    "Policy": "protocols",
    "Posterior": "protocols",
    "Problem": "protocols",
    "Rescore": "protocols",
    "Reward": "protocols",
    "Rule": "protocols",
    "Schedule": "protocols",
    "SwitchingCost": "protocols",
    "EXACT": "records",
    "MOST_STEPS": "records",
    "Arms": "records",
    "Best": "records",
    "Decision": "records",
    "Feedback": "records",
    "Forecast": "records",
    "Guarantee": "records",
    "JointPrediction": "records",
    "Offer": "records",
    "Prediction": "records",
    "Selection": "records",
    "State": "state",
}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
