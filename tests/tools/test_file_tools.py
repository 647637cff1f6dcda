"""The file tools as a teammate uses them: what its model is told, and what is on the disk afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from dugnad import Team
from dugnad.board import Board
from dugnad.models import ScriptedModel
from dugnad.tools.file_tools import file_tools
from dugnad.workspace.files.files import Files
from tests.agent.stage_agent import END, all_told, call, calls, results, set_stage

NAMES = ["read_file", "list_dir", "glob", "grep", "write_file", "edit_file"]


@pytest.fixture
def root(folder: Path) -> Path:
    (folder / "work").mkdir()
    return folder / "work"


async def test_a_teammate_writes_edits_and_finds_its_files(board: Board, root: Path) -> None:
    texts = await results(
        board,
        ("write_file", {"path": "src/app.py", "text": "import os\n\nprint('Hello')\n"}),
        ("edit_file", {"path": "src/app.py", "old": "'Hello'", "new": "'Good morning'"}),
        ("read_file", {"path": "src/app.py", "first_line": 3}),
        ("glob", {"pattern": "*.py"}),
        ("grep", {"pattern": "good", "ignore_case": True}),
        ("list_dir", {}),
        tools=file_tools(Files(root)),
    )
    assert texts == [
        "Made src/app.py: 3 lines, 26 bytes.",
        "Changed src/app.py in 1 place, at line 3.",
        "     3\tprint('Good morning')",
        "src/app.py",
        "src/app.py:3:print('Good morning')",
        "src/",
    ]
    assert (root / "src" / "app.py").read_text() == "import os\n\nprint('Good morning')\n"


async def test_what_cannot_be_done_is_told_to_the_model_and_not_done(board: Board, root: Path) -> None:
    (root.parent / "secret").write_text("secret")
    (root / "link").symlink_to("../secret")
    (root / "x").write_text("1")
    texts = await results(
        board,
        ("read_file", {"path": "../secret"}),
        ("read_file", {"path": "link"}),
        ("write_file", {"path": "link", "text": "x"}),
        ("write_file", {"path": ".git/hooks/post-checkout", "text": "x"}),
        ("write_file", {"path": "dugnad.toml", "text": "x"}),
        ("edit_file", {"path": "x", "old": "2", "new": "3"}),
        ("grep", {"pattern": "(", "path": "x"}),
        ("glob", {"pattern": "../*"}),
        ("list_dir", {"path": "/"}),
        ("read_file", {"path": "x", "first_line": "many"}),
        tools=file_tools(Files(root)),
    )
    assert all(text.startswith("Error: ") for text in texts)
    assert not any("secret" in text.replace("../secret", "") for text in texts)
    assert (root.parent / "secret").read_text() == "secret"
    assert Files(root).list_dir().split() == ["link", "->", "../secret", "x", "1", "byte"]


async def test_what_somebody_else_wrote_meanwhile_is_not_overwritten(board: Board, root: Path) -> None:
    """Two teammates in one tree, each with its own eyes."""
    (root / "plan.md").write_text("1. Begin\n")
    mine, hers = Files(root), Files(root)
    await results(board, ("read_file", {"path": "plan.md"}), tools=file_tools(mine), name="alice")
    await results(
        board,
        ("edit_file", {"path": "plan.md", "old": "Begin", "new": "Begin well"}),
        tools=file_tools(hers),
        name="bob",
    )
    (text,) = await results(
        board, ("write_file", {"path": "plan.md", "text": "1. Begin\n2. End\n"}), tools=file_tools(mine), name="carol"
    )
    assert text.startswith("Error: plan.md has changed since you read it")
    assert (root / "plan.md").read_text() == "1. Begin well\n"


def test_reading_may_be_done_side_by_side_and_again_and_writing_may_not(root: Path) -> None:
    tools = {tool.name: tool for tool in file_tools(Files(root))}
    assert list(tools) == NAMES
    for name, tool in tools.items():
        reads = name not in ("write_file", "edit_file")
        assert (tool.safe, tool.keyed, tool.early, tool.own) == (reads, reads, reads, False), name


def test_the_model_is_told_what_every_argument_means(root: Path) -> None:
    for tool in file_tools(Files(root)):
        assert tool.spec.description
        for name, told in tool.spec.schema["properties"].items():
            assert told.get("description"), f"{tool.name}: {name}"


async def test_before_its_plan_is_approved_a_teammate_may_read_and_not_write(board: Board, root: Path) -> None:
    (root / "x").write_text("1\n")
    asked = [("read_file", {"path": "x"}), ("write_file", {"path": "x", "text": "2"})]
    stage = await set_stage(board, [calls(*asked), END], tools=file_tools(Files(root)), member={"plan": True})
    await stage.run()
    told = all_told(stage.model.asked[1])
    assert "     1\t1" in told
    assert "write_file has to wait: until your plan is approved you may only read" in told
    assert (root / "x").read_text() == "1\n"


async def test_a_whole_team_can_have_them(folder: Path, root: Path) -> None:
    model = ScriptedModel({"Write it": [call("write_file", path="it.txt", text="done\n"), END]})
    async with Team.open(f"sqlite:///{folder}/board.db", model=model, tools=file_tools(Files(root))) as team:
        await team.spawn("alice")
        await team.put("Write it")
        await team.run()
    assert (root / "it.txt").read_text() == "done\n"


async def test_edits_of_a_list_are_all_made_or_none(board: Board, root: Path) -> None:
    (root / "x").write_text("a\nb\nc\nc\n")
    good = [{"old": "a", "new": "A"}, {"old": "A\nb", "new": "A\nB"}, {"old": "c", "new": "C", "every": True}]
    bad = [{"old": "A", "new": "1"}, {"old": "b", "new": "2"}]
    texts = await results(
        board,
        ("edit_file", {"path": "x", "edits": good}),
        ("edit_file", {"path": "x", "edits": bad}),
        ("edit_file", {"path": "x", "edits": []}),
        ("edit_file", {"path": "x", "edits": [{"old": "A"}]}),
        ("edit_file", {"path": "x", "edits": [{"old": "A", "new": "1", "once": True}]}),
        tools=file_tools(Files(root)),
    )
    assert texts[0] == "Changed x in 4 places, at lines 1, 3, 4."
    assert texts[1].startswith("Error: Edit 2 of 2 cannot be made, so none was made. The old text is not in x")
    assert all(text.startswith("Error: ") for text in texts[2:])
    assert (root / "x").read_text() == "A\nB\nC\nC\n"


def test_an_edit_of_an_earlier_version_is_accepted_and_not_offered(root: Path) -> None:
    (edit,) = [tool for tool in file_tools(Files(root)) if tool.name == "edit_file"]
    assert set(edit.spec.schema["properties"]) == {"path", "edits"}
    assert edit.check('{"path": "x", "old": "a", "new": "b"}') == {"path": "x", "edits": (), "old": "a", "new": "b"}
