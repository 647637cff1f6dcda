"""Remembering tools: the team's notes, whole outputs, and making room in one's own context."""

from __future__ import annotations

from ..errors import ToolError
from ..text import Told, cut_from, tell
from ..types import Note
from .context import Context, Piece
from .tool import own_tool


def note_text(note: Note) -> Told:
    by = f"{note.author}, about #{note.task}" if note.task else note.author
    return tell("Note {id} by {by}: {title:120}\n{text:quoted}", id=note.id, by=by, title=note.title, text=note.text)


@own_tool(early=True)
async def note(context: Context, title: str, text: str) -> str:
    """Write a note for the team."""
    made = await context.board.write_note(context.teammate.name, title, text, claim=context.claim, key=context.key)
    return f"Note {made.id} is written."


@own_tool(safe=True)
async def read_notes(context: Context, before: int | None = None) -> str:
    """A page of the notes on this goal."""
    found = await context.board.search_notes(root=context.claim.task.root, before=before, page=20)
    return "\n\n".join(map(note_text, found)) or "There are no notes."


@own_tool(safe=True)
async def search_notes(context: Context, words: str) -> str:
    """Notes of every goal, by words."""
    found = await context.board.search_notes(words, page=20)
    return "\n\n".join(map(note_text, found)) or f"No note has all of: {words}."


@own_tool(safe=True)
async def read_output(context: Context, output: str, start: int = 0, characters: int | None = None) -> str:
    """A part of an output that was shortened."""
    assert context.read_output is not None
    most = context.limits.tool_chars_max * 3 // 4
    most = most if characters is None else max(1, min(characters, most))
    piece = await context.read_output(output, start, most)
    return piece.text + (f"\n[… read on with start={start + most} …]" if piece.more else "")


def piece_of(whole: str, output: str, start: int, most: int) -> Piece:
    """A part of a text that is at hand."""
    if start >= len(whole) or start < 0:
        raise no_such_start(output, len(whole))
    return Piece(cut_from(whole[: start + most], start), start + most < len(whole))


def no_such_start(output: str, characters: int) -> ToolError:
    if not characters:
        return ToolError(f"Output {output} is empty.")
    return ToolError(f"Output {output} has {characters:,} characters; choose a start below that.")


@own_tool(early=True)
async def compact(context: Context) -> str:
    """Ask for a summary; the agent makes it before the next turn."""
    return "The conversation will be summarised before your next turn, if there is enough of it."
