"""The minds of a team: the model of each teammate, and what its mind is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from ..agent.external.command import ExternalCommand
from ..agent.mind import Agent, ExternalAgent, Mind, OutsideMind
from ..agent.outside.mind import is_outside
from ..board import Board
from ..errors import ModelMisconfigured
from ..models.port import Facts, Model, Reply, Request
from ..tools.built_in import OF_A_TREE
from ..tools.policy import Policy
from ..tools.tool import Tool
from ..types import Teammate
from .plan import RunPlan


@dataclass(frozen=True)
class OtherModel:
    """A model that is asked instead of the team's own. Counts what that saves."""

    inner: Model
    own: Model
    saved: dict[str, int]  # By model, in micro-dollars.
    for_summaries: bool = False  # Then the team's own would read the input from its cache.

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def key(self) -> str:
        return self.inner.key

    @property
    def facts(self) -> Facts:
        return self.inner.facts

    async def ask(self, request: Request) -> Reply:
        reply = await self.inner.ask(request)
        paid, instead = self.facts.price, self.own.facts.price
        if paid is not None and instead is not None:
            usage = reply.usage
            if self.for_summaries:
                usage = replace(usage, cache_read_tokens=usage.input_tokens, cache_write_tokens=0)
            less = instead.microdollars(usage) - paid.microdollars(reply.usage)
            self.saved[self.name] = self.saved.get(self.name, 0) + less
        return reply

    async def close(self) -> None:
        await self.inner.close()


@dataclass(frozen=True)
class Models:
    """The models of a plan. Each is opened when it is first asked for."""

    plan: RunPlan
    saved: dict[str, int] = field(default_factory=dict)  # By other models than the team's own, in micro-dollars.
    _opened: dict[str | None, Model] = field(default_factory=dict)

    def named(self, name: str | None = None) -> Model:
        """The model of that name; without one, the team's own."""
        wanted = name or self.plan.model
        if wanted is not None and not isinstance(wanted, str):
            return wanted
        if wanted not in self._opened:
            self._opened[wanted] = self.plan.open_named(wanted)
        return self._opened[wanted]

    def counted(self, name: Model | str | None, *, for_summaries: bool = False) -> Model:
        """The same. If it is not the team's own model, what it saves is counted."""
        model = self.named(name) if name is None or isinstance(name, str) else name
        if name is None or isinstance(model, ExternalCommand):
            return model
        with suppress(ModelMisconfigured):  # The team may have none of its own, if each teammate has one.
            own = self.named()
            if own.name != model.name and not isinstance(own, ExternalCommand):
                return OtherModel(model, own, self.saved, for_summaries)
        return model

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
        outside = is_outside(teammate)
        model = None if outside else self.models.counted(teammate.model or (role.model if role else None))
        member = replace(teammate, plan=teammate.plan or bool(role and role.plan))
        common: dict[str, Any] = {
            "board": self.board, "teammate": member, "team": plan.name, "project": plan.project, "policy": policy,
            "limits": plan.agent_limits, "sources": self.board.sources, "may_act": may_act,
            "role_prompt": role.prompt if role else "",
        }  # fmt: skip
        if model is None:
            must_keep(policy, teammate.model, teammate.name, teammate.roles)
            if (client := plan.clients.get(teammate.name)) is None:
                raise ModelMisconfigured(f"{teammate.name} is a client over MCP, and is not connected to this host.")
            bounds = ExternalCommand(name=teammate.model, run=())
            return OutsideMind(
                client=client, bounds=bounds, quiet_seconds=plan.limits.quiet_seconds, joins=plan.adds, **common
            )
        if isinstance(model, ExternalCommand):
            must_keep(policy, model.name, teammate.name, teammate.roles)
            return ExternalAgent(command=model, sandbox=plan.sandbox, **common)
        requests, tokens = plan.rates(model.name)
        tools = (*plan.tools, *plan.tools_for(teammate), *self.tools.get(teammate.name, ()))
        wanted = plan.summary_model
        summary_model = None if wanted is None else self.models.counted(wanted, for_summaries=True)
        if isinstance(summary_model, ExternalCommand):
            raise ModelMisconfigured(f"{summary_model.name} cannot write summaries; choose a model for summary_model.")
        return Agent(
            model=model, summary_model=summary_model, tools=tools, requests_per_minute=requests,
            tokens_per_minute=tokens, hears=plan.hears, joins=plan.adds, **common,
        )  # fmt: skip


def must_keep(policy: Policy, mind: str, teammate: str, roles: Sequence[str]) -> None:
    """Refuse a policy for file and command tools: an external agent has its own, which no policy reaches."""
    for tool in OF_A_TREE:
        if (decision := policy.decide(tool, roles)) != "allow":
            raise ModelMisconfigured(
                f"{mind} has tools of its own, so it cannot be held to what the policy for {teammate} says: {tool} = "
                f"{decision!r}. Allow it for a role that it has, or choose another model."
            )
