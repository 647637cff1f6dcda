"""The MCP servers of one process: which of the user's there are here, which of them may be used, and their tools.

`servers = await open_servers(user, project, sandbox)`, then `servers.tools_for(teammate)`, and `await servers.close()`.
Tools are made from what was approved, so nothing is started before the first call.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ..config.project import Project
from ..config.reader import nearest
from ..config.servers import read_approved
from ..config.user import UserSettings
from ..errors import ToolError
from ..models.port import ToolSpec
from ..tools import Tool
from ..tools.mcp.client import McpConnection
from ..tools.mcp.offer import Server, ServerTool, difference, hash_of, offers_of, specs_of, text_of
from ..tools.mcp.transport import PipeTransport
from ..types import Teammate
from ..workspace.sandbox.sandbox import Sandbox

State = Literal["approved", "new", "changed", "trouble"]
_LOOKS_MAX = 4  # Servers that are started side by side to look at them.


@dataclass(kw_only=True)
class Servers:
    """The ones that were approved. `says` are sentences for the person, also those that come while they are used."""

    says: list[str] = field(default_factory=list)
    lines: dict[str, McpConnection] = field(default_factory=dict)
    specs: dict[str, dict[str, ToolSpec]] = field(default_factory=dict)

    def tools_for(self, teammate: Teammate) -> Sequence[Tool]:
        """Of servers that serve one of its roles, or everybody."""
        tools: list[Tool] = []
        for name, line in self.lines.items():
            roles = line.server.roles
            if not line.withdrawn and (not roles or set(roles) & set(teammate.roles)):
                tools += [ServerTool(spec, self._call(line, tool)) for tool, spec in self.specs[name].items()]
        return tools

    def _call(self, line: McpConnection, tool: str) -> Callable[[dict[str, Any]], Awaitable[str]]:
        async def call(arguments: dict[str, Any]) -> str:
            try:
                return await line.call(tool, arguments)
            finally:
                if line.withdrawn and line.withdrawn not in self.says:
                    self.says.append(line.withdrawn)

        return call

    async def close(self) -> None:
        await asyncio.gather(*(line.close() for line in self.lines.values()))


async def open_servers(
    user: UserSettings, project: Project, sandbox: Sandbox | None, *, tree: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Servers:  # fmt: skip
    """The user's servers that this project wants and that were approved. `tree`: for those that want its files."""
    approved = read_approved(os.environ if environment is None else environment)
    servers = Servers()
    for name in project.servers or ():
        if name not in (known := [each.name for each in user.servers]):
            where = nearest(name, known) if known else "there is none in ~/.config/dugnad/config.toml."
            servers.says.append(f"The project wants the MCP server {name!r}, which you do not have; {where}")
    for server in chosen(user, project):
        said = approved.get(server.name)
        if why := why_not(server, said, sandbox, tree):
            servers.says.append(f"The MCP server {server.name} is not used: {why}")
            continue
        assert said is not None
        servers.specs[server.name], left_out = specs_of(server, offers_of(said))
        servers.says += left_out
        servers.lines[server.name] = McpConnection(
            server, approved=said, open_piped=partial(piped, server, sandbox, tree) if sandbox else None
        )
    return servers


def chosen(user: UserSettings, project: Project) -> list[Server]:
    """A project narrows what its user has."""
    return [
        each for each in user.servers
        if (project.servers is None or each.name in project.servers) and each.name not in project.servers_without
    ]  # fmt: skip


def why_not(server: Server, approved: str | None, sandbox: Sandbox | None, tree: Path | None) -> str:
    """Why its tools are not offered, as far as that is known before it is started; empty: they are."""
    if approved is None:
        return f"it is not approved yet: dugnad servers approve {server.name}"
    if text_of(server, offers_of(approved)) != approved:
        return f"it was set up otherwise when it was approved: dugnad servers approve {server.name}"
    if server.missing:
        return f"{' and '.join(server.missing)} is not set."
    return _cannot_run(server, sandbox, tree)


def _cannot_run(server: Server, sandbox: Sandbox | None, tree: Path | None) -> str:
    if not server.command:
        return ""
    if sandbox is None or (sandbox.found.level == "none" and not sandbox.bare):
        return sandbox.found.says if sandbox is not None else "there is no sandbox to run it in."
    return "it works in the project's files, which takes --in-place." if server.tree and tree is None else ""


@asynccontextmanager
async def piped(server: Server, sandbox: Sandbox, tree: Path | None) -> AsyncIterator[PipeTransport]:
    """The server's command under way: in an empty folder of its own, or in the project's files."""
    made = None if server.tree else tempfile.mkdtemp(prefix="dugnad-mcp-")
    folder = tree if made is None else Path(made)
    if folder is None:
        raise ToolError("it works in the project's files, which takes --in-place")
    try:
        running = await sandbox.open(
            shlex.join(server.command), tree=folder, environment=server.filled(server.environment),
            hosts=server.hosts, readable=tuple(Path(each) for each in server.readable),
        )  # fmt: skip
        try:
            yield running
        finally:
            await running.close()
    finally:
        if made is not None:
            await asyncio.to_thread(shutil.rmtree, made, ignore_errors=True)


# Looking at them, to approve one.


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """How a server stands right now."""

    server: Server
    state: State
    says: str = ""  # What is the trouble, or what changed.
    text: str = ""  # What would be approved.
    tools: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def hash(self) -> str | None:
        return hash_of(self.text) if self.text else None


async def look_at(servers: Sequence[Server], approved: Mapping[str, str], sandbox: Sandbox | None) -> list[ServerState]:
    """Start each, ask what it offers, and compare that with what was approved."""
    room = asyncio.Semaphore(_LOOKS_MAX)

    async def one(server: Server) -> ServerState:
        async with room:
            return await _look(server, approved.get(server.name), sandbox)

    return list(await asyncio.gather(*map(one, servers)))


async def _look(server: Server, approved: str | None, sandbox: Sandbox | None) -> ServerState:
    outside = replace(server, tree=False)  # Nobody has said yet that it may have the project's files.
    if why := _cannot_run(outside, sandbox, None):
        return ServerState(server=server, state="trouble", says=f"The MCP server {server.name} cannot be asked: {why}")
    line = McpConnection(outside, approved=None, open_piped=partial(piped, outside, sandbox, None) if sandbox else None)
    try:
        offers = await line.offers()
        text = text_of(server, offers)
        specs, left_out = specs_of(server, offers)
    except ToolError as trouble:
        return ServerState(server=server, state="trouble", says=str(trouble))
    finally:
        await line.close()
    state: State = "new" if approved is None else "approved" if approved == text else "changed"
    return ServerState(
        server=server, state=state, says=difference(approved, text) if approved and state == "changed" else "",
        text=text, tools=tuple(spec.name for spec in specs.values()), left_out=tuple(left_out),
    )  # fmt: skip
