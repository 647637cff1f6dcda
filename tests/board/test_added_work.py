"""Work that a teammate added and does not wait for: it is told when each part of it ends, while it works on."""

from __future__ import annotations

import pytest

from dugnad.board import Board
from dugnad.settings import Limits
from dugnad.types import Claim, Done, Failed, Message, Need, Released, Task, Waiting
from tests.board.crew import Crew, both, crew
from tests.conftest import Opener


async def added(board: Board, *titles: str) -> tuple[Crew, Claim, list[Task]]:
    """Alice works on a goal and has added these tasks."""
    team = await crew(board, "alice", "bob", "carol")
    await board.put("Goal", assignee="alice")
    claim = await team.must_claim("alice")
    return team, claim, [await board.follow_up(claim, title) for title in titles]


async def told(board: Board, name: str = "alice") -> list[str]:
    return [message.text for message in await board.inbox(name)]


async def test_who_works_on_is_told_of_each_end_with_the_first_line_of_the_result(board: Board) -> None:
    team, claim, (one, two) = await added(board, "One", "Two")
    worker = await team.must_claim("bob", task=one.id)
    await board.settle(worker, Done("It is there.\nAnd more."))
    await board.settle(worker, Done("It is there.\nAnd more."))  # The answer was lost.
    await board.settle(await team.must_claim("carol", task=two.id), Failed("no such\nthing"))
    first, second = await board.inbox("alice")
    assert (first.kind, first.sender, first.task) == ("notice", "board", claim.task.id)
    assert first.text == f"#{one.id} 'One', which you added, is done (bob): It is there."
    assert second.text == f"#{two.id} 'Two', which you added, is failed (carol): no such"
    assert await told(board, "human") == []
    assert await board.observed_state() == await board.replayed_state()


async def test_what_has_no_words_is_told_without_any(board: Board) -> None:
    team, _, (one, two) = await added(board, "One", "Two")
    await board.settle(await team.must_claim("bob", task=one.id), Done())
    await board.cancel(two.id)
    assert await told(board) == [
        f"#{one.id} 'One', which you added, is done (bob).",
        f"#{two.id} 'Two', which you added, is cancelled: cancelled by human",
    ]


async def test_what_is_waited_for_is_not_told_as_well_and_the_rest_is(board: Board) -> None:
    team, claim, (one, two, three) = await added(board, "One", "Two", "Three")
    await board.settle(claim, Waiting(on="tasks", tasks=(one.id, two.id)))
    for each in (one, three, two):
        await board.settle(await team.must_claim("bob", task=each.id), Done())
    assert await told(board) == [f"#{three.id} 'Three', which you added, is done (bob)."]


@pytest.mark.parametrize("how", ["done", "released", "another", "shut down"])
async def test_who_does_not_hold_the_task_any_more_is_told_nothing(board: Board, how: str) -> None:
    team, claim, (one,) = await added(board, "One")
    if how == "done":
        await board.settle(claim, Done())
    elif how == "shut down":
        await board.stop_teammate("alice")
    else:
        await board.settle(claim, Released("not now"))
    if how == "another":
        await board.assign(claim.task.id, "carol")
        await team.must_claim("carol", task=claim.task.id)
    await board.settle(await team.must_claim("bob", task=one.id), Done())
    assert await told(board) == []
    assert await told(board, "carol") == []


async def test_reviews_answers_and_what_others_put_are_not_told(board: Board) -> None:
    team, claim, _ = await added(board)
    review = await board.follow_up(claim, "Review", kind="review", reviews=claim.task.id, not_for="alice")
    answer = await board.put("Answer", parent=claim.task.id, by="alice", kind="message")
    persons = await board.put("Of a person", parent=claim.task.id)
    part = await team.must_claim("carol", task=(await board.follow_up(claim, "Part")).id)
    below = await board.follow_up(part, "Below")
    for each in (review, answer, persons, below):
        await board.settle(await team.must_claim("bob", task=each.id), Done())
    assert await told(board) == []
    assert len(await told(board, "carol")) == 1


async def test_what_is_skipped_or_lost_is_told(opener: Opener) -> None:
    board = await opener(limits=Limits(attempts_max=1))
    _, claim, (one,) = await added(board, "One")
    other = await board.start_host("another")
    await board.spawn("dora")
    await board.seat(other, name="dora")
    behind = await board.follow_up(claim, "Behind", needs=[Need(one.id)])
    assert await board.claim("dora", other, task=one.id) is not None
    await board.stop_host(other)
    await board.take_back()
    assert [text.partition(":")[0] for text in await told(board)] == [
        f"#{behind.id} 'Behind', which you added, is skipped",
        f"#{one.id} 'One', which you added, is failed (dora)",
    ]


async def test_it_is_told_again_when_it_was_tried_again(board: Board) -> None:
    team, _, (one,) = await added(board, "One")
    await board.settle(await team.must_claim("bob"), Failed("no"))
    await board.retry(one.id)
    await board.settle(await team.must_claim("bob"), Done("yes"))
    assert [text.rpartition(" ")[2] for text in await told(board)] == ["no", "yes"]


async def test_an_end_beside_the_wait_for_it_is_told_at_most_once(opener: Opener) -> None:
    """In two processes at the same moment: by the notice if the wait came later, and by the wait otherwise."""
    board, other = await opener(), await opener()
    team, claim, _ = await added(board)
    for number in range(10):
        part = await board.follow_up(claim, f"Part {number}")
        worker = await team.must_claim("bob")
        await both(board.settle(claim, Waiting(on="tasks", tasks=(part.id,))), other.settle(worker, Done()))
        notices: list[Message] = [each for each in await board.inbox("alice") if f"#{part.id} " in each.text]
        waited = part.id in {need.task for need, _ in await board.needs_of(claim.task.id)}
        assert len(notices) == (not waited)
        claim = await team.must_claim("alice", task=claim.task.id)
    assert await board.observed_state() == await board.replayed_state()
