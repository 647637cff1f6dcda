"""Two processes at the same moment: every race ends as one of its orders would have, and nothing is left stuck.

Each race is run some times freely, by `make proof` many times, and on PostgreSQL also forced: with `race`, neither call
commits before both have done their work, in both orders.
"""

from __future__ import annotations

import pytest

from dugnad.errors import Cycle, NotReady, StaleClaim
from dugnad.settings import Limits
from dugnad.types import Claim, Done, Failed, Need, Task, Waiting
from tests.board.crew import both, crew, expire, kinds, make_due, race
from tests.conftest import Opener
from tests.proof import sample


@pytest.fixture(params=sample([8, 25], lambda rounds: rounds == 8))
def rounds(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def names(answers: list[object]) -> list[str]:
    return sorted(type(answer).__name__ for answer in answers)


async def test_two_claimers_of_one_task_one_wins(opener: Opener, url: str, rounds: int) -> None:
    here, there = await opener(), await opener()
    ours, theirs = await crew(here, "alice"), await crew(there, "bob")
    for place in range(rounds):
        task = await here.put("task", priority=place)
        calls = [ours.claim("alice"), theirs.claim("bob")]
        won = [claim for claim in (await race(url, *calls) if place < 3 else await both(*calls)) if claim is not None]
        assert len(won) == 1
        assert isinstance(won[0], Claim)
        found = await there.find(task.id)
        assert (found.teammate, found.epoch, found.claims) == (won[0].teammate, won[0].epoch, 1)
        assert len(await here.attempts(task.id)) == 1


async def test_two_named_claimers_of_one_task_one_wins(opener: Opener, url: str, rounds: int) -> None:
    here, there = await opener(), await opener()
    ours, theirs = await crew(here, "alice"), await crew(there, "bob")
    for place in range(rounds):
        task = await here.put("task")
        calls = [ours.claim("alice", task=task.id), theirs.claim("bob", task=task.id)]
        answers = await race(url, *calls) if place < 3 else await both(*calls)
        assert names(answers) == ["Claim", "NotReady"]


async def test_two_processes_that_drain_a_board_do_each_task_once(opener: Opener) -> None:
    here, there = await opener(), await opener()
    tasks = [await here.put(str(place)) for place in range(40)]
    ours, theirs = await crew(here, *"abcd"), await crew(there, *"efgh")

    async def drain(team: object, board: object, name: str) -> list[int]:
        taken = []
        while claim := await team.claim(name):  # type: ignore[attr-defined]
            taken.append(claim.task.id)
            await board.settle(claim, Done())  # type: ignore[attr-defined]
        return taken

    await both(*(drain(ours, here, name) for name in "abcd"), *(drain(theirs, there, name) for name in "efgh"))
    # A claim passes over rows that the other process holds, so one last look takes what was passed over.
    await drain(ours, here, "a")
    assert await here.count_tasks() == {"done": 40}
    assert (await kinds(here)).count("claimed") == 40
    assert [len(await here.attempts(task.id)) for task in tasks] == [1] * 40


async def test_two_needs_that_end_together_free_their_dependent_once(opener: Opener, url: str, rounds: int) -> None:
    here, there = await opener(), await opener()
    ours, theirs = await crew(here, "alice"), await crew(there, "bob")
    for place in range(rounds):
        one, two = await here.put("one"), await here.put("two")
        behind = await here.put("behind", needs=[one.id, two.id])
        first, second = await ours.must_claim("alice", task=one.id), await theirs.must_claim("bob", task=two.id)
        calls = [here.settle(first, Done()), there.settle(second, Done())]
        assert (await race(url, *calls) if place < 3 else await both(*calls)) == ["done", "done"]
        found = await here.find(behind.id)
        assert (found.state, found.open_needs) == ("ready", 0)
        assert (await kinds(here, behind.id)) == ["put", "ready"]


@pytest.mark.parametrize("failing", ["both", "first", "second"])
async def test_two_needs_that_end_together_badly_skip_their_dependent_once(
    opener: Opener, url: str, rounds: int, failing: str
) -> None:
    here, there = await opener(), await opener()
    ours, theirs = await crew(here, "alice"), await crew(there, "bob")
    for place in range(rounds):
        one, two = await here.put("one"), await here.put("two")
        behind = await here.put("behind", needs=[one.id, two.id])
        last = await here.put("last", needs=[behind.id, one.id])
        first, second = await ours.must_claim("alice", task=one.id), await theirs.must_claim("bob", task=two.id)
        calls = [
            here.settle(first, Done() if failing == "second" else Failed("no")),
            there.settle(second, Done() if failing == "first" else Failed("no")),
        ]
        await (race(url, *calls) if place < 3 else both(*calls))
        for each in (behind, last):
            assert (await kinds(here, each.id)) == ["put", "skipped"]


@pytest.mark.parametrize("settle_first", [True, False])
async def test_a_settle_against_a_take_back_is_never_lost(
    opener: Opener, url: str, rounds: int, settle_first: bool
) -> None:
    here, there = await opener(), await opener()
    team = await crew(here)
    for place in range(rounds):
        task = await here.put("task")
        behind = await here.put("behind", needs=[task.id])
        claim = await team.must_claim(task=task.id)
        await expire(url, team.host)
        calls = [here.settle(claim, Done("ok")), there.take_back()]
        answers = await both(*calls) if place > 3 else await race(url, *(calls if settle_first else reversed(calls)))
        assert "done" in answers
        assert (await here.find(task.id)).state == "done"
        assert (await kinds(here, behind.id)) == ["put", "ready"]
        await here.heartbeat(team.host)


@pytest.mark.parametrize("settle_first", [True, False])
async def test_a_settle_against_the_last_take_back_ends_the_task_once(
    opener: Opener, url: str, rounds: int, settle_first: bool
) -> None:
    here, there = await opener(limits=Limits(attempts_max=1)), await opener(limits=Limits(attempts_max=1))
    team = await crew(here)
    for place in range(rounds):
        task = await here.put("task")
        behind = await here.put("behind", needs=[Need(task.id, "ended")])
        claim = await team.must_claim(task=task.id)
        await expire(url, team.host)
        calls = [here.settle(claim, Done("ok")), there.take_back()]
        answers = await both(*calls) if place > 3 else await race(url, *(calls if settle_first else reversed(calls)))
        found = await here.find(task.id)
        if "done" in answers:
            assert found.state == "done"
        else:
            assert "StaleClaim" in names(answers)
            assert found.state == "failed"
        assert (await kinds(here, behind.id)) == ["put", "ready"]
        await here.heartbeat(team.host)


async def test_two_that_take_back_at_once_take_each_task_once(opener: Opener, url: str, rounds: int) -> None:
    here, there = await opener(), await opener()
    team = await crew(here)
    for place in range(rounds):
        task = await here.put("task")
        await team.must_claim(task=task.id)
        await expire(url, team.host)
        calls = [here.take_back(), there.take_back()]
        answers = await race(url, *calls) if place < 3 else await both(*calls)
        assert sorted(map(str, answers)) == sorted(["[]", f"[{task.id}]"])
        assert (await here.find(task.id)).tries == 1
        await here.heartbeat(team.host)


async def test_a_key_put_twice_at_once_is_one_task(opener: Opener, url: str, rounds: int) -> None:
    here, there = await opener(), await opener()
    parent = await here.put("parent")
    for place in range(rounds):
        fields = {"key": f"k{place}", "parent": parent.id if place % 2 else None}
        calls = [here.put("here", **fields), there.put("there", **fields)]
        one, two = await race(url, *calls) if place < 4 else await both(*calls)
        assert isinstance(one, Task)
        assert one == two
    assert sum((await here.count_tasks()).values()) == rounds + 1


async def test_equal_follow_ups_of_two_tasks_at_once_are_one_task(opener: Opener, url: str, rounds: int) -> None:
    here, there = await opener(), await opener()
    root = await here.put("root")
    await here.put("child", parent=root.id)
    one, two = await (await crew(here, "alice")).must_claim(), await (await crew(there, "bob")).must_claim("bob")
    for place in range(rounds):
        calls = [here.follow_up(one, str(place)), there.follow_up(two, str(place))]
        first, second = await race(url, *calls) if place < 3 else await both(*calls)
        assert isinstance(first, Task)
        assert first.id == second.id


@pytest.mark.parametrize("put_first", [True, False])
@pytest.mark.parametrize("end", [Done(), Failed("no")], ids=["done", "failed"])
async def test_a_task_put_behind_one_that_is_ending_is_never_stuck(
    opener: Opener, url: str, rounds: int, put_first: bool, end: Done | Failed
) -> None:
    here, there = await opener(), await opener()
    team = await crew(here)
    for place in range(rounds):
        task = await here.put("task")
        claim = await team.must_claim(task=task.id)
        calls = [there.put("behind", needs=[task.id]), here.settle(claim, end)]
        answers = await both(*calls) if place > 3 else await race(url, *(calls if put_first else reversed(calls)))
        (behind,) = [answer for answer in answers if isinstance(answer, Task)]
        found = await here.find(behind.id)
        assert found.state == ("ready" if isinstance(end, Done) else "skipped")
        if isinstance(end, Done):
            assert found.open_needs == 0


@pytest.mark.parametrize("add_first", [True, False])
async def test_a_need_added_for_a_task_that_is_ending_is_never_stuck(
    opener: Opener, url: str, rounds: int, add_first: bool
) -> None:
    here, there = await opener(), await opener()
    team = await crew(here)
    for place in range(rounds):
        task, waits = await here.put("task"), await here.put("waits")
        claim = await team.must_claim(task=task.id)
        calls = [there.add_need(waits.id, task.id), here.settle(claim, Done())]
        await (both(*calls) if place > 3 else race(url, *(calls if add_first else reversed(calls))))
        found = await here.find(waits.id)
        assert (found.state, found.open_needs) == ("ready", 0)


@pytest.mark.parametrize("wait_first", [True, False])
async def test_a_wait_for_a_task_that_is_ending_elsewhere_is_never_stuck(
    opener: Opener, url: str, rounds: int, wait_first: bool
) -> None:
    here, there = await opener(), await opener()
    ours, theirs = await crew(here, "alice"), await crew(there, "bob")
    for place in range(rounds):
        waits, ends = await here.put("waits"), await here.put("ends")
        waiter, ender = await ours.must_claim(task=waits.id), await theirs.must_claim("bob", task=ends.id)
        calls = [here.settle(waiter, Waiting(on="tasks", tasks=(ends.id,))), there.settle(ender, Done())]
        await (both(*calls) if place > 3 else race(url, *(calls if wait_first else reversed(calls))))
        found = await here.find(waits.id)
        assert (found.state, found.open_needs) == ("ready", 0)


async def test_two_needs_added_against_each_other_are_never_both_there(opener: Opener, url: str, rounds: int) -> None:
    here, there = await opener(), await opener()
    for place in range(rounds):
        one, two = await here.put("one"), await here.put("two")
        calls = [here.add_need(one.id, two.id), there.add_need(two.id, one.id)]
        answers = await race(url, *calls) if place < 3 else await both(*calls)
        assert names(answers) == ["Cycle", "NoneType"]
        assert sorted([(await here.find(each.id)).state for each in (one, two)]) == ["blocked", "ready"]


async def test_a_longer_circle_closed_from_three_sides_is_refused(opener: Opener, url: str, rounds: int) -> None:
    boards = [await opener() for _ in range(3)]
    for place in range(rounds):
        tasks = [await boards[0].put(str(side)) for side in range(3)]
        calls = [board.add_need(tasks[side].id, tasks[(side + 1) % 3].id) for side, board in enumerate(boards)]
        answers = await race(url, *calls) if place < 3 else await both(*calls)
        assert sum(isinstance(answer, Cycle) for answer in answers) == 1
        assert "ready" in [(await boards[0].find(task.id)).state for task in tasks]


async def test_a_circle_closed_by_two_needs_that_share_no_task_is_refused(
    opener: Opener, url: str, rounds: int
) -> None:
    # With every chain at its bound no row is lifted, so the two have nothing to meet at but the rule itself.
    here, there = await opener(limits=Limits(chain_max=1)), await opener(limits=Limits(chain_max=1))
    for place in range(rounds):
        one, three = await here.put("one"), await here.put("three")
        two, four = await here.put("two", needs=[three.id]), await here.put("four", needs=[one.id])
        await here.put("behind", needs=[two.id, four.id])
        calls = [here.add_need(one.id, two.id), there.add_need(three.id, four.id)]
        answers = await race(url, *calls) if place < 3 else await both(*calls)
        assert names(answers) == ["Cycle", "NoneType"]


@pytest.mark.parametrize("cancel_first", [True, False])
async def test_a_cancel_against_a_settle_ends_the_task_once(
    opener: Opener, url: str, rounds: int, cancel_first: bool
) -> None:
    here, there = await opener(), await opener()
    team = await crew(here)
    for place in range(rounds):
        task = await here.put("task")
        behind = await here.put("behind", needs=[Need(task.id, "ended")])
        claim = await team.must_claim(task=task.id)
        calls = [there.cancel(task.id), here.settle(claim, Done())]
        answers = await both(*calls) if place > 3 else await race(url, *(calls if cancel_first else reversed(calls)))
        found = await here.find(task.id)
        refused = next(answer for answer in answers if isinstance(answer, Exception))
        assert isinstance(refused, StaleClaim if found.state == "cancelled" else NotReady)
        assert found.state in ("cancelled", "done")
        assert (await kinds(here, behind.id)) == ["put", "ready"]


async def test_a_retry_asked_for_twice_at_once_opens_the_task_once(opener: Opener, url: str, rounds: int) -> None:
    here, there = await opener(), await opener()
    task = await here.put("task")
    behind = await here.put("behind", needs=[task.id])
    team = await crew(here)
    for place in range(rounds):
        await here.settle(await team.must_claim(), Failed("no"))
        key = f"k{place}" if place % 2 else None
        calls = [here.retry(task.id, key=key), there.retry(task.id, key=key)]
        answers = await race(url, *calls) if place < 4 else await both(*calls)
        assert names(answers) == (["list", "list"] if key else ["NotReady", "list"])
        assert [answer for answer in answers if answer != [task.id, behind.id] and isinstance(answer, list)] == []
        assert (await kinds(here, behind.id)).count("retried") == place + 1


async def test_a_release_asked_for_twice_at_once_with_one_key_is_one_release(
    opener: Opener, url: str, rounds: int
) -> None:
    here, there = await opener(), await opener()
    task = await here.put("task")
    team = await crew(here)
    for place in range(rounds):
        await team.must_claim()
        calls = [here.release(task.id, key=f"k{place}"), there.release(task.id, key=f"k{place}")]
        assert (await race(url, *calls) if place < 3 else await both(*calls)) == [None, None]
        assert (await kinds(here, task.id)).count("released") == place + 1


async def test_what_both_of_two_retries_bring_back_comes_back(opener: Opener, url: str, rounds: int) -> None:
    here, there = await opener(), await opener()
    one, two = await here.put("one"), await here.put("two")
    behind = await here.put("behind", needs=[one.id, two.id])
    team = await crew(here)
    for place in range(rounds):
        for each in (one, two):
            await here.settle(await team.must_claim(task=each.id), Failed("no"))
        assert (await here.find(behind.id)).state == "skipped"
        calls = [here.retry(one.id), there.retry(two.id)]
        answers = await race(url, *calls) if place < 3 else await both(*calls)
        assert sorted(each for answer in answers for each in answer) == [one.id, two.id, behind.id]
        found = await here.find(behind.id)
        assert (found.state, found.open_needs) == ("blocked", 2)


@pytest.mark.parametrize("retry_first", [True, False])
@pytest.mark.parametrize("end", [Done(), Failed("no")], ids=["done", "failed"])
async def test_a_task_brought_back_while_another_need_of_it_ends_is_never_stuck(
    opener: Opener, url: str, rounds: int, retry_first: bool, end: Done | Failed
) -> None:
    here, there = await opener(), await opener()
    team = await crew(here)
    for place in range(rounds):
        bad, other = await here.put("bad"), await here.put("other")
        behind = await here.put("behind", needs=[bad.id, other.id])
        await here.settle(await team.must_claim(task=bad.id), Failed("no"))
        claim = await team.must_claim(task=other.id)
        calls = [there.retry(bad.id), here.settle(claim, end)]
        await (both(*calls) if place > 3 else race(url, *(calls if retry_first else reversed(calls))))
        await here.settle(await team.must_claim(task=bad.id), Done())
        assert (await here.find(behind.id)).state == ("ready" if isinstance(end, Done) else "skipped")


@pytest.mark.parametrize("retry_first", [True, False])
async def test_a_cancelled_task_retried_while_its_need_ends_is_never_stuck(
    opener: Opener, url: str, rounds: int, retry_first: bool
) -> None:
    here, there = await opener(), await opener()
    team = await crew(here)
    for place in range(rounds):
        needed = await here.put("needed")
        task = await here.put("task", needs=[needed.id])
        await here.cancel(task.id)
        claim = await team.must_claim(task=needed.id)
        calls = [there.retry(task.id), here.settle(claim, Done())]
        await (both(*calls) if place > 3 else race(url, *(calls if retry_first else reversed(calls))))
        found = await here.find(task.id)
        assert (found.state, found.open_needs) == ("ready", 0)


async def test_a_late_settle_against_a_new_claim_has_an_order(opener: Opener, url: str, rounds: int) -> None:
    here, there = await opener(), await opener()
    ours, theirs = await crew(here, "alice"), await crew(there, "bob")
    for place in range(rounds):
        task = await here.put("task", priority=place)
        late = await ours.must_claim(task=task.id)
        await expire(url, ours.host)
        await here.take_back()
        await make_due(url, task.id)
        settled, claimed = await both(here.settle(late, Done()), theirs.claim("bob"))
        if isinstance(claimed, Claim):
            assert isinstance(settled, StaleClaim)
            await there.settle(claimed, Done())
        else:
            assert (settled, claimed) == ("done", None)
        assert (await here.find(task.id)).state == "done"
        await here.heartbeat(ours.host)
