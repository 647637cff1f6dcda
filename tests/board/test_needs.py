"""Needs: order, outcomes, what is skipped and why, edges added later, circles, waiting for tasks."""

from __future__ import annotations

import pytest

from dugnad.board import Board
from dugnad.errors import BadInput, Cycle, NotReady, StaleClaim, UnknownTask
from dugnad.types import Amount, Budget, Claim, Done, Failed, Need, NewTask, Outcome, Released, Task, Waiting
from tests.board.crew import both, claim_many, crew, expire, kinds, make_due


async def states(board: Board, *tasks: Task) -> list[str]:
    return [(await board.find(task.id)).state for task in tasks]


# Order and outcomes.


async def test_no_task_starts_before_all_its_needs_are_met(board: Board) -> None:
    one, two, last = await board.put_many(
        [NewTask(title="1"), NewTask(title="2", needs=(-1,)), NewTask(title="3", needs=(-1, -2), priority=9)]
    )
    team = await crew(board)
    for expected in (one, two, last):
        claim = await team.must_claim()
        assert claim.task.id == expected.id
        assert await team.claim() is None
        await board.settle(claim, Done("ok"))
    assert await states(board, one, two, last) == ["done"] * 3


async def end(board: Board, claim: Claim, how: Outcome | str) -> None:
    if isinstance(how, str):
        await board.cancel(claim.task.id)
    else:
        await board.settle(claim, how)


@pytest.mark.parametrize(
    ("how", "met"),
    [
        (Done(), {None, "ended"}),
        (Done(outcome="approved"), {None, "approved", "ended"}),
        (Done(outcome="rejected"), {None, "rejected", "ended"}),
        (Failed("no"), {"failed", "ended"}),
        ("cancel", {"cancelled", "ended"}),
    ],
    ids=["done", "approved", "rejected", "failed", "cancelled"],
)
async def test_a_need_is_met_by_just_the_end_it_asks_for(board: Board, how: Outcome | str, met: set[str]) -> None:
    needed = await board.put("needed", priority=1)
    words = [None, "approved", "rejected", "failed", "cancelled", "skipped", "ended"]
    before = {word: await board.put(f"before {word}", needs=[Need(needed.id, word)]) for word in words}
    await end(board, await (await crew(board)).must_claim(), how)
    after = {word: await board.put(f"after {word}", needs=[Need(needed.id, word)]) for word in words}
    for tasks in (before, after):
        ready = {word for word, task in tasks.items() if (await board.find(task.id)).state == "ready"}
        assert ready == met
        for word in set(words) - ready:
            task = await board.find(tasks[word].id)
            assert task.state == "skipped"
            assert f"needs #{needed.id}" in (task.reason or "")
            assert word is None or f"to end as {word}" in (task.reason or "")


async def test_a_need_for_the_word_done_is_never_silently_in_vain(board: Board) -> None:
    needed = await board.put("needed")
    try:
        behind = await board.put("behind", needs=[Need(needed.id, "done")])
    except BadInput:
        return
    await board.settle(await (await crew(board)).must_claim(), Done())
    assert (await board.find(behind.id)).state == "ready"


async def test_a_skipped_task_is_an_end_others_may_ask_for(board: Board) -> None:
    _, skipped, glad, either = await board.put_many(
        [
            NewTask(title="fails"), NewTask(title="skipped", needs=(-1,)),
            NewTask(title="glad", needs=(Need(-2, "skipped"),)), NewTask(title="either", needs=(Need(-2, "ended"),)),
        ]
    )  # fmt: skip
    await board.settle(await (await crew(board)).must_claim(), Failed("no"))
    assert await states(board, skipped, glad, either) == ["skipped", "ready", "ready"]


# What can never be met.


async def test_a_failure_skips_a_chain_each_with_its_reason(board: Board) -> None:
    chain = await board.put_many(
        [NewTask(title="0"), *(NewTask(title=str(place), needs=(-place,)) for place in range(1, 6))]
    )
    await board.settle(await (await crew(board)).must_claim(), Failed("no"))
    assert await board.count_tasks() == {"failed": 1, "skipped": 5}
    reasons = [(await board.find(task.id)).reason for task in chain]
    assert reasons[1] == f"needs #{chain[0].id}, which ended failed"
    assert reasons[2:] == [f"needs #{task.id}, which ended skipped" for task in chain[1:-1]]
    assert (await kinds(board)).count("skipped") == 5


async def test_a_failure_skips_a_diamond_each_task_once(board: Board) -> None:
    tasks = await board.put_many(
        [
            NewTask(title="top"), NewTask(title="left", needs=(-1,)), NewTask(title="right", needs=(-1,)),
            NewTask(title="low", needs=(-1, -2, -3)), NewTask(title="lower", needs=(-2, -4)),
        ]
    )  # fmt: skip
    await board.settle(await (await crew(board)).must_claim(), Failed("no"))
    for task in tasks[1:]:
        assert (await kinds(board, task.id)) == ["put", "skipped"]
        assert (await board.find(task.id)).epoch == 1
        assert {verdict for _, verdict in await board.needs_of(task.id)} == {"broken"}


async def test_one_met_and_one_broken_need_settled_together_skip_once(board: Board) -> None:
    good, bad = await board.put("good", priority=1), await board.put("bad")
    behind = await board.put("behind", needs=[good.id, bad.id])
    team = await crew(board, "alice", "bob")
    claims = await claim_many(board, ["alice", "bob"], team.host)
    await both(board.settle(claims[0], Done()), board.settle(claims[1], Failed("no")))
    found = await board.find(behind.id)
    assert (found.state, found.reason) == ("skipped", f"needs #{bad.id}, which ended failed")
    assert (await kinds(board, behind.id)) == ["put", "skipped"]


async def test_a_task_put_behind_ended_ones_starts_or_is_skipped_at_once(board: Board) -> None:
    good, bad = await board.put("good", priority=1), await board.put("bad")
    team = await crew(board)
    await board.settle(await team.must_claim(), Done())
    await board.settle(await team.must_claim(), Failed("no"))
    ready = await board.put("ready", needs=[good.id, Need(bad.id, "failed")])
    assert (ready.state, ready.open_needs) == ("ready", 0)
    skipped, behind = await board.put_many(
        [NewTask(title="skipped", needs=(good.id, bad.id)), NewTask(title="behind", needs=(-1,))]
    )
    assert (skipped.state, behind.state) == ("skipped", "skipped")
    assert skipped.reason == f"needs #{bad.id}, which ended failed"


async def test_a_delay_still_counts_when_the_needs_are_met(board: Board) -> None:
    needed = await board.put("needed")
    later = await board.put("later", needs=[needed.id], delay_seconds=3600)
    team = await crew(board)
    await board.settle(await team.must_claim(), Done())
    found = await board.find(later.id)
    assert (found.state, found.open_needs, found.due_at) == ("scheduled", 0, later.due_at)
    assert await team.claim() is None


# Edges added later.


async def test_a_need_added_later_is_waited_for(board: Board) -> None:
    task, needed = await board.put("task", priority=5), await board.put("needed")
    await board.add_need(task.id, needed.id, key="k")
    seq = await board.last_event()
    await board.add_need(task.id, needed.id, key="k")
    await board.add_need(task.id, needed.id)
    assert await board.last_event() == seq
    found = await board.find(task.id)
    assert (found.state, found.open_needs) == ("blocked", 1)
    assert (await board.find(needed.id)).chain == 1
    with pytest.raises(NotReady, match="already waits"):
        await board.add_need(task.id, Need(needed.id, "approved"))
    team = await crew(board)
    claim = await team.must_claim()
    assert claim.task.id == needed.id
    await board.settle(claim, Done())
    assert (await team.must_claim()).task.id == task.id


async def test_a_need_added_behind_an_ended_task_is_met_or_skips(board: Board) -> None:
    good, bad = await board.put("good", priority=2), await board.put("bad", priority=1)
    team = await crew(board)
    await board.settle(await team.must_claim(), Done())
    await board.settle(await team.must_claim(), Failed("no"))
    task = await board.put("task")
    behind = await board.put("behind", needs=[task.id])
    await board.add_need(task.id, good.id)
    assert (await board.find(task.id)).state == "ready"
    await board.add_need(task.id, bad.id)
    assert await states(board, task, behind) == ["skipped", "skipped"]
    assert (await board.find(task.id)).reason == f"needs #{bad.id}, which ended failed"


async def test_a_need_cannot_be_added_to_a_claimed_waiting_or_ended_task(board: Board) -> None:
    task, other = await board.put("task"), await board.put("other", delay_seconds=3600)
    team = await crew(board)

    async def refused(state: str) -> None:
        seq = await board.last_event()
        with pytest.raises(NotReady, match=f"#{task.id} is {state}"):
            await board.add_need(task.id, other.id)
        assert await board.last_event() == seq

    claim = await team.must_claim()
    await refused("claimed")
    await board.settle(claim, Waiting(on="human", question="?"))
    await refused("waiting")
    await board.cancel(task.id)
    await refused("cancelled")
    with pytest.raises(UnknownTask):
        await board.add_need(999, other.id)
    with pytest.raises(UnknownTask):
        await board.add_need(other.id, 999)


@pytest.mark.parametrize(
    "outcome",
    [Released("no"), Failed("no", retry=True), Waiting(on="human", question="?")],
    ids=["released", "retry", "waiting"],
)
async def test_a_late_holder_does_not_undo_a_need_added_after_it_was_lost(
    board: Board, url: str, outcome: Outcome
) -> None:
    task, needed = await board.put("task", priority=1), await board.put("needed")
    team = await crew(board)
    late = await team.must_claim()
    await expire(url, team.host)
    await board.take_back()
    await board.add_need(task.id, needed.id)
    answers = await both(board.settle(late, outcome))
    assert isinstance(answers[0], str | StaleClaim)
    await board.heartbeat(team.host)
    await make_due(url, task.id)
    claim = await team.must_claim()
    assert claim.task.id == needed.id, "it started before its need was met"
    await board.settle(claim, Done())
    assert (await board.find(task.id)).open_needs == 0


async def test_what_a_late_holder_had_reserved_counts_as_spent_when_a_need_shuts_it_out(board: Board, url: str) -> None:
    task, needed = await board.put("task", priority=1, budget=Budget(tokens=1_000)), await board.put("needed")
    team = await crew(board)
    late = await team.must_claim()
    await expire(url, team.host)
    await board.take_back()
    await board.reserve(late, Amount(tokens=400))  # Nobody else has claimed it yet, so it may.
    await board.add_need(task.id, needed.id)
    account = await board.budget(task.id)
    assert (account.reserved, account.spent) == (Amount(), Amount(tokens=400))
    with pytest.raises(StaleClaim):
        await board.reserve(late, Amount(tokens=1))


# Circles.


@pytest.mark.parametrize("length", [1, 2, 3, 7])
async def test_a_circle_is_refused_and_named(board: Board, length: int) -> None:
    chain = [await board.put("0")]
    for place in range(1, length):
        chain.append(await board.put(str(place), needs=[chain[-1].id]))
    seq = await board.last_event()
    way = " needs ".join(f"#{task.id}" for task in (chain[0], *reversed(chain)))
    with pytest.raises(Cycle, match=way):
        await board.add_need(chain[0].id, chain[-1].id)
    assert await board.last_event() == seq
    assert (await board.find(chain[0].id)).state == "ready"


async def test_a_circle_within_a_batch_is_refused_and_named_by_titles(board: Board) -> None:
    batch = [NewTask(title="egg", needs=(-3,)), NewTask(title="nest"), NewTask(title="hen", needs=(-1, -2))]
    with pytest.raises(Cycle, match="'egg' needs 'hen' needs 'egg'"):
        await board.put_many(batch)
    assert await board.count_tasks() == {}


async def test_a_long_way_round_that_is_no_circle_is_allowed(board: Board) -> None:
    top, left, right, low = await board.put_many(
        [
            NewTask(title="top"), NewTask(title="left", needs=(-1,)), NewTask(title="right", needs=(-1,)),
            NewTask(title="low", needs=(-2, -3)),
        ]
    )  # fmt: skip
    await board.add_need(low.id, top.id)
    await board.add_need(left.id, right.id)
    with pytest.raises(Cycle):
        await board.add_need(top.id, low.id)
    assert [(await board.find(each.id)).chain for each in (top, right, left, low)] == [3, 2, 1, 0]


# Waiting for tasks.


async def test_a_task_waits_for_others_and_goes_on_however_they_end(board: Board) -> None:
    parent = await board.put("parent", priority=9)
    team = await crew(board)
    claim = await team.must_claim()
    one, two = [await board.follow_up(claim, title) for title in ("one", "two")]
    assert await board.settle(claim, Waiting(on="tasks", tasks=(one.id, two.id))) == "waiting"
    found = await board.find(parent.id)
    assert (found.state, found.waiting_for, found.open_needs) == ("waiting", "tasks", 2)
    await board.settle(await team.must_claim(), Done())
    assert (await board.find(parent.id)).state == "waiting"
    await board.settle(await team.must_claim(), Failed("no"))
    found = await board.find(parent.id)
    assert (found.state, found.waiting_for, found.open_needs) == ("ready", None, 0)
    again = await team.must_claim()
    assert (again.task.id, again.continues, again.number) == (parent.id, claim.epoch, 2)


async def test_a_task_named_twice_is_waited_for_once(board: Board) -> None:
    other = await board.put("other")
    parent = await board.put("parent", priority=1)
    team = await crew(board)
    await board.settle(await team.must_claim(), Waiting(on="tasks", tasks=(other.id, other.id)))
    assert (await board.find(parent.id)).open_needs == 1
    assert await board.replayed_state() == await board.observed_state()
    await board.settle(await team.must_claim(), Done())
    assert (await board.find(parent.id)).state == "ready"


async def test_a_task_that_waits_for_ended_ones_goes_on_at_once(board: Board) -> None:
    parent, other = await board.put("parent"), await board.put("other")
    await board.cancel(other.id)
    team = await crew(board)
    claim = await team.must_claim()
    assert await board.settle(claim, Waiting(on="tasks", tasks=(other.id,))) == "waiting"
    again = await team.must_claim()
    assert (again.task.id, again.continues) == (parent.id, claim.epoch)


async def test_a_wait_that_would_close_a_circle_is_refused_and_the_claim_kept(board: Board) -> None:
    task = await board.put("task")
    behind = await board.put("behind", needs=[task.id])
    last = await board.put("last", needs=[behind.id])
    claim = await (await crew(board)).must_claim()
    way = f"#{task.id} needs #{last.id} needs #{behind.id} needs #{task.id}"
    with pytest.raises(Cycle, match=way):
        await board.settle(claim, Waiting(on="tasks", tasks=(last.id,)))
    with pytest.raises(Cycle):
        await board.settle(claim, Waiting(on="tasks", tasks=(task.id,)))
    with pytest.raises(UnknownTask):
        await board.settle(claim, Waiting(on="tasks", tasks=(999,)))
    with pytest.raises(BadInput):
        await board.settle(claim, Waiting(on="tasks"))
    assert (await board.find(task.id)).state == "claimed"
    assert await board.settle(claim, Done()) == "done"
    assert (await board.find(behind.id)).state == "ready"


async def test_two_that_wait_for_each_other_at_once_are_not_both_allowed(board: Board) -> None:
    for title in ("one", "two"):
        await board.put(title)
    team = await crew(board, "alice", "bob")
    one, two = await claim_many(board, ["alice", "bob"], team.host)
    answers = await both(
        board.settle(one, Waiting(on="tasks", tasks=(two.task.id,))),
        board.settle(two, Waiting(on="tasks", tasks=(one.task.id,))),
    )
    assert sorted(type(answer).__name__ for answer in answers) == ["Cycle", "str"]


@pytest.mark.parametrize("waiter_first", [True, False])
async def test_a_wait_for_a_task_that_ends_in_the_same_moment_goes_on(board: Board, waiter_first: bool) -> None:
    for title in ("waiter", "ends"):
        await board.put(title)
    team = await crew(board, "alice", "bob")
    waiter, ends = await claim_many(board, ["alice", "bob"], team.host)
    calls = [board.settle(waiter, Waiting(on="tasks", tasks=(ends.task.id,))), board.settle(ends, Done())]
    answers = await both(*(calls if waiter_first else reversed(calls)))
    assert sorted(map(str, answers)) == ["done", "waiting"]
    found = await board.find(waiter.task.id)
    assert (found.state, found.open_needs) == ("ready", 0)


async def test_all_needs_are_read_at_once_with_what_became_of_them(board: Board) -> None:
    await board.put_many(
        [NewTask(title="1"), NewTask(title="2", needs=(-1,)), NewTask(title="3", needs=(Need(-1, "failed"), -2))]
    )
    await board.settle(await (await crew(board)).must_claim(), Done("ok"))
    found = [(task, need.task, need.outcome, state) for task, need, state in await board.all_needs(range(1, 9))]
    assert found == [(2, 1, None, "met"), (3, 1, "failed", "broken"), (3, 2, None, "open")]
