"""Completes commands, and the teammates, tasks or requests that they take, from the last status of the board."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from ..text import one_line
from .session import SlashCommand, Takes
from .status import BoardStatus

_META_CHARS = 60
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
        tasks = {"task": (*standing.held, *standing.open), "ended": standing.ended}
        choices: dict[Takes, list[Choice]] = {
            "teammate": [(member.name, member.status) for member in standing.team],
            "request": [(f"m{each.id}", f"{each.sender}: {each.text}") for each in standing.requests],
            "state": [(state, "") for state in self._states],
            "cap": [(f"{cap}=", "") for cap in ("tasks", "tokens", "dollars", "minutes")],
            "command": [(command.name, command.says) for command in self._commands],
        }
        return choices.get(kind) or [(f"#{task.id}", f"{task.state}: {task.title}") for task in tasks.get(kind, ())]
