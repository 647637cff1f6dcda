"""The types of command arguments (ids, durations, needs, caps), and how the shell completes them."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from ..board import Board

    Parameter = click.ParamType[Any]
else:  # Older releases of click have no type arguments.
    Parameter = click.ParamType

_TASK = re.compile(r"#?([0-9]{1,18})")
_MESSAGE = re.compile(r"[mM]([0-9]{1,18})")
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_OFFERED_MAX = 100
_WORD = re.compile(r"[A-Za-z0-9_#@][A-Za-z0-9_.@:#-]*")  # Nothing that a shell would act on, and no option.


class OfTheBoard(Parameter):
    """A parameter whose values the shell can offer from the board."""

    async def offered(self, board: Board) -> Sequence[tuple[str, str]]:
        """The values, each with what it is."""
        return ()

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offer only what stands on a board that the user made or accepted, and only words that a shell takes for
        words. If the board cannot be read there is nothing to offer: completion never fails."""
        import asyncio

        from ..text import one_line
        from .command import board_given, here, opened
        from .unaccepted import is_accepted, may_be_accepted

        async def look() -> Sequence[tuple[str, str]]:
            project, given = here(), board_given(ctx)
            url, typed = project.board_url(given, os.environ), bool(given or os.environ.get("DUGNAD_BOARD"))
            if not typed and not may_be_accepted(project, url):
                return ()
            async with opened(project, url) as board:
                known = typed or await is_accepted(board, url)
                return [each for each in await self.offered(board) if _WORD.fullmatch(each[0])] if known else ()

        try:
            found = asyncio.run(look())
        except Exception:  # Completion is no place for an error message.
            return []
        wanted = incomplete.removeprefix("#")
        return [CompletionItem(value, help=one_line(what, 60)) for value, what in found if value.startswith(wanted)]


class TaskId(OfTheBoard):
    """12 or #12. The shell offers tasks in the states given, with their titles."""

    name = "task"

    def __init__(self, *states: str) -> None:
        self._states: Any = states or None

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, int):
            return value
        found = _TASK.fullmatch(value)
        if not found or int(found[1]) == 0:
            self.fail(f"{value!r} is not the number of a task; write 12 or #12.", param, ctx)
        return int(found[1])

    async def offered(self, board: Board) -> Sequence[tuple[str, str]]:
        return [(str(task.id), task.title) for task in await board.list_tasks(states=self._states, page=_OFFERED_MAX)]


class BudgetId(TaskId):
    """A task, whose goal's budget is meant; or b1, a budget that several tasks share."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        shared = re.fullmatch(r"b([1-9]\d{0,17})", str(value))
        return -int(shared[1]) if shared else super().convert(value, param, ctx)


class Needs(TaskId):
    """3 or 3:approved, or several, separated by commas."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from ..types import Need

        if isinstance(value, tuple):
            return value
        parts = [each.strip().partition(":") for each in value.split(",") if each.strip()]
        return tuple(Need(super(Needs, self).convert(task, param, ctx), outcome or None) for task, _, outcome in parts)


class RequestId(OfTheBoard):
    """A request that waits for an answer: the number of its task (12) or of its message (m34)."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if found := _TASK.fullmatch(value):
            return found[1]
        if found := _MESSAGE.fullmatch(value):
            return f"m{found[1]}"
        self.fail(f"{value!r} is neither a task (12) nor a message (m34); `dugnad inbox` lists both.", param, ctx)

    async def offered(self, board: Board) -> Sequence[tuple[str, str]]:
        return [(f"m{asked.id}", f"{asked.sender}: {asked.text}") for asked in await board.requests()]


class TeammateName(OfTheBoard):
    name = "name"

    async def offered(self, board: Board) -> Sequence[tuple[str, str]]:
        return [(member.name, ", ".join((*member.roles, member.status))) for member in await board.team()]


class Span(Parameter):
    """A duration: 90s, 10m, 2h, 1d, 1h30m. A plain number is in seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        text = value.strip().lower()
        parts = _SPAN.findall(text)
        if parts and "".join(number + unit for number, unit in parts) == text:
            return sum(float(number) * _SECONDS[unit] for number, unit in parts)
        try:
            return float(text)
        except ValueError:
            self.fail(f"{value!r} is not a time; write 90s, 10m, 2h or 1d.", param, ctx)


class BoundedNumber(click.FloatRange):
    """A number within bounds. NaN is refused."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return found


class Cap(Parameter):
    """A number, or `none` for no cap."""

    name = "number"

    def __init__(self, number: type[int] | type[float]) -> None:
        self._number = number

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]
        if value.lower() == "none":
            return "none"
        try:
            return self._number(value)
        except ValueError:
            kind = "a whole number" if self._number is int else "a number"
            self.fail(f"{value!r} is not {kind}; write one, or `none` for no cap.", param, ctx)


def budget_options(whole: Parameter, number: Parameter) -> Callable[[Any], Any]:
    """Add --tasks, --tokens, --dollars and --minutes, the caps of a goal, which are read by these types."""

    def add(command: Any) -> Any:
        for name, kind, what in (
            ("--minutes", number, "Cap on minutes of model calls, tools and checks."),
            ("--dollars", number, "Cap on dollars."),
            ("--tokens", whole, "Cap on tokens, in and out."),
            ("--tasks", whole, "Cap on task runs: claims that begin work."),
        ):
            command = click.option(name, type=kind, metavar="N", help=what)(command)
        return command

    return add
