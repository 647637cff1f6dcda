"""A real program that works the board over MCP, and what it reads in the answers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path

from tests.real_agents.programs import Program, Ran, ended
from tests.real_agents.stage import Desk

_HOLDS = re.compile(r"You hold task (\d+) with epoch (\d+)")
_FOLDER = re.compile(r"Work in this folder, and nowhere else: (\S+)")
PROMPT = "Call the tool next_task of the MCP server dugnad, and work for its team as it says."


def holding(said: str) -> dict[str, int]:
    found = _HOLDS.search(said)
    assert found, said
    return {"task": int(found[1]), "epoch": int(found[2])}


def folder_of(said: str) -> str:
    found = _FOLDER.search(said)
    assert found, said
    return found[1]


def with_server(name: str, home: Path) -> tuple[str, ...]:
    """What a user writes once, so that the program starts `dugnad mcp` by itself."""
    if name == "claude":
        (home / "mcp.json").write_text(json.dumps({"mcpServers": {"dugnad": {"command": "dugnad", "args": ["mcp"]}}}))
        return ("--strict-mcp-config", "--mcp-config", str(home / "mcp.json"))
    if name == "codex":
        # It passes on few variables by itself, and begins before its servers have started.
        given = {"command": "dugnad", "args": ["mcp"], "env_vars": ["XDG_STATE_HOME"], "required": True}
        return tuple(
            word for key, value in given.items() for word in ("-c", f"mcp_servers.dugnad.{key}={json.dumps(value)}")
        )
    place = home / ".config" / "opencode" / "opencode.json"
    given = json.loads(place.read_text())
    place.write_text(json.dumps({**given, "mcp": {"dugnad": {"type": "local", "command": ["dugnad", "mcp"]}}}))
    return ()


class Client:
    """One program with a home of its own, so that several can be beside each other."""

    def __init__(self, name: str, at: Desk, url: str, more: Mapping[str, str] | None = None) -> None:
        home = at.home / name
        home.mkdir(exist_ok=True)
        self._at = at
        self._program = Program(name, home, url, more or {})
        self._options = with_server(name, home)

    async def start(self) -> asyncio.subprocess.Process:
        return await self._program.start(PROMPT, self._at.root, *self._options)

    async def run(self) -> Ran:
        return await ended(await self.start())
