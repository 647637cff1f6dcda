"""The team as one object: open a board, spawn teammates, put tasks, run until there is nothing left to do.

It is a thin layer over the board and one host, for use in any asyncio program. It installs no signal handlers and
prints nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from ..agent.outside.mind import is_outside
from ..agent.stop import Stop
from ..board import Board, open_board
from ..board.records import Moment
from ..board.rules import content_key
from ..errors import BadInput, BoardClosed, BoardTrouble
from ..logs import about
from ..models.port import Model
from ..text import one_line
from ..tools.message_tools import GONE, may_come_back
from ..tools.policy import Policy
from ..tools.tool import Tool
from ..types import OPEN, Budget, Event, Need, NewTask, Task, Teammate
from .growth import fresh_names
from .host import Host
from .minds import Minds, Models
from .plan import RunPlan
from .report import Report, Standing, report, standing

_LOOK_SECONDS = 1.0  # Between two looks at whether the work of other hosts has ended.


class Team:
    """Many minds on one board. `async with Team.open(...) as team:`"""

    __slots__ = (
        "_account", "_account_lock", "_began", "_began_ms", "_board", "_closing", "_failed", "_given", "_host",
        "_models", "_payer", "_plan", "_scope", "_tools",
    )  # fmt: skip

    def __init__(self, plan: RunPlan, *, board: Board | None = None, models: Models | None = None) -> None:
        """Without a board, the plan's is opened when the `async with` block is entered, and closed at its end."""
        self._plan = plan
        self._given = self._board = board
        self._models = models or Models(plan)
        self._host: Host | None = None
        self._failed: dict[str, str] = {}  # Teammates that failed here, and why.
        self._scope: tuple[int, ...] | None = None
        self._payer: int | None = None  # The root that pays for errands; None: each errand is a root of its own.
        self._account: int | None = None
        self._began_ms: int | None = None  # When the work began, by the board's clock,
        self._began = 0.0  # and by one that nobody can set.
        self._account_lock = asyncio.Lock()
        self._tools: dict[str, tuple[Tool, ...]] = {}
        self._closing = AsyncExitStack()

    @classmethod
    def open(cls, url: str, *, model: Model | str | None = None, **settings: Any) -> Team:
        """The board is opened when the `async with` block is entered. `settings` are the fields of `RunPlan`."""
        return cls(RunPlan(url=url, model=model, **settings))

    async def __aenter__(self) -> Team:
        Policy.of(self.plan.policies)  # Refuses wrong policies before anything begins.
        self._board = self._given or await self._closing.enter_async_context(opened(self.plan))
        self.board.get_ready()
        self._closing.push_async_callback(self._models.close)
        self._closing.push_async_callback(self.leave, "the team was closed")
        return self

    async def __aexit__(self, *trouble: Any) -> None:
        await self._closing.aclose()

    @property
    def plan(self) -> RunPlan:
        return self._plan

    @property
    def board(self) -> Board:
        if self._board is None:
            raise BoardClosed("The team is not open; use it in `async with Team.open(...) as team:`.")
        return self._board

    @property
    def scope(self) -> tuple[int, ...] | None:  # The roots under which teammates work here; None: the whole board.
        return self._scope

    @property
    def host(self) -> Host | None:
        """What runs the teammates here; None: it was not started."""
        return self._host

    # Who and what.

    async def spawn(
        self, name: str, *, role: str | Iterable[str] | None = None, prompt: str = "", model: str = "",
        tools: Sequence[Tool] = (), lead: bool = False, plan: bool = False, keep_context: bool = False,
    ) -> Teammate:  # fmt: skip
        """Add a teammate. Its tools, which are Python functions, live in this process."""
        self._tools[name] = tuple(tools)
        roles = [role] if isinstance(role, str) else list(role or ())
        return await self.board.spawn(
            name, roles=roles, prompt=prompt, model=model, lead=lead, plan=plan, keep_context=keep_context
        )

    async def put(self, title: str, *, needs: Iterable[Task | Need | int] = (), **fields: Any) -> Task:
        """Put a task on the board. All tasks put here, and what follows from them, share the budget of `run`."""
        edges = tuple(need.id if isinstance(need, Task) else need for need in needs)
        if fields.get("parent") is None and fields.get("budget") is None:
            fields["account"] = await self._shared_account()
        return await self.board.put(title, needs=edges, **fields)

    async def _shared_account(self) -> int:
        async with self._account_lock:
            if self._account is None:
                self._account = await self.board.open_budget()
            return self._account

    async def cap_all(self, budget: Budget, *, others: bool = False) -> int:
        """Make one account pay for everything that is put and answered here from now on. With `others`, teammates also
        take other work on the board."""
        self._must_be_priced(budget)
        self._payer = account = await self._shared_account()
        self._scope = None if others else (account,)
        await self._cap(account, budget)
        return account

    async def goal(self, title: str, *, body: str = "", budget: Budget | None = None) -> Task:
        """Put a goal, or continue the open goal of the same title. The body gets the whole text of a long title."""
        whole, title = title, one_line(title, self.board.limits.title_chars_max)
        body = body or (whole if title != whole.strip() else "")
        found = await self.board.find_all(root for root in await open_roots(self.board) if root > 0)
        same = (each for each in found.values() if each.title == title and (not body or each.body == body))
        task, words, before = next(same, None), content_key(NewTask(title=title, body=body)), 0
        while task is None or task.ended:  # Two runs that begin at once put one goal: its key names the one before it.
            caps = (budget or Budget()).over(self.plan.budget)
            task = await self.board.put(title, body=body, budget=caps, key=f"goal:{words}:{before}")
            before = task.id
        await self._cap(task.id, budget)
        return task

    async def _cap(self, root: int, budget: Budget | None) -> None:
        """Replace the root's caps by those that are named here. The others stay as they are, raised by hand or not."""
        if budget is not None and budget != Budget():
            await self.board.set_budget(root, budget.over((await self.board.budget(root)).caps))

    def events(self, after: int = 0) -> AsyncIterator[Event]:
        """Every event of the board after a sequence number, and then each new one, without end."""
        return self.board.follow(after)

    # Running.

    async def start(self) -> Host:
        """Run teammates here from now on, beside what else the program does."""
        if self._host is not None and self._host.scope != self._scope:
            await self.leave("the next run is about other work")
        if self._host is None:
            self._host = Host(
                board=self.board, plan=self.plan, mind=Minds(self.plan, self.board, self._models, self._tools),
                failed=self._failed, scope=self._scope, payer=self._payer,
            )  # fmt: skip
            try:
                await self._host.start()
            except BaseException:
                self._host = None  # It did not begin; the next call makes another.
                raise
        return self._host

    async def assemble(self, count: int, *, roles: tuple[str, ...] | None = None, here: bool = False) -> list[str]:
        """Make the team this large: teammates that rested come back before new ones join.

        With `roles`, only teammates with these roles count; with `here`, those that work elsewhere do not count.
        """
        team = await self.board.team()
        own = [each for each in team if not each.lead and not is_outside(each)]
        may_count = [each for each in own if roles is None or each.roles == roles]
        elsewhere = ("idle", "working", "waiting") if here else ()
        fitting = [each for each in may_count if each.status not in (*GONE, *elsewhere)]
        rested = [each for each in may_count if may_come_back(each)]
        # Restarting the team implies that the cause of earlier failures was fixed.
        rested += [each for each in may_count if each.status == "failed"]
        names = iter(fresh_names(each.name for each in team))
        joined = [each.name for each in fitting] if here else []
        host = (await self.start()).id if here else None  # Without a host, any host may take them.
        for _ in range(count - len(fitting)):
            old = rested.pop(0) if rested else None
            name, its_roles = (old.name, old.roles) if old else (next(names), roles or ())
            settings = self.plan.joins_as(its_roles, old)
            await self.board.spawn(name, roles=its_roles, host=host, by="board", **settings)
            joined.append(name)
        return joined

    async def run(
        self, goal: str | None = None, *, budget: Budget | None = None, forever: bool = False, others: bool = False
    ) -> Report:  # fmt: skip
        """Run until the goal, or all that was put, has ended, or nothing can go on without a person; or for ever.

        With a goal, teammates work only on what is under it; with `others`, also on the rest of the board.
        """
        roots = await self.roots(goal, budget, others=others)
        await self.work(roots, forever=forever)
        return await self.report(roots)

    async def report(self, roots: Sequence[int], *, interrupted: bool = False) -> Report:
        """What came of these roots, and which teammates failed here."""
        ran = round((self.board.sources.uptime() - self._began) * 1000)
        end = await report(
            self.board, roots, interrupted=interrupted, trouble=self._failed, began_ms=self._began_ms, ran_ms=ran
        )  # fmt: skip
        saved, others = dict(self._models.saved), await self.waiting_elsewhere()
        return replace(end, others=others, saved=saved, model=self.model_name if saved else "")

    async def waiting_elsewhere(self) -> int:
        """How many open tasks this run leaves alone because they are under another root."""
        every = await self.board.count_tasks() if self._scope is not None else {}
        ours = [await self.board.count_tasks(root=root) for root in self._scope or ()]
        return sum(every.get(state, 0) - sum(each.get(state, 0) for each in ours) for state in OPEN - {"claimed"})

    async def work(self, roots: list[int] | None = None, *, stop: Stop | None = None, forever: bool = False) -> None:
        """The loop of every run: teammates work here until the work under these roots is over, or until they are told
        to stop. Without roots: until nobody is left here and nobody can join. A run of the whole board adds to the
        roots what was put on it meanwhile."""
        await (Stop() if stop is None else stop).unless(self._until_over(roots, forever))
        if roots is not None and self._scope is None and self._host is not None:
            roots += sorted(self._host.roots.difference(roots))

    async def _until_over(self, roots: list[int] | None, forever: bool) -> None:
        with suppress(BoardTrouble):
            self._began_ms, self._began = await self.board.now_ms(), self.board.sources.uptime()
        if self._host is not None:
            self._host.roots.clear()  # Of an earlier run.
        host = await self.start()
        while True:
            with suppress(BoardTrouble):  # The teammates wait for the board too, and the host says so.
                if not forever and await (self.is_over() if roots is None else self._is_done(roots)):
                    return
            await host.wait_for_move(_LOOK_SECONDS)

    async def _is_done(self, roots: list[int]) -> bool:
        """Whether nothing under these roots can go on. A run of the whole board also takes what was added meanwhile."""
        if await self.standing(roots) == "working":
            return False
        new = await open_roots(self.board, but=roots) if self._scope is None else []
        roots += new
        return not new

    async def leave(self, why: str) -> None:
        """Stop running teammates here. They give back what they hold, and another host may take them."""
        if self._host is not None:
            await self._host.stop(why)
            self._host = None

    async def is_over(self) -> bool:
        """Whether nobody works here any more, and nobody can join."""
        host = self._host
        if host is None or host.workers:
            return host is None
        now = await self.board.moment(scope=host.scope)
        # A teammate that is wanted, or has a seat here, is about to start.
        comes = any(each.status == "wanted" or each.host == host.id for each in now.team if each.status not in GONE)
        return not (host.workers or comes or host.can_grow(now))

    async def roots(self, goal: str | None, budget: Budget | None, *, others: bool = False) -> list[int]:
        """The roots of a run: the goal, all that was put here, or all that is open on the board."""
        self._scope = self._payer = None
        self._must_be_priced(budget)
        if goal is not None:
            own = (await self.goal(goal, budget=budget)).id
            if others:
                return [own, *await open_roots(self.board, but=[own])]
            self._scope, self._payer = (own,), own  # Its cap covers all that the run spends, errands included.
            return [own]
        roots = [self._account] if self._account is not None else await open_roots(self.board)
        if budget is not None and budget != Budget() and len(roots) != 1:
            raise BadInput(
                f"A budget belongs to one goal, and {len(roots)} are open: give each its own (`dugnad budget ID`)."
            )
        if self._account is not None or (budget is not None and budget != Budget()):
            self._scope, self._payer = tuple(roots), roots[0]
        for root in roots:
            await self._cap(root, budget)
        return roots

    def _must_be_priced(self, budget: Budget | None) -> None:
        if budget is not None and budget.dollars is not None and not self._models.has_price():
            raise BadInput(
                f"A cap in dollars cannot be kept: the price of {self.model_name} is not known. Cap its tokens."
            )

    async def standing(self, roots: Sequence[int]) -> Standing:
        """How the work under all these roots stands: working while one of them is."""
        host, now = self._host, None
        while host is None or not host.works_on(set(roots)):  # After the look it may have settled, and be cleaning up.
            if now is not None:
                return standing(now, roots, deserted=self._is_deserted(now))
            now = await self.board.moment(roots, scope=self._scope)
        return "working"

    def _is_deserted(self, now: Moment) -> bool:
        """Nobody is at work or at rest anywhere, and nobody can join here."""
        if self._host is not None and self._host.workers:
            return False
        # Teammates without a host come to ours, if there is one.
        gone = GONE if self._host is not None else (*GONE, "lost")
        if any(each.status not in gone and not is_outside(each) for each in now.team):
            return False
        return self._host is None or not self._host.can_grow(now)

    @property
    def model_name(self) -> str:
        return self._models.named().name


@asynccontextmanager
async def opened(plan: RunPlan) -> AsyncIterator[Board]:
    """The board of a plan, for a while."""
    board = await open_board(plan.url, limits=plan.board_limits)
    try:
        about(board=(await board.identity())[:8])
        yield board
    finally:
        with suppress(TimeoutError):  # The board is away. It acknowledged nothing that is still open.
            async with asyncio.timeout(plan.limits.cancel_seconds):
                await board.close()


async def open_roots(board: Board, but: Iterable[int] = ()) -> list[int]:
    """Goals and shared budgets under which something is open, but for these."""
    roots: dict[int, None] = {}
    after = 0
    while page := await board.list_tasks(states=sorted(OPEN), after=after, page=1_000):  # type: ignore[arg-type]
        roots.update(dict.fromkeys(task.root for task in page))
        after = page[-1].id
    return [root for root in roots if root not in set(but)]
