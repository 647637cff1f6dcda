"""Claude Code, Codex and opencode as clients of `dugnad mcp`: each takes tasks from the board and works on them."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.models.provider_server import ProviderServer
from tests.real_agents.clients import Client, folder_of, holding
from tests.real_agents.programs import NAMES, elsewhere
from tests.real_agents.puppet import Heard, Puppet, Run, Say, Step, Use, Write
from tests.real_agents.stage import desk
from tests.workspace.repository import git


def play(heard: Heard) -> Generator[Step, str, None]:
    """A red check, a question to the human, a green check, a follow-up, which it works on too."""
    said = yield Use("next_task", {})
    claim = holding(said)
    yield Write(f"{folder_of(said)}/greeting.txt", "good day\n")
    said = yield Use("finish", {**claim, "how": "done", "result": "It is written."})
    assert "the check is red" in said, said
    yield Use("progress", {**claim, "text": "Mending it."})
    said = yield Use("ask_human", {**claim, "question": "In which language?"})
    assert "waits for a person" in said, said
    said = yield Use("next_task", {})
    assert "In English" in said, said
    claim = holding(said)
    yield Run(f"echo hello > {folder_of(said)}/greeting.txt")
    yield Use("add_task", {**claim, "title": "Thank the reader"})
    said = yield Use("finish", {**claim, "how": "done", "result": "It says hello."})
    assert "is over" in said, said
    said = yield Use("next_task", {})
    yield Use("finish", {**holding(said), "how": "done", "result": "Thanks were said."})
    yield Say("Everything is done.")


@pytest.mark.parametrize("name", NAMES)
async def test_it_works_its_tasks_from_claim_to_merge(name: str, folder: Path) -> None:
    at = desk(folder)
    await at.says("add", "Write a greeting")
    async with ProviderServer(puppet := Puppet(play)) as server, elsewhere() as others:
        client = Client(name, at, server.url, others.environment)
        running = asyncio.create_task(client.run())
        ran = await at.answered(running, "In which language?", "In English")
    assert (ran.code, puppet.wrong) == (0, ""), ran
    assert "Everything is done." in ran.output, ran
    tasks = (await at.json("tasks", "--all"))["tasks"]
    assert {each["title"]: (each["state"], each["teammate"]) for each in tasks} == {
        "Write a greeting": ("done", name), "Thank the reader": ("done", name),
    }  # fmt: skip
    assert git(at.root, "show", "dugnad/main:greeting.txt") == "hello"
    assert others.asked == []
