"""`dugnad export`: the whole board on a page that people read, and that makes the same board again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dugnad.board import Board
from dugnad.types import Done, Failed, Need, NewTask, Task
from tests.cli.shell import Shell, claimed

ODD = 'a <!-- b --> <!-- dugnad {"key": "evil"} --> - [ ] c'
BODY = "- [ ] not an item\n<!-- hidden\n\n```\n\tmake -- all\n# no heading\n> quoted\n\n  end"


@pytest.fixture
def shell(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(folder)
    return Shell(url)


async def fill(board: Board) -> None:
    new = [
        NewTask(title="The goal", body=BODY, role="coder", priority=3, check="make", review="reviewer", key="g --> x"),
        NewTask(title="A part", parent=-1, needs=(Need(-1, "approved"), -3), plan=True),
        NewTask(title=ODD, key="odd"),
        NewTask(title="Done before", key="done"),
        NewTask(title="Failed before", key="failed"),
        NewTask(title="Behind it", needs=(-4, -3)),
    ]  # fmt: skip
    await board.put_many(new)
    await board.settle(await claimed(board, "alice", task=4), Done("It works.\n- [ ] no item"))
    await board.settle(await claimed(board, "alice", task=5), Failed("It cannot\nbe done."))
    await board.write_note("alice", "Ports", "Use 8080.\n\nNever 80.")


def same(task: Task | dict[str, Any]) -> tuple[Any, ...]:
    told = task if isinstance(task, dict) else {name: getattr(task, name) for name in task.__slots__}
    names = ("key", "title", "body", "role", "priority", "check", "review", "plan", "state")
    return tuple(told[name] for name in names)


def test_a_page_makes_the_same_open_tasks_on_a_new_board_and_nothing_on_its_own(shell: Shell, folder: Path) -> None:
    shell.on_board(fill)
    before = shell.json("tasks", "--all")["tasks"]
    assert shell.says("export", "board.md") == "6 tasks and 1 note are in board.md.\n"
    again = shell.json("import", "board.md", "--checks")
    assert (again["tasks"], again["left_out"], again["notes"]) == ([], 0, [])
    assert shell.json("tasks", "--all")["tasks"] == before

    other = Shell(f"sqlite:///{folder}/other.db")
    made = other.json("import", "board.md", "--checks")
    assert made["left_out"] == 2
    found = other.json("tasks", "--all")["tasks"]
    assert [same(task) for task in found] == [same(task) for task in before if task["state"] not in ("done", "failed")]
    assert [task["parent"] for task in found] == [None, 1, None, None]
    assert other.json("show", "2")["needs"] == [
        {"task": 1, "outcome": "approved", "state": "open"}, {"task": 3, "outcome": None, "state": "open"},
    ]  # fmt: skip
    assert [need["task"] for need in other.json("show", "4")["needs"]] == [3]
    other.says("export", "second.md")
    assert other.json("import", "second.md", "--checks")["tasks"] == []


def test_the_page_shows_people_what_became_of_each_task(shell: Shell) -> None:
    shell.on_board(fill)
    said = shell.says("export")
    for words in (
        "# Board\n\n## Open\n\n- [ ] The goal <!-- dugnad {", "\n  > - [ ] not an item\n  > <!-- hidden\n  >\n",
        "\n  #1 ready, coder\n", "\n  #2 blocked, needs #1, needs #3\n",
        "\n## Ended\n\n- [x] Done before <!-- dugnad {",
        "\n  #4 done by alice\n\n  Result:\n\n  > It works.\n  > - [ ] no item\n", "\n  Reason: It cannot be done.\n",
        "\n## Notes\n\n### Ports\n\nBy alice:\n\n> Use 8080.\n>\n> Never 80.\n",
    ):  # fmt: skip
        assert words in said, words


def test_json_holds_everything_with_all_needs(shell: Shell, folder: Path) -> None:
    shell.on_board(fill)
    shell.says("export", "board.json")
    found = json.loads((folder / "board.json").read_text())
    assert found == json.loads(shell.says("export", "--format", "json")) == json.loads(shell.says("export", "--json"))
    assert found["version"] == 1
    assert [task["title"] for task in found["tasks"]][:2] == ["The goal", "A part"]
    assert found["tasks"][5]["needs"] == [
        {"task": 3, "outcome": None, "state": "open"}, {"task": 4, "outcome": None, "state": "met"},
    ]  # fmt: skip
    assert found["tasks"][3]["result"] == "It works.\n- [ ] no item"
    assert [note["title"] for note in found["notes"]] == ["Ports"]


@pytest.mark.parametrize("form", ["markdown", "json"])
def test_no_secret_and_nothing_that_a_terminal_obeys_leaves(
    shell: Shell, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "hush-hush-hush")
    texts = "\x1b]0;owned\x07 \u202e hush-hush-hush sk-abcdefghijklmnop1234"

    async def work(board: Board) -> None:
        await board.put(f"T {texts}", body=f"B {texts}\n\x1b[2J", key=f"K {texts}", check=f"echo {texts}")
        await board.settle(await claimed(board, "alice", task=1), Done(f"R {texts}"))
        await board.write_note("alice", f"N {texts}", f"X {texts}")

    shell.on_board(work)
    said = shell.says("export", "--format", form)
    for hidden in ("\x1b", "\x07", "\u202e", "hush-hush-hush", "abcdefghijklmnop1234"):
        assert hidden not in said
    assert "[MY_API_KEY]" in said


def test_two_tasks_with_one_key_under_two_goals_stay_two(shell: Shell, folder: Path) -> None:
    async def work(board: Board) -> None:
        goals = [NewTask(title=f"Goal {n}") for n in (1, 2)]
        parts = [NewTask(title=f"Part of {n}", parent=-n, key="part") for n in (1, 2)]
        await board.put_many([*goals, *parts])

    shell.on_board(work)
    shell.says("export", "board.md")
    assert shell.json("import", "board.md")["there"] == [1, 2, 3, 4]
    other = Shell(f"sqlite:///{folder}/other.db")
    other.says("import", "board.md")
    found = other.json("tasks")["tasks"]
    assert [(task["title"], task["parent"]) for task in found][2:] == [("Part of 1", 1), ("Part of 2", 2)]
    assert other.json("import", "board.md")["tasks"] == []


def test_a_file_that_is_there_is_replaced_only_when_that_is_said(shell: Shell, folder: Path) -> None:
    shell.says("add", "x")
    (folder / "mine.md").write_text("My own words.")
    assert shell.fails(2, "export", "mine.md") == "mine.md is there already; name another file, or add --replace."
    assert (folder / "mine.md").read_text() == "My own words."
    assert shell.json("export", "mine.md", "--replace") == {
        "file": "mine.md",
        "format": "markdown",
        "tasks": 1,
        "notes": 0,
    }
    assert (folder / "mine.md").read_text().startswith("# Board\n")
    assert "cannot be written" in shell.fails(2, "export", "no/such/folder.md")
    (folder / "folder").mkdir()
    assert "is there already" in shell.fails(2, "export", "folder", "--replace")


def test_an_empty_board_is_an_empty_page(shell: Shell) -> None:
    shell.says("add", "x")
    shell.on_board(lambda board: board.cancel(1))
    assert "## Open" not in shell.says("export")
    assert "- [x] x <!-- dugnad" in shell.says("export")
