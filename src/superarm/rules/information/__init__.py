"""Information gain: realised, maximal within a factor, and its growth for common kernels.

======================  ================================================================
``λ``                   ``noise_variance``
``I(A)``                ½ ln det(I + K_A/λ): the information of the points A about f, in nats
``γ_t``                 max I(A) over all A with t points (points may repeat)
======================  ================================================================

srinivas2010gaussian, section 2; chowdhury2017kernelized, section 3.1.
"""

from .computed import GREEDY_SHARE as GREEDY_SHARE
from .computed import GreedyGain as GreedyGain
from .computed import GreedyGrowth as GreedyGrowth
from .computed import arriving_information_gain as arriving_information_gain
from .computed import greedy_information_gain as greedy_information_gain
from .computed import information_gain as information_gain
from .growth import ConstantGain as ConstantGain
from .growth import LinearGain as LinearGain
from .growth import MaternGain as MaternGain
from .growth import SquaredExponentialGain as SquaredExponentialGain
