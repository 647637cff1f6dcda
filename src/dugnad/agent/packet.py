"""The packet a task starts with: the task, its needs' results, earlier attempts, the notes that matter, the project."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from ..board import Board
from ..errors import ToolError
from ..prompts import tell
from ..settings import AgentLimits
from ..text import Told, joined, quote, shorten
from ..tools.delegate_tools import result_text
from ..tools.message_tools import answer_since, message_text
from ..tools.note_tools import note_text
from ..types import ENDINGS, Attempt, Claim, Message, Task
from ..workspace.files.paths import read_within

_ANY = (None, *ENDINGS)  # Needs that ask for no word of the one who works it.
_AGENTS_BYTES_MAX = 32 * 1024


async def packet(
    board: Board, claim: Claim, attempts: Sequence[Attempt], limits: AgentLimits, project: Path | None
) -> Told:
    """Gathered from the board, each part marked with whose words it is."""
    task = claim.task
    parts = [tell("packet.task", id=task.id, title=task.title)]
    if task.body:
        parts.append(tell("packet.body", by=task.put_by, body=task.body))
    if task.check:
        parts.append(tell("packet.check", check=task.check))
    (needed, root), behind, notes, talk, requests = await asyncio.gather(
        _others(board, task),
        board.needed_by(task.id),
        board.search_notes(root=task.root, page=limits.notes_max),
        board.recent_talk(claim.teammate, page=limits.recent_messages_max),
        board.requests(claim.teammate),
    )
    if asked := [tell("packet.outcome", id=each, outcome=outcome) for each, outcome in behind if outcome not in _ANY]:
        parts.append(tell("packet.outcomes", asked=joined(asked, "; ")))
    if results := [result_text(found) for found in needed if found.ended]:
        parts.append(tell("packet.builds_on", results=joined(results)))
    if root is not None:
        goal = tell("packet.goal", id=root.id, title=root.title)
        parts.append(joined((goal, quote(root.body) if root.body else None), "\n"))
    if earlier := [each for each in attempts if each.epoch < claim.epoch and each.ended_as]:
        told_before = [await _attempt_text(board, each) for each in earlier]
        parts.append(joined((tell("packet.attempts"), *told_before), "\n"))
    if notes:
        parts.append(joined((tell("packet.notes"), *map(note_text, reversed(notes))), "\n"))
    # What is new is shown as a message. What was shown before was shown in another conversation, and must not be lost.
    owed = [each for each in requests if each.shown_at is not None and each.kind != "shutdown"]
    if said := [each for each in talk if each not in owed]:
        parts.append(joined((tell("packet.talk"), *_said(said)), "\n"))
    if owed:
        parts.append(joined((tell("packet.owed"), *(message_text(each, frozenset()) for each in owed)), "\n"))
    if project is not None and (guide := await asyncio.to_thread(project_guide, project)):
        parts.append(tell("packet.guide", guide=guide))
    share = limits.packet_chars_max // 2
    whole = joined(shorten(part, share, tell("packet.shortened")) for part in parts)
    return shorten(whole, limits.packet_chars_max)


async def _others(board: Board, task: Task) -> tuple[list[Task], Task | None]:
    """What this one needs; and the goal, if that is another task."""
    needed = [need.task for need, _ in await board.needs_of(task.id)]
    found = await board.find_all({*needed, task.root} - {task.id})
    return [found[each] for each in needed], found.get(task.root)


def _said(talk: Sequence[Message]) -> Iterator[Told]:
    """What was said to several at once is told once."""
    for (sender, text), same in groupby(talk, key=lambda each: (each.sender, each.text)):
        to = ", ".join(each.recipient for each in same)
        yield tell("packet.said", sender=sender, to=to, text=shorten(text, 500))


async def _attempt_text(board: Board, attempt: Attempt) -> Told:
    head = tell("packet.attempt", number=attempt.number, by=attempt.teammate, how=attempt.ended_as)
    words = (attempt.reason, attempt.handover)
    answer = await answer_since(board, attempt.task, attempt.epoch) if attempt.ended_as == "waiting" else None
    return joined((head, *(quote(shorten(each, 4_000)) for each in words if each), answer), "\n")


def project_guide(project: Path) -> str:
    """The project's AGENTS.md, if there is one inside the project."""
    try:
        return read_within(project, "AGENTS.md", _AGENTS_BYTES_MAX).decode(errors="replace").strip()
    except (OSError, ToolError):
        return ""
