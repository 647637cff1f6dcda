"""The minds of a team: the model of each teammate, and what its mind is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..agent import Agent, ExternalAgent, ExternalCommand, Mind
from ..board import Board
from ..errors import ModelMisconfigured
from ..models.port import Model
from ..tools import OF_A_TREE, Policy, Tool
from ..types import Teammate
from .plan import RunPlan


@dataclass(frozen=True)
class Models:
    """The models of a plan. Each is opened when it is first asked for."""

    plan: RunPlan
    _opened: dict[str | None, Model] = field(default_factory=dict)

    def named(self, name: str | None = None) -> Model:
        """The model of that name; without one, the team's own."""
        wanted = name or self.plan.model
        if wanted is not None and not isinstance(wanted, str):
            return wanted
        if wanted not in self._opened:
            self._opened[wanted] = self.plan.open_named(wanted)
        return self._opened[wanted]

    def has_price(self) -> bool:
        model = self.named()
        return model.reports_dollars if isinstance(model, ExternalCommand) else model.facts.price is not None

    async def close(self) -> None:
        while self._opened:
            await self._opened.popitem()[1].close()


@dataclass(frozen=True)
class Minds:
    """Makes the mind of a teammate."""

    plan: RunPlan
    board: Board
    models: Models
    tools: Mapping[str, Sequence[Tool]]  # By teammate: the tools it was spawned with.

    def __call__(self, teammate: Teammate, may_act: Callable[[], bool]) -> Mind:
        plan, role, policy = self.plan, self.plan.role_of(teammate.roles), Policy.of(self.plan.policies)
        model = self.models.named(teammate.model or (role.model if role else None))
        prompt = teammate.prompt or (role.prompt if role else "")
        member = replace(teammate, prompt=prompt, plan=teammate.plan or bool(role and role.plan))
        common: dict[str, Any] = {
            "board": self.board, "teammate": member, "team": plan.name, "project": plan.project, "policy": policy,
            "limits": plan.agent_limits, "sources": self.board.sources, "may_act": may_act,
        }  # fmt: skip
        if isinstance(model, ExternalCommand):
            _must_keep(policy, model, teammate)
            return ExternalAgent(command=model, sandbox=plan.sandbox, **common)
        requests, tokens = plan.rates(model.name)
        tools = (*plan.tools, *plan.tools_for(teammate), *self.tools.get(teammate.name, ()))
        return Agent(model=model, tools=tools, requests_per_minute=requests, tokens_per_minute=tokens, **common)


def _must_keep(policy: Policy, command: ExternalCommand, teammate: Teammate) -> None:
    """Refuse a policy for file and command tools: an external agent has its own, which no policy reaches."""
    for tool in OF_A_TREE:
        if (decision := policy.decide(tool, teammate.roles)) != "allow":
            raise ModelMisconfigured(
                f"{command.name} has tools of its own, so it cannot be held to what the policy for {teammate.name} "
                f"says: {tool} = {decision!r}. Allow it for a role that this command has, or choose another model."
            )
