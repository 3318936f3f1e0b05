"""Tests of every composition of registered parts, each played for a few rounds.

If you register a posterior, rule, oracle, switching cost or metric, ``python -m
superarm.testing.compositions --import FILE.py`` plays it with all other parts and prints which
compositions run, and why others are refused. :func:`play` plays a single composition; any error but a
refusal is a defect.
"""

from .composition import Composition as Composition
from .composition import Dimensions as Dimensions
from .composition import dimensions as dimensions
from .composition import every_composition as every_composition
from .page import page as page
from .playing import CompositionResult as CompositionResult
from .playing import Outcome as Outcome
from .playing import play as play
from .playing import play_all as play_all
from .sampling import pairwise_sample as pairwise_sample
from .sampling import play_sample as play_sample
