"""At the cap: the work parks, says so, and goes on when a person raises the cap."""

from __future__ import annotations

import pytest

from dugnad.board import Board, open_board
from dugnad.errors import BudgetSpent
from dugnad.settings import Limits, Patience
from dugnad.types import Amount, Budget, Claim, Done, NewTask, Waiting
from tests.board.crew import both, crew
from tests.board.raw import count
from tests.conftest import Opener


async def reached(board: Board) -> list[tuple[int | None, object]]:
    found: list[tuple[int | None, object]] = []
    after = 0
    while page := await board.events(after):
        found += [(event.root, event.data["held"]) for event in page if event.kind == "budget_reached"]
        after = page[-1].seq
    return found


async def test_at_the_cap_of_runs_a_root_parks_says_so_and_others_go_on(board: Board) -> None:
    spent = await board.put("spent", budget=Budget(tasks=1), priority=5)
    await board.put("its child", parent=spent.id, priority=5)
    other = await board.put("other")
    team = await crew(board)
    assert (await team.must_claim()).task.id == spent.id
    assert (await team.must_claim()).task.id == other.id
    assert await team.claim() is None
    assert await reached(board) == [(spent.id, "tasks")]
    assert (await board.budget(spent.id)).held == "tasks"
    assert (await board.budget(other.id)).held is None


@pytest.mark.parametrize("verb", ["raise", "set"])
async def test_a_raised_cap_lets_the_parked_work_go_on(board: Board, verb: str) -> None:
    root = await board.put("goal", budget=Budget(tasks=1))
    children = [await board.put(f"child {n}", parent=root.id) for n in range(3)]
    team = await crew(board)
    await team.must_claim()
    assert await team.claim() is None
    with board.watch(["ready:"]) as watch:
        if verb == "raise":
            after = await board.raise_budget(root.id, Budget(tasks=2))
        else:
            after = await board.set_budget(root.id, Budget(tasks=3))
        assert watch.changed == {"ready:"}
    assert (after.tasks_max, after.held, after.runs) == (3, None, 1)
    assert [(await team.must_claim()).task.id for _ in range(2)] == [child.id for child in children[:2]]
    assert await team.claim() is None
    assert await reached(board) == [(root.id, "tasks")] * 2, "it says so each time"


async def test_claiming_a_certain_task_past_the_cap_is_refused_with_the_kind(board: Board) -> None:
    root = await board.put("goal", budget=Budget(tasks=1))
    child = await board.put("child", parent=root.id)
    team = await crew(board)
    await team.must_claim(task=root.id)
    with pytest.raises(BudgetSpent) as refusal:
        await team.claim(task=child.id)
    assert (refusal.value.kind, refusal.value.may_free_up) == ("tasks", False)


async def test_claiming_a_certain_task_of_a_root_held_for_tokens_names_tokens(board: Board) -> None:
    root = await board.put("goal", budget=Budget(tokens=10, tasks=100))
    child = await board.put("child", parent=root.id)
    team = await crew(board)
    claim = await team.must_claim(task=root.id)
    await board.settle(claim, Waiting(on="budget", amount=Amount(tokens=11)))
    with pytest.raises(BudgetSpent) as refusal:
        await team.claim(task=child.id)
    assert refusal.value.kind == "tokens", "there are 99 task runs left"


async def test_named_and_unnamed_claims_of_one_moment_share_the_last_run(board: Board) -> None:
    root = await board.put("goal", budget=Budget(tasks=2))
    child = await board.put("child", parent=root.id)
    await board.put("second child", parent=root.id)
    team = await crew(board, "a", "b", "c", "d")
    answers = await both(
        team.claim("a"), team.claim("b", task=root.id), team.claim("c", task=child.id), team.claim("d")
    )
    assert sum(isinstance(answer, Claim) for answer in answers) == 2
    assert (await board.budget(root.id)).runs == 2


async def test_a_task_that_waits_for_the_budget_parks_its_root_until_the_cap_is_raised(board: Board) -> None:
    root = await board.put("goal", budget=Budget(tokens=10), priority=5)
    child = await board.put("child", parent=root.id, priority=5)
    other = await board.put("other")
    team = await crew(board)
    claim = await team.must_claim()
    with pytest.raises(BudgetSpent):
        await board.reserve(claim, Amount(tokens=11))
    assert await board.settle(claim, Waiting(on="budget", amount=Amount(tokens=11))) == "waiting"
    parked = await board.find(root.id)
    assert (parked.state, parked.waiting_for) == ("waiting", "budget")
    assert await reached(board) == [(root.id, "tokens")]
    assert (await team.must_claim()).task.id == other.id, "the other root's work goes on"
    assert await team.claim() is None
    await board.raise_budget(root.id, Budget(tokens=1))
    assert (await board.find(root.id)).state == "ready"
    again = await team.must_claim()
    assert (again.task.id, again.continues) == (root.id, claim.epoch)
    await board.reserve(again, Amount(tokens=11))
    assert (await team.must_claim()).task.id == child.id


async def test_waiting_for_a_budget_that_was_raised_meanwhile_is_over_at_once(board: Board) -> None:
    root = await board.put("goal", budget=Budget(tokens=10))
    team = await crew(board)
    claim = await team.must_claim()
    with pytest.raises(BudgetSpent):
        await board.reserve(claim, Amount(tokens=11))
    await board.raise_budget(root.id, Budget(tokens=1))
    assert await board.settle(claim, Waiting(on="budget", amount=Amount(tokens=11))) == "waiting"
    assert (await board.find(root.id)).state == "ready"
    assert await reached(board) == []
    assert (await team.must_claim()).continues == claim.epoch


async def test_two_that_wait_for_the_budget_say_so_once_and_both_go_on(board: Board) -> None:
    root = await board.put("goal", budget=Budget(tokens=1))
    await board.put("child", parent=root.id)
    team = await crew(board, "a", "b")
    claims = [await team.must_claim("a"), await team.must_claim("b")]
    await both(*(board.settle(claim, Waiting(on="budget", amount=Amount(tokens=2))) for claim in claims))
    assert await reached(board) == [(root.id, "tokens")]
    await board.set_budget(root.id, Budget(tokens=4))
    assert {(await team.must_claim(name)).task.id for name in "ab"} == {claim.task.id for claim in claims}


async def test_racing_a_raise_no_waiting_task_is_left_behind(opener: Opener) -> None:
    """Whichever of the two comes first, the task is ready or will be asked for again: never parked under a free cap."""
    one, two = await opener(), await opener()
    team = await crew(one)
    for _ in range(10):
        root = await one.put("goal", budget=Budget(tokens=1), assignee="alice")
        claim = await team.must_claim(task=root.id)
        await both(
            one.settle(claim, Waiting(on="budget", amount=Amount(tokens=2))),
            two.raise_budget(root.id, Budget(tokens=1)),
        )
        assert (await one.find(root.id)).state == "ready"
        assert (await one.budget(root.id)).held is None
        await one.settle(await team.must_claim(task=root.id), Done())


async def test_claimers_on_two_boards_at_the_cap_do_not_lock_each_other_out(board: Board, url: str) -> None:
    """PostgreSQL would find a deadlock after a second and have one start over. Here it looks too late to help."""
    root = await board.put("goal", budget=Budget(tasks=3))
    for number in range(30):
        await board.put(f"child {number}", parent=root.id)
    patient = url if url.startswith("sqlite") else f"{url}&deadlock_timeout=60s"
    patience = Patience(statement_seconds=15)
    async with await open_board(patient, patience=patience) as one, await open_board(patient, patience=patience) as two:
        crews = [await crew(each, *(f"{name}{n}" for n in range(10))) for each, name in ((one, "a"), (two, "b"))]
        answers = await both(
            *(team.claim(f"{name}{n}") for n in range(10) for team, name in zip(crews, "ab", strict=True))
        )
    assert [answer for answer in answers if isinstance(answer, BaseException)] == []
    assert sum(answer is not None for answer in answers) == 3


async def test_what_is_put_under_a_parked_root_waits_with_the_rest(board: Board) -> None:
    root = await board.put("goal", budget=Budget(tasks=1))
    await board.put("child", parent=root.id)
    team = await crew(board)
    claim = await team.must_claim()
    assert await team.claim() is None
    with board.watch(["ready:"]) as watch:
        late = await board.follow_up(claim, "found on the way")
        assert not watch.changed, "nobody is woken for work that cannot be taken"
    assert late.state == "ready"
    assert await team.claim() is None
    await board.raise_budget(root.id, Budget(tasks=2))
    assert late.id in [(await team.must_claim()).task.id for _ in range(2)]


async def test_a_task_that_becomes_ready_under_a_parked_root_waits_too(board: Board) -> None:
    root = await board.put("goal", budget=Budget(tasks=1))
    blocked = await board.put("behind it", parent=root.id, needs=[root.id])
    await board.put("beside it", parent=root.id)
    team = await crew(board)
    claim = await team.must_claim(task=root.id)
    assert await team.claim() is None
    await board.settle(claim, Done())
    assert (await board.find(blocked.id)).state == "ready"
    assert await team.claim() is None
    await board.raise_budget(root.id, Budget(tasks=2))
    assert len([await team.must_claim() for _ in range(2)]) == 2


async def test_a_cap_below_what_was_spent_lets_nothing_more_through(board: Board) -> None:
    root = await board.put("goal", budget=Budget(tokens=10))
    await board.put("child", parent=root.id)
    team = await crew(board)
    claim = await team.must_claim()
    await board.spend(claim, await board.reserve(claim, Amount(tokens=8)), Amount(tokens=8))
    await board.set_budget(root.id, Budget(tokens=5, tasks=0))
    with pytest.raises(BudgetSpent) as refusal:
        await board.reserve(claim, Amount(tokens=1))
    assert not refusal.value.may_free_up
    assert await team.claim() is None


async def test_a_raise_with_the_same_key_counts_once(opener: Opener) -> None:
    one, two = await opener(), await opener()
    root = await one.put("goal", budget=Budget(tasks=1, tokens=1, dollars=1.0, seconds=1.0))
    more = Budget(tasks=1, tokens=2, dollars=0.000003, seconds=0.004)
    first = await one.raise_budget(root.id, more, key="once")
    assert await two.raise_budget(root.id, more, key="once") == first
    await both(*(board.raise_budget(root.id, more, key="twice") for board in (one, two)))
    after = await one.budget(root.id)
    assert (after.tasks_max, after.tokens_max) == (3, 5)
    assert (after.microdollars_max, after.milliseconds_max) == (1_000_006, 1_008)
    assert [event.kind for event in await one.events()].count("budget_set") == 2


async def test_a_raise_leaves_kinds_without_a_cap_without_one(board: Board) -> None:
    root = await board.put("goal", budget=Budget(tasks=1))
    after = await board.raise_budget(root.id, Budget(tasks=1, tokens=5))
    assert (after.tasks_max, after.tokens_max, after.microdollars_max) == (2, None, None)
    assert (await board.set_budget(root.id, Budget(tokens=5))).tasks_max is None


async def test_who_may_wait_for_a_reservation_to_come_back_is_woken_when_it_does(board: Board) -> None:
    root = await board.put("goal", budget=Budget(tokens=10))
    team = await crew(board)
    claim = await team.must_claim()
    key = await board.reserve(claim, Amount(tokens=10))
    with board.watch([f"budget:{root.id}"]) as watch:
        with pytest.raises(BudgetSpent) as refusal:
            await board.reserve(claim, Amount(tokens=1))
        assert refusal.value.may_free_up
        await board.spend(claim, key, Amount(tokens=9))
        assert await watch.wait(30)
    await board.reserve(claim, Amount(tokens=1))


async def test_three_thousand_parked_tasks_do_not_stand_in_the_way(opener: Opener, url: str) -> None:
    board = await opener(limits=Limits(tasks_per_root_max=5_000), patience=Patience(poll_seconds=60))
    crowd = [NewTask(title="spent root", budget=Budget(tasks=1), priority=9)]
    crowd += [NewTask(title=f"parked {n}", parent=-1, priority=9) for n in range(3_000)]
    root = (await board.put_many(crowd))[0]
    other = await board.put("behind them all")
    team = await crew(board)
    assert (await team.must_claim()).task.root == root.id
    assert (await team.must_claim()).task.id == other.id
    in_the_way = "SELECT count(*) AS n FROM tasks WHERE state = 'ready' AND shelved = 0"
    assert await count(url, in_the_way) == 0
    assert await team.claim() is None
    assert (await board.count_tasks())["ready"] == 3_000
    assert await reached(board) == [(root.id, "tasks")]
    await board.set_budget(root.id, Budget())
    assert await count(url, in_the_way) == 3_000
