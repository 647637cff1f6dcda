"""A process that works tasks, and dies by kill -9 at a step it is told.

    python crash_worker.py

It reads orders from its input, one JSON object a line: the board, a folder, a script, and at which step to die, if at
all. Each is carried out by a forked child, a new process with nothing but the imported code; how that ended is the
answer.

A step is a call that commits something to the board, an answer of the model, or the effect of a tool. They are named
by task, verb and number, so that a name means the same step in every run.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dugnad.board.store.postgres
import dugnad.board.store.sqlite  # noqa: F401  Both are imported before the fork, not after each.
from dugnad.agent.agent import Agent
from dugnad.agent.drain import drain
from dugnad.board import Board, open_board
from dugnad.clock import Sources
from dugnad.models import ScriptedModel
from dugnad.models.port import Reply, Request
from dugnad.settings import Limits
from dugnad.tools.built_in import BUILT_IN
from dugnad.tools.tool import Tool
from dugnad.types import OPEN, Claim
from tests.crash import many_errands, ten_turns

RUN_SECONDS_MAX = 120
VERBS = (
    "record", "reserve", "spend", "hand_over", "settle", "cool_down", "follow_up", "follow_ups", "tell",
    "write_note", "take", "show",
)  # fmt: skip


@dataclass
class Steps:
    """Counts the steps, writes them down, and dies at the one it was told."""

    folder: Path = Path()
    stop: str | None = None
    done: Counter[str] = field(default_factory=Counter)

    def reached(self, step: str) -> None:
        ten_turns.append_line(self.folder / "steps", step)
        self.done["steps"] += 1
        if self.stop is not None and self.stop in (step, _without_key(step), str(self.done["steps"])):
            os.kill(os.getpid(), signal.SIGKILL)

    def observe(self, board: Board) -> None:
        """Stand beside the board's verbs; what they do stays the same."""
        for verb in VERBS:
            setattr(board, verb, self._beside(verb, getattr(board, verb)))
        board.claim = self._beside_claim(board.claim)  # type: ignore[method-assign]

    def _beside(self, verb: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        async def call(*args: Any, **kwargs: Any) -> Any:
            claim = next((each for each in (*args, *kwargs.values()) if isinstance(each, Claim)), None)
            name = f"{claim.task.title if claim else 'anyone'}: {verb}"
            self.reached(f"before {name} {self.done[name] + 1}")
            answer = await original(*args, **kwargs)
            self.done[name] += 1
            self.reached(f"after {name} {self.done[name]}")
            return answer

        return call

    def _beside_claim(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A claim is a step only when there was something to claim."""

        @functools.wraps(original)
        async def claim(*args: Any, **kwargs: Any) -> Claim | None:
            found: Claim | None = await original(*args, **kwargs)
            if found is not None:
                self.reached(f"after {found.task.title}: claim {found.number}")
            return found

        return claim

    def beside_tool(self, each: Tool) -> Tool:
        """The same tool, its beginning written down."""

        @functools.wraps(each.function)
        async def run(**arguments: Any) -> Any:
            self.reached(f"begun {each.name} {arguments['context'].key}")
            return await each.function(**arguments)

        return replace(each, function=run)


def _without_key(step: str) -> str:
    """Keys hold epochs, so a step that names one is also known without."""
    return step.rpartition(" ")[0] if step.startswith(("begun ", "acted ")) else step


class StoppedAfterAnswer(ScriptedModel):
    """A model whose answers are steps: they are given, and may never be recorded."""

    steps: Steps

    async def ask(self, request: Request) -> Reply:
        reply = await super().ask(request)
        self.steps.reached(f"answered {request.title} {request.turn}")
        return reply


SCRIPTS = {"ten_turns": ten_turns.script, "many_errands": many_errands.script}


async def live(order: dict[str, str], steps: Steps, tools: Sequence[Tool]) -> None:
    """Take over what the last process left, and work until nothing is open."""
    steps.folder, steps.stop = Path(order["folder"]), order.get("stop")
    limits = Limits(backoff_seconds=0.01, attempts_max=int(order.get("attempts_max", "3")))
    soon = Sources(chance=lambda: 0.0)  # Nobody else waits for the same, so there is no herd to spread out.
    async with await open_board(order["board"], limits=limits, patience=ten_turns.PATIENCE, sources=soon) as board:
        for gone in await board.hosts():
            if gone.alive:
                await board.stop_host(gone.id)
        await board.take_back()
        steps.observe(board)
        host = await board.start_host("worker")
        team = [mate for mate in await board.team() if mate.name.startswith(ten_turns.WORKER)]
        model = StoppedAfterAnswer(SCRIPTS[order["script"]], window_tokens=ten_turns.WINDOW_TOKENS, retry_after=0.01)
        model.steps = steps
        agents = [
            Agent(
                board=board, teammate=mate, model=model, limits=ten_turns.AGENT_LIMITS, tools=tools,
                sources=Sources(working_ms=lambda: 0),  # So that nothing costs time but what was forfeited.
            )
            for mate in team
        ]  # fmt: skip
        while (await board.count_tasks()).keys() & OPEN:
            with board.watch_for(ten_turns.WORKER, ()) as watch:
                await drain(board, agents, host=host)
                if (await board.count_tasks()).keys() & OPEN:
                    await watch.wait(0.05)
        await board.stop_host(host)


def make_tools(steps: Steps) -> list[Tool]:
    """Made before the fork, with the forms of their arguments, which takes longer than all the rest."""
    own = [steps.beside_tool(each) for each in BUILT_IN if each.name != "use_skill"]
    tools = [*own, *ten_turns.tools(lambda: steps.folder, steps.reached)]
    for each in (*tools, *BUILT_IN):
        assert each.spec.schema
    return tools


def carry_out(order: dict[str, str], steps: Steps, tools: Sequence[Tool]) -> int:
    """In a process of its own. Returns how it ended, as subprocess does: an exit code, or minus a signal."""
    child = os.fork()
    if child == 0:
        signal.alarm(RUN_SECONDS_MAX)
        code = 1
        try:
            asyncio.run(live(order, steps, tools))
            code = 0
        except BaseException:
            ten_turns.append_line(Path(order["folder"]) / "errors", traceback.format_exc())
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    nothing_done = Steps()
    ready_made = make_tools(nothing_done)
    for line in sys.stdin:
        print(carry_out(json.loads(line), nothing_done, ready_made), flush=True)
