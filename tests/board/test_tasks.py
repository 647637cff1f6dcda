"""Putting tasks, finding them, and moving them by hand: cancel, release, retry."""

from __future__ import annotations

from typing import Any

import pytest

from dugnad.board import Board
from dugnad.errors import BadInput, BadText, Cycle, LimitReached, NotReady, UnknownTask
from dugnad.settings import Limits
from dugnad.types import Amount, Budget, Done, Failed, Need, NewTask, Released, Waiting
from tests.board.crew import assert_fenced, both, crew, expire, kinds
from tests.conftest import Opener

# Putting.


async def test_a_task_keeps_every_field_it_was_put_with(board: Board) -> None:
    needed = await board.put("needed")
    task = await board.put(
        "title é", body="body\n✓", needs=[Need(needed.id, "approved")], role="coder", priority=7, check="make check",
        not_before=9_000_000_000_000, key="own", budget=Budget(tasks=3, tokens=10, dollars=0.5, seconds=2), by="bob",
    )  # fmt: skip
    assert task == await board.find(task.id)
    assert (task.title, task.body, task.role, task.assignee) == ("title é", "body\n✓", "coder", None)
    assert (task.priority, task.check, task.key, task.put_by) == (7, "make check", "own", "bob")
    assert (task.root, task.parent, task.depth, task.state, task.open_needs) == (task.id, None, 0, "blocked", 1)
    assert (task.due_at, task.epoch, task.claims, task.tries) == (9_000_000_000_000, 0, 0, 0)
    assert await board.needs_of(task.id) == [(Need(needed.id, "approved"), "open")]
    account = await board.budget(task.id)
    assert (account.tasks_max, account.tokens_max) == (3, 10)
    assert (account.microdollars_max, account.milliseconds_max) == (500_000, 2_000)


async def test_a_child_stands_under_its_parents_root(board: Board) -> None:
    root = await board.put("root")
    child = await board.put("child", parent=root.id, assignee="alice")
    grandchild = await board.put("grandchild", parent=child.id)
    assert (child.root, child.parent, child.depth, child.assignee) == (root.id, root.id, 1, "alice")
    assert (grandchild.root, grandchild.parent, grandchild.depth) == (root.id, child.id, 2)
    assert (await board.budget(root.id)).tasks == 3
    with pytest.raises(UnknownTask):
        await board.budget(child.id)


async def test_entries_of_a_batch_refer_to_one_another(board: Board) -> None:
    put = await board.put_many(
        [
            NewTask(title="last", needs=(-2, Need(-3, "approved"))),
            NewTask(title="first"),
            NewTask(title="middle", needs=(-2,)),
            NewTask(title="child", parent=-2, needs=(-3,)),
        ]
    )
    last, first, middle, child = put
    assert [task.state for task in put] == ["blocked", "ready", "blocked", "blocked"]
    assert {need for need, _ in await board.needs_of(last.id)} == {Need(first.id), Need(middle.id, "approved")}
    assert await board.needs_of(middle.id) == [(Need(first.id), "open")]
    assert await board.needs_of(child.id) == [(Need(middle.id), "open")]
    assert (child.parent, child.root, child.depth) == (first.id, first.id, 1)
    assert (first.chain, middle.chain, last.chain, child.chain) == (2, 1, 0, 0)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (NewTask(title=" "), BadText),
        (NewTask(title="x" * 201), BadText),
        (NewTask(title="nul\0"), BadText),
        (NewTask(title="needs nobody", needs=(999,)), UnknownTask),
        (NewTask(title="needs entry 9", needs=(-9,)), BadInput),
        (NewTask(title="needs twice", needs=(-1, -1)), BadInput),
        (NewTask(title="orphan", parent=999), UnknownTask),
        (NewTask(title="parent behind", parent=-3), BadInput),
        (NewTask(title="own child", parent=-2), BadInput),
        (NewTask(title="child with a budget", parent=-1, budget=Budget(tasks=1)), BadInput),
        (NewTask(title="urgent", priority=1_000_001), BadInput),
        (NewTask(title="late", delay_seconds=-1), BadInput),
        (NewTask(title="never", delay_seconds=float("nan")), BadInput),
        (NewTask(title="odd role", role="no spaces"), BadText),
        (NewTask(title="self", needs=(-2,)), Cycle),
    ],
    ids=lambda value: value.title[:20] if isinstance(value, NewTask) else "",
)
async def test_one_bad_entry_puts_nothing(board: Board, bad: NewTask, error: type[Exception]) -> None:
    await board.put("there before")
    seq, counts = await board.last_event(), await board.count_tasks()
    with pytest.raises(error):
        await board.put_many([NewTask(title="good"), bad, NewTask(title="good too", needs=(-1,))])
    assert (await board.last_event(), await board.count_tasks()) == (seq, counts)
    assert await board.put_many([]) == []


async def test_a_bad_put_gathered_with_good_ones_fails_alone(board: Board) -> None:
    good, fine, bad = await both(board.put("good"), board.put("fine"), board.put("bad", needs=[999]))
    assert isinstance(bad, UnknownTask)
    assert {task.title for task in await board.list_tasks()} == {"good", "fine"}
    assert not isinstance(good, BaseException)
    assert not isinstance(fine, BaseException)


async def test_a_roots_key_is_one_task_on_the_whole_board(opener: Opener) -> None:
    here, there = await opener(), await opener()
    first = await here.put("as first put", key="k", priority=1)
    seq = await here.last_event()
    again = await there.put("as put again", key="k", priority=2)
    assert again == first
    assert await here.last_event() == seq
    twice = await here.put_many([NewTask(title="a", key="same"), NewTask(title="b", key="same")])
    assert twice[0] == twice[1]
    assert twice[0].title == "a"


async def test_a_childs_key_is_one_task_under_its_root(board: Board) -> None:
    one, other = await board.put("one", key="k"), await board.put("other")
    child = await board.put("child", parent=one.id, key="k")
    below = await board.put("below", parent=child.id, key="k")
    elsewhere = await board.put("elsewhere", parent=other.id, key="k")
    assert child == below
    assert len({one.id, child.id, elsewhere.id}) == 3


async def test_a_batch_with_keys_and_references_can_be_put_again(board: Board) -> None:
    batch = [
        NewTask(title="root", key="r"),
        NewTask(title="child", key="c", parent=-1),
        NewTask(title="grandchild", key="g", parent=-2, needs=(-2,)),
    ]
    first = await board.put_many(batch)
    seq = await board.last_event()
    assert [task.id for task in await board.put_many(batch)] == [task.id for task in first]
    assert await board.last_event() == seq


async def test_depth_and_number_of_tasks_under_a_root_are_bounded(opener: Opener) -> None:
    board = await opener(limits=Limits(depth_max=2, tasks_per_root_max=3))
    root, _, low = await board.put_many(
        [NewTask(title="0"), NewTask(title="1", parent=-1), NewTask(title="2", parent=-2)]
    )
    with pytest.raises(LimitReached) as deep:
        await board.put("3", parent=low.id)
    with pytest.raises(LimitReached) as many:
        await board.put("fourth", parent=root.id)
    assert (deep.value.guard, many.value.guard) == ("depth", "tasks")
    assert (await board.budget(root.id)).tasks == 3


# Finding.


async def test_a_task_that_is_not_there_is_said_to_be_unknown(board: Board) -> None:
    with pytest.raises(UnknownTask, match="#41"):
        await board.find(41)


async def test_tasks_are_listed_by_state_root_role_teammate_and_page(board: Board) -> None:
    team = await crew(board, roles=["coder"])
    root = await board.put("root", priority=9)
    coder = await board.put("for a coder", role="coder", parent=root.id)
    later = await board.put("later", delay_seconds=3600)
    behind = await board.put("behind", needs=[root.id], role="coder")
    assert (await team.must_claim()).task.id == root.id

    async def listed(**filters: object) -> list[int]:
        return [task.id for task in await board.list_tasks(**filters)]  # type: ignore[arg-type]

    every = [root.id, coder.id, later.id, behind.id]
    assert await listed() == every
    assert await listed(states=["claimed"]) == [root.id]
    assert await listed(states=["scheduled", "blocked"]) == [later.id, behind.id]
    assert await listed(states=[]) == []
    assert await listed(root=root.id) == [root.id, coder.id]
    assert await listed(role="coder") == [coder.id, behind.id]
    assert await listed(role="coder", root=root.id, states=["ready"]) == [coder.id]
    assert await listed(teammate="alice") == [root.id]
    assert await listed(page=3) == every[:3]
    assert await listed(page=3, after=later.id) == [behind.id]
    assert await board.count_tasks() == {"claimed": 1, "ready": 1, "scheduled": 1, "blocked": 1}


# Cancelling.


async def test_cancelling_ends_a_task_and_skips_what_needed_it_done(board: Board) -> None:
    task = await board.put("task")
    behind = await board.put("behind", needs=[task.id])
    after = await board.put("clears up", needs=[Need(task.id, "cancelled")])
    assert await board.cancel(task.id, why="not wanted", by="bob") == [task.id]
    ended = await board.find(task.id)
    assert (ended.state, ended.reason) == ("cancelled", "not wanted")
    assert ended.ended_at is not None
    skipped = await board.find(behind.id)
    assert (skipped.state, skipped.reason) == ("skipped", f"needs #{task.id}, which ended cancelled")
    assert (await board.find(after.id)).state == "ready"


async def test_cancelling_with_dependents_cancels_all_that_waits_behind(board: Board) -> None:
    top, left, right, low, other = await board.put_many(
        [
            NewTask(title="top"), NewTask(title="left", needs=(-1,)), NewTask(title="right", needs=(-1,)),
            NewTask(title="low", needs=(-2, -3)), NewTask(title="other"),
        ]
    )  # fmt: skip
    assert await board.cancel(top.id, dependents=True) == [top.id, left.id, right.id, low.id]
    assert await board.count_tasks() == {"cancelled": 4, "ready": 1}
    assert (await kinds(board)).count("cancelled") == 4
    assert "skipped" not in await kinds(board)
    assert (await board.find(other.id)).state == "ready"


async def test_cancelling_fences_the_holder_off(board: Board) -> None:
    task = await board.put("task")
    claim = await (await crew(board)).must_claim()
    await board.cancel(task.id, why="stop")
    await assert_fenced(board, claim)
    (attempt,) = await board.attempts(task.id)
    assert (attempt.ended_as, attempt.reason) == ("cancelled", "stop")
    assert (await board.find(task.id)).state == "cancelled"


async def test_cancelling_twice_is_cancelling_once(board: Board) -> None:
    task = await board.put("task")
    behind = await board.put("behind", needs=[task.id])
    first = await board.cancel(task.id, dependents=True, key="k")
    assert first == [task.id, behind.id]
    seq = await board.last_event()
    assert await board.cancel(task.id, dependents=True, key="k") == first
    assert await board.cancel(task.id) == []
    assert await board.last_event() == seq
    with pytest.raises(BadInput, match="cancel"):
        await board.retry(task.id, key="k")


async def test_what_has_ended_otherwise_or_is_unknown_cannot_be_cancelled(board: Board) -> None:
    task = await board.put("task")
    await board.settle(await (await crew(board)).must_claim(), Done())
    with pytest.raises(NotReady, match="done"):
        await board.cancel(task.id)
    with pytest.raises(UnknownTask):
        await board.cancel(999)


async def test_cancelling_counts_what_a_late_holder_had_reserved_as_spent(board: Board, url: str) -> None:
    task = await board.put("task", budget=Budget(tokens=100))
    team = await crew(board)
    claim = await team.must_claim()
    await expire(url, team.host)
    await board.take_back()
    await board.reserve(claim, Amount(tokens=40))
    await board.cancel(task.id)
    account = await board.budget(task.id)
    assert (account.reserved.tokens, account.spent.tokens) == (0, 40)


# Releasing.


async def test_releasing_takes_a_task_from_its_holder(board: Board) -> None:
    task = await board.put("task")
    team = await crew(board, "alice", "bob")
    claim = await team.must_claim()
    await board.release(task.id, why="give way", key="k")
    seq = await board.last_event()
    await board.release(task.id, why="give way", key="k")
    assert await board.last_event() == seq
    await assert_fenced(board, claim)
    (attempt,) = await board.attempts(task.id)
    assert (attempt.ended_as, attempt.reason) == ("released", "give way")
    assert (await board.find(task.id)).state == "ready"
    again = await team.must_claim("bob")
    assert (again.task.id, again.number) == (task.id, 2)


async def test_whoever_takes_a_task_that_was_released_begins_anew_also_if_its_holder_had_gone_on(board: Board) -> None:
    # Else the third goes on from the first, does not see what the second has done, and does it again.
    task = await board.put("task")
    team = await crew(board)
    first = await team.must_claim()
    await board.settle(first, Waiting(on="human", question="may I?"))
    await board.release(task.id)
    second = await team.must_claim()
    assert second.continues == first.epoch
    await board.release(task.id)
    assert (await team.must_claim()).continues is None
    assert await board.replayed_state() == await board.observed_state()


async def test_releasing_with_a_delay_schedules_the_task(board: Board) -> None:
    task = await board.put("task")
    team = await crew(board)
    await team.must_claim()
    await board.release(task.id, delay_seconds=3600)
    assert (await board.find(task.id)).state == "scheduled"
    assert await team.claim() is None


async def test_a_waiting_task_is_released_unless_it_waits_for_tasks(board: Board) -> None:
    asking, parent = await board.put("asking", priority=2), await board.put("parent", priority=1)
    child = await board.put("child")
    team = await crew(board)
    await board.settle(await team.must_claim(), Waiting(on="human", question="may I?"))
    await board.settle(await team.must_claim(), Waiting(on="tasks", tasks=(child.id,)))
    await board.release(asking.id)
    released = await board.find(asking.id)
    assert (released.state, released.waiting_for, released.request) == ("ready", None, None)
    with pytest.raises(NotReady, match="waits for 1"):
        await board.release(parent.id)
    assert (await board.find(parent.id)).state == "waiting"


@pytest.mark.parametrize("delay", [0, 3600])
async def test_only_a_claimed_or_waiting_task_can_be_released(board: Board, delay: float) -> None:
    task = await board.put("task", delay_seconds=delay)
    behind = await board.put("behind", needs=[task.id])
    for each, state in ((task.id, "scheduled" if delay else "ready"), (behind.id, "blocked")):
        with pytest.raises(NotReady, match=state):
            await board.release(each)
    with pytest.raises(UnknownTask):
        await board.release(999)


async def test_a_released_task_is_not_tried_less_often_for_it(board: Board) -> None:
    task = await board.put("task")
    team = await crew(board)
    for _ in range(5):
        await board.settle(await team.must_claim(), Released("not now"))
    found = await board.find(task.id)
    assert (found.state, found.tries, found.claims) == ("ready", 0, 5)
    assert await board.settle(await team.must_claim(), Failed("broke", retry=True)) == "retry"


async def test_a_task_says_what_it_is_and_a_review_what_it_reviews(board: Board) -> None:
    goal = await board.put("goal", key="review:1:abc")  # A key says nothing but that.
    work = await board.put("work", parent=goal.id)
    review = await board.put("review", kind="review", reviews=work.id, reviews_commit="abc", parent=goal.id)
    assert [task.kind for task in (goal, work, review)] == ["goal", "work", "review"]
    assert (review.reviews, review.reviews_commit) == (work.id, "abc")
    put = [event.data for event in await board.events() if event.kind == "put"]
    assert [each.get("kind") for each in put] == ["goal", "work", "review"]
    assert (put[2]["reviews"], put[2]["reviews_commit"]) == (work.id, "abc")


@pytest.mark.parametrize(
    "fields", [{"kind": "review"}, {"reviews": 1}, {"kind": "nothing"}, {"kind": "work", "reviews": 1}]
)
async def test_a_review_and_it_alone_names_what_it_reviews(board: Board, fields: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="only a review names a task that it reviews"):
        await board.put("task", **fields)
