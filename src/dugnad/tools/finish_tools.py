"""Tools that end an attempt."""

from __future__ import annotations

from typing import Literal

from ..prompts import tell
from ..text import Told
from ..types import Done, Failed, Released
from .context import Context, Ends
from .tool import Tool, own_tool

APPROVED, CHANGES = "approved", "changes-requested"
Verdict = Literal["approved", "changes-requested"]


@own_tool()
async def finish(context: Context, result: str, outcome: str | None = None) -> Ends:
    return Ends(Done(result, outcome), _handed_in(context))


async def _finish_review(context: Context, outcome: Verdict, result: str) -> Ends:
    return Ends(Done(result, outcome), _handed_in(context))


# The `finish` of a review: its outcome is a choice of two, and must be given.
review_finish = Tool(_finish_review, name="finish", keyed=True, own=True, prompt="review_finish")


def _handed_in(context: Context) -> Told:
    """Nobody reads this as the last word: if the work goes on, the verdict takes its place."""
    follows = context.desk.follows
    return tell("results.handed_in", follows=follows) if follows else tell("results.handed_in_last")


@own_tool(early=True)
async def give_up(context: Context, reason: str, later_minutes: float | None = None) -> Ends:
    """The task fails; or with a time, it is given back to be taken again after that time."""
    if later_minutes is None:
        return Ends(Failed(reason or "given up without a reason"), "Given up.")
    return Ends(Released(reason, max(0.0, later_minutes) * 60), "Given back.")
