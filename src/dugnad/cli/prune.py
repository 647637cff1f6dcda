"""`dugnad prune`: deletes old history that no open task needs."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import BadInput
from .command import CommandContext, board_given, here, verb
from .parameters import Span

if TYPE_CHECKING:
    from ..board import Board
    from ..board.prune import Pruned

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


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
        _ask(f"{_sentence(words)} will be deleted. The size of the board is {_size(before)}. Delete them?")
    gone = await call.board.prune(older)
    removed = [each for each in outputs if each.remove()]
    smaller = await call.board.shrink()
    after = await call.board.size_bytes()
    went = _sentence(_words(gone, removed)) or "nothing"
    says = f"Deleted: {went}. The size of the board is now {_size(after)}; it was {_size(before)}."
    if not smaller:
        says += " The board uses the free space again. To make the file smaller, prune when no host is running."
    call.answer({**shape, **_counts(gone, removed), "bytes_after": after}, says)


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise BadInput("There is no terminal to ask for confirmation; try --dry-run first, then --yes.")
    click.confirm(question, abort=True, err=True)


def _counts(found: Pruned, outputs: list[_OldOutputs]) -> dict[str, int]:
    return {
        "events": found.events,
        "turns": found.turns,
        "answers": found.answers,
        "hosts": found.hosts,
        "outputs": len(outputs),
        "outputs_bytes": sum(each.size for each in outputs),
    }


def _words(found: Pruned, outputs: list[_OldOutputs]) -> list[str]:
    from ..view.numbers import counted

    said = ((found.events, "event"), (found.turns, "turn"), (found.answers, "kept answer"), (found.hosts, "host"))
    return [counted(count, noun) for count, noun in (*said, (len(outputs), "output")) if count]


def _sentence(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else ""


def _size(size: int) -> str:
    return f"{size / 1024**2:,.1f} MiB"


# The whole outputs of commands, in files of the project.


@dataclass(frozen=True, slots=True)
class _OldOutputs:
    folder: Path
    task: int
    name: str
    size: int

    def remove(self) -> bool:
        """Remove it without following links, since a project may come from anyone."""
        try:
            with _opened(self.folder, str(self.task)) as held:
                os.unlink(self.name, dir_fd=held.fd)
        except OSError:
            return False
        return True


class _opened:
    """The folder of a task's outputs. Each part of the path is opened without following links."""

    def __init__(self, folder: Path, task: str | None = None) -> None:
        steps = (".dugnad", "output", *([] if task is None else [task]))
        self.fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for step in steps:
                inner = os.open(step, _FOLDER, dir_fd=self.fd)
                os.close(self.fd)
                self.fd = inner
        except OSError:
            os.close(self.fd)
            raise

    def __enter__(self) -> _opened:
        return self

    def __exit__(self, *trouble: object) -> None:
        os.close(self.fd)


async def _old_outputs(board: Board, older: float) -> list[_OldOutputs]:
    """Outputs of old ended tasks, for the project's own board only: other boards use the same task numbers."""
    if board_given() is not None:
        return []
    root, latest = here().root, await board.now_ms() - older * 1000
    try:
        with _opened(root) as held:
            numbers = [int(name) for name in os.listdir(held.fd) if name.isdecimal() and len(name) <= 18]
    except OSError:
        return []
    ended = [task.id for task in (await board.find_all(numbers)).values() if (task.ended_at or latest) < latest]
    found: list[_OldOutputs] = []
    for task in sorted(ended):
        try:
            with _opened(root, str(task)) as held:
                found += [_OldOutputs(root, task, *each) for each in _logs(held.fd, latest)]
        except OSError:
            continue
    return found


def _logs(folder: int, latest: float) -> list[tuple[str, int]]:
    entries: list[Any] = [(entry.name, entry.stat(follow_symlinks=False)) for entry in os.scandir(folder)]
    return [
        (name, about.st_size)
        for name, about in entries
        if name.endswith(".log") and about.st_mtime_ns < latest * 1_000_000
    ]
