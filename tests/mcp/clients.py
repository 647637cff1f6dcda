"""Clients of the tests' own, which speak JSON-RPC by hand: in this process, over pipes, and over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dugnad.board import Board
from dugnad.mcp.seats import Seat
from dugnad.mcp.serve import ClientHost, client_host, offered
from dugnad.team import RunPlan
from dugnad.tools.mcp.serving import Link, Offering
from dugnad.types import Task
from tests.cli.shell import environment

HANGS = 120.0  # Only ends a hang.
MODERN = "2026-07-28"
_HELD = re.compile(r"You hold task (\d+) with epoch (\d+)\.")
_FOLDER = re.compile(r"nowhere else: (.+)")


@dataclass(frozen=True)
class Said:
    """An answer of a tool."""

    text: str
    refused: bool

    @property
    def held(self) -> dict[str, int]:
        """The claim that the answer gives, as arguments of further calls."""
        found = _HELD.search(self.text)
        assert found, self.text
        return {"task": int(found[1]), "epoch": int(found[2])}

    @property
    def folder(self) -> Path:
        found = _FOLDER.search(self.text)
        assert found, self.text
        return Path(found[1])

    def __contains__(self, words: str) -> bool:
        return words in self.text


def envelope(**able: Any) -> dict[str, Any]:
    """What each request of a client without a session says."""
    key = "io.modelcontextprotocol/"
    info = {"name": "modern", "version": "1"}
    return {f"{key}protocolVersion": MODERN, f"{key}clientCapabilities": able, f"{key}clientInfo": info}


def called(tool: str, arguments: dict[str, Any], number: int | str = 1, **more: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments, **more}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def said(answer: dict[str, Any] | None) -> Said:
    assert answer is not None
    assert "result" in answer, answer
    result = answer["result"]
    return Said(result["content"][0]["text"], result["isError"])


@dataclass
class NearClient:
    """A client in this process, on a seat of a real host."""

    offering: Offering
    name: str
    seat: Seat
    link: Link = field(default_factory=lambda: Link(version="2025-06-18"))

    async def __call__(self, tool: str, /, **arguments: Any) -> Said:
        async with asyncio.timeout(HANGS):
            return said(await self.offering.answer(called(tool, arguments), self.link))

    async def works(self, **arguments: Any) -> dict[str, int]:
        """Take a task, waiting for it as long as it takes."""
        async with asyncio.timeout(HANGS):
            while "You hold task" not in (found := await self("next_task", **arguments)):
                assert not found.refused, found.text
        return found.held


@asynccontextmanager
async def hosting(board: Board, *, wait_seconds: float = 5.0, **plan: Any) -> AsyncIterator[Any]:
    """A host for clients. What it yields makes one."""

    async with client_host(RunPlan(url="", **plan), board) as host:
        yield Hosted(host, wait_seconds)


@dataclass
class Hosted:
    host: ClientHost
    wait_seconds: float

    async def __call__(self, name: str = "claude", *, roles: tuple[str, ...] = (), exactly: bool = False) -> NearClient:
        made = await self.host.seat(name, roles=roles, exactly=exactly)

        async def seat() -> Seat:
            await made.taken()
            return made

        async def host() -> ClientHost:
            return self.host

        return NearClient(offered(seat, host, self.wait_seconds), made.name, made)


async def state_of(board: Board, task: int, *states: str) -> Task:
    """Wait until the task is in one of these states."""
    async with asyncio.timeout(HANGS):
        with board.watch([f"task:{task}"]) as watch:
            while (found := await board.find(task)).state not in states:
                await watch.wait(1.0)
    return found


class StdioClient:
    """`dugnad mcp` as a process of its own."""

    def __init__(self, folder: Path, *words: str, name: str = "tester", greets: bool = True, **variables: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dugnad", "mcp", *words], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=environment(**variables),
        )  # fmt: skip
        self._number = 0
        if greets:
            self.greeted = self.ask(
                "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": name}
            )
            self.tell("notifications/initialized")

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def tell(self, method: str, **params: Any) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self.write(json.dumps(message).encode() + b"\n")
        return self.answer_to(self._number)

    def answer_to(self, number: int | str | None) -> dict[str, Any]:
        while (answer := self.read()).get("id") != number or "method" in answer:
            pass
        return answer

    def read(self) -> dict[str, Any]:
        """The next message. Every line must be one."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.errors()
        found: dict[str, Any] = json.loads(line)
        assert found["jsonrpc"] == "2.0"
        return found

    def __call__(self, tool: str, /, **arguments: Any) -> Said:
        return said(self.ask("tools/call", name=tool, arguments=arguments))

    def close(self) -> int:
        """Close its input, and wait for the end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(HANGS)

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def __enter__(self) -> StdioClient:
        return self

    def __exit__(self, *trouble: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(HANGS)
        for each in (self.process.stdin, self.process.stdout, self.process.stderr):
            if each is not None:
                try:
                    each.close()
                except BrokenPipeError:
                    pass


def git(folder: Path, *words: str) -> str:
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    ran = subprocess.run(
        ["git", *who, *words], cwd=folder, env=environment(**own), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def make_project(folder: Path) -> Path:
    """A git project with one commit."""
    git(folder, "init", "-q", "-b", "main")
    (folder / "README").write_text("A project.\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "begin")
    return folder
