"""`dugnad prune`: deletes old history that no open task needs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click

from ..board import Board
from ..board.prune import Pruned
from ..errors import BadInput
from ..safe_open import OWN
from ..text import counted
from ..workspace.files.kept import files_in, remove_files
from .command import CommandContext, board_given, confirm, here, verb
from .parameters import Span

_COUNTED = {"events": "event", "turns": "turn", "answers": "kept answer", "hosts": "host"}
_NO_TERMINAL = "There is no terminal to ask for confirmation; try --dry-run first, then --yes."


@verb("prune", example="""
    dugnad prune --dry-run
    dugnad prune --older 7d --yes
    """)  # fmt: skip
@click.option("--older", type=Span(), default="30d", show_default=True, metavar="TIME", help="Minimum age: 12h, 30d.")
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option("--yes", is_flag=True, help="Delete without asking.")
async def prune(call: CommandContext, *, older: float, dry_run: bool, yes: bool) -> None:
    """Delete old events, transcripts and outputs of ended tasks, and stored answers to repeated calls.

    Tasks, results, attempts, messages, notes and budgets stay, and so does everything of an open task. The log still
    replays to the same state. Pruning is safe while teammates work. Stored answers are kept for at least a day.
    """
    found = await call.board.prunable(older)
    outputs = await _old_outputs(call.board, older)
    before = await call.board.size_bytes()
    shape = {"older": older, "dry_run": dry_run, **_counts(found, outputs), "bytes_before": before}
    words = _words(found, outputs)
    if dry_run or not words:
        says = f"{_sentence(words)} would be deleted, about {_size(found.size + sum(each.size for each in outputs))}."
        says = says if words else "Nothing is that old."
        call.answer({**shape, "bytes_after": None}, f"{says} The size of the board is {_size(before)}.")
        return
    if not yes:
        question = f"{_sentence(words)} will be deleted. The size of the board is {_size(before)}. Delete them?"
        if not confirm(question, refusal=BadInput(_NO_TERMINAL)):
            raise click.Abort
    gone = await call.board.prune(older)
    removed = [each for each in outputs if each.remove()]
    smaller = await call.board.shrink()
    after = await call.board.size_bytes()
    went = _sentence(_words(gone, removed)) or "nothing"
    says = f"Deleted: {went}. The size of the board is now {_size(after)}; it was {_size(before)}."
    if not smaller:
        says += " The board uses the free space again. To make the file smaller, prune when no host is running."
    call.answer({**shape, **_counts(gone, removed), "bytes_after": after}, says)


def _counts(found: Pruned, outputs: list[_OldOutput]) -> dict[str, int]:
    counts = {name: getattr(found, name) for name in _COUNTED}
    return {**counts, "outputs": len(outputs), "outputs_bytes": sum(each.size for each in outputs)}


def _words(found: Pruned, outputs: list[_OldOutput]) -> list[str]:
    said = [(getattr(found, name), noun) for name, noun in _COUNTED.items()]
    return [counted(count, noun) for count, noun in (*said, (len(outputs), "output")) if count]


def _sentence(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else ""


def _size(size: int) -> str:
    return f"{size / 1024**2:,.1f} MiB"


# The whole outputs of commands, in files of the project.


@dataclass(frozen=True, slots=True)
class _OldOutput:
    folder: Path
    name: str
    size: int

    def remove(self) -> bool:
        """Remove it without following links, since a project may come from anyone."""
        try:
            remove_files(self.folder, self.name)
        except OSError:
            return False
        return True


async def _old_outputs(board: Board, older: float) -> list[_OldOutput]:
    """Outputs of old ended tasks, for the project's own board only: other boards use the same task numbers."""
    if board_given() is not None:
        return []
    folder, latest = here().root / OWN / "output", await board.now_ms() - older * 1000
    try:
        numbers = [int(name) for _, name in files_in(folder, "") if name.isdecimal() and len(name) <= 18]
    except OSError:
        return []
    ended = [task.id for task in (await board.find_all(numbers)).values() if (task.ended_at or latest) < latest]
    found: list[_OldOutput] = []
    for task in sorted(ended):
        with suppress(OSError):
            logs = files_in(folder / str(task), ".log")
            old = [(about.st_size, name) for about, name in logs if about.st_mtime_ns < latest * 1_000_000]
            found += [_OldOutput(folder / str(task), name, size) for size, name in old]
    return found
