"""Clients over HTTP: a token says who calls, and nothing is answered without one."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dugnad.board import Board
from dugnad.mcp.over_http import mcp_over_http
from dugnad.mcp.serve import ClientHost, client_host
from dugnad.mcp.tokens import TokenHolder, Tokens
from dugnad.settings import TeamLimits
from dugnad.team import RunPlan
from dugnad.tools.mcp.http_endpoint import AT_ONCE_MAX, BODY_BYTES_MAX, McpEndpoint
from tests.board.topics import change
from tests.cli.shell import environment, run
from tests.mcp.clients import HANGS, MODERN, Said, called, envelope, git, make_project, said


@asynccontextmanager
async def _host(board: Board, plan: dict[str, Any]) -> AsyncIterator[ClientHost]:
    async with client_host(RunPlan(url="", **plan), board) as host:
        yield host


class Caller:
    """Calls the endpoint as a server of HTTP would."""

    def __init__(self, app: McpEndpoint) -> None:
        self.client = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=app), base_url="http://here", timeout=HANGS  # type: ignore[arg-type]
        )  # fmt: skip

    async def post(self, body: Any, token: str | None, **headers: str) -> httpx2.Response:
        given = {"authorization": f"Bearer {token}"} if token is not None else {}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = {"content-type": "application/json", **given, **{k.replace("_", "-"): v for k, v in headers.items()}}
        return await self.client.post("/mcp", content=content, headers=lines)

    async def __call__(self, token: str, tool: str, /, **arguments: Any) -> Said:
        return said((await self.post(called(tool, arguments), token)).json())


@asynccontextmanager
async def endpoint(board: Board, folder: Path, **plan: Any) -> AsyncIterator[tuple[Caller, Tokens, str]]:
    tokens = Tokens({"XDG_STATE_HOME": str(folder / "state")})
    identity = await board.identity()
    async with mcp_over_http({identity: partial(_host, board, plan)}, tokens) as app:
        yield Caller(app), tokens, identity


async def test_a_token_works_a_task_as_its_teammate(board: Board, folder: Path) -> None:
    task = await board.put("Write it")
    async with endpoint(board, folder) as (call, tokens, identity):
        ada = tokens.give(TokenHolder(board=identity, teammate="ada", roles=("coder",)))
        held = (await call(ada, "next_task")).held
        assert (await board.teammate("ada")).roles == ("coder",)
        assert "is over" in await call(ada, "finish", **held, result="Done.")
    assert (await board.find(task.id)).teammate == "ada"
    assert (await board.teammate("ada")).status == "stopped"


async def test_no_teammate_speaks_for_another(board: Board, folder: Path) -> None:
    await board.put("Write it")
    async with endpoint(board, folder) as (call, tokens, identity):
        ada = tokens.give(TokenHolder(board=identity, teammate="ada"))
        bob = tokens.give(TokenHolder(board=identity, teammate="bob"))
        held = (await call(ada, "next_task")).held
        stolen = await call(bob, "finish", **held, result="Mine.")
        assert stolen.refused
        assert "is over" in await call(ada, "finish", **held, result="Done.")


async def test_every_wrong_credential_is_refused(board: Board, folder: Path) -> None:
    """None, an empty one, a guess, a hash, one that was revoked or replaced, another board's, the right one twice."""
    async with endpoint(board, folder) as (call, tokens, identity):
        ada = TokenHolder(board=identity, teammate="ada")
        replaced = tokens.give(ada)
        good = tokens.give(ada)
        revoked = tokens.give(TokenHolder(board=identity, teammate="gone"))
        assert tokens.revoke(identity, "gone") == 1
        elsewhere = tokens.give(TokenHolder(board="another-board", teammate="ada"))
        (kept,) = [each.stem for each in tokens.folder.iterdir() if json.loads(each.read_text())["teammate"] == "ada"
                   and json.loads(each.read_text())["board"] == identity]  # fmt: skip
        list_them = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert (await call.post(list_them, good)).status_code == 200
        for wrong in (
            None,
            "",
            " ",
            "x",
            kept,
            f"dugnad_{kept}",
            replaced,
            revoked,
            elsewhere,
            good[:-1],
            good + "x",
            "x" * 5_000,
        ):
            found = await call.post(list_them, wrong)
            assert found.status_code == 401, wrong
            assert found.headers["www-authenticate"] == "Bearer"
            assert b"tools" not in found.content
        basic = await call.post(list_them, None, authorization=f"Basic {good}")
        assert basic.status_code == 401
        twice = [
            ("authorization", f"Bearer {good}"),
            ("authorization", f"Bearer {good}"),
            ("content-type", "application/json"),
        ]
        assert (await call.client.post("/mcp", json=list_them, headers=twice)).status_code == 401
        assert (await call.client.post(f"/mcp?token={good}", json=list_them)).status_code == 401
        cookie = {"cookie": f"token={good}"}
        assert (await call.client.post("/mcp", json=list_them, headers=cookie)).status_code == 401


def test_a_token_is_kept_as_a_hash_alone(folder: Path) -> None:
    tokens = Tokens({"XDG_STATE_HOME": str(folder)})
    token = tokens.give(TokenHolder(board="b", teammate="ada"))
    for each in tokens.folder.rglob("*"):
        assert token not in each.name
        assert token not in each.read_text()
        assert each.stat().st_mode & 0o077 == 0
    assert tokens.folder.stat().st_mode & 0o077 == 0
    assert [each.teammate for each in tokens.of("b")] == ["ada"]
    (kept,) = tokens.folder.iterdir()
    kept.write_text("{}")
    assert tokens.find(token) is None


async def test_what_is_no_message_is_refused(board: Board, folder: Path) -> None:
    async with endpoint(board, folder) as (call, tokens, identity):
        ada = tokens.give(TokenHolder(board=identity, teammate="ada"))
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert (await call.post(ping, ada)).json() == {"jsonrpc": "2.0", "id": 1, "result": {}}
        for method in ("GET", "DELETE", "PUT", "OPTIONS"):
            assert (await call.client.request(method, "/mcp")).status_code == 405
        assert (await call.post(ping, ada, content_type="text/plain")).status_code == 415
        assert (await call.post(b"x" * (BODY_BYTES_MAX + 1), ada)).status_code == 413
        for body in (b"", b"garbage", b"[]", b"[" * 9_000, b"\xff"):
            assert (await call.post(body, ada)).status_code == 400, body[:9]
        assert (await call.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, ada)).status_code == 202
        assert (await call.post(ping, ada, mcp_protocol_version="1999-01-01")).status_code == 400


async def test_the_headers_of_the_newer_era_must_agree_with_the_body(board: Board, folder: Path) -> None:
    async with endpoint(board, folder) as (call, tokens, identity):
        ada = tokens.give(TokenHolder(board=identity, teammate="ada"))
        discover = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": envelope()}}
        found = await call.post(discover, ada, mcp_protocol_version=MODERN, mcp_method="server/discover")
        assert found.json()["result"]["supportedVersions"] == [MODERN]
        for headers in (
            {},
            {"mcp_protocol_version": "2025-06-18"},
            {"mcp_protocol_version": MODERN, "mcp_method": "x"},
        ):
            wrong = await call.post(discover, ada, **headers)
            assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, -32020)
        unknown = {**discover, "method": "no/such"}
        assert (await call.post(unknown, ada, mcp_protocol_version=MODERN)).status_code == 404


async def test_a_flood_of_one_teammate_is_refused_and_others_are_served(board: Board, folder: Path) -> None:
    async with endpoint(board, folder) as (call, tokens, identity):
        ada = tokens.give(TokenHolder(board=identity, teammate="ada"))
        bob = tokens.give(TokenHolder(board=identity, teammate="bob"))
        await call(ada, "tasks")
        waiting = [asyncio.create_task(call.post(called("next_task", {}), ada)) for _ in range(AT_ONCE_MAX + 5)]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert {each.result().status_code for each in done} == {429}
        assert not (await call(bob, "tasks")).refused
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_client_that_hangs_up_gets_no_task(board: Board, folder: Path) -> None:
    async with endpoint(board, folder) as (call, tokens, identity):
        ada = tokens.give(TokenHolder(board=identity, teammate="ada"))
        gone = asyncio.Event()
        sent: list[Any] = []
        body = [{"type": "http.request", "body": json.dumps(called("next_task", {})).encode()}]

        async def receive() -> Any:
            if body:
                return body.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"authorization", f"Bearer {ada}".encode()), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "headers": headers}
        app = call.client._transport.app  # type: ignore[attr-defined]
        asking = asyncio.create_task(app(scope, receive, send))
        async with asyncio.timeout(HANGS):
            while "ada" not in {each.name for each in await board.team()}:
                await change(board, ["team"], 1.0)
        gone.set()
        await asyncio.wait_for(asking, HANGS)
        assert sent == []
        task = await board.put("Write it")
        await call(ada, "tasks")
        assert (await board.find(task.id)).state == "ready"


async def test_a_quiet_client_gives_its_task_back(board: Board, folder: Path) -> None:
    task = await board.put("Write it")
    async with endpoint(board, folder, limits=TeamLimits(quiet_seconds=0.2)) as (call, tokens, identity):
        ada = tokens.give(TokenHolder(board=identity, teammate="ada"))
        await call(ada, "next_task")
        async with asyncio.timeout(HANGS):
            with board.watch([f"task:{task.id}"]) as watch:
                while (await board.find(task.id)).state != "ready":
                    await watch.wait(1.0)
        assert (await call(ada, "next_task")).held["epoch"] > 1


@contextmanager
def page(project: Path, *words: str) -> Iterator[str]:
    """`dugnad web` as a process; the address of its MCP endpoint."""
    server = subprocess.Popen(
        [sys.executable, "-m", "dugnad", "web", "--json", "--port", "0", *words], cwd=project, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment(),
    )  # fmt: skip
    assert server.stdout is not None
    assert server.stdin is not None
    try:
        yield f"{json.loads(server.stdout.readline())['url']}/mcp"
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(HANGS) == 0
        server.stdout.close()
        server.stdin.close()


def test_the_page_serves_clients_in_worktrees_and_checks_host_and_origin(folder: Path) -> None:
    project = make_project(folder)
    assert run("add", "Write hello.txt", "--check", "test -f hello.txt", folder=project).returncode == 0
    token = json.loads(run("mcp", "token", "ada", "--json", folder=project).stdout)["token"]
    with page(project) as url, httpx2.Client(trust_env=False, timeout=HANGS) as client:

        def post(body: Any, **headers: str) -> httpx2.Response:
            return client.post(url, json=body, headers={"authorization": f"Bearer {token}", **headers})

        given = said(post(called("next_task", {})).json())
        (given.folder / "hello.txt").write_text("hello\n")
        assert "merged into dugnad/main" in said(post(called("finish", {**given.held, "result": "x"})).json())
        list_them = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert post(list_them, origin="http://evil.example").status_code == 403
        assert post(list_them, host="evil.example").status_code == 421
        assert post(list_them, **{"sec-fetch-site": "cross-site"}).status_code == 403
        assert client.get(url, headers={"authorization": f"Bearer {token}"}).status_code == 405
        assert "access-control-allow-origin" not in post(list_them).headers
        assert run("mcp", "token", "ada", "--revoke", folder=project).returncode == 0
        assert post(list_them).status_code == 401
    assert git(project, "show", "dugnad/main:hello.txt") == "hello"


@pytest.mark.proof
def test_a_page_that_only_shows_serves_no_clients(folder: Path) -> None:
    project = make_project(folder)
    assert run("add", "x", folder=project).returncode == 0
    token = json.loads(run("mcp", "token", "ada", "--json", folder=project).stdout)["token"]
    with page(project, "--look") as url, httpx2.Client(trust_env=False, timeout=HANGS) as client:
        headers = {"authorization": f"Bearer {token}"}
        assert client.post(url, json=called("tasks", {}), headers=headers).status_code == 401
