"""The prompt: keys, history, completion and the status bar, on prompt_toolkit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from ..text import one_line
from .commands import COMMANDS, STATES
from .session import Session, SlashCommand, Takes
from .status import BoardStatus, bar

_META_CHARS = 60
Choice = tuple[str, str]  # The text to insert, and its description.


def make_prompt(session: Session, history: History) -> PromptSession[str]:
    """A prompt whose bar and completion follow the session's view of the board."""

    def toolbar() -> str:
        return " " + bar(session.standing, get_app().output.get_size().columns - 1)

    return PromptSession(
        "you> ",
        completer=ChatCompleter(COMMANDS, tuple(STATES), lambda: session.standing),
        complete_while_typing=_in_a_command,
        history=history,
        key_bindings=_keys(),
        bottom_toolbar=toolbar,
        prompt_continuation="...  ",
        enable_suspend=True,
    )


@Condition
def _in_a_command() -> bool:
    return get_app().current_buffer.text.startswith("/")


@Condition
def _goes_on() -> bool:
    document = get_app().current_buffer.document
    return document.is_cursor_at_the_end and document.text.endswith("\\")


@Condition
def _something_typed() -> bool:
    return bool(get_app().current_buffer.text)


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("escape", "enter")
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("enter", filter=_goes_on)
    def go_on(event: KeyPressEvent) -> None:
        event.current_buffer.delete_before_cursor()
        event.current_buffer.insert_text("\n")

    @keys.add("tab", filter=_in_a_command)
    def complete(event: KeyPressEvent) -> None:
        """Complete a single choice at once: a Tab before the menu is drawn would otherwise do nothing."""
        buffer = event.current_buffer
        if buffer.complete_state:
            buffer.complete_next()
            return
        asked = CompleteEvent(completion_requested=True)
        found = list(buffer.completer.get_completions(buffer.document, asked))
        if len(found) == 1:
            buffer.apply_completion(found[0])
        else:
            buffer.start_completion(insert_common_part=True)

    @keys.add("c-c", filter=_something_typed)
    @keys.add("<sigint>", filter=_something_typed)
    def clear(event: KeyPressEvent) -> None:
        event.current_buffer.reset()

    return keys


def open_history(path: Path, bytes_max: int) -> History:
    """The lines that were typed before, in a file that only its owner may read, or else in memory."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        _shorten(path, bytes_max)
        return KeptHistory(path)
    except OSError:
        return InMemoryHistory()


def _shorten(path: Path, bytes_max: int) -> None:
    """Cut a long file to its newer half, at the beginning of an entry."""
    if path.stat().st_size <= bytes_max:
        return
    newer = path.read_bytes()[-bytes_max // 2 :]
    begin = newer.find(b"\n# ")
    path.write_bytes(newer[begin:] if begin >= 0 else b"")


class KeptHistory(FileHistory):
    """A history file whose errors do not end the prompt. The board reports a full disk."""

    def load_history_strings(self) -> Iterable[str]:
        try:
            return list(super().load_history_strings())
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        try:
            super().store_string(string)
        except OSError:
            pass


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
