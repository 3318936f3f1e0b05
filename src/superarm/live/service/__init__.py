"""The service: bandits over HTTP, for programs in any language."""

from .app import create_app as create_app
from .settings import Limits as Limits
from .settings import Settings as Settings
