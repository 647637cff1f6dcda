"""The slash commands of the chat: one table, and one small function for each row."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import get_args

from rich.console import Group, RenderableType
from rich.text import Text

from ..board.roots import drawing_on
from ..errors import BadInput, StoppedTeammate, UnknownTeammate
from ..team import requests
from ..text import one_line
from ..tools.policy import is_question
from ..types import ENDED, HUMAN, OPEN, Budget, Message, Task, TaskState
from ..view import tables
from ..view.numbers import counted
from . import parse
from .incoming import announcement
from .screen import said, sentence
from .session import Session, SlashCommand
from .status import look

_COMPACT = "Please compact your context."
STATES: dict[str, frozenset[str]] = {
    **{state: frozenset({state}) for state in get_args(TaskState)},
    "open": OPEN,
    "ended": ENDED,
    "all": OPEN | ENDED,
}


async def respond(session: Session, text: str) -> None:
    """Do what a typed line asks for. An error is shown as one sentence, and the chat goes on."""
    meant = parse.read_line(text)
    try:
        if meant.command is not None:
            await _find(meant.command).run(session, meant.rest)
        elif meant.rest:
            await _say(session, session.lead, meant.rest)
    except StoppedTeammate as refused:
        await session.screen.show(sentence(refused).append(" /spawn NAME brings it back with its old settings."))
    except Exception as error:  # Also a bug of ours: it must not stop the team that works in this process.
        await session.screen.show(sentence(error))


def _find(name: str) -> SlashCommand:
    for command in COMMANDS:
        if command.name == name:
            return command
    meant = parse.nearest(name, (command.name for command in COMMANDS))
    hint = f"did you mean /{meant}?" if meant else "/help lists the commands; a line that begins with a space is text."
    raise BadInput(f"There is no /{one_line(name, 40)}; {hint}")


async def _say(session: Session, to: str, text: str) -> None:
    session.spoken_to[to] = (await session.board.tell(HUMAN, to, text)).id


# Looking.


async def tasks(session: Session, rest: str) -> None:
    word = rest.casefold() or "all"
    if word not in STATES:
        raise BadInput(f"{one_line(rest, 40)!r} is not a state; write one of: {', '.join(STATES)}.")
    counts = await session.board.count_tasks()
    wanted, most = STATES[word], session.limits.tasks_shown
    if not rest and sum(counts.values()) > most:  # On a long board only open tasks are shown.
        wanted = OPEN
    states: list[TaskState] = [state for state in get_args(TaskState) if state in wanted]
    found = await session.board.list_tasks(states=states, page=most)
    parts: list[RenderableType] = []
    if found:
        parts.append(tables.tasks_table(found, now_ms=session.board.sources.now_ms()))
    left = sum(counts.get(state, 0) for state in (states if rest else STATES["all"])) - len(found)
    if not found and not left:
        parts.append(said("There are no such tasks." if rest else "The board is empty; /add TITLE puts a task on it."))
    elif left > 0:
        parts.append(said(f"{counted(left, 'task')} more; /tasks STATE lists those in one state, /show ID shows one."))
    await session.screen.show(Group(*parts))


async def team(session: Session, rest: str) -> None:
    members = await session.board.team()
    if not members:
        await session.screen.show(said("The team has no teammates; /spawn NAME adds one."))
        return
    held = await session.board.list_tasks(states=("claimed", "waiting"), page=1_000)
    await session.screen.show(tables.team_table(members, held))


async def inbox(session: Session, rest: str) -> None:
    """Your inbox: recent messages and open requests. A teammate's inbox: its unread messages."""
    if rest and rest != HUMAN:
        name = (await session.board.teammate(parse.first_word(rest)[0])).name
        unread = await session.board.inbox(name)
        await session.screen.show(tables.messages_table(unread) if unread else said(f"{name} has read everything."))
        return
    waiting = await requests.waiting_requests(session.board)
    open_ids = {request.id for request in waiting}
    talk = await session.board.recent_talk(HUMAN, page=session.limits.messages_shown)
    lately = [message for message in talk if message.id not in open_ids][-session.limits.messages_shown :]
    shown = [announcement(message, lead=session.lead, waits=message in waiting) for message in [*lately, *waiting]]
    await session.screen.show(Group(*shown) if shown else said("There are no messages to you or from you."))


async def notes(session: Session, rest: str) -> None:
    found = await session.board.search_notes(rest, page=session.limits.messages_shown)
    if found:
        await session.screen.show(tables.notes_table(found))
    else:
        await session.screen.show(said("No note contains all of these words." if rest else "There are no notes yet."))


async def log(session: Session, rest: str) -> None:
    """The last events, or with #12 those of one task."""
    limits, board = session.limits, session.board
    if rest.startswith("#"):
        task = (await board.find(parse.task_number(rest))).id
        events = deque(await board.events(task=task), maxlen=limits.events_shown_max)
        while page := await board.events(events[-1].seq if events else 0, task=task):
            events.extend(page)
    else:
        count = min(parse.task_number(rest), limits.events_shown_max) if rest else limits.events_shown
        events = deque(await board.events(max(0, await board.last_event() - count)), maxlen=max(1, count))
    await session.screen.show(Group(*map(tables.event_line, events)) if events else said("Nothing has happened yet."))


async def show(session: Session, rest: str) -> None:
    number, _ = parse.task_and_words(rest, "/show ID")
    task = await session.board.find(number)
    page = tables.task_page(
        task,
        await session.board.needs_of(task.id),
        await session.board.attempts(task.id),
        await _children(session, task),
    )
    await session.screen.show(page)


async def _children(session: Session, task: Task) -> list[Task]:
    lineage = await session.board.list_tasks(root=task.root, after=task.id, page=session.board.limits.page_max)
    return [each for each in lineage if each.parent == task.id]


# Work.


async def add(session: Session, rest: str) -> None:
    title, body = parse.title_and_body(rest)
    paid = drawing_on(session.account) if session.account else {}
    task = await session.board.put(title, body=body, **paid)
    await session.screen.show(said(f"#{task.id} is on the board ({task.state})."))


async def retry(session: Session, rest: str) -> None:
    number, _ = parse.task_and_words(rest, "/retry ID")
    opened = await session.board.retry(number)
    await session.screen.show(said(f"Opened again: {_numbers(opened)}."))


async def cancel(session: Session, rest: str) -> None:
    number, why = parse.task_and_words(rest, "/cancel ID [WHY]")
    ended = await session.board.cancel(number, why=why)
    await session.screen.show(said(f"Cancelled: {_numbers(ended)}."))


async def release(session: Session, rest: str) -> None:
    number, why = parse.task_and_words(rest, "/release ID [WHY]")
    await session.board.release(number, why=why)
    await session.screen.show(said(f"#{number} is released; anyone may claim it."))


def _numbers(tasks_: Sequence[int]) -> str:
    return ", ".join(f"#{each}" for each in tasks_) or "none"


async def budget(session: Session, rest: str) -> None:
    """Show the account of a goal, or change its caps. Caps that are not named stay."""
    change, board = parse.caps_words(rest), session.board
    root = change.root
    if root is None:
        standing = await look(board, session.account)
        if standing.spending is None:
            raise BadInput("No goal has work left; name one: /budget ID.")
        root = standing.spending.root
    root = (await board.find(root)).root if root > 0 else root
    spending = await board.budget(root)
    if change.caps and change.add:
        spending = await board.raise_budget(root, parse.new_budget(change, Budget()))
    elif change.caps:
        spending = await board.set_budget(root, parse.new_budget(change, spending.caps))
    page = [tables.budget_text(spending, await board.find(root) if root > 0 else None)]
    if spending.held is not None:
        page.append(said(f"In this chat: /budget {f'{root} ' if root > 0 else ''}{spending.held}=+10."))
    await session.screen.show(Group(*page))


# People.


async def tell(session: Session, rest: str) -> None:
    name, text = parse.name_and_words(rest, "/tell NAME TEXT", words_needed=True)
    await _say(session, name, text)
    await session.screen.show(said(f"Sent to {name}."))


async def spawn(session: Session, rest: str) -> None:
    """Add a teammate. A known one comes back with its old settings, or with new roles if any are named."""
    name, words = parse.name_and_words(rest, "/spawn NAME [ROLE...]")
    roles = tuple(words.replace(",", " ").split())
    try:
        known = await session.board.teammate(name)
    except UnknownTeammate:
        member = await session.board.spawn(name, roles=roles)
    else:
        member = await session.board.spawn(
            name, roles=roles or known.roles, lead=known.lead, prompt=known.prompt, model=known.model, plan=known.plan
        )
    named, status = ", ".join(member.roles) or "any role", tables.is_status(member.status)
    await session.screen.show(said(f"{member.name} ({named}) {status}."))


async def stop(session: Session, rest: str) -> None:
    name, why, now = parse.stop_words(rest, "/stop NAME [WHY]")
    await session.screen.show(said(await requests.stop(session.board, name, why=why, now=now)))


async def stop_now(session: Session, rest: str) -> None:
    name, why, _ = parse.stop_words(rest, "/stop! NAME [WHY]")
    await session.screen.show(said(await requests.stop(session.board, name, why=why, now=True)))


async def compact(session: Session, rest: str) -> None:
    await _say(session, session.lead, _COMPACT)
    await session.screen.show(said(f"{session.lead} is asked to compact its context."))


# Requests for the human.


async def answer(session: Session, rest: str) -> None:
    usage = "/answer [m34] TEXT"
    which, text = parse.request_and_words(rest, await _waiting(session, "question"), usage)
    if not text:
        raise BadInput(f"The answer is missing; write {usage}.")
    await _answered(session, await requests.answer(session.board, which, text))


async def approve(session: Session, rest: str) -> None:
    waiting = await _decidable(session)
    which, why = parse.request_and_words(rest, waiting, "/approve m34", words_needed=False)
    await _answered(session, await requests.decide_plan(session.board, which, accept=True, why=why))


async def reject(session: Session, rest: str) -> None:
    usage = "/reject [m34] WHY"
    which, why = parse.request_and_words(rest, await _decidable(session), usage)
    if not why:
        raise BadInput(f"The reason is missing; write {usage}.")
    await _answered(session, await requests.decide_plan(session.board, which, accept=False, why=why))


async def _waiting(session: Session, *kinds: str) -> list[Message]:
    return [request for request in await requests.waiting_requests(session.board) if request.kind in kinds]


async def _decidable(session: Session) -> list[Message]:
    """Requests that take a yes or a no: plans, shutdowns, and tool calls that a policy asks about."""
    waiting = await requests.waiting_requests(session.board)
    return [each for each in waiting if each.kind in ("plan", "shutdown") or is_question(each.text)]


async def _answered(session: Session, reply: Message) -> None:
    about = f" about #{reply.task}" if reply.task is not None else ""
    verdict = {True: "Approved", False: "Rejected", None: "Answered"}[reply.accepted]
    taken = await requests.taken_as(session.board, reply)  # "yes, but" counts as no, and the person must learn that.
    await session.screen.show(said(f"{taken or f'{verdict}; '}{reply.recipient} is told{about}."))


# The chat itself.


async def leave(session: Session, rest: str) -> None:
    session.leaving = True


async def helped(session: Session, rest: str) -> None:
    shown = [_find(rest.removeprefix("/"))] if rest else list(COMMANDS)
    width = max(len(command.line) for command in shown)
    lines = [Text(f"{command.line:<{width}}  ").append(command.says, style="dim") for command in shown]
    if not rest:
        lines.append(
            said(f"Any other text goes to {session.lead}. Alt-Enter, or a backslash at the end, begins another line.")
        )
    await session.screen.show(Group(*lines))


COMMANDS: tuple[SlashCommand, ...] = (
    SlashCommand("tasks", "[STATE]", "List the tasks and who holds them.", tasks, ("state",)),
    SlashCommand("team", "", "List the teammates and what each is doing.", team),
    SlashCommand("inbox", "[NAME]", "Show recent messages, and what waits for you.", inbox, ("teammate",)),
    SlashCommand("notes", "[WORDS]", "Search the team's notes.", notes),
    SlashCommand(
        "budget",
        "[ID] [tasks=20] [dollars=+1]",
        "Show what a goal has spent; set or raise its caps.",
        budget,
        ("task", "cap"),
    ),
    SlashCommand("log", "[N | #ID]", "Show the last events, or those of one task.", log, ("task",)),
    SlashCommand("show", "ID", "Show everything about one task.", show, ("task",)),
    SlashCommand("add", "TITLE", "Put a task on the board; more lines are its body.", add),
    SlashCommand("retry", "ID", "Open a failed or cancelled task again.", retry, ("ended",)),
    SlashCommand("cancel", "ID [WHY]", "End a task as cancelled.", cancel, ("task",)),
    SlashCommand("release", "ID [WHY]", "Take a task from its holder, for anyone to claim.", release, ("task",)),
    SlashCommand("spawn", "NAME [ROLE...]", "Add a teammate, or bring a stopped one back.", spawn, ("teammate",)),
    SlashCommand("tell", "NAME TEXT", "Send a teammate a message.", tell, ("teammate",)),
    SlashCommand("stop", "NAME [WHY] [--now]", "Ask a teammate to shut down.", stop, ("teammate",)),
    SlashCommand("stop!", "NAME [WHY]", "Shut a teammate down at once.", stop_now, ("teammate",)),
    SlashCommand("answer", "[m34] TEXT", "Answer a question; without m34, the only open one.", answer, ("request",)),
    SlashCommand("approve", "[m34]", "Approve a plan or a tool call.", approve, ("request",)),
    SlashCommand("reject", "[m34] WHY", "Reject a plan or a tool call.", reject, ("request",)),
    SlashCommand("compact", "", "Ask the lead to compact its context.", compact),
    SlashCommand("help", "[COMMAND]", "Show this list.", helped, ("command",)),
    SlashCommand("quit", "", "Leave the chat; Ctrl-D does the same.", leave),
)
