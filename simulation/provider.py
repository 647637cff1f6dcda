"""The provider of a simulated world: it answers by script, fails by chance, and remembers what it billed.

A task's title names its steps ("build 3"), so that whoever takes the task is told the same. In between, requests that
are shown to a teammate (a shutdown, a plan, a question) are answered.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dugnad.agent.conversation import told_of
from dugnad.errors import AnswerLost, ContextOverflow, ModelUnavailable, RateLimited
from dugnad.models.port import Facts, Price, Reply, Request, Said, ToolCall, ToolResult, Usage
from dugnad.models.scripted import ScriptedModel, Step

from .faults import AT_MODEL, Storm
from .witness import Witness

_ASKED = re.compile(r"Answer with respond\(request='([^']+)'")
_CHARS_PER_TOKEN = 4


@dataclass
class Provider:
    """A model, as every host of a world sees it."""

    storm: Storm
    random: random.Random
    steps: Mapping[str, tuple[str, ...]]  # By a task's title.
    names: tuple[str, ...]  # Of the teammates.
    witness: Witness
    note: Callable[[str, str], None]
    seconds: tuple[float, float] = (10.0, 240.0)  # The shortest and the longest turn.
    window_tokens: int = 60_000
    name: str = "scripted:sim"
    key: str = "scripted:sim"
    asked: int = 0

    def __post_init__(self) -> None:
        self._scripted = ScriptedModel(self._step)
        self.facts = Facts(window_tokens=self.window_tokens, price=Price(input=3.0, output=15.0))

    async def close(self) -> None:
        """There is nothing to let go of."""

    async def ask(self, request: Request) -> Reply:
        self.asked += 1
        self.witness.asked(request)
        fault = self.storm.draw(AT_MODEL)
        usage = self._usage(request)
        if fault:
            self.note(request.teammate, f"{fault}, working #{request.task}")
        if fault == "rate limited":
            raise RateLimited("too many requests", seconds=self.random.choice((None, 5.0, 20.0)))
        if fault == "context overflow":
            raise ContextOverflow("the prompt is too long")
        low, high = self.seconds
        seconds = min(request.seconds_max, low + (high - low) * self.random.random() ** 2)
        await asyncio.sleep(seconds)
        self.witness.bill(request.task, milliseconds=max(0, int(seconds * 1000) - 1))
        if fault == "provider down":
            raise ModelUnavailable("internal error")
        assert self.facts.price is not None
        self.witness.bill(request.task, tokens=usage.tokens, microdollars=self.facts.price.microdollars(usage))
        if fault == "time out after billing":
            raise AnswerLost("no answer in time")
        if fault == "refusal":
            return Reply(text="I can't help with that.", stop="refused", usage=usage)
        if fault == "malformed call":
            broken = ToolCall(f"call-{request.turn}", "finish", '{"result": "half')
            return Reply(calls=(broken,), stop="tools", usage=usage)
        if fault == "empty reply":
            return Reply(usage=usage)
        said = await self._scripted.ask(request)
        return Reply(text=said.text, calls=said.calls, stop=said.stop, usage=usage)

    def _usage(self, request: Request) -> Usage:
        """What this request is billed: at most what was asked for."""
        given = sum(map(told_of, request.tools)) + len(request.system) + sum(map(_length, request.messages))
        output = min(request.output_tokens_max, 20 + int(self.random.random() * 400))
        return Usage(input_tokens=given // _CHARS_PER_TOKEN, output_tokens=output)

    def _step(self, request: Request) -> Step:
        last = request.messages[-1]
        calls: list[tuple[str, Any]] = []
        for asked in _ASKED.findall(last.text if isinstance(last, Said) else ""):
            accept = self.random.random() < 0.7
            calls.append(("respond", {"request": asked, "accept": accept, "text": "yes" if accept else "not now"}))
        steps = self.steps.get(request.title, ())
        if request.turn <= len(steps):
            calls += self._calls(steps[request.turn - 1], request)
        return Step(say="" if calls else f"{request.title}: done by {request.teammate}.", calls=tuple(calls))

    def _calls(self, step: str, request: Request) -> list[tuple[str, Any]]:
        """A word of a script as calls of tools."""
        word, _, rest = step.partition(" ")
        others = [name for name in self.names if name != request.teammate] or ["human"]
        one = self.random.choice(others)
        if word == "press":
            return [("press", {"button": f"{request.task}.{request.turn}"})]
        if word == "tell":
            return [("send_message", {"to": one, "text": f"word {self.random.randrange(10**9)} for {one}"})]
        if word == "tell-all":
            return [("broadcast", {"text": f"word {self.random.randrange(10**9)} for all"})]
        if word == "note":
            return [("note", {"title": f"found {request.turn}", "text": f"in #{request.task}"})]
        if word == "follow":  # Two equal ones are one task.
            if self.storm.has("endless follow-ups"):
                self.storm.happened("endless follow-ups")
            return [("schedule_followup", {"title": rest, "body": "as found"})] * self.random.choice((1, 1, 2))
        if word == "behind":
            return [("add_task", {"title": rest, "needs": [str(request.task)]})]
        if word == "delegate":
            return [("delegate", {"task": rest})]
        if word == "claim":
            return [("claim_task", {"task": self.random.randrange(1, len(self.witness.history.tasks) + 2)})]
        plain: dict[str, list[tuple[str, Any]]] = {
            "ask": [("ask_human", {"question": f"How shall #{request.task} go on?"})],
            "plan": [("submit_plan", {"plan": f"A plan for #{request.task}."})],
            "bash": [("bash", {"command": f"make {request.task}"})],
            "look": [("list_tasks", {}), ("list_teammates", {})],
            "todo": [("todo", {"items": ["[ ] one", "[x] two"]})],
            "inbox": [("read_inbox", {})],
            "compact": [("compact", {})],
            "nobody": [("send_message", {"to": "nobody", "text": "is anyone there?"})],
            "release": [("release", {"reason": "another should", "delay_minutes": 1})],
            "give-up": [("give_up", {"reason": "it cannot be done"})],
            "approve": [("finish", {"result": "fine", "outcome": "approved"})],
            "both": [("press", {"button": f"{request.task}.{request.turn}"}), ("note", {"title": "n", "text": "t"})],
        }
        return plain[word]


def _length(message: Said | Reply | ToolResult) -> int:
    if isinstance(message, Reply):
        return len(message.text) + sum(len(call.arguments) + len(call.name) for call in message.calls)
    return len(message.text)
