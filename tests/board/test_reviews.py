"""Work that asks for another's approval, and work that is for anybody but one."""

from __future__ import annotations

import pytest

from dugnad.board import Board
from dugnad.board.store.watch import Watch
from dugnad.errors import BadInput, BadText, NotReady
from dugnad.settings import Limits, Patience
from dugnad.types import Budget, Claim, Done, NewTask, Released, Waiting
from tests.board.crew import Crew, claim_many, crew
from tests.board.raw import grow_old
from tests.conftest import Opener

IN_FRONT = 20  # More than any batch of askers here.


async def two(board: Board) -> Crew:
    return await crew(board, "alice", "bob", roles=["reviewer"])


async def behind_what_is_not_for_alice(board: Board, **fields: object) -> int:
    """Many that she may not take, and one behind them all that she may."""
    await board.put_many(
        [NewTask(title=f"not hers {n}", not_for="alice", priority=5, **fields) for n in range(IN_FRONT)]  # type: ignore[arg-type]
    )
    return (await board.put("hers", **fields)).id


# What is said of a task.


async def test_a_task_says_whose_approval_it_asks_for_and_whom_it_is_not_for(board: Board) -> None:
    task = await board.put("write", review="reviewer", not_for="alice")
    assert (task.review, task.not_for) == ("reviewer", "alice")
    assert await board.find(task.id) == task
    plain = await board.put("read")
    assert (plain.review, plain.not_for) == (None, None)
    claim = await (await two(board)).must_claim("bob")
    assert (claim.task.id, claim.task.review, claim.task.not_for) == (task.id, "reviewer", "alice")


@pytest.mark.parametrize("fields", [{"review": "two words"}, {"not_for": "a!b"}, {"review": ""}, {"not_for": ""}])
async def test_names_that_no_role_and_no_teammate_can_have_are_refused(board: Board, fields: dict[str, str]) -> None:
    with pytest.raises(BadText, match="cannot be a"):
        await board.put("task", **fields)
    assert await board.last_event() == 0


async def test_a_task_for_one_alone_cannot_be_for_anybody_but_that_one(board: Board) -> None:
    with pytest.raises(BadInput, match="both for alice and not for alice"):
        await board.put("task", assignee="alice", not_for="alice")
    assert (await board.put("task", assignee="bob", not_for="alice")).assignee == "bob"


async def test_follow_ups_are_equal_only_if_they_ask_for_the_same_approval(board: Board) -> None:
    await board.put("root")
    claim = await (await crew(board)).must_claim()
    plain = await board.follow_up(claim, "write")
    asked = [
        await board.follow_up(claim, "write", review="reviewer"),
        await board.follow_up(claim, "write", review="lawyer"),
        await board.follow_up(claim, "write", not_for="alice"),
        await board.follow_up(claim, "write", not_for="reviewer"),
    ]
    assert len({plain.id, *(task.id for task in asked)}) == 5
    assert (await board.follow_up(claim, "write", review="reviewer")).id == asked[0].id
    assert (await board.follow_up(claim, "write")).id == plain.id


# Claiming.


async def test_nobody_claims_what_is_not_for_them(board: Board) -> None:
    task = await board.put("review", role="reviewer", not_for="alice")
    team = await two(board)
    assert await team.claim("alice") is None
    with pytest.raises(NotReady, match=f"#{task.id} is not for alice; another teammate must claim it"):
        await team.claim("alice", task=task.id)
    assert (await team.must_claim("bob", task=task.id)).task.id == task.id


async def test_what_is_not_for_several_is_for_a_third_and_wakes_only_that_one(opener: Opener) -> None:
    board = await opener(patience=Patience(poll_seconds=3_600))
    team = await crew(board, "al", "alice", "bob", roles=["reviewer"])
    asleep = [board.watch_for(name, ["reviewer"]) for name in ("alice", "bob", "al")]
    with asleep[0] as alice, asleep[1] as bob, asleep[2] as al:
        task = await board.put("review", role="reviewer", not_for="alice,bob")
        await hears(al, "ready:reviewer")
        assert alice.changed == bob.changed == set()
    assert await board.ready_work() == {"reviewer!alice,bob": 1}
    for name in ("alice", "bob"):
        assert await team.claim(name) is None
        with pytest.raises(NotReady, match=f"is not for {name}"):
            await team.claim(name, task=task.id)
        with pytest.raises(NotReady, match=f"is not for {name}"):
            await board.assign(task.id, name)
    assert await claim_many(board, ["alice", "bob"], team.host) == []
    assert (await team.must_claim("al")).task.id == task.id


@pytest.mark.parametrize("wrong", ["alice,", ",alice", "alice, bob", "alice;bob"])
async def test_names_that_a_task_is_not_for_are_names(board: Board, wrong: str) -> None:
    with pytest.raises(BadText):
        await board.put("review", not_for=wrong)


async def test_what_was_given_back_is_still_not_for_them(board: Board) -> None:
    await board.put("review", not_for="alice")
    team = await two(board)
    await board.settle(await team.must_claim("bob"), Released("later"))
    assert await team.claim("alice") is None
    assert await team.claim("bob") is not None


async def test_what_is_not_for_one_cannot_be_assigned_to_that_one(board: Board) -> None:
    task = await board.put("review", not_for="alice")
    team = await two(board)
    with pytest.raises(NotReady, match="is not for alice; assign it to another teammate"):
        await board.assign(task.id, "alice")
    await board.assign(task.id, "bob")
    await board.assign(task.id, None)
    assert await team.claim("alice") is None
    assert (await team.must_claim("bob")).task.id == task.id


@pytest.mark.parametrize("role", [None, "reviewer"])
async def test_many_that_are_not_for_one_do_not_hide_what_is(board: Board, role: str | None) -> None:
    hers = await behind_what_is_not_for_alice(board, role=role)
    team = await two(board)
    assert (await team.must_claim("alice")).task.id == hers
    assert await team.claim("alice") is None


@pytest.mark.parametrize("role", [None, "reviewer"])
async def test_nor_do_they_among_others_who_ask_at_the_same_moment(board: Board, role: str | None) -> None:
    hers = await behind_what_is_not_for_alice(board, role=role)
    names = ["bob", "alice", "carol", "dave"]
    team = await crew(board, *names, roles=["reviewer"])
    claims = await claim_many(board, names, team.host)
    assert {claim.teammate for claim in claims} == set(names)
    assert [claim.task.id for claim in claims if claim.teammate == "alice"] == [hers]
    again = await claim_many(board, names, team.host)
    assert {claim.teammate for claim in again} == {"bob", "carol", "dave"}, "there is nothing more for alice"


async def test_several_askers_who_are_each_shut_out_of_something_get_the_rest(board: Board) -> None:
    names = ["alice", "bob", "carol"]
    team = await crew(board, *names)
    for name in names:
        await board.put_many([NewTask(title=f"not for {name}", not_for=name, priority=3) for _ in range(IN_FRONT)])
    seen: list[Claim] = []
    while claims := await claim_many(board, names, team.host):
        assert not [claim for claim in claims if claim.task.not_for == claim.teammate]
        seen += claims
    assert len({claim.task.id for claim in seen}) == 3 * IN_FRONT


async def test_askers_of_one_moment_are_served_in_turn_as_if_each_had_asked_alone(board: Board) -> None:
    names = ["alice", "bob", "carol"]
    team = await crew(board, *names)
    for_bob, free, last = [await board.put("t", not_for=not_for) for not_for in ("alice", None, None)]
    claims = await claim_many(board, names, team.host)
    assert [(claim.teammate, claim.task.id) for claim in claims] == [
        ("alice", free.id), ("bob", for_bob.id), ("carol", last.id),
    ]  # fmt: skip


async def test_in_a_batch_one_who_is_shut_out_still_gets_the_best_of_all_its_lanes(board: Board) -> None:
    await behind_what_is_not_for_alice(board, role="reviewer")
    better = await board.put("better", role="reviewer", priority=4)
    await board.put("anybody's", priority=1)
    team = await two(board)
    claims = await claim_many(board, ["bob", "alice"], team.host)
    assert [claim.task.id for claim in claims if claim.teammate == "alice"] == [better.id]


async def test_one_who_is_shut_out_looks_past_roots_that_have_no_run_left(board: Board) -> None:
    spent = await board.put("spent", budget=Budget(tasks=0), priority=9)
    await board.put_many([NewTask(title="part", parent=spent.id, priority=9) for _ in range(IN_FRONT)])
    hers = await behind_what_is_not_for_alice(board)
    team = await two(board)
    claims = await claim_many(board, ["alice", "bob"], team.host)
    assert [claim.task.id for claim in claims if claim.teammate == "alice"] == [hers]
    assert len(claims) == 2


# Being woken.


async def hears(watch: Watch, topic: str) -> None:
    while topic not in (changed := await watch.changes(30)):  # Something may be told twice: by a push and by a look.
        assert changed, f"nothing was heard of {topic}"


async def test_what_is_not_for_one_wakes_another_at_once(opener: Opener) -> None:
    board = await opener(patience=Patience(poll_seconds=3_600))
    await two(board)
    asleep = [board.watch_for(name, ["reviewer"]) for name in ("alice", "bob")]
    with asleep[0] as alice, asleep[1] as bob:
        task = await board.put("review", role="reviewer", not_for="alice")
        await hears(bob, "ready:reviewer")
        await board.cancel(task.id)
        await board.retry(task.id)
        await hears(bob, "ready:reviewer")
        await board.assign(task.id, "bob")
        await hears(bob, "ready:@bob")
        assert alice.changed == set()


# What waits to be taken.


async def test_ready_work_tells_apart_what_is_not_for_somebody(board: Board) -> None:
    await two(board)
    assert await board.ready_work() == {}
    for fields in (
        {"role": "reviewer"}, {"role": "reviewer", "not_for": "alice"}, {"role": "reviewer", "not_for": "alice"},
        {"not_for": "bob"}, {"assignee": "bob", "not_for": "alice"}, {"assignee": "bob"},
        {"role": "coder", "not_for": "alice"},
    ):  # fmt: skip
        await board.put("task", **fields)
    assert await board.ready_work() == {
        "reviewer": 1, "reviewer!alice": 2, "!bob": 1, "@bob": 2, "coder!alice": 1,
    }  # fmt: skip
    assert set((await board.ready_work(most=1)).values()) == {1}


# The log.


async def test_the_log_replays_reviews_also_when_it_was_pruned(url: str, opener: Opener) -> None:
    board = await opener()
    task = await board.put("write", review="reviewer")
    await board.put("review", role="reviewer", not_for="alice", parent=task.id)
    await board.put("plain")
    state = await board.observed_state()
    assert state == await board.replayed_state()
    asked = [[name for name in ("review", "not_for") if each[name]] for each in state["task"].values()]
    assert asked == [["review"], ["not_for"], []]
    await grow_old(url, 3_600)
    assert (await board.prune(1_800)).events
    assert await board.observed_state() == await board.replayed_state() == state
    await board.settle(await (await two(board)).must_claim("bob"), Done())
    assert await board.observed_state() == await board.replayed_state()


async def test_a_claim_behind_many_that_are_not_for_one_ends(opener: Opener) -> None:
    """More of them than a look moves out of the way: each look leaves them out, so one is enough."""
    board = await opener(limits=Limits(tasks_per_root_max=10_000))
    team = await two(board)
    for _ in range(3):
        await board.put_many([NewTask(title="not hers", not_for="alice", priority=5)] * 1_000)
    assert await claim_many(board, ["alice", "alice"], team.host) == []
    hers = await board.put("hers")
    claims = await claim_many(board, ["alice", "bob"], team.host)
    assert [claim.task.id for claim in claims if claim.teammate == "alice"] == [hers.id]


async def test_after_a_review_only_the_author_goes_on(opener: Opener) -> None:
    """The author finishes the work, also when others are free at that moment."""
    board = await opener(patience=Patience(poll_seconds=3_600))
    team = await crew(board, "alice", "bob", "carol")
    task = await board.put("write")
    claim = await team.must_claim("alice")
    review = await board.follow_up(claim, "review", not_for="alice")
    await board.settle(claim, Waiting(on="tasks", tasks=(review.id,)))
    reviewing = await team.must_claim("bob")  # Now no sweep finds the review, which Carol could have claimed.
    asleep = [board.watch_for(name, []) for name in ("alice", "carol")]
    with asleep[0] as alice, asleep[1] as carol:
        await board.settle(reviewing, Done("good", "approved"))
        await hears(alice, "ready:@alice")
        assert not await carol.wait(0)
    assert await board.ready_work() == {"@alice": 1}
    for name in ("bob", "carol"):
        assert await team.claim(name) is None
    with pytest.raises(NotReady, match="is for @alice"):
        await team.claim("carol", task=task.id)
    again = await team.must_claim("alice")
    assert (again.task.id, again.continues) == (task.id, claim.epoch)
    await board.settle(again, Released("it conflicts"))
    assert await board.ready_work() == {"": 1}, "what is to be done anew is anybody's"


async def test_a_wait_for_what_anybody_may_do_leaves_the_task_to_anybody(board: Board) -> None:
    team = await crew(board, "alice", "bob")
    await board.put("write")
    claim = await team.must_claim("alice")
    part = await board.follow_up(claim, "a part of it")
    await board.settle(claim, Waiting(on="tasks", tasks=(part.id,)))
    await board.settle(await team.must_claim("bob"), Done())
    assert await board.ready_work() == {"": 1}


@pytest.mark.parametrize("how", ["release", "retry", "assign"])
async def test_what_waits_for_its_author_can_be_given_to_others(board: Board, how: str) -> None:
    team = await crew(board, "alice", "bob", roles=["coder"])
    task = await board.put("write", role="coder")
    claim = await team.must_claim("alice")
    review = await board.follow_up(claim, "review", not_for="alice", role="coder")
    await board.settle(claim, Waiting(on="tasks", tasks=(review.id,)))
    if how == "retry":
        await board.cancel(task.id)
        await board.cancel(review.id)
        await board.retry(task.id)
    else:
        await board.settle(await team.must_claim("bob", task=review.id), Done("good", "approved"))
        if how == "assign":
            await board.assign(task.id, None)
        else:
            await board.settle(await team.must_claim("alice"), Waiting(on="human", question="Really?"))
            await board.release(task.id)
    assert await board.ready_work() == {"coder": 1}
    assert (await team.must_claim("bob")).task.id == task.id
