"""Covariance functions over arms: how what is learned about one arm carries to another."""

from superarm.core import Covariance as Covariance

from .base import Kernel as Kernel
from .base import TunableCovariance as TunableCovariance
from .composite import Columns as Columns
from .composite import Product as Product
from .composite import Scale as Scale
from .composite import Sum as Sum
from .drawing import LARGEST_DRAW as LARGEST_DRAW
from .drawing import PriorRoot as PriorRoot
from .drawing import prior_root as prior_root
from .drift_fitting import DriftFit as DriftFit
from .drift_fitting import drift_log_likelihood as drift_log_likelihood
from .drift_fitting import fit_drift as fit_drift
from .features import FeatureMap as FeatureMap
from .graph import GraphMatern as GraphMatern
from .lipschitz import lipschitz_of_kernel as lipschitz_of_kernel
from .stationary import Matern as Matern
from .stationary import Periodic as Periodic
from .stationary import RationalQuadratic as RationalQuadratic
from .stationary import SquaredExponential as SquaredExponential
from .structured import Constant as Constant
from .structured import Empirical as Empirical
from .structured import Linear as Linear
from .structured import Polynomial as Polynomial
from .structured import Temporal as Temporal
