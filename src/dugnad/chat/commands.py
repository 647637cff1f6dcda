"""The slash commands of the chat: one table, and one small function for each row."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import partial
from typing import get_args

from rich.console import Group, RenderableType
from rich.text import Text

from ..board.roots import drawing_on
from ..errors import BadInput, StoppedTeammate, UnknownTeammate
from ..team import requests
from ..text import counted, one_line
from ..tools.policy import is_question
from ..types import ENDED, HUMAN, OPEN, Budget, Message, TaskState
from ..view import tables
from ..view.events import event_line
from . import parse
from .incoming import announcement
from .screen import said, sentence
from .session import Session, Shown, SlashCommand
from .status import look

STATES: dict[str, frozenset[str]] = {
    **{state: frozenset({state}) for state in get_args(TaskState)},
    "open": OPEN,
    "ended": ENDED,
    "all": OPEN | ENDED,
}


async def respond(session: Session, text: str) -> None:
    """Do what a typed line asks for. An error is shown as one sentence, and the chat goes on."""
    async with session.turns:
        await _respond(session, text)


async def _respond(session: Session, text: str) -> None:
    name, rest = parse.read_line(text)
    try:
        if name is None:
            found = await _say(session, session.lead, rest)
        else:
            found = await _run(session, _find(name), rest)
    except StoppedTeammate as refused:
        found = sentence(refused).append(" /spawn NAME brings it back with its old settings.")
    except Exception as error:  # Also a bug of ours: it must not stop the team that works in this process.
        found = sentence(error)
    if found is not None:
        await session.screen.show(said(found) if isinstance(found, str) else found)


async def _run(session: Session, command: SlashCommand, rest: str) -> Shown:
    try:
        return await command.run(session, rest)
    except parse.Incomplete as lacks:
        raise BadInput(f"{lacks}; write {command.line}.") from None


def _find(name: str) -> SlashCommand:
    for command in COMMANDS:
        if command.name == name:
            return command
    meant = parse.nearest(name, (command.name for command in COMMANDS))
    hint = f"did you mean /{meant}?" if meant else "/help lists the commands; a line that begins with a space is text."
    raise BadInput(f"There is no /{one_line(name, 40)}; {hint}")


async def _say(session: Session, to: str, text: str) -> Shown:
    if text:
        session.spoken_to[to] = (await session.board.tell(HUMAN, to, text)).id
    return None


# Looking. What a command returns is shown.


async def tasks(session: Session, rest: str) -> Shown:
    word = rest.casefold() or "all"
    if word not in STATES:
        raise BadInput(f"{one_line(rest, 40)!r} is not a state; write one of: {', '.join(STATES)}.")
    counts = await session.board.count_tasks()
    wanted, most = STATES[word], session.limits.tasks_shown
    if not rest and sum(counts.values()) > most:  # On a long board only open tasks are shown.
        wanted = OPEN
    states: list[TaskState] = [state for state in get_args(TaskState) if state in wanted]
    found = await session.board.list_tasks(states=states, page=most)
    left = sum(counts.get(state, 0) for state in (states if rest else STATES["all"])) - len(found)
    if not found and not left:
        return "There are no such tasks." if rest else "The board is empty; /add TITLE puts a task on it."
    parts: list[RenderableType] = [tables.tasks_table(found, now_ms=session.board.sources.now_ms())] if found else []
    if left > 0:
        parts.append(said(f"{counted(left, 'task')} more; /tasks STATE lists those in one state, /show ID shows one."))
    return Group(*parts)


async def team(session: Session, rest: str) -> Shown:
    members = await session.board.team()
    held = await session.board.list_tasks(states=("claimed", "waiting"), page=1_000)
    return tables.team_table(members, held) if members else "The team has no teammates; /spawn NAME adds one."


async def inbox(session: Session, rest: str) -> Shown:
    """Your inbox: recent messages and open requests. A teammate's inbox: its unread messages."""
    if rest and rest != HUMAN:
        name = (await session.board.teammate(parse.first_word(rest)[0])).name
        unread = await session.board.inbox(name)
        return tables.messages_table(unread) if unread else f"{name} has read everything."
    waiting = await requests.waiting_requests(session.board)
    open_ids = {request.id for request in waiting}
    talk = await session.board.recent_talk(HUMAN, page=session.limits.messages_shown)
    lately = [message for message in talk if message.id not in open_ids][-session.limits.messages_shown :]
    shown = [announcement(message, lead=session.lead, waits=message in waiting) for message in [*lately, *waiting]]
    return Group(*shown) if shown else "There are no messages to you or from you."


async def notes(session: Session, rest: str) -> Shown:
    if found := await session.board.search_notes(rest, page=session.limits.messages_shown):
        return tables.notes_table(found)
    return "No note contains all of these words." if rest else "There are no notes yet."


async def log(session: Session, rest: str) -> Shown:
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
    return Group(*map(event_line, events)) if events else "Nothing has happened yet."


async def show(session: Session, rest: str) -> Shown:
    number, _ = parse.task_and_words(rest)
    board = session.board
    task = await board.find(number)
    children = await board.children(task.id, page=board.limits.page_max)
    return tables.task_page(task, await board.needs_of(task.id), await board.attempts(task.id), children)


# Work.


async def add(session: Session, rest: str) -> Shown:
    title, body = parse.title_and_body(rest)
    paid = drawing_on(session.account) if session.account else {}
    task = await session.board.put(title, body=body, **paid)
    return f"#{task.id} is on the board ({task.state})."


async def retry(session: Session, rest: str) -> Shown:
    opened = await session.board.retry(parse.task_and_words(rest)[0])
    return f"Opened again: {', '.join(f'#{each}' for each in opened) or 'none'}."


async def cancel(session: Session, rest: str) -> Shown:
    number, why = parse.task_and_words(rest)
    ended = await session.board.cancel(number, why=why)
    return f"Cancelled: {', '.join(f'#{each}' for each in ended) or 'none'}."


async def release(session: Session, rest: str) -> Shown:
    number, why = parse.task_and_words(rest)
    await session.board.release(number, why=why)
    return f"#{number} is released; anyone may claim it."


async def budget(session: Session, rest: str) -> Shown:
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
        spending = await board.raise_budget(root, Budget(**change.caps))
    elif change.caps:
        spending = await board.set_budget(root, replace(spending.caps, **change.caps))
    page = [tables.budget_text(spending, await board.find(root) if root > 0 else None)]
    if spending.held is not None:
        page.append(said(f"In this chat: /budget {f'{root} ' if root > 0 else ''}{spending.held}=+10."))
    return Group(*page)


# People.


async def tell(session: Session, rest: str) -> Shown:
    name, text = parse.name_and_words(rest)
    if not text:
        raise parse.Incomplete("The text is missing")
    await _say(session, name, text)
    return f"Sent to {name}."


async def spawn(session: Session, rest: str) -> Shown:
    """Add a teammate. A known one comes back with its old settings, or with new roles if any are named."""
    name, words = parse.name_and_words(rest)
    roles = tuple(words.replace(",", " ").split())
    try:
        known = await session.board.teammate(name)
    except UnknownTeammate:
        member = await session.board.spawn(name, roles=roles)
    else:
        member = await session.board.spawn(
            name, roles=roles or known.roles, lead=known.lead, prompt=known.prompt, model=known.model, plan=known.plan,
            keep_context=known.keep_context,
        )  # fmt: skip
    named, status = ", ".join(member.roles) or "any role", tables.is_status(member.status)
    return f"{member.name} ({named}) {status}."


async def stop(session: Session, rest: str, *, now: bool = False) -> Shown:
    name, why, at_once = parse.stop_words(rest)
    return await requests.stop(session.board, name, why=why, now=now or at_once)


async def compact(session: Session, rest: str) -> Shown:
    await _say(session, session.lead, "Please make room in your context: call compact.")
    return f"{session.lead} is asked to compact its context."


# Requests for the human.


async def answer(session: Session, rest: str) -> Shown:
    waiting = [each for each in await requests.waiting_requests(session.board) if each.kind == "question"]
    which, text = parse.request_and_words(rest, waiting)
    if not text:
        raise parse.Incomplete("The answer is missing")
    return await _answered(session, await requests.answer(session.board, which, text))


async def decide(session: Session, rest: str, *, accept: bool) -> Shown:
    """Approve or reject what takes a yes or a no: plans, shutdowns, and tool calls that a policy asks about."""
    waiting = await requests.waiting_requests(session.board)
    waiting = [each for each in waiting if each.kind in ("plan", "shutdown") or is_question(each.text)]
    which, why = parse.request_and_words(rest, waiting, words_needed=not accept)
    if not why and not accept:
        raise parse.Incomplete("The reason is missing")
    return await _answered(session, await requests.decide_plan(session.board, which, accept=accept, why=why))


async def _answered(session: Session, reply: Message) -> Shown:
    about = f" about #{reply.task}" if reply.task is not None else ""
    verdict = {True: "Approved", False: "Rejected", None: "Answered"}[reply.accepted]
    taken = await requests.taken_as(session.board, reply)  # "yes, but" counts as no, and the person must learn that.
    return f"{taken or f'{verdict}; '}{reply.recipient} is told{about}."


# The chat itself.


async def leave(session: Session, rest: str) -> Shown:
    session.leaving = True
    return None


async def helped(session: Session, rest: str) -> Shown:
    shown = [_find(rest.removeprefix("/"))] if rest else list(COMMANDS)
    width = max(len(command.line) for command in shown)
    lines = [Text(f"{command.line:<{width}}  ").append(command.says, style="dim") for command in shown]
    if not rest:
        lines.append(
            said(f"Any other text goes to {session.lead}. Alt-Enter, or a backslash at the end, begins another line.")
        )
    return Group(*lines)


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
    SlashCommand("stop!", "NAME [WHY]", "Shut a teammate down at once.", partial(stop, now=True), ("teammate",)),
    SlashCommand("answer", "[m34] TEXT", "Answer a question; without m34, the only open one.", answer, ("request",)),
    SlashCommand("approve", "[m34]", "Approve a plan or a tool call.", partial(decide, accept=True), ("request",)),
    SlashCommand("reject", "[m34] WHY", "Reject a plan or a tool call.", partial(decide, accept=False), ("request",)),
    SlashCommand("compact", "", "Ask the lead to compact its context.", compact),
    SlashCommand("help", "[COMMAND]", "Show this list.", helped, ("command",)),
    SlashCommand("quit", "", "Leave the chat; Ctrl-D does the same.", leave),
)
