"""A teammate on a real board with a scripted model: set up in one call, and what its model was told, read back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dugnad.agent.agent import Agent
from dugnad.agent.conversation import Conversation, reply_body
from dugnad.agent.drain import drain
from dugnad.board import Board
from dugnad.errors import Refused
from dugnad.models import ScriptedModel
from dugnad.models.port import Facts, Message, Reply, Request, Said, ToolResult, Usage
from dugnad.models.scripted import Step
from dugnad.settings import AgentLimits
from dugnad.types import Claim, Outcome

TITLE = "Build it"
FAST = AgentLimits(retry_seconds=0.01)
END = Step(calls=(("finish", {"result": "built"}),))


def call(name: str, /, **arguments: Any) -> Step:
    """A turn with one call."""
    return Step(calls=((name, arguments),))


def calls(*given: tuple[str, Mapping[str, Any] | str]) -> Step:
    return Step(calls=given)


def used(tokens: int, step: Step | None = None) -> Step:
    """The same step, of which the provider says that its input had so many tokens."""
    step = step or Step()
    fields = {name: getattr(step, name) for name in Step.__dataclass_fields__}
    return Step(**{**fields, "usage": Usage(input_tokens=tokens, output_tokens=10)})


@dataclass(kw_only=True)
class Stage:
    """One teammate, seated, with a model whose questions can be looked at."""

    board: Board
    host: str
    agent: Agent
    model: ScriptedModel

    async def begin(self, title: str = TITLE, **fields: Any) -> Claim:
        """A task on the board, claimed."""
        await self.board.put(title, **fields)
        return await self.claim()

    async def claim(self) -> Claim:
        claim = await self.board.claim(self.agent.teammate.name, self.host)
        assert claim is not None
        return claim

    async def run(self, title: str = TITLE, **fields: Any) -> Outcome:
        """Put, claim, work, settle."""
        return await self.go_on(await self.begin(title, **fields))

    async def go_on(self, claim: Claim | None = None, **told: str) -> Outcome:
        claim = claim or await self.claim()
        outcome = await self.agent.work(claim, **told)
        await self.board.settle(claim, outcome)
        return outcome

    async def drain(self, *others: Agent) -> list[tuple[Claim, Outcome]]:
        return await drain(self.board, [self.agent, *others], host=self.host)

    async def lose(self) -> None:
        """The host dies without a word, its tasks are taken back, and another host takes the teammate."""
        await self.board.stop_host(self.host)
        await self.board.take_back()
        self.host = await self.board.start_host("stage, again")
        await self.board.seat(self.host, name=self.agent.teammate.name)

    async def claim_when_due(self) -> Claim:
        """The next task, also when the back-off of a lost attempt has to pass first."""
        name = self.agent.teammate.name
        while True:
            with self.board.watch_for(name, self.agent.teammate.roles) as watch:
                if claim := await self.board.claim(name, self.host):
                    return claim
                await watch.wait(5)


async def set_stage(
    board: Board,
    steps: Sequence[Step] | Callable[[Request], Step] = (),
    *,
    name: str = "alice",
    others: Mapping[str, Sequence[Step]] | None = None,
    model: Any = None,
    member: Mapping[str, Any] | None = None,
    host: str | None = None,
    **fields: Any,
) -> Stage:
    """A stage on which the task TITLE goes by `steps`; `others` are the steps of other titles."""
    teammate = await board.spawn(name, **(member or {}))
    own = host or await board.start_host("stage")
    await board.seat(own, name=name)
    script: Any = steps if callable(steps) else {TITLE: list(steps), **(others or {})}
    model = model or ScriptedModel(script)
    fields.setdefault("limits", FAST)
    agent = Agent(board=board, teammate=teammate, model=model, **fields)
    return Stage(board=board, host=own, agent=agent, model=model)


async def results(board: Board, *given: tuple[str, Mapping[str, Any] | str], **fields: Any) -> list[str]:
    """What these calls of one reply gave, as the model was told."""
    stage = await set_stage(board, [calls(*given), END], **fields)
    await stage.run()
    return last_results(stage.model)


async def result(board: Board, name: str, /, **arguments: Any) -> str:
    """What one call gave, as the model was told."""
    return (await results(board, (name, arguments)))[0]


def last_results(model: Any) -> list[str]:
    """The results of the last reply that the model was told of, in the order of their calls."""
    messages = model.asked[-1].messages
    reply = next(message for message in reversed(messages) if isinstance(message, Reply))
    found = {
        message.call: message.text for message in messages[messages.index(reply) :] if isinstance(message, ToolResult)
    }
    return [found[call.id] for call in reply.calls]


def told(request: Request) -> str:
    """What the runtime said last; nothing, if only results of tools are new."""
    last = request.messages[-1]
    return last.text if isinstance(last, Said) else ""


def gave(request: Request, which: int = -1) -> str:
    """The last result of a tool that the request tells of, or one before it."""
    return [message.text for message in request.messages if isinstance(message, ToolResult)][which]


def all_told(request: Request) -> str:
    """All that the runtime said and tools gave, in one text."""
    return "\n".join(message.text for message in request.messages if not isinstance(message, Reply))


def of_task(model: Any, title: str = TITLE) -> list[Request]:
    """What the model was asked for the task itself: no summaries, no consulted minds."""
    return [request for request in model.asked if request.title == title]


def value(message: Message) -> Any:
    """A message as a value: the records themselves are only equal if they are one object."""
    if isinstance(message, Reply):
        return "reply", reply_body(message)
    if isinstance(message, ToolResult):
        return "result", message.call, message.name, message.text
    return "said", message.text


def state_of(talk: Conversation) -> dict[str, Any]:
    """Everything of a conversation that a rebuilt one must have as well."""
    return {
        "entries": [value(entry) for entry in talk.entries],
        "todo": (talk.desk.todo, talk.desk.todo_turn),
        "open": talk.open_calls,
        "counters": (talk.epoch, talk.number, talk.turns, talk.replies, talk.reply_at, talk.odd),
        "size": (talk.tokens, talk.uncounted),
        "first": (talk.who, talk.opening),
        "ended": talk.ended,
    }


async def folded(board: Board, claim: Claim, *epochs: int) -> Conversation:
    """The conversation as the transcript of these attempts tells it."""
    talk = Conversation()
    for epoch in epochs or (claim.epoch,):
        talk.attempt(epoch)
        for turn in await board.transcript(claim.task.id, epoch):
            talk.apply(turn)
    return talk


class Wrapped:
    """A scripted model with something that happens around each of its answers."""

    def __init__(self, inner: ScriptedModel, ask: Callable[[ScriptedModel, Request], Awaitable[Reply]]) -> None:
        self.inner = inner
        self.name, self.key, self.asked = inner.name, inner.key, inner.asked
        self.facts: Facts = inner.facts
        self._ask = ask

    async def ask(self, request: Request) -> Reply:
        return await self._ask(self.inner, request)


class Crash(BaseException):
    """The process dies here."""


class Listening:
    """A real board, of which a test hears when it refuses a reservation."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self.refused = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._board, name)

    async def reserve(self, *given: Any, **fields: Any) -> str:
        try:
            return await self._board.reserve(*given, **fields)
        except Refused:
            self.refused.set()
            raise
