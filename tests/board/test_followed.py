"""What follows from a person's message: that the one who answered it is told, once, when all of it has ended."""

from __future__ import annotations

import pytest

from dugnad.board import Board
from dugnad.settings import Limits
from dugnad.types import Claim, Done, Failed, Need, NewTask, Task, Waiting
from tests.board.crew import Crew, both, crew
from tests.conftest import Opener


async def asked(board: Board, *titles: str, team: Crew | None = None) -> tuple[Crew, Claim, list[Task]]:
    """Lena answers a message with these tasks; bob and carol are there to work on them."""
    team = team or await crew(board, "lena", "bob", "carol")
    errand = await board.put("Answer human", body="Build it.", assignee="lena", by="human", kind="human_message")
    claim = await team.must_claim("lena", task=errand.id)
    return team, claim, [await board.follow_up(claim, title) for title in titles]


async def told(board: Board, name: str = "lena") -> list[tuple[str, str]]:
    return [(message.kind, message.text) for message in await board.inbox(name)]


async def test_the_last_end_tells_how_each_task_ended(board: Board) -> None:
    team, claim, (one, two) = await asked(board, "One", "Two")
    await board.settle(claim, Done("I put them."))
    await board.settle(await team.must_claim("bob"), Done("It is there."))
    assert await told(board) == []
    last = await team.must_claim("bob")
    await board.settle(last, Done())
    await board.settle(last, Done())  # The answer was lost.
    ends = f"#{one.id} 'One' is done (bob); #{two.id} 'Two' is done (bob)."
    words = f"All work that follows from 'Build it.' has ended: {ends}"
    assert await told(board) == await told(board, "human") == [("notice", words)]


async def test_what_failed_is_a_message_to_be_answered(board: Board) -> None:
    team, claim, (one,) = await asked(board, "One")
    await board.put("Two", parent=one.id, needs=[Need(one.id)])
    await board.settle(claim, Done())
    await board.settle(await team.must_claim("bob"), Failed("no such thing"))
    ((kind, text),) = await told(board)
    assert kind == "text"
    assert "'One' is failed: no such thing; " in text
    assert "'Two' is skipped: " in text


@pytest.mark.parametrize("how", ["cancel", "lost", "need"])
async def test_work_that_ends_by_hand_or_with_its_host_is_told_too(opener: Opener, how: str) -> None:
    board = await opener(limits=Limits(attempts_max=1))
    team, claim, (one,) = await asked(board, "One")
    await board.settle(claim, Done())
    if how == "cancel":
        await board.cancel(one.id, why="enough")
    elif how == "need":
        never = await board.put("Never")
        await board.cancel(never.id)
        await board.add_need(one.id, Need(never.id))
    else:
        await team.must_claim("bob")
        await board.stop_host(team.host)
        await board.take_back()
    assert len(await told(board)) == 1


async def test_nothing_is_told_while_the_answer_goes_on_nor_of_what_it_waited_for(board: Board) -> None:
    team, claim, (one,) = await asked(board, "One")
    await board.settle(claim, Waiting(on="tasks", tasks=(one.id,)))
    await board.settle(await team.must_claim("bob"), Done())
    assert await told(board) == []
    await board.settle(await team.must_claim("lena"), Done("It is done."))
    assert await told(board) == []


async def test_what_ended_during_the_answer_is_told_at_its_end(board: Board) -> None:
    team, claim, _ = await asked(board, "One")
    await board.settle(await team.must_claim("bob"), Done())
    (beside,) = await told(board)  # It works on, so it is told of each end.
    assert "'One', which you added, is done (bob)." in beside[1]
    await board.settle(claim, Done())
    assert [text.partition(" ")[0] for _, text in (await told(board))[1:]] == ["All"]


async def test_work_of_work_and_other_goals_count_as_they_should(board: Board) -> None:
    team, claim, (one,) = await asked(board, "One")
    await board.settle(claim, Done())
    (other,) = await board.put_many([NewTask(title="Other")])
    worker = await team.must_claim("bob", task=one.id)
    below = await board.follow_up(worker, "Below")
    await board.settle(worker, Done())
    assert await told(board) == []
    await board.settle(await team.must_claim("carol", task=below.id), Done())
    ((_, text),) = await told(board)
    assert "'Below'" in text
    assert f"#{other.id}" not in text


async def test_it_is_told_once_although_it_is_tried_again_or_grows_later(board: Board) -> None:
    team, claim, (one,) = await asked(board, "One")
    await board.settle(claim, Done())
    await board.settle(await team.must_claim("bob"), Failed("no"))
    await board.retry(one.id)
    await board.settle(await team.must_claim("bob"), Done())
    assert len(await told(board)) == 1


async def test_of_two_that_end_at_once_in_two_processes_one_tells(opener: Opener) -> None:
    board, other = await opener(), await opener()
    team = await crew(board, "lena", "bob", "carol")
    for before in range(10):
        _, claim, _ = await asked(board, "One", "Two", team=team)
        await board.settle(claim, Done())
        first, second = [await team.must_claim(name) for name in ("bob", "carol")]
        await both(board.settle(first, Done()), other.settle(second, Done()))
        assert len(await told(board)) == before + 1
    assert await board.observed_state() == await board.replayed_state()
