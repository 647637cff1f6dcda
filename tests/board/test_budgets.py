"""Reserve before, settle after, and never pass the cap by one unit."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from dugnad.board import Board
from dugnad.errors import BadInput, BudgetSpent, DugnadError, StaleClaim, UnknownReservation, UnknownTask
from dugnad.types import Amount, Budget, Claim, Done, Failed, NewTurn, Released, Spending, Waiting
from tests.board.crew import Crew, both, crew
from tests.board.raw import lapse
from tests.board.topics import change
from tests.conftest import Opener

# Of each kind: its name, a cap of three units, and one unit.
KINDS = [
    pytest.param("tokens", Budget(tokens=3), Amount(tokens=1), id="tokens"),
    pytest.param("dollars", Budget(dollars=0.000003), Amount(microdollars=1), id="dollars"),
    pytest.param("seconds", Budget(seconds=0.003), Amount(milliseconds=1), id="seconds"),
]


async def capped(board: Board, budget: Budget) -> tuple[Crew, Claim]:
    await board.put("goal", budget=budget)
    team = await crew(board)
    return team, await team.must_claim()


async def kinds_of_events(board: Board, after: int = 0) -> list[str]:
    return [event.kind for event in await board.events(after)]


def in_all(spending: Spending) -> tuple[int, int, int]:
    spent, reserved = spending.spent, spending.reserved
    return (
        spent.tokens + reserved.tokens,
        spent.microdollars + reserved.microdollars,
        spent.milliseconds + reserved.milliseconds,
    )


@pytest.mark.parametrize(("kind", "budget", "unit"), KINDS)
async def test_a_reservation_fits_up_to_the_last_unit_and_not_one_more(
    board: Board, kind: str, budget: Budget, unit: Amount
) -> None:
    _, claim = await capped(board, budget)
    keys = [await board.reserve(claim, unit) for _ in range(3)]
    before = await board.last_event()
    with pytest.raises(BudgetSpent) as refusal:
        await board.reserve(claim, unit)
    assert refusal.value.kind == kind
    assert refusal.value.may_free_up, "the three reservations may come back"
    assert await board.last_event() == before, "a refused call leaves no event"
    await board.spend(claim, keys[0], Amount())
    await board.reserve(claim, unit)
    assert sum(in_all(await board.budget(claim.task.root))) == 3


@pytest.mark.parametrize(("kind", "budget", "unit"), KINDS)
async def test_what_is_spent_does_not_free_up(board: Board, kind: str, budget: Budget, unit: Amount) -> None:
    _, claim = await capped(board, budget)
    for _ in range(3):
        await board.spend(claim, await board.reserve(claim, unit), unit)
    with pytest.raises(BudgetSpent) as refusal:
        await board.reserve(claim, unit)
    assert (refusal.value.kind, refusal.value.may_free_up) == (kind, False)


async def test_the_first_kind_that_does_not_fit_is_named_and_nothing_of_the_others_is_kept(board: Board) -> None:
    _, claim = await capped(board, Budget(tokens=100, dollars=1.0, seconds=10.0))
    with pytest.raises(BudgetSpent, match="dollars") as refusal:
        await board.reserve(claim, Amount(tokens=100, microdollars=1_000_001, milliseconds=10_000))
    assert refusal.value.kind == "dollars"
    assert in_all(await board.budget(claim.task.root)) == (0, 0, 0)
    await board.reserve(claim, Amount(tokens=100, microdollars=1_000_000, milliseconds=10_000))


@pytest.mark.parametrize("way", ["spend", "record"])
async def test_what_was_really_used_takes_the_place_of_what_was_reserved(board: Board, way: str) -> None:
    _, claim = await capped(board, Budget(tokens=100, dollars=1.0, seconds=1.0))
    asked, used = Amount(tokens=60, microdollars=9, milliseconds=80), Amount(tokens=25, microdollars=4, milliseconds=70)
    key = await board.reserve(claim, asked)
    held = await board.budget(claim.task.root)
    assert (held.spent, held.reserved) == (Amount(), asked)
    for _ in range(2):  # The second time changes nothing.
        if way == "spend":
            await board.spend(claim, key, used)
        else:
            await board.record(claim, NewTurn(number=1, kind="reply", body="{}", used=used, reservation=key))
    settled = await board.budget(claim.task.root)
    assert (settled.spent, settled.reserved) == (used, Amount())


async def test_using_more_than_was_reserved_is_counted_in_full_and_said(board: Board) -> None:
    _, claim = await capped(board, Budget(tokens=10))
    key = await board.reserve(claim, Amount(tokens=10))
    await board.spend(claim, key, Amount(tokens=14))
    assert (await board.budget(claim.task.root)).spent.tokens == 14
    spent = (await board.events())[-1]
    assert spent.kind == "spent"
    assert spent.data["over"] == {"tokens": 4, "microdollars": 0, "milliseconds": 0}
    with pytest.raises(BudgetSpent):
        await board.reserve(claim, Amount(tokens=1))


async def test_the_same_reservation_asked_for_twice_is_made_once(board: Board) -> None:
    _, claim = await capped(board, Budget(tokens=10))
    assert await board.reserve(claim, Amount(tokens=6), key="turn 1") == "turn 1"
    assert await board.reserve(claim, Amount(tokens=6), key="turn 1") == "turn 1"
    assert await both(*(board.reserve(claim, Amount(tokens=4), key="turn 2") for _ in range(2))) == ["turn 2"] * 2
    assert (await board.budget(claim.task.root)).reserved.tokens == 10


@pytest.mark.parametrize("earlier", ["another task", "an earlier attempt"])
async def test_a_key_that_was_used_elsewhere_never_stands_for_an_unmade_reservation(board: Board, earlier: str) -> None:
    """Otherwise two tasks that count their calls alike, "call 1", spend what nobody has set aside."""
    team, first = await capped(board, Budget(tokens=100))
    await board.reserve(first, Amount(tokens=5), key="call 1")
    if earlier == "another task":
        await board.put("its child", parent=first.task.id)
    else:
        await board.settle(first, Released("again"))
    second = await team.must_claim()
    try:
        await board.reserve(second, Amount(tokens=7), key="call 1")
    except DugnadError:
        return  # To be refused is fine, too.
    assert in_all(await board.budget(first.task.root))[0] == 12


async def test_a_reservation_belongs_to_its_task(board: Board) -> None:
    team, first = await capped(board, Budget(tokens=10))
    key = await board.reserve(first, Amount(tokens=6))
    await board.put("other")
    second = await team.must_claim()
    for other in (key, "nobody's"):
        with pytest.raises(UnknownReservation):
            await board.spend(second, other, Amount())
        with pytest.raises(UnknownReservation):
            await board.record(second, NewTurn(number=1, kind="reply", body="{}", reservation=other))
    assert (await board.budget(first.task.root)).reserved.tokens == 6
    assert await board.transcript(second.task.id, second.epoch) == []


async def test_without_caps_nothing_is_refused_but_everything_is_counted(board: Board) -> None:
    await board.put("goal")
    team = await crew(board)
    claim = await team.must_claim()
    await board.spend(claim, await board.reserve(claim, Amount(tokens=10**12)), Amount(tokens=10**12))
    account = await board.budget(claim.task.root)
    assert (account.runs, account.spent.tokens, account.tokens_max, account.held) == (1, 10**12, None, None)


async def test_thirty_reservers_on_each_of_two_boards_never_pass_the_cap(opener: Opener) -> None:
    one, two = await opener(), await opener()
    root = await one.put("goal", budget=Budget(tokens=100, dollars=0.001, seconds=1.0))
    await one.put("its child", parent=root.id)
    claims = [(board, await (await crew(board, name)).must_claim(name)) for board, name in ((one, "a"), (two, "b"))]
    ask = Amount(tokens=3, microdollars=1, milliseconds=1)
    answers = await both(*(board.reserve(claim, ask) for _ in range(30) for board, claim in claims))
    made = [answer for answer in answers if isinstance(answer, str)]
    refusals = [answer for answer in answers if not isinstance(answer, str)]
    assert len(made) == 33
    assert all(isinstance(refusal, BudgetSpent) and refusal.kind == "tokens" for refusal in refusals)
    assert in_all(await one.budget(root.id)) == (99, 33, 33)
    last = await both(*(board.reserve(claim, Amount(tokens=1)) for _ in range(10) for board, claim in claims))
    assert sum(isinstance(answer, str) for answer in last) == 1
    assert in_all(await two.budget(root.id))[0] == 100


async def test_reservers_and_spenders_at_once_keep_the_account_exact(opener: Opener) -> None:
    one, two = await opener(), await opener()
    root = await one.put("goal", budget=Budget(tokens=60))
    await one.put("its child", parent=root.id)
    claims = [(board, await (await crew(board, name)).must_claim(name)) for board, name in ((one, "a"), (two, "b"))]

    async def work(board: Board, claim: Claim) -> int:
        done = 0
        for _ in range(5):
            try:
                key = await board.reserve(claim, Amount(tokens=4))
            except BudgetSpent:
                continue
            assert in_all(await board.budget(root.id))[0] <= 60
            await board.spend(claim, key, Amount(tokens=1))
            done += 1
        return done

    done = await asyncio.gather(*(work(*each) for _ in range(8) for each in claims))
    account = await one.budget(root.id)
    assert (account.spent.tokens, account.reserved.tokens) == (sum(done), 0)


async def test_racing_claimers_on_two_boards_claim_exactly_the_cap(opener: Opener) -> None:
    one, two = await opener(), await opener()
    root = await one.put("goal", budget=Budget(tasks=7))
    for number in range(40):
        await one.put(f"child {number}", parent=root.id)
    crews = [await crew(board, *(f"{name}{n}" for n in range(20))) for board, name in ((one, "a"), (two, "b"))]
    answers = await both(*(team.claim(f"{name}{n}") for n in range(20) for team, name in zip(crews, "ab", strict=True)))
    claims = [answer for answer in answers if isinstance(answer, Claim)]
    assert len(claims) == len({claim.task.id for claim in claims}) == 7
    assert [answer for answer in answers if not isinstance(answer, Claim)] == [None] * 33
    account = await two.budget(root.id)
    assert (account.runs, account.held) == (7, "tasks")
    assert (await kinds_of_events(one)).count("budget_reached") == 1


@pytest.mark.parametrize(
    "way", ["lost", "host stopped", "cancelled", "released", "done", "failed", "gave back", "waits"]
)
async def test_what_a_holder_had_reserved_when_it_let_go_counts_as_spent(board: Board, url: str, way: str) -> None:
    team, claim = await capped(board, Budget(tokens=10))
    await board.spend(claim, await board.reserve(claim, Amount(tokens=2)), Amount(tokens=1))
    await board.reserve(claim, Amount(tokens=5), key="unknown fate")
    match way:
        case "lost":
            await lapse(url, team.host)
            assert await board.take_back() == [claim.task.id]
        case "host stopped":
            await board.stop_host(team.host)
            assert await board.take_back() == [claim.task.id]
        case "cancelled":
            await board.cancel(claim.task.id)
        case "released":
            await board.release(claim.task.id)
        case "done":
            await board.settle(claim, Done("ok"))
        case "failed":
            await board.settle(claim, Failed("no", retry=True))
        case "gave back":
            await board.settle(claim, Released("not mine"))
        case "waits":
            await board.settle(claim, Waiting(on="human", question="which?"))
    account = await board.budget(claim.task.root)
    assert (account.spent.tokens, account.reserved.tokens) == (6, 0)
    assert "forfeited" in await kinds_of_events(board)


async def test_what_was_forfeited_is_not_spent_again_by_the_late_holder(board: Board, url: str) -> None:
    team, claim = await capped(board, Budget(tokens=10))
    key = await board.reserve(claim, Amount(tokens=5))
    await lapse(url, team.host)
    await board.take_back()
    await board.record(claim, NewTurn(number=1, kind="reply", body="{}", used=Amount(tokens=3), reservation=key))
    await board.spend(claim, key, Amount(tokens=3))
    account = await board.budget(claim.task.root)
    assert (account.spent.tokens, account.reserved.tokens) == (5, 0)


@pytest.mark.parametrize("way", ["cancel", "claimed by another"])
async def test_what_a_late_holder_reserved_counts_as_spent_once_it_is_fenced_off(
    board: Board, url: str, way: str
) -> None:
    team, claim = await capped(board, Budget(tokens=10))
    await lapse(url, team.host)
    await board.take_back()
    await board.reserve(claim, Amount(tokens=5))  # Late, but nobody else has claimed it yet.
    await board.heartbeat(team.host)
    if way == "cancel":
        await board.cancel(claim.task.id)
    else:
        await board.release(await ready_again(board, team), by="human")
    account = await board.budget(claim.task.root)
    assert (account.spent.tokens, account.reserved.tokens) == (5, 0)


async def ready_again(board: Board, team: Crew) -> int:  # The task, once it is claimed anew after its back-off.
    while (claim := await team.claim()) is None:
        await change(board, ["ready:"], 5)
    return claim.task.id


async def test_a_stale_claim_reserves_and_spends_nothing(board: Board) -> None:
    _, claim = await capped(board, Budget(tokens=10))
    key = await board.reserve(claim, Amount(tokens=5))
    await board.release(claim.task.id)
    with pytest.raises(StaleClaim):
        await board.reserve(claim, Amount(tokens=1))
    with pytest.raises(StaleClaim):
        await board.spend(claim, key, Amount(tokens=1))
    assert in_all(await board.budget(claim.task.root))[0] == 5


@pytest.mark.parametrize("wrong", [-1, -0.001, math.nan, math.inf])
@pytest.mark.parametrize("kind", ["tasks", "tokens", "dollars", "seconds"])
async def test_a_budget_that_is_no_quantity_is_refused(board: Board, kind: str, wrong: float) -> None:
    bad = Budget(**{kind: wrong})  # type: ignore[arg-type]
    root = await board.put("goal", budget=Budget(tasks=5))
    before = await board.budget(root.id)
    for call in (
        board.put("bad", budget=bad),
        board.set_budget(root.id, bad),
        board.raise_budget(root.id, bad),
    ):
        with pytest.raises(BadInput):
            await call
    assert await board.budget(root.id) == before
    assert await kinds_of_events(board) == ["put"]


@pytest.mark.parametrize("wrong", [-1, math.nan, math.inf])
@pytest.mark.parametrize("kind", ["tokens", "microdollars", "milliseconds"])
async def test_an_amount_that_is_no_quantity_is_refused(board: Board, kind: str, wrong: float) -> None:
    _, claim = await capped(board, Budget(tokens=10))
    bad = Amount(**{kind: wrong})  # type: ignore[arg-type]
    key = await board.reserve(claim, Amount(tokens=10))
    for call in (
        board.reserve(claim, bad),
        board.spend(claim, key, bad),
        board.record(claim, NewTurn(number=1, kind="reply", body="{}", used=bad, reservation=key)),
    ):
        with pytest.raises(BadInput):
            await call
    account = await board.budget(claim.task.root)
    assert (account.spent, account.reserved) == (Amount(), Amount(tokens=10))


async def test_waiting_for_an_amount_that_is_no_quantity_is_refused(board: Board) -> None:
    _, claim = await capped(board, Budget(tokens=10))
    for wrong in (-1, math.nan, math.inf):
        with pytest.raises(BadInput):
            await board.settle(claim, Waiting(on="budget", amount=Amount(tokens=wrong)))  # type: ignore[arg-type]
    assert (await board.find(claim.task.id)).state == "claimed"


async def test_a_budget_belongs_to_a_root(board: Board) -> None:
    root = await board.put("goal")
    child = await board.put("child", parent=root.id)
    for unknown in (child.id, 999):
        with pytest.raises(UnknownTask):
            await board.budget(unknown)
        with pytest.raises(UnknownTask):
            await board.raise_budget(unknown, Budget(tasks=1))
    with pytest.raises(BadInput):
        await board.put("child with its own", parent=root.id, budget=Budget(tasks=1))


async def test_a_holder_can_count_what_it_has_reserved_as_spent_and_go_on(board: Board) -> None:
    task = await board.put("goal", budget=Budget(tokens=100))
    other = await board.put("other", parent=task.id)
    team = await crew(board)
    claims = {claim.task.id: claim for claim in (await team.must_claim(), await team.must_claim())}
    await board.reserve(claims[task.id], Amount(tokens=30))
    await board.reserve(claims[task.id], Amount(tokens=20))
    theirs = await board.reserve(claims[other.id], Amount(tokens=10))
    for _ in range(2):
        await board.forfeit(claims[task.id])
        spending = await board.budget(task.id)
        assert (spending.spent.tokens, spending.reserved.tokens) == (50, 10)
    await board.spend(claims[other.id], theirs, Amount(tokens=3))
    await board.reserve(claims[task.id], Amount(tokens=47))
    await board.settle(claims[task.id], Done("as asked"))


# Shared budgets.


async def test_tasks_that_share_a_budget_are_capped_as_one_and_the_first_is_number_one(board: Board) -> None:
    shared = await board.open_budget(Budget(tasks=1))
    first, second = [await board.put(title, account=shared) for title in ("first", "second")]
    child = await board.put("child", parent=second.id)
    assert first.id == 1
    assert [(task.parent, task.depth, task.kind) for task in (first, second)] == [(None, 0, "goal")] * 2
    assert {task.root for task in (first, second, child)} == {shared}
    assert (await board.budget(shared)).tasks == 3
    team = await crew(board)
    await board.settle(await team.must_claim(), Done())
    assert await team.claim() is None
    with pytest.raises(BudgetSpent, match="Goal b1 has spent its tasks; raise the cap with `dugnad budget b1`"):
        await team.claim(task=second.id)
    await board.raise_budget(shared, Budget(tasks=1))
    assert (await team.must_claim()).task.id == second.id
    about = {event.kind: (event.task, event.root) for event in await board.events() if event.kind.startswith("budget")}
    assert about == dict.fromkeys(("budget_opened", "budget_reached", "budget_set"), (None, shared))


async def test_each_shared_budget_has_a_number_and_keys_of_its_own(board: Board) -> None:
    one, two = await asyncio.gather(board.open_budget(), board.open_budget())
    assert {one, two} == {-1, -2}
    assert await board.open_budget(key="k") == await board.open_budget(key="k") == -3
    put = [await board.put("task", account=each, key="same") for each in (one, two, one)]
    assert put[0] == put[2] != put[1]


@pytest.mark.parametrize("fields", [{"parent": 1}, {"budget": Budget(tasks=1)}])
async def test_a_task_on_a_shared_budget_has_no_parent_and_no_budget_of_its_own(
    board: Board, fields: dict[str, Any]
) -> None:
    await board.put("goal")
    with pytest.raises(BadInput, match="Only a goal has a budget"):
        await board.put("task", account=await board.open_budget(), **fields)
    with pytest.raises(BadInput, match="Only a goal has a budget"):
        await board.put("task", account=1)
    with pytest.raises(UnknownTask, match="There is no budget b9"):
        await board.put("task", account=-9)
