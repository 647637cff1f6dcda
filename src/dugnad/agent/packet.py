"""The packet a task starts with: the task, its needs' results, earlier attempts, the notes that matter, the project."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from ..board import Board
from ..settings import AgentLimits
from ..text import one_line, quote, shorten
from ..tools.remembering import note_text
from ..tools.talking import message_text
from ..tools.thinking import result_text
from ..types import ENDINGS, Attempt, Claim, Message, Task

_ANY = (None, *ENDINGS)  # Needs that ask for no word of the one who works it.
_AGENTS_BYTES_MAX = 32 * 1024


async def packet(board: Board, claim: Claim, limits: AgentLimits, project: Path | None) -> str:
    """Gathered from the board, each part marked with whose words it is."""
    task = claim.task
    parts = [f"Your task is #{task.id}: {one_line(task.title, 200)}"]
    if task.body:
        parts.append(f"What is to be done, in the words of {task.put_by}:\n{quote(task.body)}")
    if task.check:
        parts.append(
            f"It counts as done only when this command succeeds; the runtime runs it: {one_line(task.check, 500)}"
        )
    (needed, root), behind, attempts, notes, talk, requests = await asyncio.gather(
        _others(board, task),
        board.needed_by(task.id),
        board.attempts(task.id),
        board.search_notes(root=task.root, page=limits.notes_max),
        board.recent_talk(claim.teammate, page=limits.recent_messages_max),
        board.requests(claim.teammate),
    )
    if asked := [f"#{each} waits for it to end as {outcome}" for each, outcome in behind if outcome not in _ANY]:
        parts.append(f"What it leads to depends on the outcome you finish it with: {'; '.join(asked)}.")
    if results := [result_text(found) for found in needed if found.ended]:
        parts.append("What it builds on:\n" + "\n\n".join(results))
    if root is not None:
        parts.append(
            f"The goal it is part of, #{root.id}: {one_line(root.title, 200)}"
            + (f"\n{quote(root.body)}" if root.body else "")
        )
    if earlier := [each for each in attempts if each.epoch < claim.epoch and each.ended_as]:
        parts.append("Earlier attempts at this task:\n" + "\n".join(map(_attempt_text, earlier)))
    if notes:
        parts.append("The team's notes on this goal:\n" + "\n".join(map(note_text, reversed(notes))))
    # What is new is shown as a message. What was shown before was shown in another conversation, and must not be lost.
    owed = [each for each in requests if each.shown_at is not None and each.kind != "shutdown"]
    if said := [each for each in talk if each not in owed]:
        parts.append("What was said between you and others lately, to remember:\n" + "\n".join(_said(said)))
    if owed:
        parts.append(
            "These still wait for your answer:\n" + "\n".join(message_text(each, frozenset()) for each in owed)
        )
    if project is not None and (guide := project_guide(project)):
        parts.append(f"AGENTS.md of the project says:\n{quote(guide)}")
    share = limits.packet_chars_max // 2
    whole = "\n\n".join(shorten(part, share, "show_task and read_notes show the rest") for part in parts)
    return shorten(whole, limits.packet_chars_max)


async def _others(board: Board, task: Task) -> tuple[list[Task], Task | None]:
    """What this one needs; and the goal, if that is another task."""
    needed = [need.task for need, _ in await board.needs_of(task.id)]
    found = await board.find_all({*needed, task.root} - {task.id})
    return [found[each] for each in needed], found.get(task.root)


def _said(talk: Sequence[Message]) -> Iterator[str]:
    """What was said to several at once is told once."""
    for (sender, text), same in groupby(talk, key=lambda each: (each.sender, each.text)):
        yield f"{sender} to {', '.join(each.recipient for each in same)}:\n{quote(shorten(text, 500))}"


def _attempt_text(attempt: Attempt) -> str:
    lines = [f"Attempt {attempt.number}, by {attempt.teammate}, ended as {attempt.ended_as}"]
    if attempt.reason:
        lines.append(quote(shorten(attempt.reason, 4_000)))
    if attempt.handover:
        lines.append(quote(shorten(attempt.handover, 4_000)))
    return "\n".join(lines)


def project_guide(project: Path) -> str:
    """The project's AGENTS.md, if there is one inside the project."""
    path = project / "AGENTS.md"
    if not path.is_file() or not path.resolve().is_relative_to(project.resolve()):
        return ""
    with path.open("rb") as file:
        return file.read(_AGENTS_BYTES_MAX).decode(errors="replace").strip()
