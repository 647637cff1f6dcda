"""The turns of a task as a conversation: what the teammate was told, said and called, and the results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ..models.port import LIVE
from ..text import counted, one_line
from ..types import Attempt, Turn
from .numbers import clock
from .tables import Indented, begin

_TEXT_MOST = 2_000  # Characters of one piece; `--json` has all of it.


def transcript_page(attempts: Sequence[Attempt], turns: Sequence[Turn]) -> RenderableType:
    """Every attempt with its turns, in order."""
    parts: list[RenderableType] = []
    for attempt in attempts:
        went_on = f", continues epoch {attempt.continues}" if attempt.continues is not None else ""
        parts.append(Text(f"\nattempt {attempt.number}, {one_line(attempt.teammate, 40)}{went_on}", style="bold"))
        calls: list[str] = []
        own = [turn for turn in turns if turn.epoch == attempt.epoch]
        for turn in own:
            parts += _turn(turn, attempt.teammate, calls)
        if not own:
            parts.append(Text("  no turns", style="dim"))
    return Group(*parts)


def trouble_page(task: int, tracebacks: Mapping[int, str], *, whole: bool) -> list[RenderableType]:
    """The tracebacks that are kept, by attempt; without `whole`, that there are some."""
    if not tracebacks:
        return [Text("\nNo bug of a teammate ended an attempt.", style="dim")] if whole else []
    if not whole:
        return [Text(f"\nA teammate's bug: dugnad show {task} --trouble shows the traceback.", style="bold")]
    parts: list[RenderableType] = []
    for number, text in tracebacks.items():
        parts += [Text(f"\nattempt {number}, ended by a bug", style="bold"), Indented(text, columns=2)]
    return parts


def _turn(turn: Turn, teammate: str, calls: list[str]) -> list[RenderableType]:
    """One turn. `calls` are the names of the tools that the last reply called, in order."""
    at = clock(turn.at)
    try:
        body: Any = json.loads(turn.body)
        if turn.kind == "request":
            return [Text(f"  {at}  {one_line(body['command'], 60)} started", style="dim")]
        if turn.kind == "live":
            first, *more = str(body["text"]).splitlines() or [""]
            shown: list[RenderableType] = [Text(f"  {at}  {one_line(first, 200)}", style="dim")]
            return [*shown, Indented(begin("\n".join(more), _TEXT_MOST), columns=12)] if more else shown
        if turn.kind == "reply":
            return _reply(body, at, teammate, calls, turn.used.tokens)
        if turn.kind == "tool":
            return _piece(f"{at}  {calls[body['place']]} returned", body["text"])
        if turn.kind == "trouble":
            return _piece(f"{at}  a bug ended the attempt", body["traceback"])
        if turn.kind == "summary" and "summary" in body:
            return _piece(f"{at}  summary of the turns before", body["summary"])
        if turn.kind == "summary":
            return [Text(f"  {at}  {counted(len(body['shortened']), 'old result')} shortened", style="dim")]
    except (ValueError, KeyError, IndexError, TypeError):
        pass  # Another program wrote this turn: show it as it is.
    return _piece(f"{at}  {turn.kind}", turn.body)


def _reply(body: Any, at: str, teammate: str, calls: list[str], tokens: int) -> list[RenderableType]:
    parts = _piece(f"{at}  {one_line(teammate, 40)} was told", body["said"]) if body["said"] else []
    reply = body["reply"]
    who = one_line(teammate, 40)
    cost = f" ({counted(tokens, 'token')})"
    if reply["text"]:
        parts += _piece(f"{at}  {who}{cost} says", reply["text"])
        cost = ""  # Shown once for each reply.
    if reply.get("run", "well").partition(":")[0] not in ("well", LIVE):
        parts += _piece(f"{at}  the run ended", reply["run"])
    calls[:] = [str(name) for _, name, _ in reply["calls"]]
    for _, name, arguments in reply["calls"]:
        parts.append(Text(f"  {at}  {who}{cost} calls {one_line(name, 60)} {one_line(arguments, 200)}", style="cyan"))
        cost = ""
    return parts


def _piece(head: str, text: str) -> list[RenderableType]:
    return [Text(f"  {one_line(head, 200)}:", style="cyan"), Indented(begin(text, _TEXT_MOST), columns=4)]
