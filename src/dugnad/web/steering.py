"""The writes: what a person does from the page. Each goes through the same functions as the command line.

A write has a name, the keys of its body, and one function. What a body may hold is checked before the board sees it.
The board's own refusals come through in its words. After each write a remark in the log says who did it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..board import Board
from ..config.kinds import BudgetTable
from ..errors import BadInput
from ..team import requests
from ..text import clean, one_line
from ..types import HUMAN, Budget, Message, NewTask
from ..view.json import Shape, message_shape, shape_of, spending_shape
from .bodies import Kind, cap, caps, flag, maybe, maybe_text, message, need, number, one_of, read_body, several, text
from .calls import BoardCall, Look
from .guard import WebRefusal

_TEXT, _LINE, _NAME = 60_000, 1_000, 40
_NO_HOST = "No host is running; `dugnad run` or `dugnad work` starts one."
_task = number(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steered:
    """What a write came to."""

    says: str  # For the person.
    what: str  # For the log.
    record: Shape = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steering:
    """One write: the board, the values of its body, and the key under which it happens once."""

    board: Board
    given: Mapping[str, Any]
    key: str | None

    def __getitem__(self, name: str) -> Any:
        return self.given[name]

    async def hint(self) -> str:
        """What is missing before anything happens."""
        return "" if any(host.alive for host in await self.board.hosts()) else f" {_NO_HOST}"


def _write(verb: str, work: Callable[[Steering], Awaitable[Steered]], /, **kinds: Kind) -> Look:
    async def steer(call: BoardCall) -> Shape:
        if not call.session.steers:
            raise WebRefusal(403, "LookOnly", "This session may only look.")
        given = read_body(call.given, {**kinds, "key": maybe_text(100)})
        key = None if given["key"] is None else f"web:{verb}:{given['key']}"
        board = call.followed.board
        done = await work(Steering(board=board, given=given, key=key))
        again = None if key is None else f"{key}:remark"
        await board.remark(HUMAN, "steered", key=again, who=call.session.who or "somebody", what=done.what)
        return {"says": done.says, **done.record}

    return steer


# For you.


async def _answer(asked: Steering) -> Steered:
    return await _replied(asked, await requests.answer(asked.board, asked["request"], asked["text"]), "answered")


async def _approve(asked: Steering) -> Steered:
    told = await requests.decide_plan(asked.board, asked["request"], accept=True, why=asked["text"])
    return await _replied(asked, told, "approved")


async def _reject(asked: Steering) -> Steered:
    told = await requests.decide_plan(asked.board, asked["request"], accept=False, why=asked["why"])
    return await _replied(asked, told, "rejected")


async def _replied(asked: Steering, told: Message, verb: str) -> Steered:
    taken = await requests.taken_as(asked.board, told)
    about = f", and #{told.task} goes on" if told.task is not None else ""
    return Steered(
        says=f"{taken}{one_line(told.recipient, _NAME)} is told{about}.{await asked.hint()}",
        what=f"{verb} {asked['request']}", record={"message": message_shape(told)},
    )  # fmt: skip


async def _tell(asked: Steering) -> Steered:
    told = await asked.board.tell(HUMAN, asked["to"], asked["text"], task=asked["task"], key=asked.key)
    who = one_line(told.recipient, _NAME)
    return Steered(
        says=f"m{told.id} is in {who}'s inbox.{await asked.hint()}", what=f"told {who}",
        record={"message": message_shape(told)},
    )  # fmt: skip


async def _read(asked: Steering) -> Steered:
    await asked.board.show(HUMAN, asked["messages"])
    count = len(asked["messages"])
    return Steered(says="They are marked as read.", what=f"read {count} message{'' if count == 1 else 's'}")


# The team.


async def _stop(asked: Steering) -> Steered:
    said = await requests.stop(asked.board, asked["name"], why=asked["why"], now=asked["now"], key=asked.key)
    teammate = await asked.board.teammate(asked["name"])
    how = "stopped" if asked["now"] else "asked to stop:"
    return Steered(says=said, what=f"{how} {one_line(teammate.name, _NAME)}", record={"teammate": shape_of(teammate)})


async def _spawn(asked: Steering) -> Steered:
    teammate = await asked.board.spawn(
        asked["name"], roles=list(dict.fromkeys(asked["roles"])), prompt=asked["prompt"], model=asked["model"],
        lead=asked["lead"], plan=asked["plan"],
    )  # fmt: skip
    joins = "will join at once" if not (hint := await asked.hint()) else "will join when a host starts"
    said = f"{joins}.{hint}" if teammate.status == "wanted" else f"is {teammate.status}."
    name = one_line(teammate.name, _NAME)
    return Steered(says=f"{name} {said}", what=f"added {name}", record={"teammate": shape_of(teammate)})


# Tasks.


async def _add(asked: Steering) -> Steered:
    given = BudgetTable(**{name: value for name, value in asked["budget"].items() if value != "none"}).caps()
    new = NewTask(
        title=asked["title"], body=asked["body"], role=asked["role"], assignee=asked["to"], needs=tuple(asked["needs"]),
        priority=asked["priority"], check=asked["check"], review=asked["review"], plan=asked["plan"],
        parent=asked["under"], budget=None if given == Budget() else given, key=asked.key,
    )  # fmt: skip
    return await _put(asked, new)


async def _put(asked: Steering, new: NewTask) -> Steered:
    task = (await asked.board.put_many([new]))[0]
    says = f"#{task.id} is {task.state}: {one_line(task.title, 80)}.{await asked.hint()}"
    return Steered(says=says, what=f"added #{task.id}", record={"task": shape_of(task)})


async def _retry(asked: Steering) -> Steered:
    reopened = await asked.board.retry(asked["task"], key=asked.key)
    says = f"Opened again: {_ids(reopened)}.{await asked.hint()}"
    return Steered(says=says, what=f"opened {_ids(reopened)} again", record={"reopened": reopened})


async def _cancel(asked: Steering) -> Steered:
    number = asked["task"]
    cancelled = await asked.board.cancel(number, why=asked["why"], dependents=asked["dependents"], key=asked.key)
    says = f"Cancelled: {_ids(cancelled)}." if cancelled else f"#{number} was cancelled already."
    return Steered(says=says, what=f"cancelled #{number}", record={"cancelled": cancelled})


async def _release(asked: Steering) -> Steered:
    await asked.board.release(asked["task"], why=asked["why"], key=asked.key)
    task = await asked.board.find(asked["task"])
    return Steered(says=f"#{task.id} is {task.state}.", what=f"released #{task.id}", record={"task": shape_of(task)})


async def _budget(asked: Steering) -> Steered:
    board, number = asked.board, asked["root"]
    root = (await board.find(number)).root if number > 0 else number
    given = {name: asked[name] for name in ("tasks", "tokens", "dollars", "minutes") if asked[name] is not None}
    numbers = BudgetTable(**{name: value for name, value in given.items() if value != "none"}).caps()
    removed = {"seconds" if name == "minutes" else name: None for name, value in given.items() if value == "none"}
    if not given or (asked["add"] and removed):
        raise BadInput("Say with a number which cap to change: tasks, tokens, dollars or minutes.")
    if asked["add"]:
        spending = await board.raise_budget(root, numbers, key=asked.key)
    else:
        caps = replace(numbers.over((await board.budget(root)).caps), **removed)
        spending = await board.set_budget(root, caps, key=asked.key)
    goal = f"#{root}" if root > 0 else f"b{-root}"
    held = " It is still held: that was not enough." if spending.held else ""
    return Steered(
        says=f"The caps of {goal} are changed.{held}", what=f"changed the caps of {goal}",
        record={"budget": spending_shape(spending)},
    )  # fmt: skip


async def _note(asked: Steering) -> Steered:
    note = await asked.board.write_note(HUMAN, asked["title"], asked["text"], key=asked.key)
    return Steered(says=f"Note {note.id} is written.", what=f"wrote note {note.id}", record={"note": shape_of(note)})


async def _remark(asked: Steering) -> Steered:
    """A comment on a line of a diff: a message to who did the work, or a task that follows up."""
    task = await asked.board.find(asked["task"])
    at = f", line {asked['line']}" if asked["line"] is not None else ""
    quoted = "".join(f"> {line}\n" for line in asked["quote"].splitlines())
    words = clean(f"About #{task.id}, {one_line(asked['path'], 300)}{at}:\n{quoted}{asked['text']}")
    if asked["as"] == "message":
        if task.teammate is None:
            raise BadInput(f"Nobody has worked on #{task.id} yet; make the remark a task.")
        told = await asked.board.tell(HUMAN, task.teammate, words, task=task.id, key=asked.key)
        who = one_line(told.recipient, _NAME)
        return Steered(
            says=f"m{told.id} is in {who}'s inbox.{await asked.hint()}", what=f"remarked on #{task.id} to {who}",
            record={"message": message_shape(told)},
        )  # fmt: skip
    title = one_line(asked["text"], 120)
    new = NewTask(title=title, body=words, role=task.role, review=task.review, parent=task.id, key=asked.key)
    return await _put(asked, new)


def _ids(ids: list[int]) -> str:
    return ", ".join(f"#{task}" for task in ids)


_request, _why, _name = text(20), text(_TEXT, default=""), text(_NAME)
_caps = {"tasks": cap, "tokens": cap, "dollars": cap, "minutes": cap}
WRITES: Mapping[str, Look] = {
    "answer": _write("answer", _answer, request=_request, text=text(_TEXT)),
    "approve": _write("approve", _approve, request=_request, text=text(_TEXT, default="")),
    "reject": _write("reject", _reject, request=_request, why=text(_TEXT)),
    "tell": _write("tell", _tell, to=_name, text=text(_TEXT), task=maybe(_task)),
    "read": _write("read", _read, messages=several(message)),
    "stop": _write("stop", _stop, name=_name, why=_why, now=flag),
    "spawn": _write(
        "spawn", _spawn, name=_name, roles=several(_name), prompt=text(_TEXT, default=""), model=text(200, default=""),
        lead=flag, plan=flag,
    ),
    "add": _write(
        "add", _add, title=text(_LINE), body=text(_TEXT, default=""), role=maybe_text(_NAME), to=maybe_text(_NAME),
        needs=several(need), priority=number(-1_000_000, 1_000_000, default=0), check=maybe_text(_LINE),
        review=maybe_text(_NAME), plan=flag, under=maybe(_task), budget=caps,
    ),
    "retry": _write("retry", _retry, task=_task),
    "cancel": _write("cancel", _cancel, task=_task, why=_why, dependents=flag),
    "release": _write("release", _release, task=_task, why=_why),
    "budget": _write("budget", _budget, root=number(-(2**53)), add=flag, **_caps),
    "note": _write("note", _note, title=text(_LINE), text=text(_TEXT)),
    "remark": _write(
        "remark", _remark, task=_task, path=text(_LINE), line=maybe(number(0)), quote=text(8_000, default=""),
        text=text(_TEXT), **{"as": one_of("message", "task")},
    ),
}  # fmt: skip
