"""Parts by name: one registry of plain JSON specs for TOML files, command line and service.

A spec is a mapping ``{"name": …, parameter: value, …}``; parameters may themselves be specs.

>>> kernel = build("kernel", {"name": "squared-exponential", "lengthscale": 0.2})
>>> spec_of(kernel)["lengthscale"]
0.2

Register a part with a decorator on a frozen dataclass or on a factory function::

    @register("rule", "greedy")
    @dataclass(frozen=True, kw_only=True)
    class Greedy: ...

A part that is no such dataclass, or whose parameters are not its fields, derives from
:class:`HasParameters` and reports its parameters itself. Specs contain plain JSON and numpy arrays;
``superarm.core.serialization`` turns arrays into JSON and back. A part that is not registered (a
function, a kernel of scikit-learn) has no spec: :func:`describe` names its type instead.

Nothing is ever imported by a name that comes from outside: ``family_table`` lists the packages that
contain superarm's parts. Further parts come from what the user imports, and from installed packages
with an entry point in the group ``superarm.parts``, which are imported when parts are listed or a name
is unknown.
"""

from .catalogue import Part as Part
from .catalogue import family_of as family_of
from .catalogue import find as find
from .catalogue import forget_unimported as forget_unimported
from .catalogue import has_spec as has_spec
from .catalogue import names as names
from .catalogue import parameters_of as parameters_of
from .catalogue import register as register
from .comparison import completed as completed
from .comparison import contradiction as contradiction
from .comparison import difference as difference
from .comparison import foreign_parts as foreign_parts
from .comparison import unknown_parameters as unknown_parameters
from .family_table import families as families
from .family_table import family_description as family_description
from .family_table import family_of_parameter as family_of_parameter
from .kinds import in_words as in_words
from .kinds import kinds_of as kinds_of
from .kinds import require_kind as require_kind
from .specs import HasParameters as HasParameters
from .specs import build as build
from .specs import built_parameters as built_parameters
from .specs import check_parameters as check_parameters
from .specs import describe as describe
from .specs import spec_of as spec_of
from .suggestions import suggestion as suggestion
from .tables import check_table as check_table
