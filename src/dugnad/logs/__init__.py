"""What an operator reads: log lines of the standard `logging`, without secrets. Quiet unless somebody asks for them."""

from .lines import about, logger, traceback_text
from .secrets import hide, without_secrets

__all__ = ["about", "hide", "logger", "traceback_text", "without_secrets"]
