"""Many teammates: the worker of each, the host that runs them, the team as one object."""

from .host import Host
from .plan import RunPlan
from .report import Report
from .team import Team

__all__ = ["Host", "Report", "RunPlan", "Team"]
