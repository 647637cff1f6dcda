"""`dugnad prune`: making room by dropping what is old and nobody needs for work that is open."""

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
@click.option("--older", type=Span(), default="30d", show_default=True, metavar="TIME", help="Than this: 12h, 30d.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--yes", is_flag=True, help="Do not ask first.")
async def prune(call: CommandContext, *, older: float, dry_run: bool, yes: bool) -> None:
    """Drop old events of the log, transcripts and outputs of tasks that ended, and kept answers to repeated calls.

    Tasks, results, attempts, messages, notes and budgets stay, and so does all of any task that is open. The log still
    replays to the same state. Safe while teammates work. Answers are kept for a day at least.
    """
    found = await call.board.prunable(older)
    outputs = await _old_outputs(call.board, older)
    before = await call.board.size_bytes()
    shape = {"older": older, "dry_run": dry_run, **_counts(found, outputs), "bytes_before": before}
    words = _words(found, outputs)
    if dry_run or not words:
        says = f"{_sentence(words)} would go, about {_size(found.size + sum(each.size for each in outputs))}."
        says = says if words else "Nothing is that old."
        call.answer({**shape, "bytes_after": None}, f"{says} The board has {_size(before)}.")
        return
    if not yes:
        _ask(f"{_sentence(words)} will go. The board has {_size(before)}. Go on?")
    gone = await call.board.prune(older)
    removed = [each for each in outputs if each.remove()]
    smaller = await call.board.shrink()
    after = await call.board.size_bytes()
    went = _sentence(_words(gone, removed)) or "Nothing"
    says = f"{went} went. The board has {_size(after)} now, and had {_size(before)}."
    if not smaller:
        says += " What is free in its file is used again; to make it smaller, prune again when no host runs."
    call.answer({**shape, **_counts(gone, removed), "bytes_after": after}, says)


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise BadInput("There is no terminal to ask on; look with --dry-run, then prune with --yes.")
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


# What commands printed, whole, in files of the project.


@dataclass(frozen=True, slots=True)
class _OldOutputs:
    folder: Path
    task: int
    name: str
    size: int

    def remove(self) -> bool:
        """Without following links: a project may come from anyone."""
        try:
            with _opened(self.folder, str(self.task)) as held:
                os.unlink(self.name, dir_fd=held.fd)
        except OSError:
            return False
        return True


class _opened:
    """A task's folder below the one with the outputs, each step opened as itself."""

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
    """Of tasks that ended before, on the project's own board: another one has other tasks of the same numbers."""
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
