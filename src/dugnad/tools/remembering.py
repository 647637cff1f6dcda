"""Remembering tools: the team's notes, whole outputs, and making room in one's own context."""

from __future__ import annotations

from ..errors import ToolError
from ..types import Note
from .context import Context
from .quote import cut_from, one_line, quote
from .tool import own_tool


def note_text(note: Note) -> str:
    about = f", about #{note.task}" if note.task else ""
    return f"Note {note.id} by {note.author}{about}: {one_line(note.title)}\n{quote(note.text)}"


@own_tool(early=True)
async def note(context: Context, title: str, text: str) -> str:
    """Write down what you found out and others will need: facts, decisions, traps. Everybody can read it.

    Args:
        title: What it is about.
        text: What you know now.
    """
    made = await context.board.write_note(context.teammate.name, title, text, claim=context.claim, key=context.key)
    return f"Note {made.id} is written."


@own_tool(safe=True)
async def read_notes(context: Context, before: int | None = None) -> str:
    """The team's notes on this goal, newest first.

    Args:
        before: Only notes with a smaller number than this, to read on.
    """
    found = await context.board.search_notes(root=context.claim.task.root, before=before, page=20)
    return "\n\n".join(map(note_text, found)) or "There are no notes."


@own_tool(safe=True)
async def search_notes(context: Context, words: str) -> str:
    """Notes of all goals in which every one of these words occurs.

    Args:
        words: The words.
    """
    found = await context.board.search_notes(words, page=20)
    return "\n\n".join(map(note_text, found)) or f"No note has all of: {words}."


@own_tool(safe=True)
async def read_output(context: Context, output: str, start: int = 0) -> str:
    """Read more of a tool's output that you were shown in short.

    Args:
        output: The id that stands where it was shortened.
        start: From which character on.
    """
    assert context.read_output is not None
    whole = await context.read_output(output)
    if start >= len(whole) or start < 0:
        raise ToolError(f"Output {output} has {len(whole):,} characters; choose a start below that.")
    most = context.limits.tool_chars_max * 3 // 4
    more = f"\n[… read on with start={start + most} …]" if start + most < len(whole) else ""
    return cut_from(whole[: start + most], start) + more


@own_tool(early=True)
async def compact(context: Context) -> str:
    """Make room: what was said so far in this task becomes a summary before your next turn. Who you are and what the
    task is stays."""
    return "The conversation will be summarised before your next turn, if there is enough of it."
