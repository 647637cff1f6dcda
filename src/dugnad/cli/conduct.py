"""Running a team for a person: signals, the live view or plain lines, and the report at the end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import click

from ..config.project import Project
from ..errors import BoardTrouble
from ..logs import logger
from ..team import Report, Team
from ..team.growth import one_chain
from ..team.requests import waiting_requests
from ..text import plain
from ..tools.message_tools import GONE
from ..types import HUMAN, Budget, Event, Task
from ..view.events import QUIET, event_line
from ..view.live import Doing, Snapshot, note_doing, picture
from ..view.summary import others_line, report_page, report_shape
from .command import console, forget_stdout, show, show_json, shown_url
from .preflight import checked_base
from .servers import servers_in
from .workspaces import Settings, Wishes, waits_for, with_deliveries, workplaces

_LOG = logger(__name__)
_DRAW_SECONDS = 0.5  # Between two drawings when nothing happens; with something, at most four a second.
_TASKS_SHOWN = 500
_ANSWER_SECONDS = 2.0  # For the board, before the view says that it does not answer.


async def conduct(
    team: Team, project: Project, wishes: Wishes, *, goal: str | None, budget: Budget, forever: bool, others: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """`dugnad run`."""
    say = _silent if as_json else _say
    async with (
        team,
        workplaces(team, project, wishes, say) as given,
        servers_in(team, project, in_place=wishes.in_place, say=say),
    ):
        began = await team.board.last_event()
        if goal is None and not forever and not await team.roots(None, None):
            words = 'There is nothing to do. Give the team a goal: dugnad run "GOAL", or dugnad add.'
            _end(Report(says=words), as_json)
            return 0
        base = await checked_base(team, project, given, wishes, say=say, quiet=as_json)
        if base.code:
            if not as_json:
                _say_all(given.told)
            _end(Report(says=base.says, preflight=base.shape, stopped=base.code), as_json)
            return base.code
        roots = await team.roots(goal, budget, others=others)
        await gather_team(team, project)
        if not as_json:
            _say_all(given.told)
            _say(f"Team {plain(team.name)}, model {plain(team.model_name)}, board {plain(shown_url(team.url))}")
            if waiting := await team.waiting_elsewhere():
                _say(others_line(waiting))
        settings = Settings(project.file)
        async with stopping(team) as stopped, showing(team, roots, after=began, quiet=as_json, settings=settings):
            working = asyncio.create_task(team.run_roots(roots, forever=forever))
            asked = asyncio.create_task(stopped.wait())
            await asyncio.wait({working, asked}, return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            if stopped.is_set():
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
            else:
                await working
            await team.leave("the run was stopped" if stopped.is_set() else "the run ended")
        if not stopped.is_set():
            end = await with_deliveries(team, await team.report(roots))
            _end(replace(end, preflight=base.shape), as_json)
            return end.exit_code
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                end = await with_deliveries(team, await team.report(roots, interrupted=True))
                end = replace(end, preflight=base.shape)
        except (BoardTrouble, TimeoutError):
            words = "The board does not answer; what was held is given back later, and `dugnad run` goes on."
            end = Report(interrupted=True, says=f"Interrupted. {words}")
        _end(end, as_json)
        return 130


async def attend(team: Team, project: Project, wishes: Wishes, *, roles: Sequence[str], as_json: bool) -> int:
    """`dugnad work`."""
    say = _silent if as_json else _say
    async with (
        team,
        workplaces(team, project, wishes, say) as given,
        servers_in(team, project, in_place=wishes.in_place, say=say),
    ):
        if not as_json:
            _say_all(given.told)
        began = await team.board.last_event()
        base = await checked_base(team, project, given, wishes, say=say, quiet=as_json)
        if base.code:
            shape = {"teammates": [], "interrupted": base.code == 130, "preflight": base.shape, "says": base.says}
            _say(shape if as_json else base.says, as_json=as_json)
            return base.code
        team.only_roles = tuple(roles) or None
        joined = await team.assemble(team.agents, roles=tuple(roles), here=True)
        settings = Settings(project.file)
        async with stopping(team) as stopped, showing(team, None, after=began, quiet=as_json, settings=settings):
            host = await team.start()
            while not stopped.is_set() and (team.is_forever or not await _is_over(team)):
                joined += [name for name in host.lives if name not in joined]
                await host.wait_for_move(1.0)
            await team.leave("the host was stopped" if stopped.is_set() else "there was nothing left to do")
        end = "interrupted." if stopped.is_set() else "nothing is left to do."
        says = f"{', '.join(joined) or 'Nobody'} worked here; {end}"
        shape = {"teammates": joined, "interrupted": stopped.is_set(), "preflight": base.shape, "says": says}
        _say(shape if as_json else says, as_json=as_json)
        return 130 if stopped.is_set() else 0


async def _is_over(team: Team) -> bool:
    try:
        return await team.is_over()
    except BoardTrouble:
        return False  # Those who work wait for it too; the view says so.


async def converse(
    team: Team, project: Project, wishes: Wishes, *, account: Budget | None = None, others: bool = False
) -> int:
    """`dugnad chat`. `account`: the caps of all that is put in it."""
    from ..chat.chat import chat

    async with (
        team,
        workplaces(team, project, wishes, _say) as given,
        servers_in(team, project, in_place=wishes.in_place, say=_say),
    ):
        _say_all(given.told)
        root = None if account is None else await team.cap_all(account, others=others)
        if waiting := await team.waiting_elsewhere():
            _say(others_line(waiting))
        lead = await gather_team(team, project, with_lead=True)
        await team.start()
        talking = asyncio.ensure_future(chat(team.board, lead=lead, team_name=team.name, account=root))
        loop = asyncio.get_running_loop()
        ends = [each for each in _ends() if each != signal.SIGINT]  # Ctrl-C is the prompt's.
        for number in ends:
            loop.add_signal_handler(number, talking.cancel)
        await asyncio.wait({talking})
        for number in ends:
            loop.remove_signal_handler(number)
        await team.leave("the chat was closed")
        if talking.cancelled():
            return 130
        talking.result()
    return 0


async def gather_team(team: Team, project: Project, *, with_lead: bool = False) -> str:
    """Whom the project names, then others up to the number to start with. Returns whom to talk to: the lead, if any."""
    there = {member.name: member for member in await team.board.team()}
    for member in project.members:
        if member.name not in there or there[member.name].status in GONE:
            await team.board.spawn(
                member.name, roles=member.roles, lead=member.lead, prompt=member.prompt, model=member.model or "",
                plan=member.plan,
            )  # fmt: skip
    leads = [each.name for each in await team.board.team() if each.lead and each.status not in GONE]
    if with_lead and project.lead and not leads:
        leads = [(await team.board.spawn("lead", lead=True)).name]
    await team.assemble(min(team.agents, team.limits.agents_start))
    others = [each.name for each in await team.board.team() if each.status not in GONE]
    return (leads or others)[0]


# Signals.


def _ends() -> list[signal.Signals]:
    """A supervisor, Ctrl-C, a window that was closed. A shell has its background jobs ignore Ctrl-C, and nohup a closed
    window; what is ignored stays ignored."""
    others = (signal.SIGINT, signal.SIGHUP)
    return [signal.SIGTERM, *(each for each in others if signal.getsignal(each) is not signal.SIG_IGN)]


@asynccontextmanager
async def stopping(team: Team) -> AsyncIterator[asyncio.Event]:
    """The first Ctrl-C or SIGTERM asks for an orderly end, the next ends the process at once."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        _LOG.warning("signal again=%s", stopped.is_set())
        if stopped.is_set():
            if sys.stdout.isatty():  # The live view had hidden the cursor.
                os.write(sys.stdout.fileno(), b"\x1b[?25h\r\nEnded at once. `dugnad run` goes on.\r\n")
            os._exit(130)  # Whatever it held is given back when its lease runs out, or found dead before.
        stopped.set()
        if not sys.stdout.isatty():
            click.echo("Stopping: turns under way are being recorded. Ctrl-C again ends at once.", err=True)

    ends = _ends()
    for number in ends:
        loop.add_signal_handler(number, stop)
    try:
        yield stopped
    finally:
        for number in ends:
            loop.remove_signal_handler(number)


# What is seen meanwhile.


@asynccontextmanager
async def showing(
    team: Team,
    roots: Sequence[int] | None,
    *,
    after: int,
    quiet: bool,
    says: Callable[[], str] = lambda: "",
    settings: Settings | None = None,
) -> AsyncIterator[None]:
    """A live view on a terminal, lines in a pipe, nothing for a program."""
    if quiet:
        yield
        return
    changed = settings.changed if settings is not None else says
    view = _LiveView(team, roots, after, changed) if sys.stdout.isatty() else _PlainView(team, after, settings)
    with view:
        watching = asyncio.create_task(_keep_showing(team, view))
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await view.refresh()  # What came in the last moment.
        except TimeoutError:
            pass


async def _keep_showing(team: Team, view: _LiveView | _PlainView) -> None:
    with team.board.watch(["log"]) as watch:
        while True:
            await view.refresh()
            await watch.wait(_DRAW_SECONDS)
            await asyncio.sleep(view.pause_seconds)


class _PlainView:
    """One line an event, for a pipe or a file."""

    pause_seconds = 0.0

    def __init__(self, team: Team, after: int, settings: Settings | None) -> None:
        self._team, self._after, self._said, self._waited, self._settings = team, after, "", "", settings

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
        if self._settings is not None and (told := self._settings.changed()):
            self._settings = None
            _say(told)
        if trouble != self._said:
            _say(f"The board is in trouble: {trouble}" if trouble else "The board answers again.")
            self._said = trouble
        if (waits := waits_for(self._team)) != self._waited:
            if waits:
                _say(plain(waits))
            self._waited = waits


def _how_to_answer(event: Event) -> str:
    """Under a question to the person, the command that answers it."""
    if event.kind != "told" or event.data.get("to") != HUMAN:
        return ""
    message = f"m{event.data.get('message')}"
    if event.data.get("message_kind") == "question":
        return f'{"":16}dugnad answer {message} "..."'
    return f"{'':16}dugnad approve {message}" if event.data.get("message_kind") == "plan" else ""


class _LiveView:
    """Drawn in place on a terminal, and gone when the report comes."""

    pause_seconds = 0.2  # Not more often than can be read.

    def __init__(self, team: Team, roots: Sequence[int] | None, after: int, says: Callable[[], str]) -> None:
        from rich.live import Live

        self._team, self._roots, self._after, self._says = team, roots, after, says
        self._events: deque[Event] = deque(maxlen=20)
        self._doing: dict[str, Doing] = {}  # As far as the log tells it, also of teammates elsewhere.
        self._last = Snapshot(now_ms=0, title=team.name, tasks=(), team=(), accounts=())
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
                last = await snapshot(self._team, self._roots, list(self._events), self._says())
                self._last = replace(last, doing={**self._doing, **last.doing})
        except (BoardTrouble, TimeoutError) as trouble:  # The view stays, and says why it stands still.
            words = f"The board does not answer: {trouble or 'waiting for it'}"
            self._last = replace(self._last, now_ms=board.sources.now_ms(), says=words)
        size = self._screen.size
        self._live.update(picture(self._last, width=size.width, height=size.height), refresh=True)


async def snapshot(team: Team, roots: Sequence[int] | None, events: Sequence[Event], says: str) -> Snapshot:
    board, host = team.board, team.host
    tasks: list[Task] = []
    for root in roots if roots is not None else [None]:
        tasks += [each for each in await board.list_tasks(root=root, page=_TASKS_SHOWN) if each.kind != "budget"]
    doing = {
        name: Doing(what=life.agent.doing, since=life.agent.doing_since, turn=life.agent.turn)
        for name, life in (host.lives if host else {}).items()
        if life.agent.doing
    }
    if host is not None and host.trouble:
        says = f"The board is in trouble: {host.trouble}"
    elif host is not None and host.is_stopping:
        says = "Stopping: turns under way are being recorded. Ctrl-C again ends at once."
    elif waits := waits_for(team):
        says = waits
    elif (chain := one_chain(tasks)) and team.agents > 1:
        says = f"These {chain} tasks are one chain: a team is no faster here than one teammate (--agents 1)."
    titles = [task.title for task in tasks if roots and task.id == roots[0]]
    return Snapshot(
        now_ms=board.sources.now_ms(), title=titles[0] if titles else team.name, tasks=tasks, team=await board.team(),
        accounts=[await board.budget(root) for root in roots or ()], doing=doing, events=events,
        requests=await waiting_requests(board), says=says,
    )  # fmt: skip


def _end(end: Report, as_json: bool) -> None:
    if as_json:
        _say(report_shape(end), as_json=True)
    else:
        _say(report_page(end))


def _say_all(sentences: Sequence[str]) -> None:
    for each in sentences:
        _say(each)


def _silent(what: str) -> None:
    """For a program nothing is said but the end."""


def _say(what: Any, *, as_json: bool = False) -> None:
    """Print it. If the reader left, or the disk is full, the work goes on, and the exit code tells how it ended."""
    try:
        if as_json:
            show_json(what)
        else:
            show(what)
    except OSError:
        forget_stdout()
