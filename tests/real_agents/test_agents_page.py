"""Every command of docs/agents.md, run as it stands there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.models.provider_server import ProviderServer
from tests.real_agents import test_acp
from tests.real_agents.clients import holding
from tests.real_agents.programs import ROOT, Program, ended
from tests.real_agents.puppet import Heard, Puppet, Say, Step, Use
from tests.real_agents.stage import desk, table

PAGE = (ROOT / "docs" / "agents.md").read_text()
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
FILE = '{"mcpServers": {"dugnad": {"command": "dugnad", "args": ["mcp"]}}}'
SERVER = '"mcp": {"dugnad": {"type": "local", "command": ["dugnad", "mcp"]}}'


def play(heard: Heard) -> Generator[Step, str, None]:
    said = yield Use("next_task", {})
    yield Use("finish", {**holding(said), "how": "done", "result": "A greeting was said."})
    yield Say("It is done.")


def say(heard: Heard) -> Generator[Step, str, None]:
    yield Say("A greeting was said.")


def test_the_page_has_a_command_for_each_way() -> None:
    assert [line.split()[0] for line in COMMANDS] == ["claude", "codex", "opencode", "dugnad", "dugnad"]
    assert FILE in PAGE
    assert SERVER in PAGE


@pytest.mark.parametrize("line", COMMANDS, ids=lambda line: "-".join(line.split()[:2]))
async def test_a_command_of_the_page_ends_a_task(line: str, folder: Path) -> None:
    at = desk(folder)
    name = line.split(maxsplit=1)[0]
    async with ProviderServer(Puppet(say if name == "dugnad" else play)) as server:
        if name == "dugnad":
            at.write(table("claude", server.url) + test_acp.table("opencode", server.url))
            environment = at.environment()
        else:
            await at.says("add", "Write a greeting")
            environment = Program(name, at.home, server.url).environment
            (at.root / "mcp.json").write_text(FILE)
            place = at.home / ".config" / "opencode" / "opencode.json"
            if place.exists():
                place.write_text(place.read_text().replace("{", f"{{{SERVER}, ", 1))
            if name == "codex":  # As the page says of variables that are set.
                line = line.replace(' "Call', """ -c 'mcp_servers.dugnad.env_vars=["XDG_STATE_HOME"]' "Call""")
        process = await asyncio.create_subprocess_shell(
            line, cwd=at.root, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        ran = await ended(process)
    assert ran.code == 0, ran
    (task,) = (await at.json("tasks", "--all"))["tasks"]
    assert (task["title"], task["state"]) == ("Write a greeting", "done"), ran
