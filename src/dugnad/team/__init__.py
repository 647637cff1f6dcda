"""Many minds: the life of a teammate, the host that runs it, the lead, the team as one object."""

from .host import Host
from .plan import RunPlan
from .report import Report
from .team import Team

__all__ = ["Host", "Report", "RunPlan", "Team"]
