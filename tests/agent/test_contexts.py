"""Conversations that go on from task to task: of a lead, of one told to keep its context, and of a reviewer."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from dugnad.board import Board
from dugnad.models.port import Message, Reply, Request, Said, ToolResult
from dugnad.models.scripted import Step
from dugnad.settings import AgentLimits
from dugnad.types import Done, Failed
from simulation.verdict import verdict
from tests.agent.stage_agent import END, Crash, Stage, all_told, call, calls, set_stage, told
from tests.board.raw import grow_old

LOOK = call("list_tasks")
HOUR = 3_600


class Dies:
    """A model during whose first request of this turn the process dies."""

    def __init__(self, model: Any, turn: int) -> None:
        self.name, self.key, self.facts = model.name, model.key, model.facts
        self.asked: list[Request] = []
        self._model, self._turn = model, turn

    async def ask(self, request: Request) -> Reply:
        self.asked.append(request)
        if request.turn == self._turn:
            self._turn = 0
            raise Crash
        reply: Reply = await self._model.ask(request)
        return reply

    async def close(self) -> None: ...


KEEPS: dict[str, Any] = {"keep_context": True}


def seen(message: Message) -> tuple[Any, ...]:
    """A message by what it says; two messages are equal only if they are the same object."""
    if isinstance(message, Reply):
        return "reply", message.text, message.calls
    if isinstance(message, ToolResult):
        return "result", message.call, message.text
    return "said", message.text


def whole(request: Request) -> list[tuple[Any, ...]]:
    return [seen(message) for message in request.messages]


async def stage_of(board: Board, *, member: dict[str, Any], **fields: Any) -> Stage:
    return await set_stage(board, lambda request: LOOK if request.turn == 1 else END, member=member, **fields)


@pytest.mark.parametrize("member", [{"lead": True}, KEEPS], ids=["a lead", "one that was told to"])
async def test_a_new_task_goes_on_in_the_conversation_of_the_one_before(board: Board, member: dict[str, Any]) -> None:
    stage = await stage_of(board, member=member)
    await stage.run("First", assignee="alice")
    await stage.run("Second", assignee="alice")
    await stage.run("Third", assignee="alice")
    asked = [whole(request) for request in stage.model.asked]
    assert len(asked) == 6
    for before, after in itertools.pairwise(asked):
        assert after[: len(before)] == before  # Append-only, over the tasks too: the provider's cache stays warm.
    assert [request.turn for request in stage.model.asked] == [1, 2] * 3
    first, last = stage.model.asked[0], stage.model.asked[-1]
    assert (first.system, first.tools) == (last.system, last.tools)
    assert "Your task is #3: Third" in all_told(last)
    assert all_told(last).count("You are alice") == 1
    assert await verdict(board) == []


async def test_others_begin_each_task_anew(board: Board) -> None:
    stage = await stage_of(board, member={})
    await stage.run("First")
    await stage.run("Second")
    assert len(stage.model.asked[2].messages) == 1


async def test_a_reviewer_keeps_its_context_over_the_reviews_of_one_goal(board: Board) -> None:
    goals = [await board.put(title, assignee="nobody") for title in ("Goal", "Other goal")]
    stage = await stage_of(board, member={})
    for title, goal in (("One", 0), ("Two", 1), ("Three", 0)):
        await board.put(title, parent=goals[goal].id, kind="review", reviews=goals[goal].id, assignee="alice")
        assert isinstance(await stage.go_on(), Done)
    one, two, three = stage.model.asked[1], stage.model.asked[2], stage.model.asked[4]
    assert len(two.messages) == 1
    assert whole(three)[: len(one.messages)] == whole(one)


@pytest.mark.parametrize("turn", [1, 2])
async def test_a_lost_host_in_between_loses_nothing_and_the_same_is_asked_again(board: Board, turn: int) -> None:
    stage = await stage_of(board, member=KEEPS)
    await stage.run("First")
    script = stage.model
    dying = Dies(script, turn)
    stage.agent.model = dying
    with pytest.raises(Crash):
        await stage.run("Second")
    await stage.lose()
    assert await stage.go_on(await stage.claim_when_due()) == Done("built")
    requests = [each for each in dying.asked if each.turn == turn]
    if turn == 2:  # The first turn was recorded, so what follows it is the same.
        assert whole(requests[0])[:-1] == whole(requests[1])[: len(requests[0].messages) - 1]
    assert whole(requests[1])[: len(whole(script.asked[1]))] == whole(script.asked[1])
    await stage.run("Third")
    assert whole(script.asked[-1])[: len(requests[1].messages)] == whole(requests[1])
    assert await verdict(board) == []


async def test_an_attempt_after_a_failed_one_begins_anew(board: Board) -> None:
    steps = iter([END, Step(odd="refusal"), END])
    stage = await set_stage(board, lambda request: next(steps), member=KEEPS)
    await stage.run("First")
    assert isinstance(await stage.run("Second"), Failed)
    assert await stage.go_on(await stage.claim_when_due()) == Done("built")
    assert len(stage.model.asked[1].messages) > 1
    assert len(stage.model.asked[2].messages) == 1


async def test_a_summary_ends_a_long_chain(board: Board) -> None:
    limits = AgentLimits(context_tasks_max=2, retry_seconds=0.01)

    def script(request: Request) -> Step:
        if request.title == "(summary)":
            return Step(say="I looked around.")
        return LOOK if request.turn == 1 else END

    stage = await set_stage(board, script, member=KEEPS, limits=limits)
    for title in ("First", "Second", "Third", "Fourth"):
        await stage.run(title)
    summaries = [request for request in stage.model.asked if request.title == "(summary)"]
    assert len(summaries) == 1
    assert "Your task is #3: Third" in all_told(summaries[0])  # What stays.
    third = next(request for request in stage.model.asked if request.title == "Third")
    texts = [message.text for message in third.messages if isinstance(message, Said)]
    assert texts[0] == "Summary of what you did and heard before this task, in your own words:\n> I looked around."
    assert texts[1].startswith("You are alice.")
    assert len(texts) == len(third.messages) == 2
    last = stage.model.asked[-1]
    assert whole(last)[:2] == whole(third)
    assert "Your task is #1" not in all_told(last)
    # A host that is lost does not make another summary.
    claim = await stage.begin("Fifth")
    await stage.lose()
    assert claim.follows == 4
    assert await stage.go_on(await stage.claim_when_due()) == Done("built")
    assert whole(stage.model.asked[-1])[0][1].startswith("Summary of what you did")


async def test_what_was_never_run_before_an_end_is_answered_and_outputs_can_still_be_read(board: Board) -> None:
    def script(request: Request) -> Step:
        if request.title == "First":
            return calls(("list_tasks", {}), ("finish", {"result": "built"}), ("list_tasks", {}))
        return call("read_output", output="t1.1.2") if request.turn == 1 else END

    stage = await set_stage(board, script, member=KEEPS)
    await stage.run("First")
    await stage.run("Second")
    results = [each for each in stage.model.asked[-1].messages if isinstance(each, ToolResult)]
    assert len(results) == 4
    assert results[2].text.startswith("Not run")
    assert "First" in results[3].text
    assert told(stage.model.asked[1]).startswith("Your task is #2: Second")


async def test_pruned_transcripts_let_the_conversation_begin_anew(board: Board, url: str) -> None:
    stage = await stage_of(board, member=KEEPS)
    await stage.run("First")
    claim = await stage.begin("Second")
    await grow_old(url, HOUR)  # Only what is older than now is pruned, and a millisecond is long.
    assert (await board.prune(0)).turns
    assert claim.follows == 1
    assert await stage.go_on(claim) == Done("built")
    assert len(stage.model.asked[2].messages) == 1
