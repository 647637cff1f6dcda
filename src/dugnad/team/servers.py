"""The MCP servers of one process: which of the user's servers may be used here, and their tools.

`servers = await open_servers(user, project, sandbox)`, then `servers.tools_for(teammate)`, and `await servers.close()`.
Tools are made from what was approved, so no server starts before the first call.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
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
from ..tools.mcp.client import McpConnection
from ..tools.mcp.offer import Server, ServerTool, difference, hash_of, offers_of, specs_of, text_of
from ..tools.mcp.transport import PipeTransport
from ..tools.tool import Tool
from ..types import Teammate
from ..workspace.sandbox.sandbox import Sandbox

State = Literal["approved", "new", "changed", "trouble"]
_LOOKS_MAX = 4  # Servers that start side by side when a person looks at them.


@dataclass(kw_only=True)
class Servers:
    """The approved servers. `says` are sentences for the person; a server may add some while it is used."""

    says: list[str] = field(default_factory=list)
    lines: dict[str, McpConnection] = field(default_factory=dict)
    specs: dict[str, dict[str, ToolSpec]] = field(default_factory=dict)

    def tools_for(self, teammate: Teammate) -> Sequence[Tool]:
        """The tools of servers for one of its roles, or for everybody."""
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
    """The user's approved servers that this project uses. `tree`: for those that work in the project's files."""
    approved = read_approved(os.environ if environment is None else environment)
    servers = Servers()
    for name in project.servers or ():
        if name not in (known := [each.name for each in user.servers]):
            where = nearest(name, known) if known else "there is none in ~/.config/dugnad/config.toml."
            servers.says.append(f"The project wants the MCP server {name!r}, which you do not have; {where}")
    for server in chosen(user, project):
        text = approved.get(server.name)
        why = why_not(server, text, sandbox, tree)
        if why or text is None:
            servers.says.append(f"The MCP server {server.name} is not used: {why}")
            continue
        servers.specs[server.name], left_out = specs_of(server, offers_of(text))
        servers.says += left_out
        servers.lines[server.name] = _connection(server, text, sandbox, tree)
    return servers


def _connection(server: Server, approved: str | None, sandbox: Sandbox | None, tree: Path | None) -> McpConnection:
    open_piped = partial(piped, server, sandbox, tree) if sandbox else None
    return McpConnection(server, approved=approved, open_piped=open_piped)


def chosen(user: UserSettings, project: Project) -> list[Server]:
    """The user's servers, as far as the project uses them."""
    return [
        each for each in user.servers
        if (project.servers is None or each.name in project.servers) and each.name not in project.servers_without
    ]  # fmt: skip


def why_not(server: Server, approved: str | None, sandbox: Sandbox | None, tree: Path | None) -> str:
    """Why its tools are not offered, as far as that is known before it starts; empty: they are."""
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
    """The running command of a server: in an empty folder of its own, or in the project's files."""
    made = None if server.tree else tempfile.mkdtemp(prefix="dugnad-mcp-")
    folder = tree if made is None else Path(made)
    if folder is None:
        raise ToolError("it works in the project's files, which takes --in-place")
    async with AsyncExitStack() as closing:
        if made is not None:
            closing.push_async_callback(asyncio.to_thread, shutil.rmtree, made, ignore_errors=True)
        running = await sandbox.using(server.services).open(
            shlex.join(server.command), tree=folder, environment=server.filled(server.environment),
            hosts=server.hosts, readable=tuple(Path(each) for each in server.readable),
        )  # fmt: skip
        closing.push_async_callback(running.close)
        yield running


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """A server, compared with what was approved."""

    server: Server
    state: State
    says: str = ""  # What the trouble is, or what changed.
    text: str = ""  # What a person would approve.
    tools: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def hash(self) -> str | None:
        return hash_of(self.text) if self.text else None


async def look_at(servers: Sequence[Server], approved: Mapping[str, str], sandbox: Sandbox | None) -> list[ServerState]:
    """Start each server, ask what it offers, and compare that with what was approved."""
    room = asyncio.Semaphore(_LOOKS_MAX)

    async def one(server: Server) -> ServerState:
        async with room:
            return await _look(server, approved.get(server.name), sandbox)

    return list(await asyncio.gather(*map(one, servers)))


async def _look(server: Server, approved: str | None, sandbox: Sandbox | None) -> ServerState:
    outside = replace(server, tree=False)  # No person has said yet that it may have the project's files.
    if why := _cannot_run(outside, sandbox, None):
        return ServerState(server=server, state="trouble", says=f"The MCP server {server.name} cannot be asked: {why}")
    line = _connection(outside, None, sandbox, None)
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
