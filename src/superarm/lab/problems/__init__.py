"""Problems: worlds to learn in, with a known truth."""

from .channels import Channels as Channels
from .codependency import Codependency as Codependency
from .crowdsourcing import Crowdsourcing as Crowdsourcing
from .drifting import DriftingFunction as DriftingFunction
from .finite import FiniteProblem as FiniteProblem
from .landscape import landscape as landscape
from .movement import MovementField as MovementField
from .movement import MovementProblem as MovementProblem
from .movies import Movies as Movies
from .sensors import light_sensors as light_sensors
from .sensors import temperature_sensors as temperature_sensors
from .series import SensorSeries as SensorSeries
from .series import temperature_series as temperature_series
from .series import traffic_series as traffic_series
from .synthetic import BENCHMARKS as BENCHMARKS
from .synthetic import benchmark_function as benchmark_function
from .synthetic import gp_function as gp_function
from .synthetic import rkhs_function as rkhs_function
from .wind import Wind as Wind
