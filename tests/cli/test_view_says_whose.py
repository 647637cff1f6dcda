"""What people see says whose it is: who failed, who holds what, which attempt said it."""

from __future__ import annotations

import json

import pytest

from dugnad.team import Report
from dugnad.types import Amount, Attempt, Teammate, Turn
from dugnad.view.live import Snapshot, picture
from dugnad.view.summary import report_page
from dugnad.view.tables import task_page
from dugnad.view.transcript import transcript_page
from tests.cli.test_view import drawn, task


def member(name: str, status: str, reason: str | None = None) -> Teammate:
    return Teammate(
        name=name, roles=("coder",), lead=False, prompt="", model="", plan=False, status=status, host=None, seat=1,  # type: ignore[arg-type]
        reason=reason, spawned_at=0,
    )  # fmt: skip


def rows(tasks: list[object], team: list[Teammate]) -> dict[str, str]:
    """The live view's line for each teammate."""
    seen = Snapshot(now_ms=5_000, title="goal", tasks=tasks, counts={}, team=team, accounts=[])  # type: ignore[arg-type]
    lines = drawn(picture(seen, width=120, height=30), 120)
    return {each.name: next((line for line in lines if line.startswith(each.name)), "") for each in team}


def test_a_teammate_that_failed_stays_in_the_live_view_with_the_reason() -> None:
    found = rows([], [member("alice", "failed", "its key is wrong"), member("bob", "stopped", "rested")])
    assert "failed" in found["alice"]
    assert "its key is wrong" in found["alice"]
    assert found["bob"] == ""


@pytest.mark.parametrize("state", ["done", "failed", "waiting", "ready"])
def test_the_live_view_shows_at_a_teammate_only_what_it_holds(state: str) -> None:
    tasks = [task(id=3, state="claimed", teammate="alice", title="Now"), task(id=9, state=state, teammate="alice")]
    found = rows(tasks, [member("alice", "working")])
    assert "#3" in found["alice"]
    assert "#9" not in found["alice"]


def test_the_report_says_what_came_of_what_is_done_and_why_the_rest_is_not() -> None:
    tasks = [
        task(id=1, state="done", result="It is built.", reason="an old reason", teammate="alice"),
        task(id=2, state="failed", result="half of it", reason="There is no such page.", teammate="bob"),
        task(id=3, state="skipped", reason="needs #2, which ended failed"),
    ]
    said = "\n".join(drawn(report_page(Report(tasks=tasks)), 120))
    for words in ("It is built.", "There is no such page.", "needs #2, which ended failed"):
        assert words in said
    for words in ("an old reason", "half of it"):
        assert words not in said


def test_each_attempt_of_a_transcript_has_its_own_turns() -> None:
    attempts = [
        Attempt(
            task=1, epoch=epoch, number=epoch, teammate=name, host="h", continues=None, claimed_at=0, ended_at=1,
            ended_as="retry", handover=None, reason=None,
        )
        for epoch, name in ((1, "alice"), (2, "bob"))
    ]  # fmt: skip
    reply = {"text": "", "calls": [], "usage": [1, 1, 0, 0], "stop": "end", "model": "m", "native": None}
    turns = [
        Turn(
            task=1, epoch=epoch, number=1, kind="reply", used=Amount(), covers=None, at=0,
            body=json.dumps({"said": "", "reply": {**reply, "text": f"words of {epoch}"}}),
        )
        for epoch in (1, 2)
    ]  # fmt: skip
    said = "\n".join(drawn(transcript_page(attempts, turns), 120))
    first, second = said.split("attempt 2")
    assert ("words of 1" in first, "words of 2" in first) == (True, False)
    assert ("words of 1" in second, "words of 2" in second) == (False, True)


@pytest.mark.parametrize(
    ("state", "words"), [("claimed", "held by"), ("waiting", "held by"), ("done", "last held by")]
)  # fmt: skip
def test_a_page_says_who_holds_a_task_and_who_held_it_last(state: str, words: str) -> None:
    page = drawn(task_page(task(state=state, teammate="alice", put_at=0), [], [], []), 120)
    (line,) = [each.strip() for each in page if "held by" in each]
    assert line.split("  ")[0] == words
