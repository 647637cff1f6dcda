"""Prompts are files of the package: how they are read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dugnad.agent.conversation import GUARD, NOT_GRANTED
from dugnad.prompts import load, tell, tool_prompt
from dugnad.team.workspaces.worktrees import Worktree
from dugnad.tools.built_in import BUILT_IN, LEADING
from dugnad.tools.file_tools import file_tools
from dugnad.tools.finish_tools import review_finish
from dugnad.tools.shell.bash import ShellTools
from dugnad.tools.tool import Tool
from dugnad.workspace.files.files import Files

NAMES = sorted(each.name.removesuffix(".md") for each in files("dugnad.prompts").iterdir() if each.name.endswith(".md"))


def test_lines_are_joined_and_a_backslash_keeps_a_line_break() -> None:
    shown = load("tools")["add_tasks"].partition("\n\n")[0]
    assert "\n" not in shown
    assert "They belong to this goal and share its budget. A task equal to one on the board" in shown
    items = load("teammate")["rules"].splitlines()
    assert [item for item in items if item and not item.startswith("- ")] == items[:1]
    assert load("teammate")["consult"].count("\n\n") == 1
    assert tell("packet.body", by="alice", body="One.\nTwo.") == (
        "What is to be done, in the words of alice:\n> One.\n> Two."
    )


def test_what_is_for_engineers_is_no_prompt() -> None:
    assert not [text for text in load("packet").values() if "first thing a teammate reads" in text]


def test_there_is_no_prompt_of_another_name() -> None:
    with pytest.raises(KeyError):
        tell("packet.nothing")
    with pytest.raises(KeyError):
        tell("packet.task", id=1)  # Its title is missing.
    with pytest.raises(FileNotFoundError):
        tell("nothing.task")


@pytest.mark.parametrize("file", NAMES)
def test_a_prompt_begins_and_ends_with_words(file: str) -> None:
    for name, text in load(file).items():
        assert text, name
        assert text == text.strip(), name
        assert "\\" not in text, name


def built_in(folder: Path) -> list[Tool]:
    sandbox: Any = SimpleNamespace(limits=SimpleNamespace(streamed_bytes_max=1))
    claim: Any = SimpleNamespace(task=SimpleNamespace(id=1))
    shell = ShellTools(sandbox, folder, claim=claim, board=sandbox, outputs=folder)
    return [*BUILT_IN, *LEADING, review_finish, *file_tools(Files(folder)), *shell.tools]


def described(schema: Mapping[str, Any], of: str = "") -> Iterator[tuple[str, str]]:
    for name, told in schema.get("properties", {}).items():
        yield f"{of}{name}", told["description"]
        yield from described(told.get("items", {}), f"{of}{name}.")


def test_each_built_in_tool_is_described_with_each_of_its_arguments(tmp_path: Path) -> None:
    tree = object.__new__(Worktree)
    of_trees = (Tool(tree.run_check, prompt="run_check"), Tool(tree.update_tree, prompt="update_tree"))
    tools = {each.prompt: each for each in (*built_in(tmp_path), *of_trees) if not each.former}
    assert tools.keys() == load("tools").keys()
    for name, each in tools.items():
        assert name is not None
        description, arguments = tool_prompt(name)
        assert each.spec.description == description
        assert dict(described(each.spec.schema)) == arguments, name


@pytest.mark.parametrize("file", NAMES)
def test_a_line_can_be_read_without_scrolling(file: str) -> None:
    lines = files("dugnad.prompts").joinpath(f"{file}.md").read_text("utf-8").splitlines()
    assert [line for line in lines if len(line) > 120] == []


def test_help_reads_no_prompts() -> None:
    asked = "import sys; from dugnad.cli import main\ntry: main()\nfinally: print('dugnad.prompts' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", asked, "--help"], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "False"


def test_what_was_not_granted_begins_as_recorded_transcripts_have_it() -> None:
    results = load("results")
    begins = {
        "guard": GUARD,
        "refused": NOT_GRANTED[2],
        "refused_because": NOT_GRANTED[2],
        "refused_with": NOT_GRANTED[2],
    }
    begins |= {"not_done": NOT_GRANTED[0], "too_slow": NOT_GRANTED[0]}
    assert {name: results[name].startswith(word) for name, word in begins.items()} == dict.fromkeys(begins, True)
