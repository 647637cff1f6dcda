"""The log is the history: every change, in order, in the same transaction, and it replays to the same state."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dugnad.board import Board, replay
from dugnad.board.replay import EVENT_KINDS
from dugnad.errors import DugnadError
from dugnad.types import Amount, Budget, Claim, Done, Event, Failed, NewTask, NewTurn, Pace, Released, Waiting
from tests.board.crew import Crew, both, crew
from tests.board.raw import grow_old, lapse, race, run
from tests.board.topics import change
from tests.conftest import Opener

HOUR = 3_600


async def all_events(board: Board, after: int = 0) -> list[Event]:
    found: list[Event] = []
    while page := await board.events(after):
        found += page
        after = page[-1].seq
    return found


async def assert_replays(board: Board) -> None:
    assert await board.replayed_state() == await board.observed_state()


async def again(board: Board, team: Crew, name: str = "alice") -> Claim:
    """Claim what is ready, or will be when its back-off is over."""
    while (claim := await team.claim(name)) is None:
        await change(board, ["ready:"], 5)
    return claim


async def work_of_every_kind(board: Board, team: Crew, url: str) -> None:
    """Put, claim and end tasks in every way there is."""
    root = await board.put("goal", budget=Budget(tokens=100), check="true", role=None, priority=3)
    after = await board.put("after it", needs=[root.id])
    await board.put("after that", needs=[after.id])
    await board.open_budget(Budget(tokens=5))  # budget_opened
    beside = await board.put("beside")
    await board.add_need(after.id, beside.id)  # need_added
    claim = await team.must_claim(task=root.id)
    child = await board.follow_up(claim, "child")
    await board.follow_up(claim, "child")  # repeated
    await board.hand_over(claim, "so far")  # handover
    await board.merge_into(claim, "dugnad/main")  # merging
    key = await board.reserve(claim, Amount(tokens=10), pace=Pace(key="provider"))
    await board.record(claim, NewTurn(number=1, kind="reply", body="{}", used=Amount(tokens=3), reservation=key))
    await board.reserve(claim, Amount(tokens=5))
    await board.settle(claim, Waiting(on="human", question="which?"))  # waiting, forfeited
    await board.reply((await board.requests())[0].request or "", "human", "this")  # told, ready
    claim = await team.must_claim(task=root.id)
    await board.settle(claim, Waiting(on="budget", amount=Amount(tokens=1_000)))  # budget_reached
    await board.raise_budget(root.id, Budget(tokens=1_000))  # budget_set
    claim = await team.must_claim(task=root.id)
    await board.settle(claim, Waiting(on="tasks", tasks=(child.id,)))
    claim = await team.must_claim(task=child.id)
    await board.settle(claim, Released("not mine", resume=True))  # released
    claim = await team.must_claim(task=child.id)
    await board.settle(claim, Failed("no", retry=True))  # retrying
    await board.assign(beside.id, "alice")  # assigned
    await board.assign(beside.id, None)
    await board.cancel(beside.id, why="not needed")  # cancelled; skips two
    await board.retry(beside.id)  # retried
    claim = await again(board, team)
    await board.release(claim.task.id)
    claim = await again(board, team)
    await lapse(url, team.host)
    await board.take_back()  # host_lost, taken_back
    await board.heartbeat(team.host)  # host_back
    for _ in range(2):
        await board.settle(await again(board, team), Done("ok", "approved"), handover="the end")
    await board.settle(await again(board, team), Failed("for good"))


async def everything(board: Board, team: Crew, url: str) -> None:
    await work_of_every_kind(board, team, url)
    await board.write_note("alice", "title", "text")
    await board.remark("human", "unsandboxed", machine="here")
    await board.remark("human", "steered", who="ann", what="answered m1")
    await board.cool_down("other provider", reason="429", by="alice")
    told = await board.tell("human", "alice", "hello")
    await board.take("alice", "turn")
    await board.show("alice", [told.id])
    await board.spawn("bob", roles=["coder"])
    await board.seat(team.host)
    await board.stop_teammate("bob", reason="enough")
    await board.spawn("bob", roles=["tester"], lead=True, plan=True)
    await board.put("planned", plan=True, assignee="nobody")
    await board.fail_teammate("bob", by="host", reason="bug")
    await board.stop_host(await board.start_host("short-lived"))
    await run(url, "UPDATE hosts SET stopped_at = stopped_at - $1", 2 * HOUR * 1000)
    await board.prune(HOUR)  # hosts_forgotten


async def test_a_board_that_saw_every_kind_of_change_replays_to_what_it_is(board: Board, url: str) -> None:
    await everything(board, await crew(board), url)
    assert {event.kind for event in await all_events(board)} == EVENT_KINDS
    await assert_replays(board)


async def test_after_pruning_the_rest_of_the_log_still_replays_to_the_same(board: Board, url: str) -> None:
    team = await crew(board)
    await everything(board, team, url)
    await grow_old(url, HOUR)
    last, state = await board.last_event(), await board.observed_state()
    assert (await board.prune(0)).events == last
    assert await board.events() == []
    assert await board.last_event() == last
    assert await board.observed_state() == state
    await assert_replays(board)
    await everything(board, team, url)
    assert (await board.events())[0].seq == last + 1, "the numbers go on"
    await assert_replays(board)
    await grow_old(url, HOUR)
    assert (await board.prune(0)).events > 0
    assert (await board.prune(0)).events == 0
    await assert_replays(board)


async def test_a_pruned_log_says_where_it_begins_and_with_what(board: Board, url: str) -> None:
    assert await board.pruned_state() == (0, replay.load())
    await everything(board, await crew(board), url)
    await grow_old(url, HOUR)
    last, state = await board.last_event(), await board.observed_state()
    await board.put("later")
    await board.prune(HOUR // 2)
    assert await board.pruned_state() == (last, state)
    assert [event.seq for event in await board.events()] == [last + 1]


async def test_the_log_can_be_folded_after_any_event(board: Board, url: str) -> None:
    """What one fold began, the next one ends: a claim here, its settle there."""
    await everything(board, await crew(board), url)
    before = await board.observed_state()
    for number in range(1, await board.last_event() + 1):
        await run(url, "UPDATE events SET at = 1 WHERE seq = $1", number)
        assert (await board.prune(HOUR)).events == 1
        assert await board.replayed_state() == before, number


async def test_pruning_while_nothing_is_old_changes_nothing(board: Board) -> None:
    team = await crew(board)
    await board.put("goal")
    await board.settle(await team.must_claim(), Done())
    before, last = await board.events(), await board.last_event()
    assert (await board.prune(HOUR)).events == 0
    assert await board.events() == before
    assert await board.last_event() == last


async def test_pruning_an_empty_board_changes_nothing(board: Board) -> None:
    assert (await board.prune(0)).events == 0
    assert await board.events() == []


async def test_only_what_is_old_is_pruned(board: Board, url: str) -> None:
    await board.put("old")
    await grow_old(url, 2 * HOUR)
    await board.put("new")
    assert (await board.prune(HOUR)).events == 1
    assert [event.seq for event in await board.events()] == [2]
    await assert_replays(board)


async def test_two_boards_that_prune_at_once_prune_once(opener: Opener, url: str) -> None:
    one, two = await opener(), await opener()
    for number in range(20):
        await one.put(str(number))
    await grow_old(url, HOUR)
    assert sorted(each.events for each in await race(url, one.prune(60), two.prune(60))) == [0, 20]
    await assert_replays(one)
    await one.put("new")
    await grow_old(url, HOUR)
    await both(one.prune(60), two.prune(60), one.put("meanwhile"), two.put("meanwhile"))
    assert len(await one.events()) == 2
    await assert_replays(one)


async def test_transcripts_of_ended_tasks_are_pruned_and_open_ones_kept(board: Board, url: str) -> None:
    team = await crew(board, "alice", "bob")
    for title in ("ends", "stays open"):
        await board.put(title)
    ended, still_open = await team.must_claim("alice"), await team.must_claim("bob")
    for claim in (ended, still_open):
        await board.record(claim, NewTurn(number=1, kind="reply", body="{}"))
    await board.settle(ended, Done("ok"))
    assert (await board.prune(HOUR)).events == 0
    assert len(await board.transcript(ended.task.id, ended.epoch)) == 1, "not old yet"
    await grow_old(url, 2 * HOUR)
    await board.prune(HOUR)
    assert await board.transcript(ended.task.id, ended.epoch) == []
    assert len(await board.transcript(still_open.task.id, still_open.epoch)) == 1
    assert (await board.find(ended.task.id)).result == "ok"


async def test_each_change_is_one_event_that_says_who_and_what(board: Board) -> None:
    team = await crew(board)
    seen = await board.last_event()

    async def added() -> list[tuple[str, int | None, str]]:
        nonlocal seen
        events = await board.events(seen)
        seen = await board.last_event()
        return [(event.kind, event.task, event.actor) for event in events]

    task = await board.put("goal", by="lead")
    assert await added() == [("put", task.id, "lead")]
    claim = await team.must_claim()
    assert await added() == [("claimed", task.id, "alice")]
    await board.record(claim, NewTurn(number=1, kind="reply", body="{}"))
    assert await added() == [("turn", task.id, "alice")]
    behind = await board.put("behind", needs=[task.id])
    await added()
    await board.settle(claim, Done())
    assert await added() == [("done", task.id, "alice"), ("ready", behind.id, "board")]
    await board.cancel(behind.id, by="human")
    assert await added() == [("cancelled", behind.id, "human")]
    await board.heartbeat(team.host)
    assert await added() == [], "a heartbeat changes no one's state"
    assert [event.kind for event in await board.events(task=task.id)] == ["put", "claimed", "turn", "done"]


async def test_a_change_whose_event_cannot_be_written_does_not_happen(board: Board, url: str) -> None:
    if url.startswith("sqlite"):
        await run(
            url,
            "CREATE TRIGGER no BEFORE INSERT ON events WHEN NEW.kind = 'noted' BEGIN SELECT RAISE(ABORT, 'no'); END",
        )
    else:
        await run(url, "ALTER TABLE events ADD CONSTRAINT no CHECK (kind <> 'noted')")
    with pytest.raises(Exception, match="no"):
        await board.write_note("alice", "title", "text")
    assert await board.search_notes() == []
    await board.put("the board works on")
    assert [event.seq for event in await board.events()] == [1]


async def test_a_refused_call_leaves_no_event_also_among_others_of_the_same_moment(board: Board) -> None:
    team = await crew(board)
    task = await board.put("goal")
    claim = await team.must_claim()
    await board.release(task.id)
    holder = await team.must_claim()
    await board.follow_up(holder, "child")
    half_bad = [NewTask(title="child"), NewTask(title="bad", needs=(999,))]  # The first half alone would be fine.
    before = await board.last_event()
    refused: list[Callable[[], Awaitable[object]]] = [
        lambda: board.settle(claim, Done()),
        lambda: board.record(claim, NewTurn(number=1, kind="reply", body="{}")),
        lambda: board.reserve(claim, Amount(tokens=1)),
        lambda: board.tell("alice", "nobody", "hello"),
        lambda: board.put("bad", needs=[999]),
        lambda: board.follow_ups(holder, half_bad),
        lambda: board.add_need(task.id, task.id),
        lambda: board.retry(task.id),
        lambda: board.spawn("alice", roles=["other"]),
        lambda: board.seat("nobody"),
        lambda: board.raise_budget(999, Budget(tasks=1)),
        lambda: board.claim("nobody", team.host),
    ]
    for call in refused:
        with pytest.raises(DugnadError):
            await call()
    assert await board.last_event() == before
    answers = await both(*(each for call in refused for each in (call(), board.write_note("alice", "fine", ""))))
    assert all(isinstance(answer, DugnadError) for answer in answers[::2])
    assert [event.kind for event in await board.events(before)] == ["noted"] * len(refused)


async def test_a_reader_sees_every_number_once_while_two_boards_write(opener: Opener) -> None:
    one, two, reader = await opener(), await opener(), await opener()

    async def write(board: Board, name: str) -> None:
        for number in range(25):
            await board.write_note(name, f"{name} {number}", "")
            if number % 5 == 0:
                with pytest.raises(DugnadError):  # A change that is rolled back takes no number.
                    await board.tell("human", "nobody", "hello")

    async def read() -> list[int]:
        seen: list[int] = []
        while len(seen) < 200:
            seen += [event.seq for event in await reader.events(seen[-1] if seen else 0, page=7)]
        return seen

    reading = asyncio.create_task(read())
    await asyncio.gather(*(write(board, f"{name}{n}") for n in range(4) for board, name in ((one, "a"), (two, "b"))))
    assert await asyncio.wait_for(reading, 120) == list(range(1, 201))
    titles = [event.data["title"] for event in await all_events(reader)]
    for name in ("a0", "b3"):
        own = [title for title in titles if str(title).startswith(name)]
        assert own == [f"{name} {number}" for number in range(25)], "each writer's changes in its own order"


async def test_following_gives_what_was_and_then_what_comes(opener: Opener) -> None:
    one, two = await opener(), await opener()
    tasks = [await one.put(f"task {number}") for number in range(5)]
    heard: asyncio.Queue[tuple[int, str]] = asyncio.Queue()

    async def listen() -> None:
        async for event in one.follow():
            heard.put_nowait((event.seq, event.kind))

    listening = asyncio.create_task(listen())
    async with asyncio.timeout(120):
        assert [await heard.get() for _ in tasks] == [(seq, "put") for seq in range(1, 6)]
        for number, task in enumerate(tasks):
            assert await one.events(5 + number) == [], "nothing more to hear, so it waits"
            await (two, one)[number % 2].cancel(task.id)
            assert await heard.get() == (6 + number, "cancelled")
    assert not listening.done()
    listening.cancel()


async def test_following_one_task_leaves_out_the_others(board: Board) -> None:
    tasks = [await board.put(title) for title in ("first", "second")]
    for task in tasks:
        await board.cancel(task.id)
    async with asyncio.timeout(120):
        async for event in board.follow(after=1, task=tasks[0].id):
            assert (event.seq, event.kind) == (3, "cancelled")
            break


@pytest.mark.parametrize("after", [0, 3])
async def test_events_are_read_from_any_number_on(board: Board, after: int) -> None:
    for number in range(5):
        await board.put(str(number))
    assert [event.seq for event in await board.events(after)] == list(range(after + 1, 6))
    assert await board.events(5) == []
    assert [event.seq for event in await board.events(after, page=2)] == [after + 1, after + 2]


async def test_waiting_for_the_same_task_named_twice_replays(board: Board) -> None:
    team = await crew(board)
    first, second = await board.put("first"), await board.put("second")
    claim = await team.must_claim(task=first.id)
    await board.settle(claim, Waiting(on="tasks", tasks=(second.id, second.id)))
    await assert_replays(board)
    await board.settle(await team.must_claim(task=second.id), Done())
    assert (await board.find(first.id)).state == "ready"


async def test_waiting_for_tasks_of_which_some_have_ended_replays(board: Board) -> None:
    team = await crew(board)
    first, second, third = [await board.put(title) for title in ("first", "second", "third")]
    await board.settle(await team.must_claim(task=second.id), Done())
    claim = await team.must_claim(task=first.id)
    await board.settle(claim, Waiting(on="tasks", tasks=(second.id, third.id)))
    await assert_replays(board)
    await board.cancel(third.id)
    await assert_replays(board)
    assert (await board.find(first.id)).state == "ready"
