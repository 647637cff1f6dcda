"""The team as one object: open a board, spawn teammates, put tasks, run until there is nothing left to do.

A thin face over the board and one host, to be used in someone's own asyncio program. It installs no signal handlers
and prints nothing.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from ..agent import Agent, ExternalAgent, ExternalCommand, Mind
from ..board import Board, open_board
from ..board.records import Moment
from ..config.project import Role
from ..errors import BadInput, BoardClosed, BoardTrouble, ModelMisconfigured
from ..logs import about
from ..models import open_model
from ..models.port import Model
from ..settings import AgentLimits, Limits, TeamLimits
from ..text import one_line
from ..tools import OF_A_TREE, Policy, Tool
from ..tools.message_tools import GONE
from ..types import HUMAN, OPEN, Budget, Event, Need, Task, Teammate
from ..workspace.sandbox.sandbox import Sandbox
from .growth import Joins, fresh_names, may_come_back
from .host import Host, as_before
from .report import Report, Standing, report, standing
from .workspaces.workspace import Check, OpenWorkspace

Rates = tuple[int | None, int | None]
_LOOK_SECONDS = 1.0  # Between two looks at whether the work of other hosts has ended.


@dataclass(kw_only=True)
class Team:
    """Many minds on one board. `async with Team.open(...) as team:`"""

    url: str
    model: Model | str | None = None  # For teammates that name none; None: the first provider whose key is set.
    name: str = "dugnad"
    project: Path | None = None
    roles: Mapping[str, Role] = field(default_factory=dict)
    tools: Sequence[Tool] = ()  # For everybody, besides the built-in ones.
    tools_for: Callable[[Teammate], Sequence[Tool]] = (
        lambda teammate: ()
    )  # Made anew for each, who may remember by them.
    only_roles: tuple[str, ...] | None = None  # Who joins here has these roles; None: whatever is needed.
    agents: int = 0  # To how many the team may grow while work waits; 0: only those who were spawned.
    limits: TeamLimits = field(default_factory=TeamLimits)
    agent_limits: AgentLimits = field(default_factory=AgentLimits)
    board_limits: Limits = field(default_factory=Limits)
    check: Check | None = None  # How to run a task's check, where there are no places.
    places: OpenWorkspace | None = None  # Where an attempt works; set before the team is started.
    reviewer: str | None = None  # The role that looks at whatever changes the project.
    policies: Policy | Mapping[str, Any] = field(default_factory=Policy)  # {"bash": "ask", "reviewer": {...}}
    budget: Budget = field(default_factory=Budget)  # For goals that are given none, also those told in passing.
    open_named: Callable[[str | None], Model] = open_model
    rates: Callable[[str], Rates] = lambda name: (None, None)  # Of a model: requests and tokens per minute.
    sandbox: Sandbox | None = None  # Where commands run that stand in for a model.
    red_base: bool = False  # The project's check was red before anybody began.
    seats_max: int = 10_000  # Teammates this process takes at most.
    knows_neighbours: bool = True
    _board: Board | None = None
    _host: Host | None = None
    _failed: dict[str, str] = field(default_factory=dict)  # Teammates that failed here, and why.
    _scope: tuple[int, ...] | None = None  # The roots of this run; None: all that is on the board.
    _payer: int | None = None  # The root that pays for what is answered meanwhile; None: each answer its own.
    _account: Task | None = None
    _account_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _tools: dict[str, tuple[Tool, ...]] = field(default_factory=dict)
    _models: dict[str | None, Model] = field(default_factory=dict)

    @classmethod
    def open(cls, url: str, *, model: Model | str | None = None, **settings: Any) -> Team:
        """The board is opened when the `async with` block is entered. `settings` are the fields of Team."""
        return cls(url=url, model=model, **settings)

    async def __aenter__(self) -> Team:
        Policy.of(self.policies)  # What is wrong with them is told now.
        self._board = await open_board(self.url, limits=self.board_limits)
        about(board=(await self._board.identity())[:8])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, trouble: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave("the team was closed")
        for model in self._models.values():
            await model.close()
        try:
            async with asyncio.timeout(self.limits.cancel_seconds):
                await self.board.close()
        except TimeoutError:
            pass  # A board that is away. What was asked of it is not acknowledged, so nothing is lost.

    @property
    def board(self) -> Board:
        if self._board is None:
            raise BoardClosed("The team is not open; use it in `async with Team.open(...) as team:`.")
        return self._board

    @property
    def host(self) -> Host | None:
        """What runs the teammates here, once it was started."""
        return self._host

    # Who and what.

    async def spawn(
        self, name: str, *, role: str | Iterable[str] | None = None, prompt: str = "", model: str = "",
        tools: Sequence[Tool] = (), lead: bool = False, plan: bool = False,
    ) -> Teammate:  # fmt: skip
        """Want a teammate. Its tools, which are Python, live in this process."""
        self._tools[name] = tuple(tools)
        roles = [role] if isinstance(role, str) else list(role or ())
        return await self.board.spawn(name, roles=roles, prompt=prompt, model=model, lead=lead, plan=plan)

    async def put(self, title: str, *, needs: Iterable[Task | Need | int] = (), **fields: Any) -> Task:
        """Put a task on the board. All tasks put here, and what follows from them, share the budget of `run`."""
        edges = tuple(need.id if isinstance(need, Task) else need for need in needs)
        if fields.get("parent") is None and fields.get("budget") is None:
            fields["parent"] = (await self._shared_account()).id
        return await self.board.put(title, needs=edges, **fields)

    async def _shared_account(self) -> Task:
        """A root that is no work of its own: what is put under it is charged to one budget."""
        async with self._account_lock:
            if self._account is None:
                account = await self.board.put(f"The budget of {self.name}", kind="budget", assignee=HUMAN)
                await self.board.cancel(account.id, why="It holds a budget and is no work of its own.")
                self._account = account
            return self._account

    async def cap_all(self, budget: Budget, *, others: bool = False) -> int:
        """One account for all that is said and put here from now on; with `others`, what else waits is worked too."""
        self._must_be_priced(budget)
        self._payer = account = (await self._shared_account()).id
        self._scope = None if others else (account,)
        await self._cap(account, budget)
        return account

    async def goal(self, title: str, *, body: str = "", budget: Budget | None = None) -> Task:
        """Put a goal; or go on with the open one of the same title. A long one is told in full in its body."""
        whole, title = title, one_line(title, self.board.limits.title_chars_max)
        body = body or (whole if title != whole.strip() else "")
        for task in await self._open_roots():
            if task.title == title and (not body or task.body == body):
                await self._cap(task.id, budget)
                return task
        return await self.board.put(title, body=body, budget=(budget or Budget()).over(self.budget))

    async def _cap(self, root: int, budget: Budget | None) -> None:
        """Put these caps in place of the root's; those that are not named stay as they are, raised by hand or not."""
        if budget is not None and budget != Budget():
            await self.board.set_budget(root, budget.over((await self.board.budget(root)).caps))

    async def _open_roots(self) -> list[Task]:
        """Roots under which something is open."""
        roots: dict[int, None] = {}
        after = 0
        while page := await self.board.list_tasks(states=sorted(OPEN), after=after, page=1_000):  # type: ignore[arg-type]
            roots.update(dict.fromkeys(task.root for task in page))
            after = page[-1].id
        return [await self.board.find(root) for root in roots]

    def events(self, after: int = 0) -> AsyncIterator[Event]:
        """Every change of the board from a sequence number on, and then each new one, without end."""
        return self.board.follow(after)

    # Running.

    async def start(self) -> Host:
        """Run teammates here from now on, beside whatever else the program does."""
        if self._host is not None and self._host.scope != self._scope:
            await self.leave("the next run is about other work")
        if self._host is None:
            limits = replace(self.limits, agents_max=self.agents)
            self._host = Host(
                board=self.board, mind=self._mind, limits=limits, check=self.check, places=self.places,
                reviewer=self.reviewer, budget=self.budget,
                grows=self.agents > 0, newcomer=self._newcomer, seats_max=self.seats_max, failed=self._failed,
                roles=self.only_roles, knows_neighbours=self.knows_neighbours,
                scope=self._scope, payer=self._payer, red_base=self.red_base,
            )  # fmt: skip
            try:
                await self._host.start()
            except BaseException:
                self._host = None  # It never began; whoever asks again gets one that does.
                raise
        return self._host

    async def assemble(self, count: int, *, roles: tuple[str, ...] | None = None, here: bool = False) -> list[str]:
        """See to it that there are so many teammates: those who rested come back before strangers join.

        With `roles`, such that have these; with `here`, whoever works elsewhere is not counted.
        """
        team = await self.board.team()
        elsewhere = ("idle", "working", "waiting") if here else ()
        living = [each for each in team if each.status not in (*GONE, *elsewhere) and not each.lead]
        fitting = [each for each in living if roles is None or each.roles == roles]
        names = iter(fresh_names(each.name for each in team))
        # Whoever starts a team again says by that that what made one fail is mended.
        rested = [each for each in team if may_come_back(each) and not each.lead]
        rested += [each for each in team if each.status == "failed" and not each.lead]
        rested = [each for each in rested if roles is None or each.roles == roles]
        joined = [each.name for each in fitting] if here else []
        host = (await self.start()).id if here else None  # Else another host may be quicker to take them.
        for _ in range(count - len(fitting)):
            old = rested.pop(0) if rested else None
            joins = Joins(old.name, old.roles) if old else Joins(next(names), roles or ())
            settings = as_before(old) if old else self._newcomer(joins)
            await self.board.spawn(joins.name, roles=joins.roles, host=host, by="board", **settings)
            joined.append(joins.name)
        return joined

    async def run(
        self, goal: str | None = None, *, budget: Budget | None = None, forever: bool = False, others: bool = False
    ) -> Report:  # fmt: skip
        """Until the goal, or all that was put, has ended; or nothing can go on without a person; or for ever.

        With a goal, only what is under it is worked; with `others`, what else is open on the board too.
        """
        roots = await self.roots(goal, budget, others=others)
        await self.run_roots(roots, forever=forever)
        return await self.report(roots)

    async def report(self, roots: Sequence[int], *, interrupted: bool = False) -> Report:
        """What came of these roots, and who failed here on the way."""
        end = await report(self.board, roots, interrupted=interrupted, trouble=self._failed)
        return replace(end, others=await self.waiting_elsewhere())

    async def waiting_elsewhere(self) -> int:
        """How many open tasks on the board this run leaves alone, because they are under another root."""
        every = await self.board.count_tasks() if self._scope is not None else {}
        ours = [await self.board.count_tasks(root=root) for root in self._scope or ()]
        return sum(every.get(state, 0) - sum(each.get(state, 0) for each in ours) for state in OPEN - {"claimed"})

    async def run_roots(self, roots: Sequence[int], *, forever: bool = False) -> None:
        host = await self.start()
        while True:
            try:
                if not (forever or await self.standing(roots) == "working"):
                    return
            except BoardTrouble:
                pass  # Those who work wait for it too; the host says so.
            await host.wait_for_move(_LOOK_SECONDS)

    async def leave(self, why: str) -> None:
        """Stop running teammates here, in order; what they held is given back, and another host may take them."""
        if self._host is not None:
            await self._host.stop(why)
            self._host = None

    @property
    def is_forever(self) -> bool:
        return math.isinf(self.limits.idle_seconds)

    async def is_over(self) -> bool:
        """Nobody lives here any more, and nobody can join."""
        host = self._host
        if host is None or host.lives:
            return host is None
        now = await self.board.moment(scope=host.scope)
        # One who is wanted, or has a seat here, is about to live here.
        if host.lives or any(
            each.status == "wanted" or (each.host == host.id and each.status not in GONE) for each in now.team
        ):
            return False
        return bool(host.broken_models) or not host.joining(now.ready, now.team)

    async def roots(self, goal: str | None, budget: Budget | None, *, others: bool = False) -> list[int]:
        """What a run is about: the goal, all that was put here, or all that is open on the board."""
        self._scope = self._payer = None
        self._must_be_priced(budget)
        if goal is not None:
            own = (await self.goal(goal, budget=budget)).id
            if others:
                return [own, *(task.id for task in await self._open_roots() if task.id != own)]
            self._scope, self._payer = (own,), own  # Its cap is for all that the run spends, answers included.
            return [own]
        roots = [self._account.id] if self._account is not None else [task.id for task in await self._open_roots()]
        if budget is not None and budget != Budget() and len(roots) != 1:
            raise BadInput(
                f"A budget belongs to one goal, and {len(roots)} are open: give each its own (`dugnad budget ID`)."
            )
        for root in roots:
            await self._cap(root, budget)
        return roots

    def _must_be_priced(self, budget: Budget | None) -> None:
        if budget is not None and budget.dollars is not None and not _has_price(model := self._model(None)):
            raise BadInput(f"A cap in dollars cannot be kept: the price of {model.name} is not known. Cap its tokens.")

    async def standing(self, roots: Sequence[int]) -> Standing:
        """Of all these roots together: working while one of them is."""
        now = await self.board.moment(roots, scope=self._scope)
        if self._host is not None and self._host.works_on(set(roots)):  # It may have settled, and be clearing away.
            return "working"
        return standing(now, roots, deserted=self._is_deserted(now))

    def _is_deserted(self, now: Moment) -> bool:
        """Nobody is at work or at rest anywhere, and nobody can join here."""
        if self._host is not None and self._host.lives:
            return False
        # Those without a host come to ours, if there is one.
        gone = GONE if self._host is not None else (*GONE, "lost")
        if any(each.status not in gone for each in now.team):
            return False
        if self._host is None or self._host.broken_models:
            return True
        return not self._host.joining(now.ready, now.team)

    # Minds.

    @property
    def model_name(self) -> str:
        return self._model(None).name

    def open_model(self) -> None:
        """Open the team's model now rather than with the first teammate: what is wrong with it is told at once."""
        self._model(None)

    def _mind(self, teammate: Teammate, may_act: Callable[[], bool]) -> Mind:
        role = next((self.roles[each] for each in teammate.roles if each in self.roles), None)
        prompt = teammate.prompt or (role.prompt if role else "")
        plan = teammate.plan or bool(role and role.plan)
        model = self._model(teammate.model or (role.model if role else None))
        member = replace(teammate, prompt=prompt, plan=plan)
        if isinstance(model, ExternalCommand):
            policy = Policy.of(self.policies)
            said = {each: policy.decide(each, teammate.roles) for each in OF_A_TREE}
            for tool, decision in said.items():  # It has tools of its own, so what is said of these cannot be kept.
                if decision != "allow":
                    raise ModelMisconfigured(
                        f"{model.name} has tools of its own, so it cannot be held to what the policy for "
                        f"{teammate.name} says: {tool} = {decision!r}. Allow it for a role that this command has, or "
                        "choose another model."
                    )
            return ExternalAgent(
                board=self.board, teammate=member, command=model, sandbox=self.sandbox, team=self.name,
                project=self.project, policy=policy, limits=self.agent_limits,
                sources=self.board.sources, may_act=may_act,
            )  # fmt: skip
        requests, tokens = self.rates(model.name)
        return Agent(
            board=self.board, teammate=member, model=model, requests_per_minute=requests, tokens_per_minute=tokens,
            tools=(*self.tools, *self.tools_for(teammate), *self._tools.get(teammate.name, ())),
            policy=Policy.of(self.policies), team=self.name, project=self.project, limits=self.agent_limits,
            sources=self.board.sources, may_act=may_act,
        )  # fmt: skip

    def _model(self, named: str | None) -> Model:
        wanted = named or self.model
        if wanted is not None and not isinstance(wanted, str):
            return wanted
        if wanted not in self._models:
            self._models[wanted] = self.open_named(wanted)
        return self._models[wanted]

    def _newcomer(self, joins: Joins) -> dict[str, Any]:
        role = next((self.roles[each] for each in joins.roles if each in self.roles), None)
        return {"model": role.model} if role and role.model else {}


def _has_price(model: Model) -> bool:
    return model.reports_dollars if isinstance(model, ExternalCommand) else model.facts.price is not None
