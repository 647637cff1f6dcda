"""What a session asks its client for: permissions, by policy or by a person, and forms for a person."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dugnad.board import Board
from dugnad.team import requests
from dugnad.types import Done, Waiting
from dugnad.workspace.sandbox.sandbox import Sandbox
from tests.agent.acp_agent import acp_agent, heard, script
from tests.agent.test_acp import USAGE, stage_of


@pytest.mark.parametrize(
    ("options", "allowed", "denied"),
    [
        (["allow_always", "allow_once", "reject_once"], "its-allow_once", "its-reject_once"),
        (["allow_always", "reject_always"], "its-allow_always", "its-reject_always"),
        ([], None, None),
    ],
)
async def test_a_permission_is_answered_by_the_policy_for_the_kind_of_tool(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path, options: list[str], allowed: str | None,
    denied: str | None,
) -> None:  # fmt: skip
    script(tree, {"do": [["permission", "edit", "x.py", {}, options], ["permission", "execute", "rm", {}, options],
                         ["permission", "new_kind", "?", {}, options], ["say", "Done."]]})  # fmt: skip
    stage = await stage_of(board, sandbox, tree, acp_agent(folder), policy={"acp__execute": "deny"})
    assert await stage.run() == Done("Done.")
    chosen = [each["answer"]["outcome"].get("optionId") for each in heard(tree, "answer")]
    assert chosen == [allowed, denied, allowed]


@pytest.mark.parametrize(("answer", "chosen"), [("yes", "its-allow_once"), ("no, not that", "its-reject_once")])
async def test_a_permission_that_a_person_decides_ends_the_run_and_the_next_one_has_the_answer(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path, answer: str, chosen: str
) -> None:
    asks = ["permission", "execute", "rm -rf build", {"command": "rm -rf build"}]
    script(tree, {"do": [["say", "I clean up."], asks, ["hang"]], "usage": USAGE}, {"do": [asks, ["say", "Done."]]})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder), policy={"acp__execute": "ask"})
    outcome = await stage.run()
    assert isinstance(outcome, Waiting)
    assert outcome.question is not None
    assert "May alice run acp__execute for #1" in outcome.question
    assert "> rm -rf build" in outcome.question
    # It is cancelled before it is answered: with an answer it would ask its model again, and not count that.
    assert [each["what"] for each in heard(tree)][-2:] == ["cancel", "answer"]
    assert (await board.budget(1)).spent.tokens == 370
    await requests.answer(board, "1", answer)
    assert await stage.go_on() == Done("Done.")
    first, second = (each["answer"]["outcome"] for each in heard(tree, "answer"))
    assert (first, second) == ({"outcome": "cancelled"}, {"outcome": "selected", "optionId": chosen})
    told = heard(tree, "prompt")[1]["text"]
    assert f"> {answer}" in told
    assert "Your last run ended because you asked" in told


async def test_always_covers_further_calls_of_that_kind_and_no_others(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"do": [["permission", "execute", "make", {}], ["hang"]]},
           {"do": [["permission", "execute", "make", {}], ["permission", "execute", "make test", {}],
                   ["permission", "fetch", "https://x", {}], ["hang"]]})  # fmt: skip
    rules = {"acp__execute": "ask", "acp__fetch": "ask"}
    stage = await stage_of(board, sandbox, tree, acp_agent(folder), policy=rules)
    await stage.run()
    await requests.answer(board, "1", "always")
    outcome = await stage.go_on()
    assert isinstance(outcome, Waiting)
    assert outcome.question is not None
    assert "May alice run acp__fetch" in outcome.question
    chosen = [each["answer"]["outcome"].get("optionId") for each in heard(tree, "answer")]
    assert chosen == [None, "its-allow_once", "its-allow_once", None]


async def test_a_permission_is_refused_if_nobody_may_be_asked(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"do": [["permission", "execute", "make", {}], ["elicit", "Which?", {}], ["say", "Done."]]})
    rules = {"acp__execute": "ask", "ask_human": "deny"}
    stage = await stage_of(board, sandbox, tree, acp_agent(folder), policy=rules)
    assert await stage.run() == Done("Done.")
    first, second = (each["answer"] for each in heard(tree, "answer"))
    assert (first["outcome"]["optionId"], second) == ("its-reject_once", {"action": "decline"})


@pytest.mark.parametrize(
    ("fields", "answer", "filled"),
    [
        ({"colour": {"type": "string", "enum": ["red", "blue"]}}, "Blue", {"colour": "blue"}),
        ({"c": {"type": "string", "oneOf": [{"const": "b", "title": "Sky blue"}]}}, "sky blue", {"c": "b"}),
        ({"colour": {"type": "string"}}, "Blue, please.", {"colour": "Blue, please."}),
        ({"colour": {"type": "string", "enum": ["red"]}}, "green", None),
        ({"size": {"type": "integer"}}, "7", None),
        ({"a": {"type": "string"}, "b": {"type": "string"}}, "x", None),
    ],
)
async def test_a_form_becomes_a_question_to_the_person(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path, fields: dict[str, Any], answer: str,
    filled: dict[str, str] | None,
) -> None:  # fmt: skip
    asks = ["elicit", "Which colour\nshould it be?", fields]
    script(tree, {"do": [asks, ["hang"]]}, {"do": [asks, ["say", "Done."]]})
    stage = await stage_of(board, sandbox, tree, acp_agent(folder))
    outcome = await stage.run()
    assert isinstance(outcome, Waiting)
    assert outcome.question is not None
    assert "> Which colour\n> should it be?" in outcome.question
    await requests.answer(board, "1", answer)
    assert await stage.go_on() == Done("Done.")
    first, second = (each["answer"] for each in heard(tree, "answer"))
    assert first == {"action": "cancel"}
    assert second == ({"action": "accept", "content": filled} if filled else {"action": "decline"})
    assert f"> {answer}" in heard(tree, "prompt")[1]["text"]
