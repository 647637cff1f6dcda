"""opencode, and Claude Code and Codex by their adapters, as minds over the Agent Client Protocol: `acp:NAME`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.models.provider_server import ProviderServer
from tests.real_agents.programs import BIN, NAMES, opencode_settings
from tests.real_agents.puppet import USAGE, Heard, Puppet, Run, Say, Step, Use, Write
from tests.real_agents.stage import desk
from tests.workspace.repository import git

TOKENS = USAGE.input + USAGE.output
# What each program says that one answer of the puppet costs. Codex does not say it.
DOLLARS = {"claude": 0.00348, "codex": 0.0, "opencode": 0.0009}


def table(name: str, url: str) -> str:
    """[acp.NAME] of a user with a gateway on this machine; everything else is the preset's."""
    service = f'[acp.{name}]\nservices = ["{url.removeprefix("http://")}"]\n'
    if name == "claude":
        program = (BIN / "claude").resolve()
        return f'{service}environment = {{ ANTHROPIC_BASE_URL = "{url}", CLAUDE_CODE_EXECUTABLE = "{program}" }}\n'
    if name == "opencode":
        return f"{service}environment = {{ OPENCODE_CONFIG_CONTENT = '''{opencode_settings(url)}''' }}\n"
    gateway = {"name": "gateway", "base_url": f"{url}/v1", "wire_api": "responses", "env_key": "CODEX_API_KEY"}
    settings = {
        "model_providers": {"gateway": gateway},
        "features": {"plugins": False},
        "analytics": {"enabled": False},
    }
    return f"{service}environment = {{ CODEX_CONFIG = '''{json.dumps(settings)}''', MODEL_PROVIDER = \"gateway\" }}\n"


def play(heard: Heard) -> Generator[Step, str, None]:
    """A red check, a note and a question by our own MCP server, then a green check and a follow-up."""
    if "Your task is #2" in heard.prompt:
        yield Say("Thanks were said.")
    elif "In English" in heard.prompt:
        yield Run("echo hello > greeting.txt")
        yield Use("add_tasks", {"tasks": [{"title": "Thank the reader"}]})
        yield Say("It says hello.")
    elif "Not done: the check is red" in heard.prompt:
        yield Use("note", {"title": "A red check", "text": "It wants hello."})
        yield Use("ask_human", {"question": "In which language?"})
        yield Say("I wait.")
    yield Write("greeting.txt", "good day\n")
    yield Say("It is written.")


@pytest.mark.parametrize("name", NAMES)
async def test_a_session_survives_a_red_check_asks_the_human_and_follows_up(name: str, folder: Path) -> None:
    at = desk(folder)
    async with ProviderServer(puppet := Puppet(play)) as server:
        at.write(table(name, server.url))
        await at.says("add", "Write a greeting")
        running = asyncio.create_task(at.json("run", "--model", f"acp:{name}", "--agents", "1"))
        ended = await at.answered(running, "In which language?", "In English")
    assert puppet.wrong == ""
    assert [(task["title"], task["state"]) for task in ended["tasks"]] == [
        ("Write a greeting", "done"), ("Thank the reader", "done"),
    ]  # fmt: skip
    assert git(at.root, "show", "dugnad/main:greeting.txt") == "hello"
    assert "It wants hello." in await at.says("notes")
    # Each answer is counted. But opencode tells only the tokens of its last answer, so they do not count, and no cost
    # of an answer whose calls have not ended: here the one with the question.
    answers = puppet.answers - (name == "opencode")
    assert ended["spent"]["tokens"] == (0 if name == "opencode" else answers * TOKENS)
    assert ended["spent"]["dollars"] == pytest.approx(answers * DOLLARS[name], abs=2e-6 * answers)
