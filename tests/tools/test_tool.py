"""`@tool`: what a typed function with a docstring becomes for a model, and what comes back from calling it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from dugnad.board import Board
from dugnad.errors import DugnadError, ToolError
from dugnad.tools.built_in import BUILT_IN
from dugnad.tools.context import Context, Ends
from dugnad.tools.tool import BadCall, Tool, tool
from dugnad.types import Done
from tests.agent.stage_agent import END, calls, last_results, results, set_stage


class Place(BaseModel):
    street: str
    number: int = 1


@dataclass
class Size:
    width: float
    height: float


@tool
def count_words(text: str, kinds: list[str], most: int | None = None, how: Literal["all", "some"] = "all") -> str:
    """Count words.

    Of several kinds.

    Args:
        text: Where to look.
        kinds (list): Which ones.
        most: At most so many.
    """
    return f"{text}/{kinds}/{most}/{how}"


@tool
async def visit(place: Place, sizes: list[Size], context: Context, extra: dict[str, int] | None = None) -> str:
    """Go there."""
    assert isinstance(place, Place)
    assert all(isinstance(size, Size) for size in sizes)
    return f"{context.teammate.name} at {place.street} {place.number}: {sum(each.width for each in sizes)} {extra}"


@tool(name="renamed", safe=True, keyed=True)
def original(value: Any = 3) -> Any:
    """Give it back."""
    return value


def test_the_schema_comes_from_the_signature_and_the_texts_from_the_docstring() -> None:
    spec = count_words.spec
    assert (spec.name, spec.description) == ("count_words", "Count words.\n\nOf several kinds.")
    properties = spec.schema["properties"]
    assert spec.schema["required"] == ["text", "kinds"]
    assert properties["text"] == {"description": "Where to look.", "type": "string"}
    assert properties["kinds"] == {"description": "Which ones.", "items": {"type": "string"}, "type": "array"}
    assert properties["most"]["description"] == "At most so many."
    assert properties["most"]["default"] is None
    assert properties["how"] == {"default": "all", "enum": ["all", "some"], "type": "string"}
    assert spec.schema["additionalProperties"] is False
    json.dumps(spec.schema)


def test_a_parameter_can_be_described_in_several_lines() -> None:
    @tool
    def look(path: str) -> str:
        """Look.

        Args:
            path: A file, relative to the project,
                never absolute.
        """
        return path

    assert look.spec.schema["properties"]["path"]["description"] == "A file, relative to the project, never absolute."


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["json", "schema", "copy"])
def test_a_parameter_may_have_any_name(name: str) -> None:
    scope: dict[str, Any] = {}
    exec(f'def made({name}: str) -> str:\n    """Make."""\n    return {name}', scope)
    made = Tool(scope["made"])
    assert made.check(json.dumps({name: "x"})) == {name: "x"}


def test_what_the_runtime_fills_in_is_hidden_from_the_model() -> None:
    assert set(visit.spec.schema["properties"]) == {"place", "sizes", "extra"}
    for each in BUILT_IN:
        assert "context" not in each.spec.schema.get("properties", {})
        assert each.spec.description


def test_every_parameter_of_our_own_tools_is_described() -> None:
    for each in BUILT_IN:
        properties = {} if each.former else each.spec.schema.get("properties", {})
        for field in list(properties.values()):
            properties = {**properties, **field.get("items", {}).get("properties", {})}
        for name, field in properties.items():
            assert field.get("description"), f"{each.name}({name})"


def test_a_tool_is_still_the_function_it_was_made_of() -> None:
    assert count_words("a", ["b"]) == "a/['b']/None/all"
    assert (original.name, original.safe, original.keyed, original.own) == ("renamed", True, True, False)
    assert (count_words.safe, count_words.keyed, count_words.own) == (False, False, False)


def test_a_function_without_a_docstring_is_refused() -> None:
    with pytest.raises(DugnadError, match="bare needs a docstring"):

        @tool
        def bare() -> None: ...


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ("{", "the arguments: "),
        ("[]", "the arguments: "),
        ("null", "the arguments: "),
        ('{"text": 1, "kinds": []}', "text: Input should be a valid string"),
        ('{"text": "a"}', "kinds: Field required"),
        ('{"text": "a", "kinds": [1]}', "kinds.0: "),
        ('{"text": "a", "kinds": [], "most": 1.5}', "most: "),
        ('{"text": "a", "kinds": [], "how": "none"}', "how: Input should be 'all' or 'some'"),
        ('{"text": "a", "kinds": [], "who": 1}', "who: Extra inputs are not permitted"),
        ('{"text": "\\ud800", "kinds": []}', "the arguments: "),
    ],
)
def test_wrong_arguments_are_named(arguments: str, wrong: str) -> None:
    with pytest.raises(BadCall) as caught:
        count_words.check(arguments)
    assert str(caught.value).startswith("count_words was not called: ")
    assert wrong in str(caught.value)


def test_of_many_wrong_arguments_five_are_named() -> None:
    with pytest.raises(BadCall, match=r"\(and 2 more\)"):
        count_words.check(json.dumps({"text": "a", "kinds": [1, 2, 3, 4, 5, 6, 7]}))


def test_defaults_are_filled_in_and_not_shared() -> None:
    @tool
    def gather(into: list[str] = []) -> list[str]:  # noqa: B006
        """Gather."""
        return into

    assert original.check("") == {"value": 3}
    gather.check("{}")["into"].append("x")
    assert gather.check("{}") == {"into": []}


async def test_typed_arguments_arrive_as_what_they_are(board: Board) -> None:
    arguments = {"place": {"street": "Hill"}, "sizes": [{"width": 1, "height": 2}, {"width": 2.5, "height": 0}]}
    texts = await results(board, ("visit", arguments), ("visit", {"place": "Hill", "sizes": []}), tools=[visit])
    assert texts[0] == "alice at Hill 1: 3.5 None"
    assert texts[1].startswith("Error: visit was not called: place: ")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "Done."),
        ("plain", "plain"),
        (7, "7"),
        (1.5, "1.5"),
        (True, "True"),
        ({"a": [1, None]}, '{\n "a": [\n  1,\n  null\n ]\n}'),
        ([], "[]"),
    ],
)
async def test_what_a_tool_gives_becomes_text(board: Board, value: Any, text: str) -> None:
    assert await results(board, ("renamed", {"value": value}), tools=[original]) == [text]


async def test_records_become_json(board: Board) -> None:
    @tool
    async def survey() -> dict[str, Any]:
        """Look around."""
        return {"place": Place(street="Hill"), "size": Size(1, 2), "odd": object}

    (text,) = await results(board, ("survey", {}), tools=[survey])
    found = json.loads(text)
    assert found["place"] == {"street": "Hill", "number": 1}
    assert found["size"] == {"width": 1.0, "height": 2.0}


async def test_what_goes_wrong_in_a_users_tool_is_told(board: Board) -> None:
    @tool
    def divide(by: int) -> float:
        """Divide."""
        return 1 / by

    @tool
    async def refuse() -> None:
        """Refuse."""
        raise ToolError("Not today.")

    texts = await results(board, ("divide", {"by": 0}), ("refuse", {}), tools=[divide, refuse])
    assert texts == ["Error: ZeroDivisionError: division by zero", "Error: Not today."]


@pytest.mark.parametrize("trouble", [ValueError("our bug"), KeyError("k"), TimeoutError("late")], ids=type)
async def test_a_bug_in_one_of_our_own_tools_is_raised_and_not_told(board: Board, trouble: Exception) -> None:
    async def broken() -> str:
        """Break."""
        raise trouble

    stage = await set_stage(board, [calls(("broken", {})), END], tools=[Tool(broken, own=True)])
    claim = await stage.begin()
    with pytest.raises(type(trouble)):
        await stage.agent.work(claim)
    assert [turn.kind for turn in await board.transcript(1, 1)] == ["reply"]


async def test_a_users_tool_can_end_the_task(board: Board) -> None:
    @tool
    async def enough() -> Ends:
        """End it."""
        return Ends(Done("enough"), "Enough.")

    stage = await set_stage(board, [calls(("enough", {}))], tools=[enough])
    assert await stage.run() == Done("enough")


async def test_a_tool_of_a_name_that_is_not_there_is_told_with_those_that_are(board: Board) -> None:
    stage = await set_stage(board, [calls(("fly", {})), END])
    await stage.run()
    (text,) = last_results(stage.model)
    assert text.startswith("Error: There is no tool 'fly'; there are add_tasks, ask_human, ")
