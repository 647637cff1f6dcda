"""Follow-ups: tasks that a running task found, under the same root, bounded."""

from __future__ import annotations

import pytest

from dugnad.board import Board
from dugnad.errors import BadInput, LimitReached, StaleClaim, UnknownTask
from dugnad.settings import Limits
from dugnad.types import Budget, Done, Need, NewTask, Released, Waiting
from tests.board.crew import both, claim_many, crew, kinds
from tests.conftest import Opener


async def test_a_follow_up_stands_under_its_finder_and_is_charged_to_the_root(board: Board) -> None:
    root = await board.put("root", budget=Budget(tasks=3))
    team = await crew(board)
    claim = await team.must_claim()
    child = await board.follow_up(claim, "child", body="more", priority=4)
    assert (child.root, child.parent, child.depth, child.put_by) == (root.id, root.id, 1, "alice")
    assert (child.body, child.priority, child.state) == ("more", 4, "ready")
    grandchild = await board.follow_up(await team.must_claim(), "grandchild")
    assert (grandchild.root, grandchild.parent, grandchild.depth) == (root.id, child.id, 2)
    await team.must_claim()
    account = await board.budget(root.id)
    assert (account.tasks, account.runs, account.tasks_max) == (3, 3, 3)
    await board.follow_up(claim, "one more")
    assert await team.claim() is None, "the root has no run left"


async def test_an_equal_follow_up_is_the_same_task_anywhere_under_the_root(board: Board) -> None:
    await board.put("root")
    team = await crew(board, "alice", "bob")
    claim = await team.must_claim()
    first = await board.follow_up(claim, "look", body="here", role="coder")
    again = await board.follow_up(claim, "look", body="here", role="coder", priority=9)
    assert again == first
    other = await board.follow_up(claim, "other")
    below = await board.follow_up(await team.must_claim("bob", task=other.id), "look", body="here", role="coder")
    assert below.id == first.id
    different = [
        await board.follow_up(claim, "look"),
        await board.follow_up(claim, "look", body="here"),
        await board.follow_up(claim, "look", body="here", role="tester"),
        await board.follow_up(claim, "look", body="here", role="coder", assignee="bob"),
    ]
    assert len({first.id, *(task.id for task in different)}) == 5


async def test_an_equal_follow_up_under_another_root_is_another_task(board: Board) -> None:
    for title in ("one", "two"):
        await board.put(title)
    team = await crew(board, "alice", "bob")
    one, two = await claim_many(board, ["alice", "bob"], team.host)
    first, second = [await board.follow_up(claim, "look") for claim in (one, two)]
    assert (first.root, second.root) == (one.task.id, two.task.id)


async def test_a_key_of_its_own_makes_an_equal_follow_up_another_task(board: Board) -> None:
    await board.put("root")
    claim = await (await crew(board)).must_claim()
    plain = await board.follow_up(claim, "look")
    keyed = await board.follow_up(claim, "look", key="again")
    assert keyed.id != plain.id
    assert (await board.follow_up(claim, "look", key="again")).id == keyed.id
    assert (await board.follow_up(claim, "other title", key="again")).title == "look"


async def test_follow_ups_of_one_call_are_put_all_or_none(board: Board) -> None:
    await board.put("root")
    claim = await (await crew(board)).must_claim()
    seq = await board.last_event()
    with pytest.raises(UnknownTask):
        await board.follow_ups(claim, [NewTask(title="good"), NewTask(title="bad", needs=(999,))])
    with pytest.raises(BadInput):
        await board.follow_ups(claim, [NewTask(title="good"), NewTask(title="bad", budget=Budget(tasks=1))])
    assert await board.last_event() == seq
    first, second, equal = await board.follow_ups(
        claim, [NewTask(title="first"), NewTask(title="second", needs=(-1,)), NewTask(title="first")]
    )
    assert (first.state, second.state, equal.id) == ("ready", "blocked", first.id)


async def test_a_follow_up_of_a_follow_up_can_be_put_in_the_same_call(board: Board) -> None:
    root = await board.put("root")
    claim = await (await crew(board)).must_claim()
    child, below = await board.follow_ups(claim, [NewTask(title="child"), NewTask(title="below", parent=-1)])
    assert (child.parent, child.depth, below.parent, below.depth, below.root) == (root.id, 1, child.id, 2, root.id)
    assert await board.replayed_state() == await board.observed_state()


async def test_nested_follow_ups_can_be_put_again(board: Board) -> None:
    await board.put("root")
    claim = await (await crew(board)).must_claim()
    batch = [NewTask(title="child"), NewTask(title="below", parent=-1)]
    first = await board.follow_ups(claim, batch)
    assert [task.id for task in await board.follow_ups(claim, batch)] == [task.id for task in first]


async def test_a_follow_up_has_needs_roles_and_delays_as_any_task(board: Board) -> None:
    root = await board.put("root")
    team = await crew(board, roles=["coder"])
    claim = await team.must_claim()
    behind = await board.follow_up(claim, "behind", needs=[Need(root.id, "approved")])
    tester = await board.follow_up(claim, "for testers", role="tester")
    later = await board.follow_up(claim, "later", delay_seconds=3600)
    coder = await board.follow_up(claim, "for coders", role="coder")
    assert [task.state for task in (behind, tester, later, coder)] == ["blocked", "ready", "scheduled", "ready"]
    assert (await team.must_claim()).task.id == coder.id
    assert await team.claim() is None
    await board.settle(claim, Done(outcome="approved"))
    assert (await team.must_claim()).task.id == behind.id


async def test_follow_ups_do_not_go_deeper_than_the_limit(opener: Opener) -> None:
    board = await opener(limits=Limits(depth_max=2))
    await board.put("0")
    team = await crew(board)
    for depth in (1, 2):
        claim = await team.must_claim()
        assert (await board.follow_up(claim, str(depth))).depth == depth
    deep = await team.must_claim()
    seq = await board.last_event()
    with pytest.raises(LimitReached) as reached:
        await board.follow_up(deep, "3")
    assert reached.value.guard == "depth"
    assert await board.last_event() == seq
    assert await board.settle(deep, Done()) == "done"


async def test_a_task_has_no_more_children_than_the_limit(opener: Opener) -> None:
    board = await opener(limits=Limits(children_max=3))
    await board.put("root")
    team = await crew(board)
    claim = await team.must_claim()
    first = await board.follow_up(claim, "1")
    await board.follow_up(claim, "2")
    with pytest.raises(LimitReached):
        await board.follow_ups(claim, [NewTask(title="3"), NewTask(title="4")])
    await board.follow_up(claim, "3")
    for fields in ({}, {"key": "own"}):
        with pytest.raises(LimitReached) as reached:
            await board.follow_up(claim, "4", **fields)
        assert reached.value.guard == "children"
    assert (await board.follow_up(claim, "1")).id == first.id, "what exists may be asked for"
    await board.settle(claim, Released("again"))
    again = await team.must_claim(task=claim.task.id)
    with pytest.raises(LimitReached):
        await board.follow_up(again, "4")
    child = await team.must_claim(task=first.id)
    await board.follow_up(child, "a child may have its own")


async def test_a_root_has_no_more_tasks_than_the_limit(opener: Opener) -> None:
    board = await opener(limits=Limits(tasks_per_root_max=3))
    root = await board.put("root")
    team = await crew(board)
    claim = await team.must_claim()
    child = await board.follow_up(claim, "child")
    await board.follow_up(await team.must_claim(task=child.id), "grandchild")
    seq = await board.last_event()
    with pytest.raises(LimitReached) as reached:
        await board.follow_up(claim, "one too many")
    assert reached.value.guard == "tasks"
    assert await board.last_event() == seq
    assert (await board.budget(root.id)).tasks == 3
    await board.put("another root is another matter")


async def test_an_equal_follow_up_is_not_answered_for_ever(opener: Opener) -> None:
    board = await opener(limits=Limits(repeats_max=2))
    await board.put("root")
    claim = await (await crew(board)).must_claim()
    first = await board.follow_up(claim, "look")
    for _ in range(2):
        assert (await board.follow_up(claim, "look")).id == first.id
    for _ in range(2):
        with pytest.raises(LimitReached) as reached:
            await board.follow_up(claim, "look")
        assert reached.value.guard == "repeats"
    assert (await kinds(board, first.id)).count("repeated") == 2
    assert (await board.follow_up(claim, "something new")).id != first.id


async def test_an_ended_follow_up_is_still_the_same_task(board: Board) -> None:
    await board.put("root")
    team = await crew(board, "alice", "bob")
    claim = await team.must_claim()
    first = await board.follow_up(claim, "look")
    await board.settle(await team.must_claim("bob"), Done("seen"))
    again = await board.follow_up(claim, "look")
    assert (again.id, again.state, again.result) == (first.id, "done", "seen")


async def test_a_guard_stops_one_of_several_calls_at_once_alone(opener: Opener) -> None:
    board = await opener(limits=Limits(children_max=3))
    await board.put("root")
    claim = await (await crew(board)).must_claim()
    answers = await both(*(board.follow_up(claim, str(place)) for place in range(5)))
    assert sum(isinstance(answer, LimitReached) for answer in answers) == 2
    assert len(await board.list_tasks(root=claim.task.root)) == 4


@pytest.mark.parametrize("end", ["done", "waiting", "released", "cancelled", "taken over"])
async def test_a_holder_that_lost_its_task_finds_no_more_work(board: Board, end: str) -> None:
    task = await board.put("root")
    team = await crew(board, "alice", "bob")
    claim = await team.must_claim()
    if end == "cancelled":
        await board.cancel(task.id)
    elif end == "taken over":
        await board.release(task.id)
        await team.must_claim("bob")
    else:
        outcomes = {"done": Done(), "waiting": Waiting(on="human", question="?"), "released": Released("no")}
        await board.settle(claim, outcomes[end])
    for fields in ({}, {"key": "own"}):
        with pytest.raises(StaleClaim):
            await board.follow_up(claim, "too late", **fields)
    assert [each.id for each in await board.list_tasks(root=task.id)] == [task.id]
