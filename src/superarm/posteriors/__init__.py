"""Posteriors: what has been learned about every arm's reward."""

from superarm.kernels import fit_drift as fit_drift

from .base import GaussianPosterior as GaussianPosterior
from .base import Memory as Memory
from .changes import Alarm as Alarm
from .changes import ChangeDetecting as ChangeDetecting
from .drifting import DriftingGP as DriftingGP
from .finite import FiniteGP as FiniteGP
from .fitting import FitProgress as FitProgress
from .fitting import FitResult as FitResult
from .fitting import fit_kernel as fit_kernel
from .independent import IndependentGaussian as IndependentGaussian
from .inducing import InducingGP as InducingGP
from .marginal_likelihood import log_marginal_likelihood as log_marginal_likelihood
from .refitting import Refitting as Refitting
from .resetting import Resetting as Resetting
from .separate import Separate as Separate
from .streaming import StreamingGP as StreamingGP
from .torch_model import TorchPosterior as TorchPosterior
from .variational import SparseVariational as SparseVariational
from .wrapping import Wrapping as Wrapping
