"""The plan of a run: all that a team is made of, read once. It is frozen, so what was read holds until the run ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..agent.outside.client import OutsideClient
from ..board import Board
from ..config.project import ReviewRule, Role
from ..models import open_model
from ..models.port import Model
from ..settings import AgentLimits, Limits, TeamLimits
from ..tools.policy import Policy
from ..tools.tool import Tool
from ..types import Budget, Claim, Teammate
from ..workspace.sandbox.sandbox import Sandbox
from .workspaces.workspace import Check, OpenWorkspace


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What `Team` is built from."""

    url: str  # Of the board.
    model: Model | str | None = None  # For teammates that name none; None: the first provider whose key is set.
    summary_model: Model | str | None = None  # For summaries; None: the teammate's own.
    name: str = "dugnad"
    project: Path | None = None
    roles: Mapping[str, Role] = field(default_factory=dict)
    tools: Sequence[Tool] = ()  # For everybody, besides the built-in ones.
    # Made anew for each teammate, because a tool may keep state.
    tools_for: Callable[[Teammate], Sequence[Tool]] = lambda teammate: ()
    only_roles: tuple[str, ...] | None = None  # The roles of teammates that join here; None: those that are needed.
    agents: int = 0  # How large the team may grow while work waits; 0: nobody joins but those that are spawned.
    agents_asked: bool = True  # Somebody chose `agents`. Otherwise a team that was named does not grow.
    # How many teammates the open work under some roots calls for, of at most so many. None: as many as find work.
    enough: Callable[[Board, Sequence[int] | None, int], Awaitable[int]] | None = None
    limits: TeamLimits = field(default_factory=TeamLimits)
    agent_limits: AgentLimits = field(default_factory=AgentLimits)
    board_limits: Limits = field(default_factory=Limits)
    check: Check | None = None  # How to run a task's check, where there are no workspaces.
    workspaces: OpenWorkspace | None = None  # Where an attempt works.
    reviewer: str | None = None  # The role that reviews what changes the project,
    review: ReviewRule | None = None  # and which changes; None: all.
    policies: Policy | Mapping[str, Any] = field(default_factory=Policy)  # {"bash": "ask", "reviewer": {...}}
    budget: Budget = field(default_factory=Budget)  # For goals without one, and for what a person asks in a message.
    open_named: Callable[[str | None], Model] = open_model
    # The requests and tokens per minute of a model.
    rates: Callable[[str], tuple[int | None, int | None]] = lambda name: (None, None)
    sandbox: Sandbox | None = None  # Where external agents run.
    clients: Mapping[str, OutsideClient] = field(default_factory=dict)  # Minds outside, by teammate, as they come.
    hears: Callable[[Claim, str], None] | None = None  # Is told what teammates write to a person, as it comes.
    red_base: bool = False  # The project's check failed before the run began.
    seats_max: int = 10_000  # The most teammates that this process takes; 0: only those that are spawned here.
    knows_neighbours: bool = True  # False: only the lease tells that another host is dead.

    def role_of(self, roles: Sequence[str]) -> Role | None:
        """The first of these roles that the plan describes."""
        return next((self.roles[each] for each in roles if each in self.roles), None)

    def adds(self, role: str) -> bool:
        """Whether somebody joins for work of a role that nobody has, however the team came to be."""
        return self.agents > 0 and (self.only_roles is None or role in self.only_roles)

    def joins_as(self, roles: Sequence[str], before: Teammate | None) -> dict[str, Any]:
        """The settings of a teammate that joins, for `Board.spawn`. A teammate that comes back keeps those it had."""
        if before is not None:
            return {name: getattr(before, name) for name in ("prompt", "model", "plan", "keep_context", "lead")}
        role = self.role_of(roles)
        return {"model": role.model} if role and role.model else {}
