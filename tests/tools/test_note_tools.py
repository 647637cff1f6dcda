"""Remembering tools, through the real loop: notes, whole outputs, and room in one's own context."""

from __future__ import annotations

import pytest

from dugnad.board import Board
from dugnad.models.scripted import Step
from dugnad.settings import AgentLimits
from dugnad.tools.tool import tool
from dugnad.types import Done
from tests.agent.stage_agent import END, TITLE, call, calls, gave, last_results, result, results, set_stage, told


@tool
def long_text(length: int) -> str:
    """Many characters, each block with its number.

    Args:
        length: How many.
    """
    return "".join(f"{number:09d} " for number in range(length // 10))


async def test_a_note_is_written_for_all_and_read_back_quoted(board: Board) -> None:
    stage = await set_stage(
        board,
        [
            call("note", title="The\ntrap", text="one\ntwo"),
            calls(("read_notes", {}), ("search_notes", {"words": "TWO trap"})),
            END,
        ],
    )
    await stage.run()
    (note,) = await board.search_notes()
    assert (note.author, note.title, note.text, note.task, note.root) == ("alice", "The\ntrap", "one\ntwo", 1, 1)
    assert gave(stage.model.asked[1]) == "Note 1 is written."
    shown = "Note 1 by alice, about #1: The trap\n> one\n> two"
    assert last_results(stage.model) == [shown, shown]


async def test_notes_of_other_goals_are_only_found_by_search_unless_they_belong_to_no_goal(board: Board) -> None:
    bob = await set_stage(board, [call("note", title="far", text="away"), END], name="bob")
    await bob.run()
    await board.write_note("bob", "near", "by")
    own, found, none = await results(
        board, ("read_notes", {}), ("search_notes", {"words": "away"}), ("search_notes", {"words": "away %"})
    )
    assert own == "Note 2 by bob: near\n> by"
    assert found == "Note 1 by bob, about #1: far\n> away"
    assert none == "No note has all of: away %."


async def test_a_note_for_everyone_is_shown_at_the_next_turn_of_who_is_at_work(board: Board) -> None:
    @tool
    async def wait() -> str:
        """Wait."""
        await board.write_note("bob", "the port", "It is\n8080.", everyone=True)
        return "waited"

    stage = await set_stage(board, [call("wait"), call("list_tasks"), END], tools=[wait])
    assert await stage.run() == Done("built")
    shown = "<inbox>\nFrom bob [notice]:\n> Note for everyone: the port\n> It is\n> 8080.\n</inbox>"
    assert ["</inbox>" in told(each) for each in stage.model.asked] == [False, True, False]
    assert shown in told(stage.model.asked[1])


async def test_older_notes_are_read_on(board: Board) -> None:
    writes = [("note", {"title": f"n{number}", "text": "x"}) for number in range(1, 23)]
    stage = await set_stage(board, [calls(*writes), calls(("read_notes", {}), ("read_notes", {"before": 3})), END])
    await stage.run()
    first, rest = last_results(stage.model)
    assert first.count("Note ") == 20
    assert first.startswith("Note 22 ")
    assert [line for line in rest.splitlines() if line.startswith("Note")] == [
        "Note 2 by alice, about #1: n2", "Note 1 by alice, about #1: n1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"title": "x" * 201, "text": "t"}, "201 characters"),
        ({"title": "x", "text": "a\0"}, "NUL"),
        ({"title": "x"}, "text: Field required"),
    ],
)
async def test_what_is_wrong_with_a_note_is_told(board: Board, arguments: dict[str, object], wrong: str) -> None:
    (text,) = await results(board, ("note", arguments))
    assert text.startswith("Error: ")
    assert wrong in text
    assert not await board.search_notes()


async def test_a_search_the_board_cannot_make_is_told(board: Board) -> None:
    assert (await result(board, "search_notes", words="a\0b")).startswith("Error: ")


async def test_a_long_output_is_shortened_in_the_middle_and_the_whole_can_be_read(board: Board) -> None:
    whole = str(long_text(50_000))
    stage = await set_stage(
        board,
        [
            call("long_text", length=50_000),
            calls(*(("read_output", {"output": "1.2", "start": start}) for start in range(0, 50_000, 12_000))),
            END,
        ],
        tools=[long_text],
    )
    await stage.run()
    shown = gave(stage.model.asked[1])
    assert len(shown) < 16_200
    assert shown.startswith(whole[:10_000])
    assert shown.endswith(whole[-5_000:])
    assert "characters left out; read_output(output='1.2') shows them" in shown
    pages = [page.partition("\n[… read on with start=")[0] for page in last_results(stage.model)]
    assert "".join(pages) == whole


@pytest.mark.parametrize(
    "arguments",
    [
        {"output": "1.2", "start": 50_000},
        {"output": "1.2", "start": -1},
        {"output": "1.1"},
        {"output": "1.99"},
        {"output": "7.2"},
        {"output": "first"},
        {"output": ""},
        {"output": "1.2.3"},
        {"output": "-1.2"},
    ],
)
async def test_an_output_that_is_not_there_is_told(board: Board, arguments: dict[str, object]) -> None:
    stage = await set_stage(
        board, [call("long_text", length=50_000), call("read_output", **arguments), END], tools=[long_text]
    )
    assert await stage.run() == Done("built")
    (text,) = last_results(stage.model)
    assert text.startswith("Error: ")


async def test_an_output_can_be_read_in_a_later_attempt_that_goes_on(board: Board) -> None:
    steps = [
        calls(("long_text", {"length": 50_000}), ("ask_human", {"question": "Ok?"})),
        call("read_output", output="1.2"),
        END,
    ]
    stage = await set_stage(board, steps, tools=[long_text])
    await stage.run()
    (asked,) = await board.requests()
    await board.reply(str(asked.request), "human", "ok")
    await stage.go_on()
    assert last_results(stage.model)[0].startswith(str(long_text(50_000))[:12_000])


async def test_compaction_on_request_comes_before_the_next_turn(board: Board) -> None:
    look = call("long_text", length=3_000)
    stage = await set_stage(
        board,
        [look, look, look, call("compact"), END],
        others={"(summary)": [Step(say=f"Summed up {number}.") for number in range(9)]},
        tools=[long_text],
        limits=AgentLimits(keep_share=0.0001),
    )
    assert await stage.run() == Done("built")
    assert [request.title for request in stage.model.asked] == [TITLE] * 4 + ["(summary)", TITLE]
    last = stage.model.asked[-1]
    assert "Summed up 3." in last.messages[1].text
    assert last_results(stage.model) == [
        "The conversation will be summarised before your next turn, if there is enough of it."
    ]
    assert len(last.messages) == 4


async def test_the_wish_to_make_room_survives_a_crash(board: Board) -> None:
    stage = await set_stage(
        board,
        [call("list_tasks"), call("list_tasks"), calls(("compact", {}), ("ask_human", {"question": "Ok?"})), END],
        others={"(summary)": [Step(say="Summed up.")] * 9},
        limits=AgentLimits(keep_share=0.0001),
    )
    await stage.run()
    (asked,) = await board.requests()
    await board.reply(str(asked.request), "human", "ok")
    await stage.go_on()
    assert "Summed up." in stage.model.asked[-1].messages[1].text


async def test_notes_are_read_and_searched_with_one_tool(board: Board) -> None:
    bob = await set_stage(board, [call("note", title="theirs", text="elsewhere"), END], name="bob")
    await bob.run()
    found = await results(
        board,
        ("note", {"title": "ours", "text": "here"}),
        ("notes", {}),
        ("notes", {"words": "ELSE where"}),
        ("notes", {"words": "nowhere"}),
        ("notes", {"before": 1}),
    )
    assert found == [
        "Note 2 is written.",
        "Note 2 by alice, about #2: ours\n> here",
        "Note 1 by bob, about #1: theirs\n> elsewhere",
        "No note has all of: nowhere.",
        "There are no notes.",
    ]


async def test_a_note_for_everyone_reaches_every_goal(board: Board) -> None:
    await board.spawn("bob")
    tell_all = call("note", title="The check is red", text="on the untouched tree", everyone=True)
    stage = await set_stage(board, [tell_all, END], others={"Another goal": [call("notes"), END]})
    await stage.run()
    await stage.run("Another goal")
    shown = "Note 1 by alice, about #1: The check is red\n> on the untouched tree"
    assert last_results(stage.model) == [shown]
    packet = next(each for each in stage.model.asked if each.title == "Another goal").messages[0].text
    assert shown in packet
    (note,) = await board.search_notes()
    assert (note.task, note.root) == (1, None)


async def test_older_notes_are_read_on_where_there_may_be_more(board: Board) -> None:
    writes = [("note", {"title": f"n{number}", "text": "x"}) for number in range(1, 22)]
    stage = await set_stage(board, [calls(*writes), calls(("notes", {}), ("notes", {"before": 2})), END])
    await stage.run()
    first, rest = last_results(stage.model)
    assert first.endswith("There may be more: notes(before=2) shows older ones.")
    assert rest == "Note 1 by alice, about #1: n1\n> x"
