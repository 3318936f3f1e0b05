"""Every composition of registered parts, played for a few rounds under the promises of all parts.

Did you register a posterior, a rule or an oracle of your own? ``python -m superarm.testing.compositions
--import FILE.py`` plays it with all other parts and prints which compositions run, and why others are
refused. :func:`play` plays a single one; an error other than a refusal is a defect.
"""

from .composition import Composition as Composition
from .composition import Dimensions as Dimensions
from .composition import dimensions as dimensions
from .composition import every_composition as every_composition
from .page import page as page
from .playing import Outcome as Outcome
from .playing import Played as Played
from .playing import play as play
from .playing import play_all as play_all
from .sampling import pairwise_sample as pairwise_sample
from .sampling import play_sample as play_sample
