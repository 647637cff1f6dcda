"""The two databases under the state machine, each spoken to in the model's numbers.

Task ids, epochs and requests are the databases' own; the model counts tasks, holds and letters from its own zero. A
side keeps what belongs together, and tells the tables of its board in the model's words.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from dugnad.board import Board
from dugnad.types import ENDED, Claim, Message, Need, NewTask, Outcome, Task, Waiting
from tests.board.model import Model
from tests.board.model_tasks import KINDS

NOWHERE = 999_999_999  # A task that no board has.
CAPS = {"tasks": "tasks_max", **{kind: f"{kind}_max" for kind in KINDS}}


@dataclass
class Side:
    name: str
    board: Board
    ids: dict[int, int] = field(default_factory=dict)
    claims: dict[int, Claim] = field(default_factory=dict)
    letters: list[dict[str, Any]] = field(default_factory=list)  # As they were seen last, oldest first.
    numbers: list[int] = field(default_factory=list)  # Their ids.
    states: dict[int, str] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)

    def id(self, task: int) -> int:
        return self.ids.get(task, task)  # References within a batch stay as they are.

    def own(self, task: int | None) -> int | None:
        """The model's number of a task here."""
        return None if task is None else next(ours for ours, theirs in self.ids.items() if theirs == task)

    def entry(self, new: NewTask) -> NewTask:
        needs = tuple(Need(self.id(need.task), need.outcome) for need in new.needs if isinstance(need, Need))
        return replace(new, needs=needs, parent=None if new.parent is None else self.id(new.parent))

    def outcome(self, outcome: Outcome) -> Outcome:
        if isinstance(outcome, Waiting):
            return replace(outcome, tasks=tuple(map(self.id, outcome.tasks)))
        return outcome

    def learn(self, put: list[Task], wanted: list[int]) -> bool:
        """Whether these can be the tasks the model expects; new ones are remembered."""
        if len(wanted) != len(put):
            return False
        pairs = list(zip(wanted, (task.id for task in put), strict=True))
        for ours, theirs in pairs:
            if ours not in self.ids and theirs not in self.ids.values():
                self.ids[ours] = theirs
        return all(self.ids.get(ours) == theirs for ours, theirs in pairs)

    def same_tasks(self, got: list[int], wanted: list[int]) -> bool:
        return sorted(self.own(each) or 0 for each in got) == wanted

    def same_letters(self, got: list[Message], wanted: list[int]) -> bool:
        """In this order."""
        places = {number: place for place, number in enumerate(self.numbers)}
        return [places[each.id] for each in got] == wanted

    def request(self, letter: int) -> str:
        return (self.letters[letter]["request"] if letter < len(self.letters) else None) or "never asked"

    async def look(self) -> dict[str, Any]:
        """The board's tables in the model's words; `expected` gives the same for the model."""
        state = await self.board.observed_state()
        self.states = {self.own(int(each)) or 0: task["state"] for each, task in state["task"].items()}
        messages = sorted((int(each), message) for each, message in state["message"].items())
        self.letters, self.numbers = [message for _, message in messages], [each for each, _ in messages]
        return {
            "raw": state,
            "epochs": {self.own(int(each)): task["epoch"] for each, task in state["task"].items()},
            "tasks": {self.own(int(each)): self._task(task) for each, task in state["task"].items()},
            "budgets": {self.own(int(each)): _budget(budget) for each, budget in state["budget"].items()},
            "reservations": {
                key: (self.own(each["task"]), each["state"] == "open") for key, each in state["reservation"].items()
            },
            "pauses": {
                key: tuple(each[name] for name in ("until", "milliseconds", "strikes"))
                for key, each in state["cooldown"].items()
            },
            "letters": [
                (
                    *(each[name] for name in ("sender", "recipient", "kind", "accepted", "shown")),
                    self.own(each["task"]),
                    None if each["kind"] == "notice" else each["text"],
                )
                for each in self.letters
            ],
            "team": {
                name: (tuple(each["roles"]), each["lead"], each["state"], each["host"])
                for name, each in state["teammate"].items()
            },
            "hosts": {host: each["state"] for host, each in state["host"].items()},
        }  # fmt: skip

    def _task(self, task: dict[str, Any]) -> dict[str, Any]:
        same = ("state", "depth", "claims", "tries", "children", "repeats", "teammate", "waiting_for", "outcome")
        return {
            **{name: task[name] for name in same},
            "root": self.own(task["root"]),
            "parent": self.own(task["parent"]),
            "due": task["due_at"],
            "needs": {self.own(int(needed)): edge for needed, edge in task["needs"].items()},
            "open_needs": None if task["state"] in ENDED else task["open_needs"],
        }


def _budget(budget: dict[str, Any]) -> dict[str, Any]:
    return {
        **{name: budget[name] for name in ("runs", "tasks", "held")},
        "caps": {kind: budget[column] for kind, column in CAPS.items()},
        "spent": {kind: budget[kind] for kind in KINDS},
        "reserved": {kind: budget[f"{kind}_reserved"] for kind in KINDS},
    }


def expected(model: Model) -> dict[str, Any]:
    same = ("state", "depth", "claims", "tries", "children", "repeats", "teammate", "waiting_for", "outcome")
    tasks = {
        job.id: {
            **{name: getattr(job, name) for name in same},
            **{"root": job.root, "parent": job.parent, "due": job.due, "needs": job.needs},
            "open_needs": None if job.state in ENDED else sum(verdict != "met" for verdict in job.verdicts()),
        }
        for job in model.jobs.values()
    }
    budgets = {
        root: {name: getattr(account, name) for name in ("runs", "tasks", "held", "caps", "spent", "reserved")}
        for root, account in model.accounts.items()
    }
    return {
        "tasks": tasks,
        "budgets": budgets,
        "reservations": {key: (each.task, each.open) for key, each in model.reservations.items()},
        "pauses": model.pauses,
        "letters": [
            (
                *(each.sender, each.recipient, each.kind, each.accepted, each.shown, each.task),
                None if each.kind == "notice" else each.text,
            )
            for each in model.letters
        ],
        "team": {name: (each.roles, each.lead, each.state, each.host) for name, each in model.members.items()},
        "hosts": {host: "lost" if each.lost else "up" for host, each in model.hosts.items()},
    }
