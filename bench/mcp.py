"""Measures the MCP server: how large its tools are, and what a call costs over the board's own time.

    python bench/mcp.py [--json] [--quick]

tools, tool_tokens   how many tools a client is offered, and the tokens of their descriptions, at four characters each.
call_ms_over_board   what a call that writes a note takes beyond the three writes to the board that it makes (the call,
                     the note, the result), over standard streams and over HTTP; median, in milliseconds.
clients_100          100 clients of one server over HTTP that hold a task each: its share of one core while they are
                     idle, and what it has in memory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import httpx2
import psutil

from dugnad.board import open_board
from dugnad.mcp.serve import served
from dugnad.mcp.tokens import TokenHolder, Tokens
from dugnad.mcp.tools import ClientTools
from dugnad.tools.mcp.serving import listed
from dugnad.types import NewTurn, Released

HELD = re.compile(r"You hold task (\d+) with epoch (\d+)")
Ask = Callable[[str, dict[str, Any]], Awaitable[str]]


def message(tool: str, arguments: dict[str, Any], number: int) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


@asynccontextmanager
async def over_pipes(folder: Path, environment: dict[str, str]) -> AsyncIterator[Ask]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dugnad", "mcp", cwd=folder, env=environment, limit=2**22,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None

    async def ask(body: dict[str, Any]) -> Any:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(body).encode() + b"\n")
        return json.loads(await process.stdout.readline())["result"]

    async def call(tool: str, arguments: dict[str, Any]) -> str:
        return str((await ask(message(tool, arguments, 1)))["content"][0]["text"])

    given = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench"}}
    await ask({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": given})
    try:
        yield call
    finally:
        process.stdin.close()
        await process.wait()


@asynccontextmanager
async def page(folder: Path, environment: dict[str, str]) -> AsyncIterator[tuple[str, psutil.Process]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dugnad", "web", "--json", "--port", "0", cwd=folder, env=environment,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield f"{json.loads(await process.stdout.readline())['url']}/mcp", psutil.Process(process.pid)
    finally:
        process.terminate()
        await process.wait()


def over_http(client: httpx2.AsyncClient, url: str, token: str) -> Ask:
    async def call(tool: str, arguments: dict[str, Any]) -> str:
        answer = await client.post(
            url, json=message(tool, arguments, 1), headers={"authorization": f"Bearer {token}"}
        )  # fmt: skip
        return str(answer.json()["result"]["content"][0]["text"])

    return call


async def held_by(call: Ask) -> dict[str, int]:
    while not (found := HELD.search(await call("next_task", {}))):
        pass
    return {"task": int(found[1]), "epoch": int(found[2])}


async def median_ms(work: Callable[[int], Awaitable[Any]], samples: int) -> float:
    took = []
    for number in range(samples + 5):
        began = time.perf_counter()
        await work(number)
        took.append((time.perf_counter() - began) * 1_000)
    return statistics.median(took[5:])


async def measure(folder: Path, *, quick: bool) -> dict[str, Any]:
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "HOME": str(folder)}
    project = folder / "project"
    project.mkdir()
    samples, clients, seconds = (20, 10, 2.0) if quick else (200, 100, 10.0)
    added = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dugnad", "add", "One", cwd=project, env=environment, stdout=asyncio.subprocess.DEVNULL
    )
    assert await added.wait() == 0
    tools = [listed(each) for each in served(ClientTools(seat=None).served()).tools]  # type: ignore[arg-type]
    async with await open_board(f"sqlite:///{project}/.dugnad/board.db") as board:
        identity = await board.identity()

        host = await board.start_host("bench")
        await board.spawn("bare", host=host)
        claim = await board.claim("bare", host)
        assert claim is not None

        async def directly(number: int) -> None:
            await board.record(claim, NewTurn(number=2 * number + 1, kind="reply", body="{}"))
            await board.write_note("bare", f"Note {number}", "x", claim=claim)
            await board.record(claim, NewTurn(number=2 * number + 2, kind="tool", body="{}"))

        def through(call: Ask, held: dict[str, int]) -> Callable[[int], Awaitable[Any]]:
            return lambda number: call("note", {**held, "title": f"Note {number}", "text": "x"})

        bare = await median_ms(directly, samples)
        await board.settle(claim, Released("measured"))
        async with over_pipes(project, environment) as call:
            pipes = await median_ms(through(call, await held_by(call)), samples)
            await call("finish", {**await held_by(call), "result": "Done."})
        tokens = Tokens(environment)
        for number in range(clients):
            await board.put(f"Task {number}")
        limits = httpx2.Limits(max_connections=clients + 10)
        async with page(project, environment) as (url, process), httpx2.AsyncClient(
            trust_env=False, timeout=120, limits=limits
        ) as client:  # fmt: skip
            calls = [
                over_http(client, url, tokens.give(TokenHolder(board=identity, teammate=f"client{number}")))
                for number in range(clients)
            ]
            held = [await held_by(each) for each in calls]
            http = await median_ms(through(calls[0], held[0]), samples)
            await asyncio.sleep(2)
            before, began = process.cpu_times(), time.perf_counter()
            await asyncio.sleep(seconds)
            after, wall = process.cpu_times(), time.perf_counter() - began
            used = (after.user + after.system - before.user - before.system) / wall * 100
            memory = process.memory_info().rss / 1e6
    return {
        "tools": len(tools), "tool_tokens": len(json.dumps(tools)) // 4,
        "call_ms_over_board": {"stdio": round(pipes - bare, 2), "http": round(http - bare, 2)},
        "clients_100": {"cpu_percent_idle": round(used, 2), "mb": round(memory, 1)},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="few samples, and ten clients")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dugnad-bench-") as folder:
        found = asyncio.run(measure(Path(folder), quick=wanted.quick))
    if wanted.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:<20} {value}")


if __name__ == "__main__":
    main()
