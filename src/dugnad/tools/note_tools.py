"""Tools for the team's notes, and for whole outputs."""

from __future__ import annotations

from ..errors import ToolError
from ..prompts import tell
from ..text import Told, cut_from
from ..types import Note
from .context import Context, Piece
from .tool import own_tool

_PAGE = 20


def note_text(note: Note) -> Told:
    by = f"{note.author}, about #{note.task}" if note.task else note.author
    return tell("results.note", id=note.id, by=by, title=note.title, text=note.text)


@own_tool(early=True)
async def note(context: Context, title: str, text: str, everyone: bool = False) -> str:
    made = await context.board.write_note(
        context.teammate.name, title, text, claim=context.claim, everyone=everyone, key=context.key
    )
    return tell("results.note_written", id=made.id)


@own_tool(safe=True)
async def notes(context: Context, words: str = "", before: int | None = None) -> str:
    """With words, notes of all goals; without, those of this goal and those for everybody."""
    root = None if words.strip() else context.claim.task.root
    found = await context.board.search_notes(words, root=root, before=before, page=_PAGE)
    more = [tell("results.more_notes", before=found[-1].id)] if len(found) == _PAGE else []
    none = tell("results.no_note_with", words=words) if words.strip() else tell("results.no_notes")
    return "\n\n".join([*map(note_text, found), *more]) or none


@own_tool(safe=True)
async def read_output(context: Context, output: str, start: int = 0, characters: int | None = None) -> str:
    assert context.read_output is not None
    most = context.limits.tool_chars_max * 3 // 4
    most = most if characters is None else max(1, min(characters, most))
    piece = await context.read_output(output, start, most)
    return f"{piece.text}\n{tell('results.read_on', start=start + most)}" if piece.more else piece.text


def piece_of(whole: str, output: str, start: int, most: int) -> Piece:
    """A part of a text in memory."""
    if start >= len(whole) or start < 0:
        raise no_such_start(output, len(whole))
    return Piece(cut_from(whole[: start + most], start), start + most < len(whole))


def no_such_start(output: str, characters: int) -> ToolError:
    if not characters:
        return ToolError(tell("results.output_empty", output=output))
    return ToolError(tell("results.start_too_large", output=output, characters=characters))
