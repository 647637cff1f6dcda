"""Everything there is to see of a board and of the world outside it, at one moment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dugnad.board import Board
from dugnad.types import Amount, Attempt, Event, Message, Note, Spending, Task, Turn
from tests.crash.ten_turns import NOT_KEYED, lines_of


@dataclass(frozen=True)
class Call:
    """A tool call of a recorded reply."""

    task: int
    key: str  # As the runtime names it.
    name: str
    result: str | None  # None: nothing is recorded of how it ended.


@dataclass(frozen=True, kw_only=True)
class Picture:
    tasks: dict[str, list[Task]]  # By title.
    attempts: list[Attempt]
    turns: list[Turn]
    events: list[Event]
    spending: Spending
    messages: list[Message]
    notes: list[Note]
    file: list[str]
    stamps: list[str]
    steps: list[str]
    consistent: bool  # The log replays to what the tables say.

    def only(self, title: str) -> Task:
        (task,) = self.tasks[title]
        return task

    def of(self, title: str) -> list[Turn]:
        return [turn for turn in self.turns if turn.task in {task.id for task in self.tasks.get(title, ())}]

    def replies(self, title: str) -> int:
        return sum(turn.kind == "reply" for turn in self.of(title))

    @property
    def calls(self) -> list[Call]:
        return [call for tasks in self.tasks.values() for task in tasks for call in self._calls(task.id)]

    def _calls(self, task: int) -> Iterator[Call]:
        asked: dict[int, tuple[str, str]] = {}
        results: dict[int, str] = {}
        for turn in self.turns:
            if turn.task != task:
                continue
            body = json.loads(turn.body)
            if turn.kind == "reply":
                yield from _made(task, asked, results)
                names = [name for _, name, _ in body["reply"]["calls"]]
                asked = {place: (f"t{task}.e{turn.epoch}.{turn.number}.{place}", n) for place, n in enumerate(names)}
                results = {}
            elif turn.kind == "tool":
                results[body["place"]] = body["text"]
        yield from _made(task, asked, results)

    @property
    def cut(self) -> list[Call]:
        """Calls that a crash at this moment leaves in the dark: of tasks that are held, and not keyed."""
        held = {task.id for tasks in self.tasks.values() for task in tasks if task.state == "claimed"}
        open_calls = [call for call in self.calls if call.result is None and call.task in held]
        return [call for call in open_calls if call.name in NOT_KEYED]

    @property
    def told_interrupted(self) -> list[Call]:
        return [call for call in self.calls if (call.result or "").startswith("Interrupted")]

    def count(self, *kinds: str) -> int:
        return sum(event.kind in kinds for event in self.events)

    def closed(self, *kinds: str) -> list[Amount]:
        """Reservations that ended so, with what they came to."""
        columns = Amount.__dataclass_fields__
        return [
            Amount(**{column: event.data[column] for column in columns})  # type: ignore[arg-type]
            for event in self.events
            if event.kind in kinds
        ]


def _made(task: int, asked: dict[int, tuple[str, str]], results: dict[int, str]) -> Iterator[Call]:
    for place, (key, name) in asked.items():
        yield Call(task, key, name, results.get(place))


async def look(board: Board, root: int, folder: Path) -> Picture:
    tasks = await board.list_tasks()
    attempts = [attempt for task in tasks for attempt in await board.attempts(task.id)]
    by_title: dict[str, list[Task]] = {}
    for task in tasks:
        by_title.setdefault(task.title, []).append(task)
    return Picture(
        tasks=by_title,
        attempts=attempts,
        turns=[turn for each in attempts for turn in await board.transcript(each.task, each.epoch)],
        events=await board.events(),
        spending=await board.budget(root),
        messages=await board.inbox(None, queued=False),
        notes=await board.search_notes(),
        file=lines_of(folder / "file"),
        stamps=lines_of(folder / "stamps"),
        steps=lines_of(folder / "steps"),
        consistent=await board.replayed_state() == await board.observed_state(),
    )
