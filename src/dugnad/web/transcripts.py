"""The turns of an attempt for the page: a reply with its calls and their results as one entry. Pure.

What another program wrote as a turn may have any form. It is shown as it is, as text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from ..models.port import LIVE
from ..types import Turn
from ..view.json import amount_shape
from .shapes import verdict_of

PIECE_CHARS_MAX = 2_000  # Of one text in a list of turns; one turn alone has whole texts.
WHOLE_CHARS_MAX = 2_000_000
_OUTPUT_CHARS_MAX = 8_000
Entry = dict[str, Any]


def entries(turns: Sequence[Turn], *, most: int = PIECE_CHARS_MAX) -> list[Entry]:
    """One entry for each turn but those of tools, whose results stand with the calls of their reply. Results without a
    reply at the beginning belong to an earlier page."""
    found: list[Entry] = []
    last: Entry | None = None  # The last reply.
    for turn in turns:
        body = _body(turn)
        if turn.kind == "tool" and isinstance(body, dict) and _add_result(last, body, most):
            continue
        if turn.kind == "tool" and last is None:
            continue
        entry: Entry = {"number": turn.number, "epoch": turn.epoch, "kind": turn.kind, "at": turn.at}
        entry |= {"used": amount_shape(turn.used), **_said(turn, body, most)}
        found.append(entry)
        last = entry if turn.kind == "reply" and "calls" in entry else last
    return found


def checks(turns: Iterable[Turn]) -> list[Entry]:
    """The checks that were run in these turns, by `run_check` or at the end, with what they printed."""
    found: list[Entry] = []
    names: list[str] = []
    for turn in turns:
        body = _body(turn)
        if turn.kind == "reply":
            names = [str(call[1]) for call in _calls(body)]
        elif turn.kind == "tool" and isinstance(body, dict) and isinstance(text := body.get("text"), str):
            place = body.get("place")
            name = names[place] if isinstance(place, int) and 0 <= place < len(names) else "finish"
            if (green := _is_green(name, text)) is not None:
                found.append({"at": turn.at, "green": green, **_piece("output", text, _OUTPUT_CHARS_MAX)})
    return found


def _is_green(name: str, text: str) -> bool | None:
    """How the check of a call ended, by what its mind was told; None: the call ran none."""
    if name == "run_check" and text.startswith(("Green: ", "Red: `")):
        return text.startswith("Green: ")
    return False if name == "finish" and verdict_of(text) == "red" else None


def _body(turn: Turn) -> Any:
    try:
        return json.loads(turn.body)
    except (ValueError, RecursionError):
        return None


def _calls(body: Any) -> list[Any]:
    reply = body.get("reply") if isinstance(body, dict) else None
    calls = reply.get("calls") if isinstance(reply, dict) else None
    return [each for each in calls if isinstance(each, list) and len(each) == 3] if isinstance(calls, list) else []


def _said(turn: Turn, body: Any, most: int) -> Entry:
    if turn.kind == "reply" and isinstance(body, dict) and isinstance(reply := body.get("reply"), dict):
        calls = [{"name": str(name), **_piece("arguments", text, most)} for _, name, text in _calls(body)]
        ended = reply.get("run", "well").partition(":")[0] if isinstance(reply.get("run"), str) else "well"
        return {
            **_piece("said", body.get("said"), most), **_piece("text", reply.get("text"), most), "calls": calls,
            "model": str(reply.get("model") or ""), **({"run": reply["run"]} if ended not in ("well", LIVE) else {}),
        }  # fmt: skip
    if turn.kind == "summary" and isinstance(body, dict):
        if text := body.get("summary") or body.get("carried"):
            return _piece("summary", text, most)
        if isinstance(shortened := body.get("shortened"), list):
            return {"summary": f"{len(shortened):,} old results were shortened."}
    for name in ("traceback", "command", "text"):
        if isinstance(body, dict) and isinstance(body.get(name), str):
            return _piece("text", body[name], most)
    return _piece("text", turn.body, most)


def _add_result(reply: Entry | None, body: Entry, most: int) -> bool:
    """Put a result to its call. The verdict on the work takes the place of the first answer of `finish`."""
    calls = reply["calls"] if reply is not None else []
    place = body.get("place")
    if body.get("verdict"):
        place = next((at for at, call in enumerate(calls) if call["name"] == "finish"), None)
    if not isinstance(place, int) or not 0 <= place < len(calls):
        return False
    piece = _piece("result", body.get("text"), most)
    calls[place].pop("result", None)
    calls[place] |= {**piece, "failed": bool(body.get("bad")), "cut": bool(calls[place].get("cut") or piece.get("cut"))}
    return True


def _piece(name: str, text: Any, most: int) -> Entry:
    """A text under this name, as much of it as is shown; `cut` says that there is more."""
    whole = "" if text is None else text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
    return {name: whole} if len(whole) <= most else {name: whole[:most], "cut": True}
