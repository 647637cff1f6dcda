"""What a session asks its client for: decided by the policy, by what a person answered before, or by asking a person.

A permission is no fence: an agent may have been told elsewhere that it need not ask. The sandbox is the fence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from ...acp.requests import DECLINED, ElicitationAsked, PermissionAsked
from ...board import Board
from ...errors import UnknownRequest
from ...text import one_line, quote, shorten
from ...tools.policy import ACP, QUESTION_BYTES_MAX, Decision, question, verdict
from ...types import HUMAN, Message, Task

_ALWAYS = re.compile(rf"May \S+ run ({ACP}[a-z_]+) for #[0-9]+ ")
_GIVEN_CHARS_MAX = 20_000


async def answers_of(board: Board, task: int) -> dict[str, Message]:
    """What a person answered to each question of this task."""
    found: dict[str, Message] = {}
    for attempt in await board.attempts(task):
        if attempt.ended_as == "waiting":
            with suppress(UnknownRequest):  # It waited for something else.
                asked, reply = await board.request(f"task-{task}-{attempt.epoch}")
                if reply is not None and reply.sender == HUMAN:
                    found[asked.text] = reply
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionJudge:
    """Answers at once, so that no request of an agent stays open."""

    teammate: str
    command: str
    task: Task
    decide: Callable[[str], Decision]
    answers: Mapping[str, Message]
    ask: Callable[[str], None]  # Ends the run with a question.

    def allows(self, asked: PermissionAsked) -> bool | None:
        """None: a person is asked, and the run ends."""
        tool = f"{ACP}{asked.kind}"
        decision = self.decide(tool)
        if decision != "ask":
            return decision == "allow"
        given = {"what": asked.call.title, "input": shorten(asked.call.given, _GIVEN_CHARS_MAX)}
        said = {name: text for name, text in given.items() if text}
        # The same call has the same question in every run.
        key = f"t{self.task.id}.e0.0.{crc32(repr((tool, said)).encode())}"
        text = question(self.teammate, self.task, tool, said, key)
        if (reply := self.answers.get(text)) is not None:
            return verdict(reply.text, reply.accepted).allowed
        return True if self._always(tool) else self._asked(text)

    def _always(self, tool: str) -> bool:
        """Whether a person allowed all calls of this kind while the task is worked."""
        for text, reply in self.answers.items():
            found = _ALWAYS.match(text)
            if found and found[1] == tool and verdict(reply.text, reply.accepted).always:
                return True
        return False

    def _asked(self, text: str) -> bool | None:
        if self.decide("ask_human") == "deny" or len(text.encode()) > QUESTION_BYTES_MAX:
            return False  # Nobody can be asked.
        self.ask(text)
        return None

    def fills(self, asked: ElicitationAsked) -> Mapping[str, Any] | None:
        """None: a person is asked, and the run ends."""
        text = self._form_text(asked)
        if (reply := self.answers.get(text)) is not None:
            return asked.answer(reply.text)
        return DECLINED if self._asked(text) is False else None

    def _form_text(self, asked: ElicitationAsked) -> str:
        title = one_line(self.task.title)
        lines = [f"{self.command} asks, at work on #{self.task.id} {title!r}:", quote(asked.message)]
        for _, field, choices in asked.fields:
            lines.append(quote(f"{field}: {', '.join(each for each, _ in choices)}" if choices else field))
        return "\n".join(lines)
