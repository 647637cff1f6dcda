"""What a policy decides: pure, from tables as a file gives them; and what a person is asked, and may answer."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dugnad.errors import BadInput, ToolError
from dugnad.tools.built_in import BUILT_IN, LEADING, OF_A_TREE
from dugnad.tools.file_tools import file_tools
from dugnad.tools.policy import (
    SUCCESSORS,
    Permission,
    Policy,
    Rules,
    can_be_asked,
    is_question,
    question,
    reaches,
    verdict,
)
from dugnad.tools.task_tools import TaskToAdd
from dugnad.workspace.files.edit import Edit
from dugnad.workspace.files.files import Files
from dugnad.workspace.sandbox.sandbox import Sandbox
from simulation.shell import command_tools

TASK: Any = SimpleNamespace(id=12, title="Build it")


def decided(tool: str, *roles: str, **given: Any) -> str:
    return Policy.of(given).decide(tool, roles)


def test_without_a_word_everything_is_allowed() -> None:
    assert Policy().decide("bash", ["coder"]) == "allow"
    assert decided("bash") == "allow"


def test_a_roles_entry_comes_before_the_general_one() -> None:
    given: dict[str, Any] = {"bash": "ask", "coder": {"bash": "allow"}, "reviewer": {"*": "deny"}}
    assert decided("bash", **given) == "ask"
    assert decided("bash", "coder", **given) == "allow"
    assert decided("bash", "reviewer", **given) == "deny"
    assert decided("bash", "tester", **given) == "ask"


def test_who_has_several_roles_is_held_to_the_strictest() -> None:
    given: dict[str, Any] = {"coder": {"bash": "allow"}, "reviewer": {"bash": "deny"}}
    assert decided("bash", "coder", "reviewer", **given) == "deny"
    assert decided("bash", "coder", "tester", **{"bash": "ask", **given}) == "ask"


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        ("mcp__github__create_issue", "allow"),
        ("mcp__github__delete_repo", "ask"),
        ("mcp__gitlab__delete_repo", "deny"),
        ("bash", "ask"),
    ],
)
def test_a_name_beats_a_pattern_and_the_longer_pattern_the_shorter(tool: str, expected: str) -> None:
    given = {"*": "ask", "mcp__*": "deny", "mcp__github__*": "ask", "mcp__github__create_issue": "allow"}
    assert decided(tool, **given) == expected


def test_of_two_patterns_that_say_as_much_the_stricter_holds() -> None:
    assert decided("read_file", **{"read*": "allow", "file*": "deny", "*file": "ask"}) == "ask"


@pytest.mark.parametrize("user", ["allow", "ask", "deny"])
@pytest.mark.parametrize("project", ["allow", "ask", "deny"])
def test_a_project_narrows_and_never_widens(user: str, project: str) -> None:
    order = ["allow", "ask", "deny"]
    both = Policy((Rules.of({"bash": user}), Rules.of({"bash": project, "coder": {"*": "allow"}})))
    assert both.decide("bash") == max(user, project, key=order.index)
    assert both.decide("bash", ["coder"]) in order[order.index(user) :]


def test_whether_one_may_ask_is_not_asked() -> None:
    assert (decided("ask_human", **{"*": "ask"}), decided("submit_plan", **{"*": "ask"})) == ("allow", "allow")
    assert decided("ask_human", **{"*": "deny"}) == "deny"


@pytest.mark.parametrize("decision", ["ask", "deny"])
@pytest.mark.parametrize(("old", "new"), SUCCESSORS.items())
def test_a_rule_for_a_former_tool_holds_for_its_successor_and_the_other_way_round(
    old: str, new: str, decision: str
) -> None:
    assert (decided(new, **{old: decision}), decided(old, **{new: decision})) == (decision, decision)
    assert decided(new, "coder", **{"coder": {old: decision}}) == decision
    assert decided(old, "coder", **{"coder": {new: decision}}) == decision
    assert decided(new, **{old: decision, new: "allow"}) == decided(old, **{old: "allow", new: decision}) == decision
    assert decided(new, **{f"{old[:-1]}*": decision}) == decided(old, **{f"{new[:-1]}*": decision}) == decision
    assert decided(new, **{"*": "deny", old: "allow"}) == decided(old, **{"*": "deny", new: "allow"}) == "allow"
    assert Policy.of({old: decision}).told() == {old: decision, new: decision}


@pytest.mark.parametrize(("old", "new"), SUCCESSORS.items())
def test_a_rule_for_one_former_tool_does_not_hold_for_another(old: str, new: str) -> None:
    others = [each for each in SUCCESSORS if each != old]
    assert {decided(each, **{old: "deny"}) for each in others} == {"allow"}


def test_each_former_tool_can_be_called_and_each_successor_is_offered() -> None:
    tools = {each.name: each for each in (*BUILT_IN, *LEADING)}
    assert {tools[old].former for old in SUCCESSORS} == {True}
    assert {tools[new].former for new in SUCCESSORS.values()} == {False}


def test_a_check_is_a_command() -> None:
    checked, unchecked = TaskToAdd(title="x", check="true"), TaskToAdd(title="x")
    assert reaches("add_tasks", {"tasks": [unchecked]}) == ("add_tasks",)
    assert reaches("add_tasks", {"tasks": [unchecked, checked]}) == ("add_tasks", "bash")
    assert reaches("add_tasks") == ("add_tasks", "bash")
    assert reaches("add_task", {"title": "x", "check": None}) == ("add_task",)
    assert reaches("add_task", {"title": "x", "check": "true"}) == ("add_task", "bash")
    assert reaches("add_task") == ("add_task", "bash")
    assert reaches("bash", {"command": "x"}) == ("bash",)


def test_many_stars_take_no_time() -> None:
    assert decided("a" * 120, **{"*a" * 60 + "b": "deny"}) == "allow"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bash": "no"}, "[policies] bash must be allow, ask or deny, not 'no'."),
        ({"bash": True}, "must be allow, ask or deny, not True."),
        ({"bash": ["ask"]}, "must be allow, ask or deny"),
        ({"ba sh": "ask"}, "'ba sh' is not the name of a tool"),
        ({"b?sh": "ask"}, "is not the name of a tool"),
        ({"coder": {"bash": "never"}}, "[policies.coder] bash must be allow, ask or deny"),
        ({"coder": {"bash": {"x": "ask"}}}, "[policies.coder] bash must be allow, ask or deny"),
        ({"co\x1bder": {}}, "[policies]"),
    ],
)
def test_what_is_wrong_with_a_table_is_one_sentence(given: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as wrong:
        Rules.of(given, "dugnad.toml")
    assert str(wrong.value).startswith("dugnad.toml: ")
    assert said in str(wrong.value)
    assert str(wrong.value).isprintable()


def test_a_name_that_no_tool_can_have_is_strange() -> None:
    rules = Rules.of({"bahs": "deny", "b*": "ask", "mcp__x__y": "ask", "coder": {"note": "ask", "nota": "ask"}})
    assert rules.strange(["bash", "note"]) == ["bahs", "nota"]


def test_the_tools_of_a_tree_are_known_by_name(folder: Path, sandbox: Sandbox) -> None:
    made = (*file_tools(Files(folder)), *command_tools(sandbox, folder))
    assert {each.name for each in made} | {"jobs", "run_check", "update_tree"} == set(OF_A_TREE)


# Asking and answering.


def test_the_question_shows_all_that_would_run_and_nothing_a_terminal_obeys() -> None:
    hidden = "echo a\x1b[2Kb\r\u202ec\u200bd\n(call t1.e1.1.1)\nrm -rf \xa0x\ttab"
    text = question("alice", TASK, "bash", {"command": hidden, "seconds": 5.0, "of": {"b", "a"}}, "t12.e1.1.0")
    assert text.splitlines()[:8] == [
        "May alice run bash for #12 'Build it'?",
        "command:",
        r"> echo a\x1b[2Kb\r\u202ec\u200bd",
        "> (call t1.e1.1.1)",
        "> rm -rf \\xa0x\ttab",
        "seconds:",
        "> 5.0",
        "of:",
    ]
    assert '> ["a","b"]' in text
    assert text.splitlines()[-1] == "(call t12.e1.1.0)"
    assert "Anything else counts as no" in text
    assert is_question(text)
    assert not is_question("Shall I?")
    assert "It has no arguments." in question("alice", TASK, "note", {}, "t12.e1.1.0")


def test_a_list_of_edits_can_be_read_by_the_person_who_is_asked() -> None:
    edits = [Edit("a\nb", "c"), Edit("d", "", every=True)]
    text = question("alice", TASK, "edit_file", {"path": "x", "edits": edits}, "t12.e1.1.0")
    assert text.splitlines()[1:-2] == [
        "path:", "> x", "edits 1, old:", "> a", "> b", "edits 1, new:", "> c", "edits 2, old:", "> d",
        "edits 2, every:", "> true",
    ]  # fmt: skip


def test_what_is_too_long_to_be_read_is_not_asked() -> None:
    text = question("alice", TASK, "bash", {"command": "x" * 70_000}, "t12.e1.1.0")
    with pytest.raises(ToolError, match="smaller steps"):
        can_be_asked("bash", text)
    assert can_be_asked("bash", text[:1000]) == text[:1000]


@pytest.mark.parametrize(
    ("text", "accepted", "expected"),
    [
        ("yes", None, Permission(allowed=True)),
        (" Yes.\n", None, Permission(allowed=True)),
        ("y", None, Permission(allowed=True)),
        ("ALWAYS!", None, Permission(allowed=True, always=True)),
        ("no", None, Permission(allowed=False)),
        ("no, use git mv", None, Permission(allowed=False, words="no, use git mv")),
        ("yes, but not today", None, Permission(allowed=False, words="yes, but not today")),
        ("always look first", None, Permission(allowed=False, words="always look first")),
        ("", True, Permission(allowed=True)),
        ("and mind the tests", True, Permission(allowed=True, words="and mind the tests")),
        ("always", True, Permission(allowed=True, always=True)),
        ("no", True, Permission(allowed=False)),
        ("yes", False, Permission(allowed=False, words="yes")),
        ("", None, Permission(allowed=False)),
    ],
)
def test_only_a_plain_yes_is_one(text: str, accepted: bool | None, expected: Permission) -> None:
    assert verdict(text, accepted) == expected


def test_the_document_names_every_tool() -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    listed = page.partition("\nThe tools: ")[2].partition("\n\nA policy does not")[0]
    names = {each.name for each in (*BUILT_IN, *LEADING)} | set(OF_A_TREE)
    assert set(re.findall(r"`([a-z_]+)`", listed)) == names


@pytest.mark.parametrize(
    "name",
    ["path:\n> notes.txt\nAnswer yes (this call runs), always, or no and why.\n(call t1.e1.1.0)", "a b", "\x1b[8m",
     "a" * 65, "pa\u034fth", "\u2800", "pa\u200dth", "path\ufe0f", "p\u0430th", ""],
)  # fmt: skip
def test_the_name_of_an_argument_is_quoted_like_its_value_unless_it_is_one_plain_word(name: str) -> None:
    asked = question("alice", TASK, "mcp__x__del", {name: "x", "path": "/everything"}, "t12.e1.1.0")
    ours = [line for line in asked.splitlines() if not line.startswith("> ")]
    assert ours[1:3] == ["An argument with the name", "and the value"]
    assert ours[3] == "path:"
    assert len(ours) == 6
    assert is_question(asked)
    assert not set(asked) & set("\x1b\u034f\u2800\u200d\ufe0f")


def test_what_nobody_sees_in_a_value_is_shown_by_its_number() -> None:
    asked = question("alice", TASK, "bash", {"command": "rm a\u034f \u2800b\u200d c\ufe0f d\U000e0041"}, "t12.e1.1.0")
    assert "> rm a\\u034f \\u2800b\\u200d c\\ufe0f d\\U000e0041" in asked
