"""Ending a hold: each outcome, the same one twice, late holders, lost hosts, and the guards."""

from __future__ import annotations

import pytest

from dugnad.board import Board
from dugnad.errors import BadInput, BadText, StaleClaim, UnknownTeammate
from dugnad.settings import Limits
from dugnad.types import Amount, Claim, Done, Failed, Need, Outcome, Released, Waiting
from tests.board.crew import Crew, assert_fenced, both, claim_many, crew, expire, holder_writes, kinds, make_due
from tests.conftest import Opener


async def lose(board: Board, url: str, team: Crew) -> list[int]:
    """Let the host's lease run out and its work be taken back; then it comes back, empty-handed."""
    await expire(url, team.host)
    taken = await board.take_back()
    await board.heartbeat(team.host)
    return taken


# Each outcome.


async def test_a_done_task_keeps_its_result_and_outcome(board: Board) -> None:
    task = await board.put("task")
    claim = await (await crew(board)).must_claim()
    assert await board.settle(claim, Done("the résult", "approved"), handover="h") == "done"
    found = await board.find(task.id)
    assert (found.state, found.result, found.outcome, found.reason) == ("done", "the résult", "approved", None)
    assert found.ended
    assert found.ended_at is not None
    (attempt,) = await board.attempts(task.id)
    assert (attempt.ended_as, attempt.handover) == ("done", "h")


async def test_a_done_task_names_who_did_it_although_another_brought_it_in(board: Board) -> None:
    team = await crew(board, "alice", "bob")
    task = await board.put("task")
    claim = await team.must_claim("bob")
    assert await board.settle(claim, Done("ok", by="alice")) == "done"
    assert (await board.find(task.id)).teammate == "alice"
    assert [attempt.teammate for attempt in await board.attempts(task.id)] == ["bob"]


async def test_a_failed_task_keeps_its_reason_and_is_not_tried_again(board: Board) -> None:
    task = await board.put("task")
    team = await crew(board)
    assert await board.settle(await team.must_claim(), Failed("no way")) == "failed"
    found = await board.find(task.id)
    assert (found.state, found.reason, found.tries) == ("failed", "no way", 1)
    assert await team.claim() is None


async def test_a_retry_waits_longer_each_time_and_then_fails(opener: Opener, url: str) -> None:
    board = await opener(limits=Limits(backoff_seconds=100, backoff_seconds_max=250, attempts_max=4))
    task = await board.put("task")
    team = await crew(board)
    waits = []
    for _ in range(3):
        claim = await team.must_claim()
        assert await board.settle(claim, Failed("flaky", retry=True)) == "retry"
        found = await board.find(task.id)
        event = (await board.events(task=task.id))[-1]
        assert (found.state, found.reason, event.kind) == ("scheduled", "flaky", "retrying")
        waits.append((found.due_at or 0) - event.at)
        assert await team.claim() is None
        await make_due(url, task.id)
    for wait, seconds in zip(waits, (100, 200, 250), strict=True):
        assert seconds * 500 - 1_000 <= wait <= seconds * 1_000 + 1_000
    assert await board.settle(await team.must_claim(), Failed("for good", retry=True)) == "failed"
    found = await board.find(task.id)
    assert (found.state, found.reason, found.tries) == ("failed", "for good", 4)


async def test_a_human_is_asked_when_the_last_try_failed(opener: Opener, url: str) -> None:
    board = await opener(limits=Limits(backoff_seconds=0.01, attempts_max=2))
    task = await board.put("task")
    team = await crew(board)
    await board.settle(await team.must_claim(), Failed("flaky", retry=True))
    await make_due(url, task.id)
    assert await board.settle(await team.must_claim(), Failed("flaky", retry=True)) == "failed"
    assert [(each.kind, each.task) for each in await board.inbox()] == [("notice", task.id)]


async def test_a_released_task_is_anyones_now_or_later(board: Board) -> None:
    task = await board.put("task")
    team = await crew(board, "alice", "bob")
    assert await board.settle(await team.must_claim(), Released("not mine")) == "released"
    found = await board.find(task.id)
    assert (found.state, found.reason, found.tries) == ("ready", "not mine", 0)
    assert await board.settle(await team.must_claim("bob"), Released("later", delay_seconds=3600)) == "released"
    assert (await board.find(task.id)).state == "scheduled"
    assert await team.claim() is None


@pytest.mark.parametrize("on", ["human", "plan"])
async def test_a_task_that_waits_for_an_answer_goes_on_with_it(board: Board, on: str) -> None:
    task = await board.put("task")
    team = await crew(board)
    claim = await team.must_claim()
    assert await board.settle(claim, Waiting(on=on, question="may I?")) == "waiting"  # type: ignore[arg-type]
    found = await board.find(task.id)
    assert (found.state, found.waiting_for, found.reason) == ("waiting", on, "may I?")
    assert await team.claim() is None
    (asked,) = await board.requests()
    assert (asked.text, asked.sender, asked.task, asked.request) == ("may I?", "alice", task.id, found.request)
    await board.reply(str(asked.request), "human", "yes", accepted=True)
    again = await team.must_claim()
    assert (again.task.id, again.continues, again.task.waiting_for) == (task.id, claim.epoch, None)


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (Done("nul\0"), BadText),
        (Done(outcome="failed"), BadInput),
        (Done(outcome="done"), BadInput),
        (Done(outcome="no spaces"), BadText),
        (Failed("x" * 300_000), BadText),
        (Released("no", delay_seconds=-1), BadInput),
        (Waiting(on="human"), BadInput),
        (Waiting(on="human", question="?", ask="nobody"), UnknownTeammate),
    ],
    ids=str,
)
async def test_a_malformed_outcome_is_refused_and_the_claim_kept(
    board: Board, outcome: Outcome, error: type[Exception]
) -> None:
    task = await board.put("task")
    claim = await (await crew(board)).must_claim()
    seq = await board.last_event()
    with pytest.raises(error):
        await board.settle(claim, outcome)
    assert await board.last_event() == seq
    assert (await board.find(task.id)).state == "claimed"
    assert await board.settle(claim, Done()) == "done"


# The same call twice.


@pytest.mark.parametrize(
    ("outcome", "answer"),
    [
        (Done("r", "approved"), "done"),
        (Failed("no"), "failed"),
        (Failed("no", retry=True), "retry"),
        (Waiting(on="human", question="?"), "waiting"),
        (Released("no"), "released"),
    ],
    ids=["done", "failed", "retry", "waiting", "released"],
)
async def test_settling_twice_alike_is_settling_once_and_otherwise_is_refused(
    board: Board, outcome: Outcome, answer: str
) -> None:
    task = await board.put("task")
    claim = await (await crew(board)).must_claim()
    assert await both(board.settle(claim, outcome), board.settle(claim, outcome)) == [answer, answer]
    seq, found = await board.last_event(), await board.find(task.id)
    assert await board.settle(claim, outcome) == answer
    with pytest.raises(StaleClaim):
        await board.settle(claim, Done("something else"))
    assert (await board.last_event(), await board.find(task.id)) == (seq, found)


async def test_of_two_different_ends_at_once_one_counts(board: Board) -> None:
    task = await board.put("task")
    behind = await board.put("behind", needs=[Need(task.id, "ended")])
    claim = await (await crew(board)).must_claim()
    answers = await both(board.settle(claim, Done()), board.settle(claim, Failed("no")))
    assert sorted(type(answer).__name__ for answer in answers) == ["StaleClaim", "str"]
    assert (await kinds(board, behind.id)).count("ready") == 1


# Late holders.


async def test_a_late_holder_may_still_finish_what_nobody_else_has_claimed(board: Board, url: str) -> None:
    task = await board.put("task")
    behind = await board.put("behind", needs=[task.id])
    team = await crew(board)
    claim = await team.must_claim()
    assert await lose(board, url, team) == [task.id]
    await board.follow_up(claim, "found on the way")
    await board.hand_over(claim, "word")
    assert await board.settle(claim, Done("late but good")) == "done"
    assert [(await board.find(each.id)).state for each in (task, behind)] == ["done", "ready"]
    (attempt,) = await board.attempts(task.id)
    assert (attempt.ended_as, attempt.handover) == ("done", "word")


@pytest.mark.parametrize(
    "write", ["record", "reserve", "follow_up", "tell", "broadcast", "write_note", "hand_over", "settle"]
)
async def test_each_write_of_a_late_holder_is_taken_while_no_newer_epoch_exists(
    board: Board, url: str, write: str
) -> None:
    await board.put("task")
    team = await crew(board)
    claim = await team.must_claim()
    await lose(board, url, team)
    await holder_writes(board, claim)[write]()


@pytest.mark.parametrize("other", ["claimed", "done", "failed", "retry", "released", "waiting", "cancelled"])
async def test_a_late_holder_can_write_nothing_once_another_has_claimed(board: Board, url: str, other: str) -> None:
    """Whatever became of the task since then."""
    task = await board.put("task")
    team = await crew(board, "alice", "bob")
    late = await team.must_claim("alice")
    await board.reserve(late, Amount(tokens=1), key="r")
    await lose(board, url, team)
    await make_due(url, task.id)
    claim = await team.must_claim("bob")
    outcomes = {
        "done": Done(), "failed": Failed("no"), "retry": Failed("no", retry=True), "released": Released("no"),
        "waiting": Waiting(on="human", question="?"),
    }  # fmt: skip
    if other in outcomes:
        await board.settle(claim, outcomes[other])
    elif other == "cancelled":
        await board.cancel(task.id)
    await assert_fenced(board, late)
    with pytest.raises(StaleClaim):
        await board.spend(late, "r", Amount())
    if other == "claimed":
        assert await board.settle(claim, Done()) == "done"


async def test_a_holder_that_let_go_can_write_nothing_more(board: Board) -> None:
    await board.put("task")
    team = await crew(board)
    claim = await team.must_claim()
    await board.settle(claim, Released("mine no more"))
    await assert_fenced(board, claim)


# Lost hosts.


async def test_the_work_of_a_living_host_is_not_taken_back(board: Board) -> None:
    await board.put("task")
    team = await crew(board)
    claim = await team.must_claim()
    assert await board.take_back() == []
    assert await board.heartbeat(team.host) == [(claim.task.id, claim.epoch)]


async def test_a_stopped_hosts_work_is_taken_back_at_once(board: Board) -> None:
    task = await board.put("task")
    team = await crew(board)
    await team.must_claim()
    await board.stop_host(team.host)
    assert await board.take_back() == [task.id]
    assert await board.take_back() == []


async def test_a_task_that_kills_its_hosts_fails_after_a_few_and_a_human_is_told(opener: Opener, url: str) -> None:
    board = await opener(limits=Limits(backoff_seconds=100, attempts_max=3))
    task = await board.put("deadly")
    behind = await board.put("behind", needs=[task.id])
    team = await crew(board)
    dues: list[int] = []
    for attempt in (1, 2):
        assert (await team.must_claim()).number == attempt
        assert await lose(board, url, team) == [task.id]
        found = await board.find(task.id)
        event = (await board.events(task=task.id))[-1]
        at_once = attempt == 1  # The first loss is hardly the task's doing.
        assert (found.state, found.tries, event.kind) == ("ready" if at_once else "scheduled", attempt, "taken_back")
        assert found.reason == f"attempt {attempt}: the host of alice was lost"
        assert await board.inbox() == []
        if not at_once:
            dues.append((found.due_at or 0) - event.at)
            assert await team.claim() is None
            await make_due(url, task.id)
    assert 49_000 <= dues[0] <= 101_000
    last = await team.must_claim()
    assert await lose(board, url, team) == [task.id]
    found = await board.find(task.id)
    assert (found.state, found.tries, found.due_at) == ("failed", 3, None)
    assert found.reason == "guard: lost 3 times, last with alice"
    assert (await board.find(behind.id)).state == "skipped"
    await assert_fenced(board, last)
    assert [(row.number, row.ended_as) for row in await board.attempts(task.id)] == [
        (1, "lost"), (2, "lost"), (3, "lost"),
    ]  # fmt: skip
    assert (await kinds(board, task.id)).count("taken_back") == 3
    (notice,) = await board.inbox()
    assert (notice.kind, notice.task) == ("notice", task.id)
    assert "lost 3 times" in notice.text


async def test_lost_and_failed_tries_are_counted_together(opener: Opener, url: str) -> None:
    board = await opener(limits=Limits(backoff_seconds=100, attempts_max=2))
    task = await board.put("task")
    team = await crew(board)
    await board.settle(await team.must_claim(), Failed("flaky", retry=True))
    await make_due(url, task.id)
    await team.must_claim()
    await lose(board, url, team)
    assert (await board.find(task.id)).state == "failed"


async def test_taking_back_in_parts_takes_all_in_the_end(board: Board, url: str) -> None:
    tasks = [await board.put(str(place)) for place in range(5)]
    names = [f"mate{place}" for place in range(5)]
    team = await crew(board, *names)
    await claim_many(board, names, team.host)
    await expire(url, team.host)
    taken = [await board.take_back(count=2) for _ in range(4)]
    assert [len(part) for part in taken] == [2, 2, 1, 0]
    assert sorted(each for part in taken for each in part) == [task.id for task in tasks]


# Loops that never fail.


@pytest.mark.parametrize("how", ["released", "waiting", "retry", "lost"])
async def test_an_endless_loop_of_peaceful_ends_is_stopped_and_a_human_told(opener: Opener, url: str, how: str) -> None:
    board = await opener(limits=Limits(backoff_seconds=0.01, claims_max=3, attempts_max=100))
    task = await board.put("restless")
    behind = await board.put("behind", needs=[task.id])
    done = await board.put("done before", delay_seconds=3600)
    await board.cancel(done.id)
    team = await crew(board)

    async def end(claim: Claim) -> None:
        if how == "lost":
            await lose(board, url, team)
        else:
            outcomes = {"released": Released("no"), "retry": Failed("no", retry=True)}
            await board.settle(claim, outcomes.get(how, Waiting(on="tasks", tasks=(done.id,))))
        await make_due(url, task.id)

    for _ in range(2):
        await end(await team.must_claim())
        assert (await board.find(task.id)).state in ("ready", "scheduled")
    await end(await team.must_claim())
    found = await board.find(task.id)
    assert (found.state, found.claims) == ("failed", 3)
    assert (await board.find(behind.id)).state == "skipped"
    assert [(each.kind, each.task) for each in await board.inbox()] == [("notice", task.id)]
    await board.retry(task.id)
    assert (await team.must_claim()).task.id == task.id


async def test_where_the_work_went_is_kept_with_the_result(board: Board) -> None:
    await board.put("merged")
    team = await crew(board)
    claim = await team.must_claim()
    done = Done("I did it.", merged_into="dugnad/main", merged_as="0123abc", triggers="Makefile (make)")
    await board.settle(claim, done)
    assert await board.settle(claim, done) == "done"
    task = await board.find(claim.task.id)
    assert (task.result, task.merged_into, task.merged_as) == ("I did it.", "dugnad/main", "0123abc")
    assert (task.files_in, task.triggers) == (None, "Makefile (make)")
    said = [event.data for event in await board.events() if event.kind == "done"]
    assert (said[0]["merged_into"], said[0]["merged_as"]) == ("dugnad/main", "0123abc")
    assert "files_in" not in said[0]
