"""What is remembered of a conversation must never show: the provider sees what it would see if nothing were."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dugnad.errors import ModelTrouble
from dugnad.models import Model, Reply, Request, open_model
from dugnad.models.port import Memory, Message, Said, ToolResult
from tests.models.asking import (
    ANTHROPIC,
    CHAT,
    DIRECT,
    LOCAL,
    LOOK,
    NOTE,
    RESPONSES,
    TOOLS,
    asking,
    opened,
    provider,
    results,
    talk,
)
from tests.models.provider_server import Answer, Fault, ProviderServer, Seen

FILLER = Answer(text="For comparison only.")
FAULTS = (
    Fault(status=429),
    Fault(status=500),
    Fault(cut_after_bytes=0),
    Fault(cut_after_bytes=150),
    Fault(overflow=True),
)
TOOL_SETS = (TOOLS, (NOTE,), (), (LOOK, NOTE))

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)
said_texts = st.one_of(st.text(alphabet='abc æ🎉\n"\\', min_size=1, max_size=12), st.just("  padded \n"))
calls = st.lists(
    st.tuples(st.sampled_from(["note", "look"]), st.sampled_from(["{}", '{"text":"æ 🎉"}', '{"a": [1, {"b": null}]}'])),
    max_size=3,
)


@dataclass(frozen=True)
class Step:
    """One turn of a random conversation, and what happens around it."""

    says: list[str]
    text: str
    thinking: str
    calls: list[tuple[str, str]]
    result: str
    native: bool  # False: the reply is kept without the provider's own form.
    fault: Fault | None
    compaction: str | None  # Before the turn: "summary", "shortened", or none.
    tools: int
    system: str

    @property
    def answer(self) -> Answer:
        made = tuple((name, arguments, None) for name, arguments in self.calls)
        return Answer(text=self.text, thinking=self.thinking, calls=made)


steps = st.builds(
    Step,
    says=st.lists(said_texts, max_size=2),
    text=st.one_of(st.just(""), st.just(" "), texts),
    thinking=st.one_of(st.just(""), texts),
    calls=calls,
    result=texts,
    native=st.booleans(),
    fault=st.sampled_from([None, None, None, *FAULTS]),
    compaction=st.sampled_from([None, None, None, "summary", "shortened"]),
    tools=st.sampled_from([0, 0, 0, 1, 2, 3]),
    system=st.sampled_from(["You help.", "You help.", "Nå på norsk."]),
)


@dataclass
class Play:
    """Plays a conversation on a model and, for each request, asks once more with nothing remembered."""

    model: Model
    server: ProviderServer
    says: list[Answer | Fault]
    memory: Memory = field(default_factory=Memory)
    messages: list[Message] = field(default_factory=list)

    async def ask(self, request: Request, said: Answer | Fault) -> Reply:
        self.says.append(said)
        return await self.model.ask(request)

    async def same_as_fresh(self, request: Request) -> None:
        """The last request meant the same as one without memory. New tool records: those are remembered too."""
        sent = self.server.seen[-1].json
        await self.ask(replace(request, memory=Memory(), tools=tuple(map(replace, request.tools))), FILLER)
        assert sent == self.server.seen[-1].json

    async def step(self, step: Step) -> None:
        self.compact(step.compaction)
        says = step.says or ([] if self.messages and isinstance(self.messages[-1], ToolResult) else ["Go on."])
        self.messages += map(Said, says)
        request = asking(
            *self.messages, memory=self.memory, tools=TOOL_SETS[step.tools], system=step.system, output_tokens_max=9
        )
        if step.fault:
            with pytest.raises(ModelTrouble):
                await self.ask(request, step.fault)
            await self.same_as_fresh(request)
        reply = await self.ask(request, step.answer)
        await self.same_as_fresh(request)
        if not step.native:
            reply = replace(reply, native=None)
        self.messages += [reply, *(ToolResult(call.id, call.name, step.result) for call in reply.calls)]

    def compact(self, kind: str | None) -> None:
        replies = [place for place, each in enumerate(self.messages) if isinstance(each, Reply)]
        if kind == "summary" and replies:
            self.messages = [Said("What was before, in short."), *self.messages[replies[-1] :]]
        elif kind == "shortened":
            self.messages = [
                ToolResult(each.call, each.name, "(shortened)") if isinstance(each, ToolResult) else each
                for each in self.messages
            ]


async def play(name: str, plan: Sequence[Step]) -> None:
    says: list[Answer | Fault] = []
    async with provider(name, lambda _: says.pop()) as (model, server):
        conversation = Play(model, server, says)
        for step in plan:
            await conversation.step(step)


# No shrinking: it would take minutes to say little more than the first conversation that differs.
BOUNDED = settings(max_examples=15, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("name", [ANTHROPIC, RESPONSES])
def test_with_memory_and_without_a_request_means_the_same(name: str) -> None:
    @BOUNDED
    @given(st.lists(steps, min_size=2, max_size=4))
    def check(plan: list[Step]) -> None:
        asyncio.run(play(name, plan))

    check()


@pytest.mark.parametrize("name", [CHAT, LOCAL])
def test_with_memory_and_without_a_chat_means_the_same_if_it_thinks_always_or_never(name: str) -> None:
    @BOUNDED
    @given(st.lists(steps, min_size=2, max_size=4), st.booleans())
    def check(plan: list[Step], thinks: bool) -> None:
        uniform = [replace(step, thinking="Hm." if thinks else "", native=thinks or step.native) for step in plan]
        asyncio.run(play(name, uniform))

    check()


@pytest.mark.parametrize("name", [CHAT, LOCAL])
@pytest.mark.parametrize("thinks", [(True, False), (False, True)], ids=["first", "then"])
async def test_a_chat_that_thinks_at_times_means_the_same_with_memory(name: str, thinks: tuple[bool, bool]) -> None:
    one, other = (replace(CALLS, thinking="Hm." if each else "") for each in thinks)
    async with provider(name, [one, other, CALLS]) as (model, server):
        memory = Memory()
        messages = await talk(model, [["Begin."], []], memory)
        await model.ask(asking(*messages, memory=memory))
        await model.ask(asking(*messages))
        assert server.seen[2].json == server.seen[3].json


CALLS = Answer(text="Once more.", thinking="Hm.", calls=(("note", '{"text":"a"}', None),))


@pytest.mark.parametrize("name", DIRECT)
async def test_later_turns_do_not_encode_the_history_again(name: str) -> None:
    async with provider(name, [CALLS]) as (model, server):
        memory, messages, before = Memory(), list[Message](), list[bytes]()
        for texts in (["Begin."], [], ["And?"], [], []):
            messages += map(Said, texts)
            reply = await model.ask(asking(*messages, memory=memory))
            messages += [reply, *results(reply)]
            assert len(memory.encoded) > len(before)
            assert all(kept is encoded for kept, encoded in zip(before, memory.encoded, strict=False))
            before = memory.encoded
    assert [len(seen.json["tools"]) for seen in server.seen] == [2] * 5


@pytest.mark.parametrize("name", DIRECT)
async def test_a_request_that_failed_goes_out_again_byte_for_byte(name: str) -> None:
    script = [CALLS, Fault(status=500), Fault(cut_after_bytes=80), Fault(error_in_stream=True), CALLS]
    async with provider(name, script) as (model, server):
        memory = Memory()
        messages = await talk(model, [["Begin."]], memory)
        for _ in range(3):
            with pytest.raises(ModelTrouble):
                await model.ask(asking(*messages, memory=memory))
        await model.ask(asking(*messages, memory=memory))
        assert len({seen.body for seen in server.seen[1:]}) == 1


@pytest.mark.parametrize("name", DIRECT)
@pytest.mark.parametrize(
    "answer", [Answer(empty=True), Answer(thinking="Only this."), Answer(text=" ")], ids=["empty", "thought", "space"]
)
async def test_after_a_reply_that_says_nothing_a_request_means_the_same(name: str, answer: Answer) -> None:
    async with provider(name, [answer]) as (model, server):
        memory = Memory()
        messages = [*await talk(model, [["Begin."], ["And?"]], memory), Said("Well?")]
        await model.ask(asking(*messages, memory=memory))
        await model.ask(asking(*messages))
        assert server.seen[2].json == server.seen[3].json


@pytest.mark.parametrize("name", DIRECT)
async def test_a_request_that_was_answered_can_be_asked_again(name: str) -> None:
    async with provider(name, [CALLS]) as (model, server):
        memory = Memory()
        messages = await talk(model, [["Begin."], []], memory)
        told = messages[:-2]
        for _ in range(2):
            await model.ask(asking(*told, memory=memory))
        assert server.seen[1].json == server.seen[2].json == server.seen[3].json


@pytest.mark.parametrize("name", DIRECT)
async def test_another_answer_to_the_same_question_replaces_the_first(name: str) -> None:
    """A reply that was thrown away must not come back out of the memory."""
    async with provider(name, [Answer(text="Thrown away."), Answer(text="Kept."), Answer(text="End.")]) as (
        model,
        server,
    ):
        memory, begin = Memory(), Said("Begin.")
        await model.ask(asking(begin, memory=memory))
        kept = await model.ask(asking(begin, memory=memory))
        await model.ask(asking(begin, kept, Said("On."), memory=memory))
        text = server.seen[2].body.decode()
    assert "Kept." in text
    assert "Thrown away." not in text


@pytest.mark.parametrize("name", DIRECT)
async def test_two_conversations_in_turns_on_one_model_do_not_mix(name: str) -> None:
    async with provider(name, [CALLS]) as (model, server):
        sides: dict[str, tuple[Memory, list[Message]]] = {side: (Memory(), []) for side in ("left", "right")}
        for number, (side, (memory, messages)) in itertools.product(range(3), sides.items()):
            messages.append(Said(f"{side} {number}"))
            reply = await model.ask(asking(*messages, memory=memory, system=f"You are {side}."))
            messages += [reply, *results(reply)]
            body = server.seen[-1].body.decode()
            assert all(f"{side} {earlier}" in body for earlier in range(number + 1))
            assert ("left" if side == "right" else "right") not in body


def marked(seen: Seen) -> Answer:
    """Answers with the asker's own mark, the later ones sooner."""
    mark = seen.body.decode().rpartition("asker-")[2][:3]
    return Answer(text=f"To {mark} 🎯", thinking=f"About {mark}", delay_seconds=0.3 - int(mark) / 1_000)


@pytest.mark.parametrize("name", DIRECT)
async def test_two_hundred_at_once_each_get_their_own_answer(name: str) -> None:
    async with ProviderServer(marked) as server:
        model = opened(name, server)

        async def one(mark: str) -> None:
            reply = await model.ask(asking(Said(f"I am asker-{mark}")))
            assert reply.text == f"To {mark} 🎯"
            assert json.loads(reply.native or "")[0]["parts"][0]["content"] == f"About {mark}"

        async with asyncio.TaskGroup() as group:
            for number in range(200):
                group.create_task(one(f"{number:03}"))
        assert len(server.seen) == 200
        await model.close()


@pytest.mark.parametrize("name", DIRECT)
async def test_the_environments_proxy_is_used_unless_it_is_told_otherwise(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ProviderServer([Answer(text="Through the proxy.")]) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        far = open_model(name, api_key="k", base_url="http://provider.invalid/v1")
        assert (await far.ask(asking())).text == "Through the proxy."
        await far.close()
        assert proxy.seen[0].path.startswith("http://provider.invalid/v1")
        async with provider(name, [Answer(text="Directly.")]) as (near, _):
            assert (await near.ask(asking())).text == "Directly."
