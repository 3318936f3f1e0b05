"""The interface between problems and policies, neither of which imports the other.

A problem publishes a :class:`Model`, the learner's prior knowledge; a published algorithm is a function
of a model.
"""

from .means import ByNumber as ByNumber
from .model import Model as Model
from .worlds import World as World
