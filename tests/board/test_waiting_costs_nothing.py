"""Which ways out of a claim cost a task run and a claim: work that begins anew does, work that only waited does not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from dugnad.board import Board
from dugnad.errors import BudgetSpent
from dugnad.settings import Limits
from dugnad.types import Amount, Budget, Claim, Done, Failed, Released, Task, Waiting
from tests.board.crew import Crew, crew, expire, make_due
from tests.conftest import Opener

Round = Callable[[Board, str, Crew, Claim], Awaitable[None]]


async def _answered(board: Board, url: str, team: Crew, claim: Claim) -> None:
    await board.settle(claim, Waiting(on="human", question="Which one?"))
    await board.reply(f"task-{claim.task.id}-{claim.epoch}", "human", "That one.")


async def _approved(board: Board, url: str, team: Crew, claim: Claim) -> None:
    await board.settle(claim, Waiting(on="plan", question="First this, then that."))
    await board.reply(f"task-{claim.task.id}-{claim.epoch}", "human", "", accepted=True)


async def _raised(board: Board, url: str, team: Crew, claim: Claim) -> None:
    caps = (await board.budget(claim.task.root)).caps
    tokens = (caps.tokens or 0) + 10
    await board.settle(claim, Waiting(on="budget", amount=Amount(tokens=tokens)))
    await board.set_budget(claim.task.root, Budget(tasks=caps.tasks, tokens=tokens))


async def _put_down(board: Board, url: str, team: Crew, claim: Claim) -> None:
    await board.settle(claim, Released("the host was stopped", resume=True))


async def _put_off(board: Board, url: str, team: Crew, claim: Claim) -> None:
    await board.settle(claim, Released("there is no place", delay_seconds=60, resume=True))
    await make_due(url, claim.task.id)


async def _waited(board: Board, url: str, team: Crew, claim: Claim) -> None:
    needed = await board.put("needed", assignee="nobody")
    await board.settle(claim, Waiting(on="tasks", tasks=(needed.id,)))
    await board.cancel(needed.id)


async def _lost(board: Board, url: str, team: Crew, claim: Claim) -> None:
    await expire(url, team.host)
    assert claim.task.id in await board.take_back()
    await make_due(url, claim.task.id)
    team.host = await board.start_host("another")
    await board.seat(team.host, name="alice")


async def _retried(board: Board, url: str, team: Crew, claim: Claim) -> None:
    await board.settle(claim, Failed("no", retry=True))
    await make_due(url, claim.task.id)


async def _released(board: Board, url: str, team: Crew, claim: Claim) -> None:
    await board.settle(claim, Released("not for me"))


async def _by_hand(board: Board, url: str, team: Crew, claim: Claim) -> None:
    await board.release(claim.task.id)


# A way out, and what two rounds of it cost when the task is then done: task runs, claims that the guard counts.
WAYS: list[tuple[Round, int, int]] = [
    (_answered, 1, 1), (_approved, 1, 1), (_raised, 1, 1), (_put_down, 1, 1),
    (_put_off, 1, 3), (_waited, 1, 3), (_lost, 1, 3),
    (_retried, 3, 3), (_released, 3, 3), (_by_hand, 3, 3),
]  # fmt: skip


async def rounds(board: Board, url: str, way: Round, count: int, budget: Budget | None = None) -> tuple[Task, int]:
    task = await board.put("task", budget=budget)
    team = await crew(board)
    for _ in range(count):
        await way(board, url, team, await team.must_claim(task=task.id))
    await board.settle(await team.must_claim(task=task.id), Done("done"))
    return await board.find(task.id), (await board.budget(task.id)).runs


@pytest.mark.parametrize(("way", "runs", "claims"), WAYS, ids=lambda each: getattr(each, "__name__", ""))
async def test_what_each_way_out_of_a_claim_costs(opener: Opener, url: str, way: Round, runs: int, claims: int) -> None:
    board = await opener(limits=Limits(backoff_seconds=0.01, attempts_max=9))
    done, charged = await rounds(board, url, way, 2, Budget(tasks=9, tokens=5))
    assert (done.state, charged, done.claims) == ("done", runs, claims)


@pytest.mark.parametrize(
    "way", [_answered, _approved, _raised, _put_down], ids=lambda each: getattr(each, "__name__", "")
)
async def test_no_guard_ever_fails_what_waits_for_a_person_or_was_put_down(
    opener: Opener, url: str, way: Round
) -> None:
    board = await opener(limits=Limits(backoff_seconds=0.01, claims_max=3))
    done, charged = await rounds(board, url, way, 8, Budget(tasks=1, tokens=5))
    assert (done.state, charged) == ("done", 1)


@pytest.mark.parametrize("way", [way for way, runs, _ in WAYS if runs == 1], ids=lambda each: each.__name__)
async def test_a_run_that_was_begun_is_gone_on_with_when_no_other_may_begin(
    opener: Opener, url: str, way: Round
) -> None:
    """Claimed by name or not, and also after the root was held for others that found no run left."""
    board = await opener(limits=Limits(backoff_seconds=0.01, attempts_max=9))
    goal = await board.put("goal", budget=Budget(tasks=1, tokens=5))
    team = await crew(board, "alice", "bob")
    claim = await team.must_claim()
    others = [await board.put(f"other {number}", parent=goal.id, priority=number) for number in range(3)]
    assert await team.claim("bob") is None
    assert (await board.budget(goal.id)).held == "tasks"
    await way(board, url, team, claim)
    if way is _raised:  # A changed cap lets go of all; the next look holds the root again.
        assert (await board.budget(goal.id)).held is None
    assert (await board.moment([goal.id])).begun == {goal.id}
    again = await team.must_claim()
    assert (again.task.id, again.continues) == (goal.id, claim.epoch)
    with pytest.raises(BudgetSpent):
        await team.claim(task=others[0].id)
    assert await team.claim() is None
    await board.settle(again, Done("done"))
    assert (await board.budget(goal.id)).runs == 1


async def test_a_budget_of_money_that_is_spent_stops_also_what_was_begun(board: Board) -> None:
    goal = await board.put("goal", budget=Budget(tokens=5))
    team = await crew(board, "alice", "bob")
    child = await board.put("child", parent=goal.id)
    first, second = await team.must_claim(), await team.must_claim("bob")
    await board.settle(first, Released("put down", resume=True))
    await board.settle(second, Waiting(on="budget", amount=Amount(tokens=6)))
    assert (await board.budget(goal.id)).held == "tokens"
    assert await team.claim() is None
    with pytest.raises(BudgetSpent):
        await team.claim(task=first.task.id)
    assert child.root == goal.id


async def test_what_was_put_off_too_often_is_asked_about_once_and_not_failed(opener: Opener, url: str) -> None:
    board = await opener(limits=Limits(backoff_seconds=0.01, claims_max=3))
    task = await board.put("task", budget=Budget(tasks=1))
    team = await crew(board)
    for _ in range(3):
        claim = await team.must_claim()
        said = await board.settle(claim, Released("there is no place", delay_seconds=60, resume=True))
        await make_due(url, task.id)
    assert said == "waiting"
    assert await board.settle(claim, Released("there is no place", delay_seconds=60, resume=True)) == "waiting"
    (asked,) = await board.requests()
    assert asked.text.startswith(f"#{task.id} was put off 3 times, the last time because there is no place. Fix that")
    await board.reply(str(asked.request), "human", "There is room now.")
    claim = await team.must_claim()
    assert claim.continues is not None
    await board.settle(claim, Done("done"))
    assert (await board.budget(task.id)).runs == 1
