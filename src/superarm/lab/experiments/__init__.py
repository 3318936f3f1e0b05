"""The papers' experiments: one TOML each, run and judged by the same code."""

from .claims import judge as judge
from .execution import execute as execute
from .loading import experiment_ids as experiment_ids
from .loading import load_experiment as load_experiment
from .overrides import parse_overrides as parse_overrides
from .plans import Plan as Plan
from .spec import Experiment as Experiment
