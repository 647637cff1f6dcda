"""What a run took, and what one teammate alone would have taken."""

from __future__ import annotations

from typing import Any

from dugnad.board.records import PastAttempt
from dugnad.models import ScriptedModel
from dugnad.models.port import Price, Usage
from dugnad.models.scripted import Step
from dugnad.team.report import Report, compared
from dugnad.types import Amount
from dugnad.view.summary import report_shape
from tests.team.stage_team import within
from tests.team.test_team import open_team

SECOND = 1_000


def attempt(teammate: str, claimed_at: int, seconds: int, **fields: Any) -> PastAttempt:
    """Three replies for 3,000 tokens and 30 cents; a third of both is the first reply, which comes after 10 seconds."""
    return PastAttempt(
        **{
            "task": 1,
            "role": None,
            "outcome": None,
            "ended_as": "done",
            "seconds": seconds,
            "replies": 3,
            "used": Amount(tokens=3_000, microdollars=300_000, milliseconds=seconds * SECOND),
            "kind": "work",
            "teammate": teammate,
            "claimed_at": claimed_at * SECOND,
            "after_ms": 5 * SECOND,
            "first": Amount(tokens=1_000, microdollars=100_000, milliseconds=10 * SECOND),
            **fields,
        }
    )


def test_one_who_did_it_alone_is_compared_with_nobody() -> None:
    past = [attempt("alice", 100, 60), attempt("alice", 160, 40)]
    assert compared(past, 90 * SECOND) == (1, Amount(tokens=6_000, microdollars=600_000, milliseconds=110_000), None)
    assert compared([], 0) == (0, None, None)


def test_one_alone_does_the_same_work_without_reviews_and_hand_offs() -> None:
    past = [
        attempt("alice", 0, 60),
        attempt("bob", 10, 60),
        attempt("carol", 70, 30, kind="review"),
        attempt("bob", 100, 20, replies=0, used=Amount(milliseconds=20_000)),  # It was approved, and merged.
        attempt("alice", 60, 60, fresh=False),  # It went on where it was.
    ]
    count, took, alone = compared(past, 0)
    assert (count, took) == (3, Amount(tokens=12_000, microdollars=1_200_000, milliseconds=120_000))
    assert alone == Amount(tokens=8_000, microdollars=800_000, milliseconds=(60 + 45 + 60) * SECOND)


def test_the_only_reply_of_a_task_is_its_work() -> None:
    past = [attempt("alice", 0, 60), attempt("bob", 10, 60, replies=1)]
    assert compared(past, 0)[2] == Amount(tokens=6_000, microdollars=600_000, milliseconds=(60 + 55) * SECOND)


def test_the_report_says_both_in_one_line_and_the_json_has_the_figures() -> None:
    took = Amount(tokens=124_000, microdollars=310_000, milliseconds=248_000)
    alone = Amount(tokens=40_000, microdollars=120_000, milliseconds=230_000)
    end = Report(teammates=3, took=took, alone=alone)
    assert "3 teammates: 4m 8s, $0.31; one alone: about 3m 50s, $0.12" in str(end)
    assert report_shape(end)["took"] == {"teammates": 3, "tokens": 124_000, "dollars": 0.31, "seconds": 248.0}
    assert report_shape(end)["alone"] == {"tokens": 40_000, "dollars": 0.12, "seconds": 230.0}


def test_without_a_price_tokens_are_said_and_nothing_of_a_run_that_did_nothing() -> None:
    end = Report(teammates=1, took=Amount(tokens=24_000, milliseconds=95_000))
    assert "1 teammate: 1m 35s, 24,000 tokens" in str(end)
    assert "alone" not in str(end)
    assert str(Report()) == ""
    assert (report_shape(Report())["took"], report_shape(Report())["alone"]) == (None, None)


async def test_a_real_run_is_measured_from_its_own_beginning(url: str) -> None:
    turn = Step(say="Done.", usage=Usage(input_tokens=900, output_tokens=100))
    model = ScriptedModel({"*": [turn] * 9}, price=Price(input=1.0, output=1.0))
    async with open_team(url, model) as team:
        await team.spawn("alice")
        await team.put("before")
        assert (await within(team.run())).teammates == 1
        await team.leave("the next run is another")
        await team.spawn("bob")
        await team.put("one", assignee="alice")
        await team.put("two", assignee="bob")
        end = await within(team.run())
    assert (end.teammates, end.took and end.took.tokens, end.alone and end.alone.tokens) == (2, 2_000, 2_000)
    assert end.spent.tokens == 3_000, "the whole account, with the run before"
