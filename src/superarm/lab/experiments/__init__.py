"""The papers' experiments: one TOML each, run and judged by the same code."""

from .claims import judge as judge
from .plans import Plan as Plan
from .plans import execute as execute
from .spec import Experiment as Experiment
from .spec import experiment_ids as experiment_ids
from .spec import load_experiment as load_experiment
from .spec import parse_overrides as parse_overrides
