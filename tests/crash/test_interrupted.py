"""Which calls are reported as interrupted, and what an answer belongs to, when a conversation goes on later."""

from __future__ import annotations

import asyncio

import pytest

from dugnad.agent.agent import Agent
from dugnad.board import Board
from dugnad.models import ScriptedModel
from dugnad.models.port import Request, ToolResult
from dugnad.models.scripted import Step
from dugnad.tools.tool import Tool, tool
from dugnad.types import HUMAN, Claim, Outcome, Waiting
from tests.conftest import Opener

Calls = tuple[tuple[str, dict[str, str]], ...]


def asks(*calls: tuple[str, str]) -> Calls:
    return tuple((name, {"question" if name == "ask_human" else "line": text}) for name, text in calls)


class Stage:
    """One task, whose first reply makes some calls; when all are answered, it ends with what they gave."""

    def __init__(self, board: Board, calls: Calls) -> None:
        self.board = board
        self.lines: list[str] = []
        self.stuck = False  # Whether writing a line takes for ever.
        self.written = asyncio.Event()
        self._calls = calls

    def script(self, request: Request) -> Step:
        results = [message.text for message in request.messages if isinstance(message, ToolResult)]
        return Step(say=" | ".join(results)) if results else Step(calls=self._calls)

    def tools(self) -> list[Tool]:
        @tool
        async def append(line: str) -> str:
            """Append a line."""
            self.lines.append(line)
            self.written.set()
            if self.stuck:
                await asyncio.Event().wait()
            return f"{line} is written"

        return [append]

    async def claim(self) -> tuple[Agent, Claim]:
        """As a new process would: the last one is gone, and its task given back."""
        for host in await self.board.hosts():
            if host.alive:
                await self.board.stop_host(host.id)
        await self.board.take_back()
        host_id = await self.board.start_host("again")
        teammate = await self.board.spawn("alice")
        await self.board.seat(host_id, name="alice")
        agent = Agent(board=self.board, teammate=teammate, model=ScriptedModel(self.script), tools=self.tools())
        async with asyncio.timeout(120):
            while True:
                with self.board.watch_for("alice", ()) as watch:
                    if claim := await self.board.claim("alice", host_id):
                        return agent, claim
                    await watch.wait(1)

    async def work(self) -> Outcome:
        """As far as it goes, settled."""
        agent, claim = await self.claim()
        outcome = await agent.work(claim)
        await self.board.settle(claim, outcome)
        return outcome

    async def answer(self, text: str) -> None:
        (request,) = await self.board.requests()
        await self.board.reply(request.request or "", HUMAN, text)

    async def result(self) -> str:
        (task,) = await self.board.list_tasks()
        return task.result or task.state


async def staged(opener: Opener, *calls: tuple[str, str]) -> Stage:
    stage = Stage(await opener(), asks(*calls))
    await stage.board.put("The task")
    return stage


async def test_a_call_behind_a_question_is_run_when_the_answer_has_come(opener: Opener) -> None:
    stage = await staged(opener, ("ask_human", "May I?"), ("append", "one"))
    await stage.work()
    await stage.answer("You may")
    await stage.work()
    assert await stage.result() == "The human answered:\n> You may | one is written"
    assert stage.lines == ["one"]


async def test_only_the_call_that_had_begun_is_reported_as_interrupted(opener: Opener) -> None:
    stage = await staged(opener, ("append", "one"), ("append", "two"))
    stage.stuck = True
    agent, claim = await stage.claim()
    working = asyncio.create_task(agent.work(claim))
    async with asyncio.timeout(120):
        await stage.written.wait()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    stage.stuck = False
    await stage.work()
    first, second = (await stage.result()).split(" | ")
    assert first.startswith("Interrupted")
    assert second == "two is written"
    assert stage.lines == ["one", "two"]


@pytest.mark.parametrize("lost", [1, 2])
async def test_an_answered_question_is_not_asked_again_when_the_next_attempt_is_lost(opener: Opener, lost: int) -> None:
    stage = await staged(opener, ("ask_human", "May I?"))
    await stage.work()
    await stage.answer("You may")
    for _ in range(lost):
        await stage.claim()
    await stage.work()
    assert await stage.result() == "The human answered:\n> You may"


async def test_an_answer_is_not_taken_for_the_answer_to_the_next_question_after_a_crash(opener: Opener) -> None:
    stage = await staged(opener, ("ask_human", "Red?"), ("ask_human", "Blue?"))
    await stage.work()
    await stage.answer("Red")
    agent, claim = await stage.claim()
    assert isinstance(await agent.work(claim), Waiting)  # And is gone before it says so.
    assert isinstance(await stage.work(), Waiting)
    await stage.answer("Blue")
    await stage.work()
    assert await stage.result() == "The human answered:\n> Red | The human answered:\n> Blue"
