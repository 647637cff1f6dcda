"""A provider key that was refused for its rate rests for the whole team, and nobody passes the pace it allows."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dugnad.board import Board, open_board
from dugnad.clock import Sources
from dugnad.errors import BadInput, BudgetSpent, CoolingDown
from dugnad.settings import Limits
from dugnad.types import Amount, Budget, Claim, Cooldown, NewTurn, Pace, Released
from tests.board.crew import both, crew
from tests.board.raw import connect, grow_old, race, run
from tests.board.stage import START, STOPPED_CLOCK
from tests.conftest import Opener

KEY = "anthropic:3f9a1c02"
LIMITS = Limits(cooldown_seconds=5, cooldown_seconds_max=300, cooldown_forget_seconds=120)
ONE = Amount(tokens=1)


class Scene:
    """Boards on one database whose clock only the test moves. Jitter is 0 unless the test hands in a chance."""

    def __init__(self, url: str, opener: Opener) -> None:
        self.url = url
        self.now = START
        self._opener = opener

    async def open(self, chance: Callable[[], float] = lambda: 0.0) -> Board:
        board = await self._opener(limits=LIMITS, sources=Sources(now_ms=lambda: self.now, chance=chance))
        if self.now == START and not self.url.startswith("sqlite"):
            connection = await connect(self.url)
            await connection.execute(STOPPED_CLOCK.replace("CREATE TABLE", "DROP TABLE IF EXISTS clock; CREATE TABLE"))
            await connection.close()
            await self.let_pass(0)
        return board

    async def let_pass(self, seconds: float) -> None:
        self.now += round(seconds * 1000)
        if not self.url.startswith("sqlite"):
            await run(self.url, "UPDATE clock SET now = $1", self.now)


@pytest.fixture
def scene(url: str, opener: Opener) -> Scene:
    return Scene(url, opener)


async def work(board: Board, name: str = "alice", **fields: Any) -> Claim:
    """A held task under a root of its own."""
    task = await board.put(f"of {name}", **fields)
    return await (await crew(board, name)).must_claim(name, task=task.id)


async def refusal(call: Awaitable[object]) -> CoolingDown:
    with pytest.raises(CoolingDown) as raised:
        await call
    return raised.value


async def cooled_events(board: Board) -> int:
    return [event.kind for event in await board.events()].count("cooled")


# Cool-downs.


async def test_a_key_that_cools_down_is_refused_to_every_host_until_its_time_is_over(scene: Scene) -> None:
    here, there = await scene.open(), await scene.open()
    claim = await work(there)
    cooldown = await here.cool_down(KEY, reason="429", by="alice")
    assert cooldown == Cooldown(key=KEY, until=scene.now + 5_000, seconds=5.0, strikes=1, reason="429")
    assert await there.cooldowns() == [cooldown]
    await scene.let_pass(4)
    before = await there.last_event()
    refused = await refusal(there.reserve(claim, ONE, pace=Pace(key=KEY)))
    assert (refused.key, refused.seconds) == (KEY, 1.0)
    assert str(refused) == f"{KEY} is cooling down (429); ask again in 1.0 seconds."
    assert await there.last_event() == before
    assert (await there.budget(claim.task.root)).reserved == Amount()
    await there.reserve(claim, ONE, pace=Pace(key="openai:77"))
    await there.reserve(claim, ONE)
    await scene.let_pass(1)
    assert await there.cooldowns() == []
    await there.reserve(claim, ONE, pace=Pace(key=KEY))


async def test_twenty_refusals_at_once_are_one_strike_and_one_event(scene: Scene) -> None:
    boards = [await scene.open(), await scene.open()]
    calls = [board.cool_down(KEY, reason="429", by="alice") for board in boards for _ in range(10)]
    answers = await both(*calls)
    assert {(each.strikes, each.until) for each in answers if isinstance(each, Cooldown)} == {(1, scene.now + 5_000)}
    assert await cooled_events(boards[0]) == 1


async def test_two_hosts_that_are_refused_at_the_same_moment_make_one_strike(scene: Scene) -> None:
    here, there = await scene.open(), await scene.open()
    for strikes in (1, 2, 3):
        calls = [board.cool_down(KEY, reason="429", by="alice") for board in (here, there)]
        assert [each.strikes for each in await race(scene.url, *calls)] == [strikes, strikes]
        assert await cooled_events(here) == strikes
        await scene.let_pass(100)


async def test_each_strike_doubles_the_pause_up_to_the_longest(scene: Scene) -> None:
    board = await scene.open()
    lengths = []
    for strikes in range(1, 10):
        cooldown = await board.cool_down(KEY, reason="429", by="alice")
        assert (cooldown.strikes, cooldown.until) == (strikes, scene.now + cooldown.seconds * 1000)
        lengths.append(cooldown.seconds)
        await scene.let_pass(cooldown.seconds)
    assert lengths == [5, 10, 20, 40, 80, 160, 300, 300, 300]


@pytest.mark.parametrize(("quiet", "strikes"), [(120, 2), (120.001, 1)])
async def test_strikes_are_forgotten_after_a_quiet_time(scene: Scene, quiet: float, strikes: int) -> None:
    board = await scene.open()
    await board.cool_down(KEY, reason="429", by="alice")
    await scene.let_pass(5 + quiet)
    assert (await board.cool_down(KEY, reason="429", by="alice")).strikes == strikes


@pytest.mark.parametrize(("asked", "given"), [(0.5, 0.5), (17, 17), (1_000, 1_000), (3_600, 3_600), (86_400, 3_600)])
async def test_the_pause_a_provider_names_is_kept_up_to_an_hour(scene: Scene, asked: float, given: float) -> None:
    board = await scene.open()
    cooldown = await board.cool_down(KEY, seconds=asked, reason="Retry-After", by="alice")
    assert (cooldown.seconds, cooldown.until) == (given, scene.now + given * 1000)


async def test_a_provider_that_names_no_time_at_all_gets_the_usual_pause(scene: Scene) -> None:
    board = await scene.open()
    assert (await board.cool_down(KEY, seconds=0, reason="Retry-After: 0", by="alice")).seconds == 5


async def test_a_running_pause_is_made_longer_by_a_later_end_only_and_never_a_strike(scene: Scene) -> None:
    board = await scene.open()
    first = await board.cool_down(KEY, seconds=10, reason="first", by="alice")
    await scene.let_pass(4)
    assert await board.cool_down(KEY, seconds=6, reason="as late", by="alice") == first
    assert await board.cool_down(KEY, reason="no time named", by="alice") == first
    assert await cooled_events(board) == 1
    longer = await board.cool_down(KEY, seconds=30, reason="later", by="alice")
    assert longer == Cooldown(key=KEY, until=scene.now + 30_000, seconds=30.0, strikes=1, reason="later")
    assert await cooled_events(board) == 2


async def test_the_same_cool_down_asked_for_twice_has_the_first_answer(scene: Scene) -> None:
    board = await scene.open()
    first = await board.cool_down(KEY, reason="429", by="alice", key="call 1")
    await scene.let_pass(60)
    assert await board.cool_down(KEY, reason="429", by="alice", key="call 1") == first
    assert await board.cooldowns() == []


async def test_waiters_come_back_spread_out(scene: Scene) -> None:
    board = await scene.open(chance=random.Random(7).random)
    claim = await work(board)
    for pause, width in ((100, 50), (1, 1)):  # Half the pause, and a second at least.
        key = f"key {pause}"
        await board.cool_down(key, seconds=pause, reason="429", by="alice")
        answers = await both(*(board.reserve(claim, ONE, pace=Pace(key=key)) for _ in range(20)))
        waits = sorted(each.seconds for each in answers if isinstance(each, CoolingDown))
        assert len(set(waits)) == 20
        assert pause <= waits[0] < pause + width / 4
        assert pause + 3 * width / 4 < waits[-1] <= pause + width


async def test_a_new_pause_wakes_whoever_watches_also_when_the_push_is_lost(scene: Scene) -> None:
    here, there = await scene.open(), await scene.open()
    heard: list[dict[str, int]] = []
    here._store.on_push(heard.append)
    with there.watch(["cooldown"]) as watch:
        await here.cool_down(KEY, reason="429", by="alice")
        assert await watch.wait(30)
    assert heard == [{"cooldown": 1, "log": 1}]
    other = await scene.open()
    await other._look()  # The sweep goes on from here.
    await here.cool_down(KEY, seconds=50, reason="429", by="alice")
    assert "cooldown" in (await other._look())[0]


# Pace.


async def test_the_team_asks_a_key_so_many_times_in_a_minute_and_not_once_more(scene: Scene) -> None:
    here, there = await scene.open(), await scene.open(chance=lambda: 0.5)
    ours, theirs = await work(here, "alice"), await work(there, "bob")
    pace = Pace(key=KEY, requests_per_minute=3)
    for _ in range(3):
        await here.reserve(ours, ONE, pace=pace)
        await scene.let_pass(10)
    before = await there.last_event()
    refused = await refusal(there.reserve(theirs, ONE, pace=pace))
    assert refused.seconds == 30 + 0.5, "when the first is a minute old, and a little later"
    assert str(refused) == f"The team has used {KEY} as much as it may in a minute; ask again in 30.5 seconds."
    assert await there.last_event() == before
    assert (await there.budget(theirs.task.root)).reserved == Amount()
    await there.reserve(theirs, ONE, pace=Pace(key="openai:77", requests_per_minute=3))
    await scene.let_pass(29.999)
    assert (await refusal(there.reserve(theirs, ONE, pace=pace))).seconds == pytest.approx(0.501)
    await scene.let_pass(0.001)
    await there.reserve(theirs, ONE, pace=pace)
    assert (await refusal(here.reserve(ours, ONE, pace=pace))).seconds == 10


async def test_tokens_are_counted_as_used_where_that_is_known_else_as_reserved(scene: Scene) -> None:
    board = await scene.open()
    claim = await work(board)
    pace = Pace(key=KEY, tokens_per_minute=100)
    first = await board.reserve(claim, Amount(tokens=60), pace=pace)
    await refusal(board.reserve(claim, Amount(tokens=41), pace=pace))
    await board.spend(claim, first, Amount(tokens=20))
    second = await board.reserve(claim, Amount(tokens=80), pace=pace)
    await refusal(board.reserve(claim, ONE, pace=pace))
    used = NewTurn(number=1, kind="reply", body="{}", used=Amount(tokens=79), reservation=second)
    await board.record(claim, used)
    await board.reserve(claim, ONE, pace=pace)
    await refusal(board.reserve(claim, ONE, pace=pace))


async def test_what_was_forfeited_counts_as_asked_of_the_key(scene: Scene) -> None:
    board = await scene.open()
    claim, other = await work(board, "alice"), await work(board, "bob")
    pace = Pace(key=KEY, tokens_per_minute=100)
    await board.reserve(claim, Amount(tokens=60), pace=pace)
    await board.settle(claim, Released("enough"))
    await board.reserve(other, Amount(tokens=40), pace=pace)
    await refusal(board.reserve(other, ONE, pace=pace))


async def test_a_call_waits_until_enough_tokens_are_a_minute_old(scene: Scene) -> None:
    board = await scene.open()
    claim = await work(board)
    pace = Pace(key=KEY, tokens_per_minute=100)
    for _ in range(4):
        await board.reserve(claim, Amount(tokens=25), pace=pace)
        await scene.let_pass(5)
    waits = [(await refusal(board.reserve(claim, Amount(tokens=n), pace=pace))).seconds for n in (1, 25, 26, 75, 100)]
    assert waits == [40, 40, 45, 50, 55]


async def test_a_call_larger_than_a_whole_minute_goes_when_it_is_alone(scene: Scene) -> None:
    board = await scene.open()
    claim = await work(board)
    pace = Pace(key=KEY, tokens_per_minute=100)
    await board.reserve(claim, ONE, pace=pace)
    await scene.let_pass(20)
    await board.reserve(claim, ONE, pace=pace)
    assert (await refusal(board.reserve(claim, Amount(tokens=500), pace=pace))).seconds == 60
    await scene.let_pass(60)
    large = await board.reserve(claim, Amount(tokens=500), pace=pace)
    assert (await refusal(board.reserve(claim, ONE, pace=pace))).seconds == 60
    await board.spend(claim, large, Amount())  # It failed, and used nothing.
    await board.reserve(claim, Amount(tokens=500), pace=pace)


@pytest.mark.parametrize("pace", [Pace(key=KEY, requests_per_minute=4), Pace(key=KEY, tokens_per_minute=4)])
async def test_calls_of_one_moment_count_each_other(scene: Scene, pace: Pace) -> None:
    board = await scene.open()
    claim = await work(board)
    answers = await both(*(board.reserve(claim, ONE, pace=pace) for _ in range(10)))
    assert [type(each) for each in answers] == [str] * 4 + [CoolingDown] * 6
    assert {each.seconds for each in answers if isinstance(each, CoolingDown)} == {60}


async def test_two_hosts_never_both_take_the_last_free_place(scene: Scene) -> None:
    here, there = await scene.open(), await scene.open()
    ours, theirs = await work(here, "alice"), await work(there, "bob")  # Nothing in common but the key.
    for place in range(6):
        pace = Pace(key=f"key {place}", requests_per_minute=2 if place % 2 else None, tokens_per_minute=2)
        await here.reserve(ours, ONE, pace=pace)
        calls = [here.reserve(ours, ONE, pace=pace), there.reserve(theirs, ONE, pace=pace)]
        answers = await race(scene.url, *(calls if place < 3 else reversed(calls)))
        assert sorted(type(each).__name__ for each in answers) == ["CoolingDown", "str"]


async def test_hosts_that_use_several_keys_in_any_order_do_not_wait_for_each_other(scene: Scene) -> None:
    here, there = await scene.open(), await scene.open()
    ours, theirs = await work(here, "alice"), await work(there, "bob")
    paces = [Pace(key=f"key {place}", requests_per_minute=1_000) for place in range(8)]
    calls = [here.reserve(ours, ONE, pace=pace) for pace in paces]
    calls += [there.reserve(theirs, ONE, pace=pace) for pace in reversed(paces)]
    assert {type(each) for each in await both(*calls)} == {str}


async def test_a_reservation_that_was_made_is_answered_again_whatever_the_key_does_now(scene: Scene) -> None:
    board = await scene.open()
    claim = await work(board)
    pace = Pace(key=KEY, requests_per_minute=1)
    assert await board.reserve(claim, ONE, pace=pace, key="call 1") == "call 1"
    await board.cool_down(KEY, reason="429", by="alice")
    assert await board.reserve(claim, ONE, pace=pace, key="call 1") == "call 1"
    with pytest.raises(BadInput):
        await board.reserve(claim, ONE, pace=Pace(key="openai:77"), key="call 1")
    twice = await both(*(board.reserve(claim, ONE, pace=pace, key="call 2") for _ in range(2)))
    assert [type(each) for each in twice] == [CoolingDown, CoolingDown], "what was not made is nobody's"


async def test_a_spent_budget_is_said_before_a_pause_and_counts_for_no_pace(scene: Scene) -> None:
    board = await scene.open()
    claim = await work(board, budget=Budget(tokens=5))
    pace = Pace(key=KEY, requests_per_minute=1)
    with pytest.raises(BudgetSpent):
        await board.reserve(claim, Amount(tokens=6), pace=pace)
    await board.reserve(claim, ONE, pace=pace)
    await board.cool_down(KEY, reason="429", by="alice")
    with pytest.raises(BudgetSpent):
        await board.reserve(claim, Amount(tokens=6), pace=pace)


async def test_a_batch_reads_a_fixed_number_of_times_and_nothing_without_a_pace(folder: Path) -> None:
    async with await open_board(f"sqlite:///{folder}/board.db") as board:
        claim = await work(board)
        said: list[str] = []
        board._store.writer.set_trace_callback(said.append)  # type: ignore[attr-defined]

        async def statements(*paces: Pace | None) -> int:
            said.clear()
            await both(*(board.reserve(claim, ONE, pace=pace) for pace in paces))
            return len([*itertools.groupby(said, lambda text: text[:30])])  # Entries of one list are written in a row.

        plain = await statements(*[None] * 20)
        assert not any("cooldowns" in each or "GROUP BY pace" in each for each in said)
        assert await statements(*[None, Pace(key=KEY)] * 10) == plain + 1
        assert await statements(*(Pace(key=str(n), requests_per_minute=50) for n in range(20))) == plain + 4
        assert await statements(*[Pace(key=KEY, tokens_per_minute=50)] * 20) == plain + 4


@pytest.mark.parametrize(
    "wrong", [{"key": ""}, {"key": "x" * 201}, {"requests_per_minute": 0}, {"tokens_per_minute": -1}]
)
async def test_a_pace_that_is_none_is_refused(board: Board, wrong: dict[str, Any]) -> None:
    claim = await work(board)
    with pytest.raises(BadInput):
        await board.reserve(claim, ONE, pace=Pace(**{"key": KEY, **wrong}))
    for seconds in (-1, math.nan, math.inf):
        with pytest.raises(BadInput):
            await board.cool_down(KEY, seconds=seconds, reason="429", by="alice")
    with pytest.raises(BadInput):
        await board.cool_down("", reason="429", by="alice")


# The log.


async def test_the_log_names_the_key_and_can_be_pruned(board: Board, url: str) -> None:
    claim = await work(board)
    pace = Pace(key=KEY, requests_per_minute=1)
    await board.spend(claim, await board.reserve(claim, Amount(tokens=9), pace=pace), Amount(tokens=4))
    await board.cool_down("other", reason="429", by="alice")
    said = {event.kind: event for event in await board.events()}
    assert said["reserved"].data["pace"] == KEY
    assert (said["cooled"].actor, said["cooled"].data["pace"], said["cooled"].data["strikes"]) == ("alice", "other", 1)
    before = await board.observed_state()
    await grow_old(url, 3_600)
    assert (await board.prune(1_800)).events == len(said)
    assert await board.replayed_state() == await board.observed_state() == before
    await refusal(board.reserve(claim, ONE, pace=pace))


async def test_a_clock_that_is_set_back_makes_no_pause_longer_and_no_minute_fuller(scene: Scene) -> None:
    board = await scene.open()
    claim = await work(board)
    pace = Pace(key=KEY, requests_per_minute=1)
    await board.reserve(claim, ONE, pace=pace)
    await board.cool_down("other", reason="429", by="alice")
    await refusal(board.reserve(claim, ONE, pace=Pace(key="other")))
    await refusal(board.reserve(claim, ONE, pace=pace))
    await scene.let_pass(-3_600)
    assert await board.cooldowns() == []
    await board.reserve(claim, ONE, pace=pace)
    await board.reserve(claim, ONE, pace=Pace(key="other"))
    again = await board.cool_down("other", reason="429", by="alice")
    assert (again.until, await board.cooldowns()) == (scene.now + again.seconds * 1000, [again])
