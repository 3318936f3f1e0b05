"""What a policy knows about a problem before the first round, and what a problem shows of itself.

Problems and policies meet here: a problem states a :class:`Model`, and a published algorithm is a
function of one. Neither imports the other.
"""

from .means import ByNumber as ByNumber
from .model import Model as Model
from .worlds import World as World
