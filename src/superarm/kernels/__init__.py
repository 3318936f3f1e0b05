"""Covariance functions over arms: how an observation of one arm informs the others."""

from superarm.core import Covariance as Covariance

from .base import Kernel as Kernel
from .base import TunableCovariance as TunableCovariance
from .columns import Columns as Columns
from .constant import Constant as Constant
from .drawing import LARGEST_DRAW as LARGEST_DRAW
from .drawing import prior_root as prior_root
from .drift_fitting import DriftFit as DriftFit
from .drift_fitting import drift_log_likelihood as drift_log_likelihood
from .drift_fitting import fit_drift as fit_drift
from .empirical import Empirical as Empirical
from .features import FeatureMap as FeatureMap
from .graph import GraphMatern as GraphMatern
from .linear import Linear as Linear
from .lipschitz import lipschitz_of_kernel as lipschitz_of_kernel
from .matern import Matern as Matern
from .periodic import Periodic as Periodic
from .polynomial import Polynomial as Polynomial
from .products import Product as Product
from .rational_quadratic import RationalQuadratic as RationalQuadratic
from .roots import PriorRoot as PriorRoot
from .scaling import Scale as Scale
from .squared_exponential import SquaredExponential as SquaredExponential
from .sums import Sum as Sum
from .temporal import Temporal as Temporal
