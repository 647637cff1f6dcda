"""The plan of a run: all that a team is made of, read once. It is frozen, so what was read holds until the run ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..config.project import Role
from ..models import open_model
from ..models.port import Model
from ..settings import AgentLimits, Limits, TeamLimits
from ..tools import Policy, Tool
from ..types import Budget, Teammate
from ..workspace.sandbox.sandbox import Sandbox
from .workspaces.workspace import Check, OpenWorkspace


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What `Team` is built from."""

    url: str  # Of the board.
    model: Model | str | None = None  # For teammates that name none; None: the first provider whose key is set.
    name: str = "dugnad"
    project: Path | None = None
    roles: Mapping[str, Role] = field(default_factory=dict)
    tools: Sequence[Tool] = ()  # For everybody, besides the built-in ones.
    # Made anew for each teammate, who may remember by them.
    tools_for: Callable[[Teammate], Sequence[Tool]] = lambda teammate: ()
    only_roles: tuple[str, ...] | None = None  # Who joins here has these roles; None: whatever is needed.
    agents: int = 0  # To how many the team may grow while work waits; 0: only those who were spawned.
    limits: TeamLimits = field(default_factory=TeamLimits)
    agent_limits: AgentLimits = field(default_factory=AgentLimits)
    board_limits: Limits = field(default_factory=Limits)
    check: Check | None = None  # How to run a task's check, where there are no places.
    places: OpenWorkspace | None = None  # Where an attempt works.
    reviewer: str | None = None  # The role that looks at whatever changes the project.
    policies: Policy | Mapping[str, Any] = field(default_factory=Policy)  # {"bash": "ask", "reviewer": {...}}
    budget: Budget = field(default_factory=Budget)  # For goals that are given none, also those told in passing.
    open_named: Callable[[str | None], Model] = open_model
    # Of a model: requests and tokens per minute.
    rates: Callable[[str], tuple[int | None, int | None]] = lambda name: (None, None)
    sandbox: Sandbox | None = None  # Where commands run that stand in for a model.
    red_base: bool = False  # The project's check was red before anybody began.
    seats_max: int = 10_000  # Teammates this process takes at most.
    knows_neighbours: bool = True  # False: only the lease says that another host is dead.

    def role_of(self, roles: Sequence[str]) -> Role | None:
        """The first of these roles that the plan describes."""
        return next((self.roles[each] for each in roles if each in self.roles), None)
