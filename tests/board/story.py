"""Histories told by hand, event by event, for the oracle to judge."""

from __future__ import annotations

from typing import Any

from dugnad.types import Event

CAPS = {"tasks_max": 3, "tokens_max": 100, "microdollars_max": None, "milliseconds_max": None}


class Story:
    """A history told event by event. Task 1 is a root; task 2 needs it. Ann and Bob are at two hosts."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._claims = 0
        self.tell("host_started", None, host="h1", label="one")
        self.tell("host_started", None, host="h2", label="two")
        self.put(1)
        self.put(2, [1, None, "open"])

    def tell(self, kind: str, task: int | None, actor: str = "board", **data: Any) -> None:
        self._tell(kind, task, actor, data)

    def _tell(self, kind: str, task: int | None, actor: str, data: dict[str, Any]) -> None:
        seq = len(self.events) + 1
        root = None if task is None else 1
        self.events.append(Event(seq=seq, at=seq * 10, kind=kind, task=task, root=root, actor=actor, data=data))

    def put(self, task: int, *needs: list[Any], **changes: Any) -> None:
        caps = CAPS if task == 1 else None
        data = {"needs": list(needs), "caps": caps, "due_at": None, "parent": 1, "key": f"k{task}", "kind": "work"}
        self._tell("put", task, changes.pop("actor", "human"), {**data, **changes})

    def claim(self, task: int, epoch: int, actor: str = "ann", **changes: Any) -> None:
        self._claims += 1
        data = {"epoch": epoch, "host": "h1", "key": f"c{self._claims}", "number": 1, "continues": None}
        self.tell("claimed", task, actor, **{**data, **changes})

    def settle(self, task: int, epoch: int, actor: str = "ann", kind: str = "done", **changes: Any) -> None:
        state = {"done": "done", "failed": "failed", "retrying": "scheduled", "released": "ready"}[kind]
        data = {"epoch": epoch, "state": state, "tried": 0, "due_at": None, "outcome": None, "tasks": []}
        self.tell(kind, task, actor, **{**data, **changes})

    def take_back(self, task: int, epoch: int, state: str = "scheduled", due_at: int | None = None) -> None:
        self.tell("taken_back", task, epoch=epoch, state=state, due_at=due_at, host="h1", teammate="ann")

    def reserve(self, key: str, tokens: int, epoch: int = 1, actor: str = "ann") -> None:
        amounts = {"tokens": tokens, "microdollars": 0, "milliseconds": 0}
        self.tell("reserved", 1, actor, key=key, epoch=epoch, **amounts)

    def spend(self, key: str, tokens: int, kind: str = "spent") -> None:
        self.tell(kind, 1, "ann", key=key, tokens=tokens, microdollars=0, milliseconds=0)

    def turn(self, epoch: int, actor: str = "ann", number: int = 1) -> None:
        self.tell("turn", 1, actor, epoch=epoch, number=number)
