"""Shutdown: asked, accepted or refused, and in the end forced; and what a person answers. All of it is on the board."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from dugnad.board import Board
from dugnad.errors import BadInput, NotReady, UnknownTeammate
from dugnad.models import ScriptedModel
from dugnad.models.port import Request
from dugnad.models.scripted import Step
from dugnad.settings import AgentLimits
from dugnad.team import requests
from dugnad.tools.tool import tool
from dugnad.types import Budget
from tests.agent.stage_agent import END, TITLE, all_told, call, calls
from tests.conftest import Opener
from tests.team.stage_team import (
    NO_SWEEP,
    Between,
    Counted,
    Paused,
    hosting,
    kill,
    short_lease,
    until,
    until_ended,
    until_state,
    until_status,
    within,
)

SCRIPT: dict[str, list[Step]] = {TITLE: [call("list_tasks"), END], "*": [Step(say="All right.")]}


def request_id(request: Request) -> str:
    """The id of the shutdown request the model was shown."""
    return all_told(request).rsplit("respond(request='", 1)[1].split("'", 1)[0]


def answering(accept: bool) -> Any:
    """Looks around until it is asked to shut down, then answers; after that it finishes."""

    def script(request: Request) -> Step:
        if request.title != TITLE:
            return Step(say="All right.")
        said = all_told(request)
        if "[shutdown]" not in said:
            return call("list_tasks")
        if "Answered human" in said or "Goodbye." in said:
            return END
        return call("respond", request=request_id(request), accept=accept, text="because")

    return script


async def asked_while_working(board: Board, accept: bool, **fields: Any) -> Paused:
    """A teammate at work that is asked to shut down while its model thinks."""
    model = Paused(answering(accept), where=lambda request: request.turn == 1)
    await board.spawn("alice")
    await board.put(TITLE, **fields)
    return model


async def test_one_at_rest_accepts_at_once_without_asking_its_model(board: Board) -> None:
    await board.spawn("alice")
    model = ScriptedModel(SCRIPT)
    async with hosting(board, model):
        await until_status(board, "alice", "idle")
        assert "asked" in await requests.stop(board, "alice", why="Thank you.")
        gone = await until_status(board, "alice", "stopped")
        assert gone.reason == "shut down as asked"
    assert not model.asked
    (reply,) = await board.inbox("human")
    assert (reply.kind, reply.accepted) == ("shutdown_reply", True)


async def test_one_at_work_sees_the_request_accepts_and_gives_its_task_back(board: Board) -> None:
    model = await asked_while_working(board, True)
    async with hosting(board, model):
        await within(model.reached.wait())
        await requests.stop(board, "alice", why="Enough.")
        model.go.set()
        await until_status(board, "alice", "stopped")
        task = await board.find(1)
        assert (task.state, task.tries) == ("ready", 0)
        await board.spawn("bob")
        (done,) = await until_ended(board, task)
    assert (done.teammate, done.result) == ("bob", "built")
    assert "Enough." in all_told(model.asked[1])
    assert all_told(model.asked[-1]).count("Your task is #1") == 1  # Bob went on in the same transcript.
    assert [attempt.ended_as for attempt in await board.attempts(1)] == ["released", "done"]


async def test_one_that_accepts_before_its_host_has_looked_takes_nothing_more(board: Board) -> None:
    model = await asked_while_working(board, True)
    never = asyncio.Event()
    late = Between(board, "shutdown_requests", never.wait)  # The upkeep gets no further than its first look.
    async with hosting(late, model):
        await within(model.reached.wait())
        await requests.stop(board, "alice")
        model.go.set()
        await until_status(board, "alice", "stopped")
    assert [attempt.ended_as for attempt in await board.attempts(1)] == ["released"]


async def test_one_at_work_may_refuse_and_goes_on_and_the_sender_reads_why(board: Board) -> None:
    model = await asked_while_working(board, False)
    looks = Counted(board, "shutdown_requests")
    async with hosting(looks, model, limits={"shutdown_seconds": 900}) as host:
        await within(model.reached.wait())
        await requests.stop(board, "alice", why="Enough.")
        await until(board, lambda: asyncio.sleep(0, host._asked))
        model.go.set()
        (done,) = await until_ended(board, await board.find(1))
        assert (done.state, done.teammate) == ("done", "alice")
        (reply,) = await board.inbox("human")
        assert (reply.accepted, reply.text) == (False, "because")
        host._asked = {asked: at - 1_000 for asked, at in host._asked.items()}  # Past the deadline.
        seen = looks.times
        await until(board, lambda: asyncio.sleep(0, looks.times >= seen + 2))  # A refusal is an answer.
        assert (await board.teammate("alice")).status == "idle"


async def test_after_a_refusal_one_can_be_asked_again(board: Board) -> None:
    model = await asked_while_working(board, False)
    async with hosting(board, model):
        await within(model.reached.wait())
        await requests.stop(board, "alice")
        assert "asked to shut down already" in await requests.stop(board, "alice")
        model.go.set()
        await until_ended(board, await board.find(1))
        await requests.stop(board, "alice")
        await until_status(board, "alice", "stopped")


async def forced(board: Board, model: Any, *tools: Any, **fields: Any) -> None:
    """Nobody answers in time: the teammate is stopped, and its task goes to another."""
    await board.spawn("alice")
    task = await board.put(TITLE)
    async with hosting(board, model, tools=tools, limits={"shutdown_seconds": 0.3, "sweep_seconds": 600.0}, **fields):
        await until_state(board, task, "claimed")
        await within(model.reached.wait())
        await requests.stop(board, "alice")
        gone = await until_status(board, "alice", "stopped")
        assert gone.reason == "shut down by human: no answer within 0.3 seconds"
        back = await until_state(board, task, "ready")
        assert back.tries == 0
        await board.spawn("bob")
        model.go.set()
        await until_ended(board, task)
    assert (await board.find(task.id)).teammate == "bob"


async def test_a_model_that_never_answers_does_not_keep_its_teammate(opener: Opener) -> None:
    """Without any sweep: the request itself tells the host of the deadline."""
    await forced(await opener(**NO_SWEEP), Paused({TITLE: [END]}))


class Hung:
    """A tool that is reached and never comes back, by its first caller; and a model that uses it."""

    def __init__(self) -> None:
        self.reached, self.go = asyncio.Event(), asyncio.Event()
        self.first = True
        inner = ScriptedModel({TITLE: [call("hang"), END]})
        self.name, self.key, self.facts, self.ask, self.close = (
            inner.name, inner.key, inner.facts, inner.ask, inner.close,
        )  # fmt: skip
        self.freed = threading.Event()


async def test_a_tool_that_will_not_be_cancelled_does_not_keep_its_teammate(board: Board) -> None:
    model = Hung()

    @tool
    async def hang() -> str:
        """Hang."""
        model.reached.set()
        while model.first and not model.go.is_set():
            try:
                await model.go.wait()
            except asyncio.CancelledError:
                pass
        return "over"

    await forced(board, model, hang)


async def test_a_tool_that_hangs_in_a_thread_does_not_keep_its_teammate(board: Board) -> None:
    model, loop = Hung(), asyncio.get_running_loop()

    @tool
    def hang() -> str:
        """Hang."""
        loop.call_soon_threadsafe(model.reached.set)
        model.freed.wait(20)
        return "over"

    async def free_when_let_go() -> None:
        await model.go.wait()
        model.freed.set()

    freeing = asyncio.ensure_future(free_when_let_go())
    await forced(board, model, hang)
    await freeing


async def test_a_full_context_does_not_keep_its_teammate(board: Board) -> None:
    """What it is shown does not fit, so it can never answer; the runtime ends it all the same."""
    inner = Paused({TITLE: [Step(faults=("overflow",) * 50)]})
    await board.spawn("alice")
    task = await board.put(TITLE)
    async with hosting(board, inner, limits={"shutdown_seconds": 0.3}):
        await within(inner.reached.wait())
        await requests.stop(board, "alice", why="x" * 100_000)
        inner.go.set()
        await until_status(board, "alice", "stopped")
        assert (await board.find(task.id)).state in ("ready", "failed", "scheduled")


async def test_now_means_now(board: Board) -> None:
    model = Paused({TITLE: [END]})
    await board.spawn("alice")
    task = await board.put(TITLE)
    async with hosting(board, model) as host:
        await within(model.reached.wait())
        assert await requests.stop(board, "alice", now=True, why="Fire.") == "alice is stopped."
        assert (await board.teammate("alice")).reason == "Fire."
        await until_state(board, task, "ready")
        await until(board, lambda: asyncio.sleep(0, not host.workers))
    assert await requests.stop(board, "alice") == "alice is stopped already."


async def test_one_that_nobody_runs_is_stopped_without_being_asked(board: Board) -> None:
    await board.spawn("alice")
    assert await requests.stop(board, "alice") == "alice is stopped."
    with pytest.raises(UnknownTeammate):
        await requests.stop(board, "nobody")


async def test_a_request_survives_the_host_it_was_made_to(opener: Opener) -> None:
    board = await opener(**short_lease(1.0))
    model = await asked_while_working(board, True)
    async with hosting(board, model) as host:
        await within(model.reached.wait())
        await requests.stop(board, "alice")
        await kill(host)
    async with hosting(board, ScriptedModel(answering(True))):
        await until_status(board, "alice", "stopped")
    (reply,) = await board.inbox("human")
    assert reply.accepted is True


@pytest.mark.parametrize("text", ["", "One more thing."], ids=["alone", "with a message"])
async def test_a_request_of_an_earlier_life_does_not_end_a_new_one(board: Board, text: str) -> None:
    await board.spawn("alice")
    await board.tell("human", "alice", "Please shut down.", kind="shutdown")
    await board.stop_teammate("alice", reason="by force")
    await asyncio.sleep(0.01)  # Another millisecond.
    await board.spawn("alice")
    model = ScriptedModel(SCRIPT)
    async with hosting(board, model):
        if text:
            await board.tell("human", "alice", text)
        task = await board.put(TITLE)
        (done,) = await until_ended(board, task)
        assert done.state == "done"
        assert (await board.teammate("alice")).status in ("idle", "working")
        assert "is asked to shut down" in await requests.stop(board, "alice")
        await until_status(board, "alice", "stopped")


async def test_a_shutdown_goes_before_the_human_the_lead_and_work(board: Board) -> None:
    await board.spawn("alice")
    await board.put(TITLE)
    await board.tell("human", "alice", "hello")
    await board.tell("human", "alice", "Please shut down.", kind="shutdown")
    model = ScriptedModel(SCRIPT)
    async with hosting(board, model):
        await until_status(board, "alice", "stopped")
    assert not model.asked
    assert (await board.find(1)).state == "ready"


async def test_stopping_and_spawning_again_in_one_breath_gives_the_task_back(board: Board) -> None:
    model = Paused(SCRIPT, where=lambda request: len(model.asked) == 0)
    await board.spawn("alice")
    task = await board.put(TITLE)
    async with hosting(board, model):
        await within(model.reached.wait())
        await asyncio.gather(board.stop_teammate("alice"), board.spawn("alice"))
        model.go.set()
        (done,) = await until_ended(board, task)
        assert done.state == "done"


async def test_what_one_had_claimed_by_name_is_given_back_when_it_leaves(board: Board) -> None:
    other = await board.put("Other", role="coder", priority=-1)
    script = calls(("claim_task", {"task": other.id}), ("give_up", {"reason": "no"}))
    model = Paused({TITLE: [script], "Other": [END]}, where=lambda request: request.title == TITLE)
    await board.spawn("alice", roles=["coder"])
    await board.put(TITLE, assignee="alice")
    async with hosting(board, model):
        await within(model.reached.wait())
        await requests.stop(board, "alice")
        model.go.set()
        await until_status(board, "alice", "stopped")
        await until_state(board, other, "ready")


# What a person answers.


async def test_a_question_is_answered_by_its_tasks_number_or_its_own(board: Board) -> None:
    await board.spawn("alice")
    model = ScriptedModel({"*": [call("ask_human", question="Which?"), END]})
    async with hosting(board, model):
        for title, how in (("A", "#{task}"), ("B", "{task}"), ("C", "m{message}")):
            task = await board.put(title)
            await until_state(board, task, "waiting")
            (asked,) = await requests.waiting_requests(board)
            await requests.answer(board, how.format(task=task.id, message=asked.id), "That one.")
            await until_ended(board, task)
    assert not await requests.waiting_requests(board)
    assert all("That one." in all_told(request) for request in model.asked if request.turn == 2)


@pytest.mark.parametrize("which", ["", "x", "-1", "m", "##1", "1.5", "m99", "9" * 19])
async def test_what_is_no_number_of_a_request_is_refused(board: Board, which: str) -> None:
    with pytest.raises(BadInput):
        await requests.find_request(board, which)


async def test_the_wrong_verb_for_a_request_names_the_right_one(board: Board) -> None:
    await board.spawn("alice")
    question = await board.tell("alice", "human", "Which?", kind="question")
    plan = await board.tell("alice", "human", "First this.", kind="plan")
    word = await board.tell("alice", "human", "hello")
    task = await board.put("Ready", budget=Budget(tasks=1))
    with pytest.raises(NotReady, match="dugnad answer"):
        await requests.decide_plan(board, f"m{question.id}", accept=True)
    with pytest.raises(NotReady, match="dugnad approve"):
        await requests.answer(board, f"m{plan.id}", "yes")
    with pytest.raises(NotReady, match="dugnad tell alice"):
        await requests.answer(board, f"m{word.id}", "yes")
    with pytest.raises(NotReady, match="is ready and waits for no answer"):
        await requests.answer(board, str(task.id), "yes")


async def test_small_windows_do_not_keep_a_shutdown_from_being_seen(board: Board) -> None:
    """With a context that has to be compacted at every turn the request is still shown, and accepted."""
    model = Paused(answering(True), where=lambda request: request.turn == 1)
    model.inner.facts = model.facts = type(model.facts)(window_tokens=9_500, price=None)
    await board.spawn("alice")
    await board.put(TITLE, body="word " * 400)
    async with hosting(board, model, agent=AgentLimits(retry_seconds=0.01)):
        await within(model.reached.wait())
        await requests.stop(board, "alice", why="Enough.")
        model.go.set()
        gone = await until_status(board, "alice", "stopped")
        assert gone.reason == "shut down as asked"
