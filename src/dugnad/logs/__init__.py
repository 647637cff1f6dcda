"""What an operator reads: log lines of the standard `logging`, without secrets. There are none unless asked for."""

from .lines import about, logger, traceback_text
from .secrets import hide, without_secrets

__all__ = ["about", "hide", "logger", "traceback_text", "without_secrets"]
