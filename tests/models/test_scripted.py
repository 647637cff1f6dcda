"""The scripted model: what a script says is what is said, wherever and however often it is asked."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from dugnad.errors import AnswerLost, BadInput, ContextOverflow, ModelTrouble, ModelUnavailable, RateLimited
from dugnad.models import Reply, Request, ScriptedModel, ToolCall, Usage
from dugnad.models.port import Message, Said, ToolResult
from dugnad.models.scripted import FAULTS, ODD, Step, read_script

EVERY_KEY = """
Write slugify():
  - say: First the tests.
    calls:
      - schedule_followup: {title: Document slugify(), body: One paragraph.}
      - look
      - note: "not {json"
    usage: {input: 1200, output: 80}
    seconds: 0.001
    stop: length
  - odd: malformed
  - faults: [rate_limited, timeout]
    calls: [{finish: {result: slugify() works}}]
"*":
  - say: Anything else.
"""


def asked(title: str = "A task", turn: int = 1, *messages: Message, **given: Any) -> Request:
    return Request(system="You help.", messages=messages or (Said("Hello."),), title=title, turn=turn, **given)


async def test_a_step_is_found_by_title_and_turn() -> None:
    model = ScriptedModel({"A": [Step(say="a1"), Step(say="a2")], "*": [Step(say="any")]})
    said = [(await model.ask(asked(title, turn))).text for title, turn in (("A", 2), ("A", 1), ("B", 1), ("", 1))]
    assert said == ["a2", "a1", "any", "any"]


async def test_after_the_last_step_the_model_ends_with_plain_text() -> None:
    for model, title in ((ScriptedModel({"A": [Step(say="a1")]}), "A"), (ScriptedModel({}), "B")):
        reply = await model.ask(asked(title, 2))
        assert (reply.text, reply.calls, reply.stop) == (f"{title}: done.", (), "end")


async def test_a_function_is_asked_with_the_request() -> None:
    model = ScriptedModel(lambda request: Step(say=f"{request.title} in turn {request.turn}"))
    assert (await model.ask(asked("T", 7))).text == "T in turn 7"


async def test_every_key_of_the_yaml_is_understood() -> None:
    model = ScriptedModel(read_script(EVERY_KEY))
    reply = await model.ask(asked("Write slugify()", 1))
    followup = {"title": "Document slugify()", "body": "One paragraph."}
    assert reply.text == "First the tests."
    assert [(call.name, call.id) for call in reply.calls] == [
        ("schedule_followup", "call-1-0"), ("look", "call-1-1"), ("note", "call-1-2")
    ]  # fmt: skip
    assert json.loads(reply.calls[0].arguments) == followup
    assert [call.arguments for call in reply.calls[1:]] == ["{}", "not {json"]
    assert reply.usage == Usage(input_tokens=1_200, output_tokens=80)
    assert reply.stop == "length"
    assert read_script(EVERY_KEY)["Write slugify()"][0].seconds == 0.001
    assert (await model.ask(asked("Something", 1))).text == "Anything else."


async def test_the_first_tries_meet_their_faults_and_then_there_is_the_reply() -> None:
    model = ScriptedModel(read_script(EVERY_KEY), retry_after=2.5)
    request = asked("Write slugify()", 3)
    with pytest.raises(RateLimited) as met:
        await model.ask(request)
    assert met.value.seconds == 2.5
    with pytest.raises(AnswerLost):
        await model.ask(request)
    reply = await model.ask(request)
    assert reply.calls == (ToolCall("call-3-0", "finish", '{"result": "slugify() works"}'),)
    assert reply.stop == "tools"


async def test_tries_are_counted_for_each_task_and_turn() -> None:
    model = ScriptedModel(lambda _: Step(say="There.", faults=("unavailable",)))
    for task, turn in ((1, 1), (1, 2), (2, 1)):
        with pytest.raises(ModelUnavailable):
            await model.ask(asked(turn=turn, task=task))
        assert (await model.ask(asked(turn=turn, task=task))).text == "There."


@pytest.mark.parametrize(
    ("fault", "kind"),
    [("rate_limited", RateLimited), ("overloaded", RateLimited), ("unavailable", ModelUnavailable),
     ("timeout", AnswerLost), ("overflow", ContextOverflow)],
)  # fmt: skip
async def test_every_fault_is_the_trouble_it_is_called(fault: str, kind: type[ModelTrouble]) -> None:
    model = ScriptedModel({"*": [Step(faults=(fault,))]})
    with pytest.raises(kind, match=r"^scripted: .*\.$"):
        await model.ask(asked())


def test_no_fault_is_left_out_above() -> None:
    assert set(FAULTS) == {"rate_limited", "overloaded", "unavailable", "timeout", "overflow"}
    assert set(ODD) == {"refusal", "empty", "malformed", "cut"}


async def test_odd_replies_are_those_that_models_give_at_times() -> None:
    async def odd(kind: str) -> Reply:
        return await ScriptedModel({"*": [Step(odd=kind)]}).ask(asked())

    refusal, empty, malformed, cut = [await odd(kind) for kind in ("refusal", "empty", "malformed", "cut")]
    assert (refusal.stop, bool(refusal.text)) == ("refused", True)
    assert (empty.stop, empty.text, empty.calls) == ("end", "", ())
    assert (cut.stop, bool(cut.text), cut.calls) == ("length", True, ())
    assert malformed.stop == "tools"
    with pytest.raises(json.JSONDecodeError):
        json.loads(malformed.calls[0].arguments)


async def test_a_step_that_takes_longer_than_allowed_is_an_answer_lost() -> None:
    model = ScriptedModel({"*": [Step(say="Late.", seconds=3_600.0)]})
    with pytest.raises(AnswerLost, match=r"within 0\.01 seconds"):
        await model.ask(asked(seconds_max=0.01))


async def test_a_step_that_takes_its_time_can_be_cancelled() -> None:
    model = ScriptedModel({"*": [Step(say="Late.", seconds=3_600.0)]})
    task = asyncio.create_task(model.ask(asked()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_same_request_gives_the_same_reply() -> None:
    history = (
        Said("Hello."),
        Reply(text="Hi.", calls=(ToolCall("c", "look", "{}"),)),
        ToolResult("c", "look", "Seen."),
    )
    replies = [
        await ScriptedModel(read_script(EVERY_KEY)).ask(asked("Write slugify()", turn, *history))
        for turn in (1, 2, 4)
        for _ in range(2)
    ]
    told = [(reply.text, reply.calls, reply.usage, reply.stop, reply.model) for reply in replies]
    assert told[0::2] == told[1::2]
    assert replies[2].usage.input_tokens == (len("You help.Hello.Hi.{}Seen.")) // 4


@pytest.mark.parametrize(
    ("given", "name"), [("scripted", "scripted"), ("gpt-5", "scripted:gpt-5"), ("anthropic:x", "scripted:anthropic:x")]
)
async def test_nobody_can_take_a_script_for_a_model(given: str, name: str) -> None:
    model = ScriptedModel({}, name=given)
    assert model.name == model.key == (await model.ask(asked())).model == name


def test_a_script_has_the_name_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "demo.yaml"
    path.write_text(EVERY_KEY)
    assert ScriptedModel.load(path).name == "scripted:demo"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: {b", "not YAML"), ("[1]", "maps the titles"), ("a: [x]", "'a', step 1 is not a mapping"),
        ("a: [{say: x}, {zzz: 1, yyy: 2}]", "'a', step 2 does not know yyy, zzz; a step has say, calls"),
        ("a: [{odd: x}]", "'a', step 1 has odd 'x'; there are refusal, empty"),
        ("b: [{faults: [timeout, x]}]", "'b', step 1 has faults 'x'; there are rate_limited"),
        ("a: hello", "'a' is not a list of steps"),
    ],
)  # fmt: skip
def test_what_a_script_says_wrongly_is_named_with_its_place(text: str, says: str) -> None:
    with pytest.raises(BadInput) as met:
        read_script(text)
    assert says in str(met.value)


@pytest.mark.parametrize(
    "step",
    ["usage: 5", "usage: {inptu: 3}", "usage: {input: many}", "calls: 3", "calls: [3]", "calls: {finish: {result: x}}",
     "calls: [{finish: 3}]", "seconds: soon", "seconds: -1", "stop: nonsense", "1: x", "faults: timeout"],
)  # fmt: skip
def test_what_a_key_holds_wrongly_is_named_with_its_place(step: str) -> None:
    with pytest.raises(BadInput, match=rf"'a', step 1.*{step.partition(':')[0]}(?!.*'t')"):
        read_script(f"a: [{{{step}}}]")


def test_a_title_without_a_list_of_steps_is_named() -> None:
    with pytest.raises(BadInput, match="'a'"):
        read_script("a: 3")


@pytest.mark.parametrize("text", ["", "a:", "3: [{say: x}]"])
def test_a_script_may_say_little(text: str) -> None:
    assert all(isinstance(title, str) for title in read_script(text))


@pytest.mark.parametrize("text", ["[" * 100_000, "a: " + "{a: " * 50_000])
def test_a_script_that_is_nested_deeply_is_refused_at_once(text: str) -> None:
    with pytest.raises(BadInput, match="nested more than 100 deep"):
        read_script(text)
