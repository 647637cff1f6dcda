"""The status bar: the state of the team, in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from ..board import Board
from ..board.roots import root_name
from ..errors import UnknownTask
from ..team import requests
from ..text import counted, one_line
from ..types import MESSAGES, Message, Spending, Task, TaskState, Teammate
from ..view.tables import paused_line, used

_PAGE = 100  # Tasks of each kind that are read; more would not fit into a line or a menu.


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardStatus:
    """What the status bar and the completion need to know about the board."""

    counts: Mapping[str, int] = field(default_factory=dict)
    team: tuple[Teammate, ...] = ()
    held: tuple[Task, ...] = ()  # Claimed or waiting.
    open: tuple[Task, ...] = ()  # Not begun.
    ended: tuple[Task, ...] = ()  # Failed or cancelled: can be retried.
    requests: tuple[Message, ...] = ()  # What waits for the human.
    spending: Spending | None = None  # Of the whole chat, or of the newest goal with work left.
    of_chat: bool = False
    paused: str = ""  # How long a provider key cools down, if that is long.
    trouble: str = ""


async def look(board: Board, account: int | None = None) -> BoardStatus:
    """Read the status from the board, with a few short reads."""
    held = await board.list_tasks(states=("claimed", "waiting"), page=_PAGE)
    not_begun = await board.list_tasks(states=("ready", "scheduled", "blocked"), page=_PAGE)
    # Answers to messages do not count: each has a small budget of its own, which a person does not watch.
    goals = [[task.root for task in tasks if task.kind not in MESSAGES] for tasks in (held, not_begun)]
    root = account or max(goals[0] or goals[1], default=None)
    try:
        spending = None if root is None else await board.budget(root)
    except UnknownTask:  # Pruned between the two reads.
        spending = None
    return BoardStatus(
        counts=await board.count_tasks(),
        team=tuple(await board.team()),
        held=tuple(held),
        open=tuple(not_begun),
        ended=tuple(await board.list_tasks(states=("failed", "cancelled"), page=_PAGE)),
        requests=tuple(await requests.waiting_requests(board)),
        spending=spending,
        of_chat=account is not None,
        paused=paused_line(await board.cooldowns(), board.sources.now_ms()),
    )


def bar(standing: BoardStatus, columns: int) -> str:
    """As much as fits: first what a person must act on, then what is going on."""
    if standing.trouble:
        return one_line(f"The board is in trouble: {standing.trouble}", columns)
    for title_chars in (24, 0):  # Titles are left out first.
        parts = (
            _requests(standing.requests),
            standing.paused,
            _counts(standing.counts),
            _who(standing, title_chars),
            _budget(standing.spending, "chat" if standing.of_chat else ""),
        )
        said = " | ".join(part for part in parts if part)
        if len(said) <= columns:
            break
    return one_line(said, columns)


def _requests(requests: Sequence[Message]) -> str:
    said = []
    for kind, noun, how in (("question", "question", "/answer"), ("plan", "plan", "/approve or /reject")):
        if count := sum(request.kind == kind for request in requests):
            said.append(f"{counted(count, noun)} for you: {how}")
    return ", ".join(said)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{counts[state]:,} {state}" for state in get_args(TaskState) if counts.get(state)) or "no tasks"


def _who(standing: BoardStatus, title_chars: int) -> str:
    """Who works on what, then the teammates that cannot work."""
    said = [
        f"{one_line(task.teammate or '', 20)} on #{task.id}"
        + (f" {one_line(task.title, title_chars)}" if title_chars else "")
        for task in standing.held
        if task.state == "claimed"
    ]
    lost = [member for member in standing.team if member.status in ("failed", "lost")]
    return ", ".join([*said, *(f"{one_line(each.name, 20)} {each.status}" for each in lost)]) or "nobody works"


def _budget(spending: Spending | None, name: str = "") -> str:
    if spending is None:
        return ""
    held = f" (held: no {spending.held} left)" if spending.held else ""
    return f"{name or root_name(spending.root)}: {used(spending)}{held}"
