"""Completes commands, and the teammates, tasks or requests that they take, from the last status of the board."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from ..text import one_line
from ..types import Task
from .session import SlashCommand, Takes
from .status import BoardStatus

_META_CHARS = 60
_CAPS = ("tasks=", "tokens=", "dollars=", "minutes=")
Choice = tuple[str, str]  # The text to insert, and its description.


class ChatCompleter(Completer):
    """Completes lines that begin with a slash; text for the lead is not completed."""

    def __init__(
        self, commands: Sequence[SlashCommand], states: Sequence[str], standing: Callable[[], BoardStatus]
    ) -> None:
        self._commands = commands
        self._states = states
        self._standing = standing  # Called again for each key, since the team changes meanwhile.

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        typed = text.rsplit(" ", 1)[-1]
        for filled, meta in self._choices(text):
            if filled.removeprefix("#").startswith(typed.removeprefix("#")):
                yield Completion(filled, start_position=-len(typed), display_meta=one_line(meta, _META_CHARS))

    def _choices(self, text: str) -> Iterable[Choice]:
        first, *words = text.split(" ")
        if not words:
            return [(f"/{command.name}", command.says) for command in self._commands]
        command = next((each for each in self._commands if f"/{each.name}" == first), None)
        if command is None or not command.takes:
            return []
        place = sum(1 for word in words[:-1] if word)
        if place >= len(command.takes) and command.takes[-1] != "cap":
            return []
        return self._of(command.takes[min(place, len(command.takes) - 1)])

    def _of(self, kind: Takes) -> Iterable[Choice]:
        standing = self._standing()
        if kind == "task":
            return _tasks((*standing.held, *standing.open))
        if kind == "ended":
            return _tasks(standing.ended)
        if kind == "teammate":
            return [(member.name, member.status) for member in standing.team]
        if kind == "request":
            return [(f"m{each.id}", f"{each.sender}: {each.text}") for each in standing.requests]
        if kind == "state":
            return [(state, "") for state in self._states]
        if kind == "cap":
            return [(cap, "") for cap in _CAPS]
        return [(command.name, command.says) for command in self._commands]


def _tasks(tasks: Iterable[Task]) -> list[Choice]:
    return [(f"#{task.id}", f"{task.state}: {task.title}") for task in tasks]
