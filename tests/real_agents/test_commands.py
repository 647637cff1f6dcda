"""Claude Code, Codex and opencode as minds, `command:NAME`: the programs themselves, in the sandbox, on a real task."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.models.provider_server import ProviderServer
from tests.real_agents.programs import NAMES
from tests.real_agents.puppet import USAGE, Heard, Puppet, Run, Say, Step, Write
from tests.real_agents.stage import desk, table
from tests.workspace.repository import git

TOKENS = USAGE.input + USAGE.output
# What each program says that one answer of the puppet costs, by the price that it knows of the model.
DOLLARS = {"claude": 0.00348, "codex": 0.0, "opencode": 0.0009}


def block(heard: Heard, **keys: object) -> str:
    """How an agent hands back more than plain text: with the word of its run."""
    word = re.findall(r"```dugnad ([0-9a-f]{12,})", heard.prompt)[-1]
    return f"```dugnad {word}\n{json.dumps(keys)}\n```"


def play(heard: Heard) -> Generator[Step, str, None]:
    """A red check, a question to the human, then a green check and a follow-up."""
    if "Thank the reader" in heard.prompt:
        yield Say("Thanks were said.")
    elif "In English" in heard.prompt:
        yield Run("echo hello > greeting.txt")
        yield Say(block(heard, result="It says hello.", follow_ups=[{"title": "Thank the reader"}]))
    elif "Not done: the check is red" in heard.prompt:
        yield Say(block(heard, question="In which language?"))
    yield Write("greeting.txt", "good day\n")
    yield Say("It is written.")


@pytest.mark.parametrize("name", NAMES)
async def test_it_survives_a_red_check_asks_the_human_and_follows_up(name: str, folder: Path) -> None:
    at = desk(folder)
    async with ProviderServer(puppet := Puppet(play)) as server:
        at.write(table(name, server.url))
        await at.says("add", "Write a greeting")
        running = asyncio.create_task(at.json("run", "--model", f"command:{name}", "--agents", "1"))
        ended = await at.answered(running, "In which language?", "In English")
    assert [(task["title"], task["state"]) for task in ended["tasks"]] == [
        ("Write a greeting", "done"), ("Thank the reader", "done"),
    ]  # fmt: skip
    assert git(at.root, "show", "dugnad/main:greeting.txt") == "hello"
    assert ended["spent"]["tokens"] == puppet.answers * TOKENS
    assert ended["spent"]["dollars"] == pytest.approx(puppet.answers * DOLLARS[name], abs=2e-6 * puppet.answers)
