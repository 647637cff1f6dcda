"""Running a team for a person: signals, the live view or plain lines, and the report at the end."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

from rich.console import RenderableType
from rich.text import Text

from ..board import Board
from ..config.project import Project
from ..config.user import UserSettings
from ..errors import BoardTrouble
from ..rehearsal.growing import enough_now
from ..team import Report, RunPlan, Team
from ..team.growth import one_chain
from ..team.minds import Models
from ..team.report import others_line
from ..team.requests import waiting_requests
from ..team.team import open_roots, opened
from ..telemetry.exporting import exporting
from ..text import plain
from ..tools.message_tools import GONE
from ..types import HUMAN, Budget, Event, Task, TaskState
from ..view.events import QUIET, event_line
from ..view.json import Shape
from ..view.live import Doing, Snapshot, note_doing, picture
from ..view.summary import report_page, report_shape
from ..view.tables import how_to_answer, paused_line
from .command import Picture, answer, console, reader_may_leave, show, shown_url
from .notifying import notifying
from .preflight import checked_base
from .servers import servers_in
from .signals import stopping
from .workspaces import Given, Settings, Wishes, with_deliveries, workplaces

_DRAW_SECONDS = 0.5  # Between two drawings when nothing happens; with something, at most four a second.
_TASKS_SHOWN = 100  # Of those at work, of the others that are open, and of those that ended.
_ANSWER_SECONDS = 2.0  # For the board, before the view says that it does not answer.
_NO_ANSWER = "The board does not answer. Tasks that were held are given back later; `dugnad run` goes on."
Says = Callable[[], str]


@dataclass(frozen=True, kw_only=True)
class Run:
    """One command that runs a team: its plan, and the settings that were read for it."""

    plan: RunPlan
    models: Models
    user: UserSettings
    project: Project
    wishes: Wishes
    as_json: bool = False

    def say(self, *sentences: str) -> None:
        """A program is told nothing but the end."""
        for each in () if self.as_json else sentences:
            _say(each)

    def end(self, shape: Shape, picture: Picture | str) -> None:
        with reader_may_leave():
            answer(self.as_json, shape, picture)

    def report(self, end: Report) -> int:
        self.end(report_shape(end), lambda: report_page(end))
        return end.exit_code

    def notifying(self, board: Board) -> AbstractAsyncContextManager[None]:
        """Tell the person about what waits for them, in the way that they have chosen."""
        return notifying(board, self.user.notify, where=shown_url(self.plan.url), outside=self.project.root)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[Board, Given, RunPlan]]:
        """The board, where the team works, and the whole plan of the team."""
        async with (
            opened(self.plan) as board,
            exporting(board) as told,
            workplaces(board, self.project, self.user, self.wishes, self.say) as given,
            servers_in(self.project, self.user, in_place=self.wishes.in_place, say=self.say) as tools_for,
        ):
            self.say(*filter(None, [told]))
            try:
                yield board, given, replace(
                    self.plan, workspaces=given.places, sandbox=given.sandbox, reviewer=given.reviewer,
                    tools_for=tools_for, enough=partial(enough_now, reviewer=given.reviewer),
                )  # fmt: skip
            finally:
                await self.models.close()


async def conduct(run: Run, *, goal: str | None, budget: Budget, forever: bool, others: bool) -> int:
    """`dugnad run`."""
    async with run.opened() as (board, given, plan):
        began = await board.last_event()
        if goal is None and not forever and not await open_roots(board):
            words = 'There is nothing to do. Give the team a goal: dugnad run "GOAL", or dugnad add.'
            return run.report(Report(says=words))
        base = await checked_base(run.project, given, run.wishes, say=run.say, quiet=run.as_json)
        if base.code:
            run.say(*given.told)
            return run.report(Report(says=base.says, preflight=base.shape, stopped=base.code))
        async with Team(replace(plan, red_base=base.red), board=board, models=run.models) as team:
            roots = await team.roots(goal, budget, others=others)
            await gather_team(team, run.project)
            run.say(*given.told)
            run.say(f"Team {plain(plan.name)}, model {plain(team.model_name)}, board {plain(shown_url(plan.url))}")
            if waiting := await team.waiting_elsewhere():
                run.say(others_line(waiting))
            view = _view(run, team, given, roots, after=began)
            async with stopping("the run was stopped") as stop, run.notifying(board), view:
                await team.work(roots, stop=stop, forever=forever)
                await team.leave(stop.why or "the run ended")
            try:
                async with asyncio.timeout(_ANSWER_SECONDS if stop else None):
                    end = await with_deliveries(given, await team.report(roots, interrupted=bool(stop)))
                    end = replace(end, preflight=base.shape)
            except (BoardTrouble, TimeoutError):
                if not stop:
                    raise
                end = Report(interrupted=True, says=f"Interrupted. {_NO_ANSWER}")
        return run.report(end)


async def attend(run: Run, *, forever: bool) -> int:
    """`dugnad work`."""
    async with run.opened() as (board, given, plan):
        run.say(*given.told)
        began = await board.last_event()
        base = await checked_base(run.project, given, run.wishes, say=run.say, quiet=run.as_json)
        shape = {"teammates": [], "interrupted": base.code == 130, "preflight": base.shape, "says": base.says}
        if base.code:
            run.end(shape, base.says)
            return base.code
        async with Team(replace(plan, red_base=base.red), board=board, models=run.models) as team:
            joined = await team.assemble(plan.agents, roles=plan.only_roles or (), here=True)
            view = _view(run, team, given, None, after=began)
            async with stopping("the host was stopped") as stop, run.notifying(board), view:
                host = await team.start()
                await team.work(stop=stop, forever=forever)
                await team.leave(stop.why or "there was nothing left to do")
        joined += [name for name in host.worked if name not in joined]
        says = f"{', '.join(joined) or 'Nobody'} worked here; {'interrupted' if stop else 'nothing is left to do'}."
        run.end({**shape, "teammates": joined, "interrupted": bool(stop), "says": says}, says)
        return 130 if stop else 0


async def converse(run: Run, *, account: Budget | None = None, others: bool = False) -> int:
    """`dugnad chat`. `account`: the caps of everything that is added in the chat."""
    from ..chat.chat import chat
    from ..chat.spoken import Spoken

    spoken = Spoken()
    async with (
        run.opened() as (board, given, plan),
        Team(replace(plan, hears=spoken.hear), board=board, models=run.models) as team,
    ):
        run.say(*given.told)
        root = None if account is None else await team.cap_all(account, others=others)
        if waiting := await team.waiting_elsewhere():
            _say(others_line(waiting))
        lead = await gather_team(team, run.project, with_lead=True)
        await team.start()
        why, before = "the chat was closed", await given.target_head()
        async with stopping(why, at_once=False, but=signal.SIGINT) as stop:  # Ctrl-C is the prompt's.
            talking = asyncio.ensure_future(chat(board, lead=lead, team_name=plan.name, account=root, spoken=spoken))
            talking.add_done_callback(lambda _: stop.say(why))
            await team.work(stop=stop, forever=True)
            talking.cancel()
            await asyncio.wait({talking})
        await team.leave(why)
        if await given.target_head() != before and (end := str(await with_deliveries(given, Report()))):
            _say(Text(end))
        if talking.cancelled():
            return 130
        talking.result()
    return 0


async def gather_team(team: Team, project: Project, *, with_lead: bool = False) -> str:
    """Spawn the members that the project names, then others, up to the number to start with. With a lead to talk to,
    others join only when there is work. Returns the name to talk to: the lead's, if there is one."""
    there = {member.name: member for member in await team.board.team()}
    for member in project.members:
        if member.name not in there or there[member.name].status in GONE:
            await team.board.spawn(
                member.name, roles=member.roles, lead=member.lead, prompt=member.prompt, model=member.model or "",
                plan=member.plan, keep_context=member.keep_context,
            )  # fmt: skip
    leads = [each.name for each in await team.board.team() if each.lead and each.status not in GONE]
    if with_lead and project.lead and not leads:
        leads = [(await team.board.spawn("lead", lead=True)).name]
    if not (with_lead and leads):
        await team.assemble(min(team.plan.agents, team.plan.limits.agents_start))
    others = [each.name for each in await team.board.team() if each.status not in GONE]
    return (leads or others)[0]


# What a person sees meanwhile.


def _view(
    run: Run, team: Team, given: Given, roots: Sequence[int] | None, *, after: int
) -> AbstractAsyncContextManager[None]:
    says = Settings(run.project.file).changed
    return showing(team, roots, after=after, quiet=run.as_json, says=says, waits=given.waits)


@asynccontextmanager
async def showing(
    team: Team, roots: Sequence[int] | None, *, after: int, quiet: bool, says: Says, waits: Says = lambda: ""
) -> AsyncIterator[None]:
    """A live view on a terminal, lines in a pipe, nothing for a program. `waits`: what a merge waits for."""
    if quiet:
        yield
        return
    terminal = sys.stdout.isatty()
    view = _LiveView(team, roots, after, says, waits) if terminal else _PlainView(team, after, says, waits)
    with view:
        watching = asyncio.create_task(_keep_showing(team, view))
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_SECONDS):
                await view.refresh()  # What came in the last moment.


async def _keep_showing(team: Team, view: _LiveView | _PlainView) -> None:
    with team.board.watch(["log"]) as watch:
        while True:
            await view.refresh()
            await watch.wait(_DRAW_SECONDS)
            await asyncio.sleep(view.pause_seconds)


class _PlainView:
    """One line an event, for a pipe or a file."""

    pause_seconds = 0.0

    def __init__(self, team: Team, after: int, *says: Says) -> None:
        self._team, self._after, self._says = team, after, says
        self._said, self._trouble = [""] * len(says), ""

    def __enter__(self) -> None: ...

    def __exit__(self, *trouble: object) -> None: ...

    async def refresh(self) -> None:
        trouble = self._team.host.trouble if self._team.host is not None else ""
        try:
            while page := await self._team.board.events(self._after):
                self._after = page[-1].seq
                for event in page:
                    if event.kind not in QUIET:
                        _say(event_line(event))
                    if hint := _how_to_answer(event):
                        _say(hint)
        except BoardTrouble as own:
            trouble = trouble or str(own)
        if trouble != self._trouble:
            _say(f"The board is in trouble: {trouble}" if trouble else "The board answers again.")
        said, self._said, self._trouble = self._said, [says() for says in self._says], trouble
        for before, now in zip(said, self._said, strict=True):
            if now and now != before:
                _say(plain(now))


def _how_to_answer(event: Event) -> str:
    """The command that answers a question to the person; it is printed below the question."""
    if event.kind != "told" or event.data.get("to") != HUMAN:
        return ""
    kind = str(event.data.get("message_kind"))
    how = how_to_answer(kind, f"m{event.data.get('message')}")
    return f"{'':16}{how}" if kind in ("question", "plan") else ""


class _LiveView:
    """Drawn in place on a terminal, and gone when the report comes."""

    pause_seconds = 0.2  # Not more often than can be read.

    def __init__(self, team: Team, roots: Sequence[int] | None, after: int, says: Says, waits: Says) -> None:
        from rich.live import Live

        self._team, self._roots, self._after, self._says, self._waits = team, roots, after, says, waits
        self._events: deque[Event] = deque(maxlen=20)
        self._doing: dict[str, Doing] = {}  # What the log tells, also about teammates of other hosts.
        self._last = Snapshot(now_ms=0, title=team.plan.name, tasks=(), counts={}, team=(), accounts=())
        self._screen = console()
        self._live = Live(console=self._screen, auto_refresh=False, vertical_overflow="crop", transient=True)

    def __enter__(self) -> None:
        self._live.start()

    def __exit__(self, *trouble: object) -> None:
        self._live.stop()

    async def refresh(self) -> None:
        board = self._team.board
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                while page := await board.events(self._after):
                    self._events += [event for event in page if event.kind not in QUIET]
                    self._after = page[-1].seq
                    for event in page:
                        note_doing(self._doing, event)
                last = await snapshot(self._team, self._roots, list(self._events), self._waits(), self._says())
                self._last = replace(last, doing={**self._doing, **last.doing})
        except (BoardTrouble, TimeoutError) as trouble:  # The view stays, and says why nothing changes.
            words = f"The board does not answer: {trouble or 'waiting for it'}"
            self._last = replace(self._last, now_ms=board.sources.now_ms(), says=words)
        size = self._screen.size
        self._live.update(picture(self._last, width=size.width, height=size.height), refresh=True)


async def snapshot(
    team: Team, roots: Sequence[int] | None, events: Sequence[Event], waits: str, says: str
) -> Snapshot:  # fmt: skip
    board, host = team.board, team.host
    tasks: list[Task] = []
    counts = Counter[str]()
    shown: tuple[tuple[TaskState, ...], ...] = (("claimed", "waiting"), ("ready", "scheduled", "blocked"))
    for root in team.scope or (None,):
        for states in shown:
            tasks += await board.list_tasks(states=states, root=root, page=_TASKS_SHOWN)
        tasks += [each for each in await board.ended_last(root=root, page=_TASKS_SHOWN) if each.kind != "budget"]
        counts.update(await board.count_tasks(root=root))
    doing = {
        name: Doing(what=life.agent.doing, since=life.agent.doing_since, turn=life.agent.turn)
        for name, life in (host.workers if host else {}).items()
        if life.agent.doing
    }
    if host is not None and host.trouble:
        says = f"The board is in trouble: {host.trouble}"
    elif host is not None and host.is_stopping:
        says = "Stopping: turns under way are being recorded. Ctrl-C again ends at once."
    elif waits:
        says = waits
    elif paused := paused_line(await board.cooldowns(), board.sources.now_ms()):
        says = f"{paused} Ctrl-C stops the run."
    elif (chain := one_chain(tasks)) and team.plan.agents > 1:
        says = f"These {chain} tasks are one chain: a team is no faster here than one teammate (--agents 1)."
    titles = [(await board.find(root)).title for root in (roots or ())[:1] if root > 0]
    return Snapshot(
        now_ms=board.sources.now_ms(), title=(*titles, team.plan.name)[0], tasks=tasks, counts=counts, doing=doing,
        team=await board.team(), accounts=[await board.budget(root) for root in (roots or ())[:3]], events=events,
        requests=await waiting_requests(board), says=says,
    )  # fmt: skip


def _say(what: RenderableType) -> None:
    with reader_may_leave():
        show(what)
