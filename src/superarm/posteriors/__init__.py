"""Posteriors: what has been learned about every arm's reward."""

from .base import DenseBelief as DenseBelief
from .base import GaussianBelief as GaussianBelief
from .base import GaussianPosterior as GaussianPosterior
from .finite import FiniteGP as FiniteGP
from .independent import IndependentGaussian as IndependentGaussian
from .streaming import StreamingGP as StreamingGP
