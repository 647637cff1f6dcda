"""The line to an MCP server: what good servers give, and what bad ones cost. All of them are real processes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from dugnad.errors import ToolError
from dugnad.tools.mcp.client import LineLimits, McpConnection
from dugnad.tools.mcp.offer import Server, hash_of, offers_of, text_of
from dugnad.workspace.sandbox.sandbox import Sandbox
from tests.tools.mcp_stage import HERE, PATIENT, Asked, answering, approved_text, line_to, over_http, plain, running
from tests.workspace.running import until


async def said(sandbox: Sandbox, server: Server) -> str:
    line = line_to(server, sandbox)
    try:
        return await line.call("echo", {"text": "hi"})
    finally:
        await line.close()


# Good ones.


async def test_a_server_is_started_with_the_first_call_and_ended_with_the_line(sandbox: Sandbox) -> None:
    line = line_to(plain("good"), sandbox)
    assert not running("good")
    assert await line.call("echo", {"text": "one"}) == "one (1)"
    assert await line.call("echo", {"text": "two"}) == "two (2)"  # The same one.
    await line.close()
    assert not running("good")
    with pytest.raises(ToolError, match="was closed with its host"):
        await line.call("echo", {"text": "three"})


async def test_calls_of_many_teammates_share_one_server(sandbox: Sandbox) -> None:
    line = line_to(plain("good"), sandbox)
    found = await asyncio.gather(*(line.call("echo", {"text": "x"}) for _ in range(20)))
    assert sorted(found) == sorted(f"x ({number})" for number in range(1, 21))
    await line.close()


async def test_a_server_sees_nothing_but_what_it_was_given(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_MINE", "hidden")
    async with answering(Asked("200 OK")) as url:
        server = plain(
            "sees", environment={"TOKEN": "env:MINE", "PORT": "env:PORT"},
            secrets={"MINE": "tok-en", "PORT": url.split(":")[2].split("/")[0]},
        )  # fmt: skip
        found = json.loads((await said(sandbox, server)).removesuffix(" (1)"))
    assert found["network"] == "closed"
    assert found["secrets"] == []
    assert not {"mcp_plain.py", "README.md"} & set(found["folder"])
    assert found["token"] == "[MINE]"  # It had it, and what it says of it aloud goes no further.


@pytest.mark.parametrize("kind", ["error", "refuses", "die", "fails"])
async def test_what_goes_wrong_is_told_without_the_secrets(sandbox: Sandbox, kind: str) -> None:
    server = plain(kind, environment={"TOKEN": "env:MINE"}, secrets={"MINE": "tok-en-of-mine"})
    with pytest.raises(ToolError, match=r"\[MINE\]") as told:
        await said(sandbox, server)
    assert "tok-en-of-mine" not in str(told.value)


async def test_what_a_web_server_says_in_refusing_is_told_without_the_secrets() -> None:
    async with answering(Asked("401 No tok-en-of-mine here")) as url:
        server = Server(name="tried", url=url, headers={"X-Key": "env:MINE"}, secrets={"MINE": "tok-en-of-mine"})
        with pytest.raises(ToolError, match=r"401 No \[MINE\] here"):
            await McpConnection(server, approved=None, limits=PATIENT).call("echo", {"text": "hi"})


async def test_a_server_that_changes_its_list_without_end_is_dropped(sandbox: Sandbox) -> None:
    """It says so with each list it is asked for, so one change brings the next."""
    line = line_to(plain("restless"), sandbox, limits=LineLimits(list_seconds=30, changes_max=3, starts_max=1))

    async def again_and_again() -> None:
        for _ in range(100):
            await line.call("echo", {"text": "hi"})

    with pytest.raises(ToolError, match="changes its list of tools too often"):
        await again_and_again()
    await line.close()


async def test_what_is_not_text_is_named(sandbox: Sandbox) -> None:
    assert (await said(sandbox, plain("parts"))).splitlines() == [
        "Look:",
        "[image image/png, 3,000 bytes, not shown]",
        "[resource page at https://example.org/page]",
        "[resource file:///a.txt]",
        "inside",
        "[resource file:///a.bin, of unknown kind, 3 bytes]",
    ]
    assert json.loads(await said(sandbox, plain("structured"))) == {"degrees": 21}


@pytest.mark.parametrize("kind", ["old", "chatty", "restless"])
async def test_odd_servers_work_all_the_same(sandbox: Sandbox, kind: str) -> None:
    assert await said(sandbox, plain(kind)) == "hi (1)"


async def test_a_server_of_the_sdk_is_used_over_pipes_and_over_http(sandbox: Sandbox) -> None:
    own = tuple(dict.fromkeys((str(HERE), sys.prefix, sys.base_prefix)))
    piped = Server(name="sums", command=(sys.executable, str(HERE / "mcp_sdk.py"), "stdio"), readable=own)
    async with over_http() as url:
        for server in (piped, Server(name="sums", url=url)):
            line = line_to(server, sandbox, limits=LineLimits())
            assert [offer.name for offer in await line.offers()] == ["add", "fail"]
            assert await line.call("add", {"a": 1, "b": 2}) == "3"
            with pytest.raises(ToolError, match="Error executing tool fail"):
                await line.call("fail", {})
            with pytest.raises(ToolError, match="valid integer"):
                await line.call("add", {"a": "x", "b": 2})
            await line.close()


async def test_an_http_server_that_comes_back_is_used_again() -> None:
    async with over_http() as url:
        line = McpConnection(Server(name="sums", url=url), approved=None)
        assert await line.call("add", {"a": 1, "b": 2}) == "3"
    with pytest.raises(ToolError, match=r"ended during the call.*cannot be reached"):
        await line.call("add", {"a": 1, "b": 2})
    with pytest.raises(ToolError, match="did not start: it cannot be reached"):
        await line.call("add", {"a": 1, "b": 2})
    async with over_http(url) as same:
        assert same == url
        assert await line.call("add", {"a": 1, "b": 2}) == "3"
        await line.close()


async def test_an_http_server_that_forgot_the_session_is_greeted_anew() -> None:
    async with over_http() as url:
        line = McpConnection(Server(name="sums", url=url), approved=None)
        assert await line.call("add", {"a": 1, "b": 2}) == "3"
    async with over_http(url):
        with pytest.raises(ToolError, match=r"The MCP server sums (refused|ended)"):
            await line.call("add", {"a": 1, "b": 2})
        assert await line.call("add", {"a": 1, "b": 2}) == "3"
        await line.close()


# Bad ones.


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("error", "^There is no such page.$"),
        ("refuses", "The MCP server tried refused: text is\ufffd too short"),
        ("nonsense", "sent an answer that is not a result"),
        ("die", "ended during the call, which may have taken effect: it ended, saying: out of luck"),
        ("flood", "2,000 messages that were not asked for"),
        ("long", "a line of more than 8 MiB"),
        ("garbage", "sends lines that are not messages"),
        ("fails", "did not start: it ended, saying: There is no such database."),
        ("many", "did not start: it offers more than 200 tools"),
        ("same", "did not start: it offers two tools named 'echo'"),
    ],
)
async def test_a_bad_server_costs_an_error_in_one_sentence(sandbox: Sandbox, kind: str, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        await said(sandbox, plain(kind))
    await until(lambda: running(kind), holds=False)


async def test_a_server_that_hangs_is_dropped_and_started_again_a_few_times_only(sandbox: Sandbox) -> None:
    limits = LineLimits(starts_max=3, list_seconds=0.5)
    line = line_to(plain("hang", seconds=0.2), sandbox, limits=limits)
    heard = []
    for _ in range(8):
        with pytest.raises(ToolError) as caught:
            await line.call("echo", {"text": "x"})
        heard.append(str(caught.value).removeprefix("The MCP server tried "))
    assert heard[0] == "did not answer within 0.2 seconds; the call may still run."
    assert heard[1] == "ended: it did not answer in time"
    assert heard[-1] == "ended 3 times and is not started again here: it did not answer in time"
    assert not running("hang")
    await line.close()


async def test_a_server_that_says_nothing_is_not_waited_for(sandbox: Sandbox) -> None:
    line = line_to(plain("mute"), sandbox, limits=LineLimits(start_seconds=0.5))
    with pytest.raises(ToolError, match=r"did not start: it did not list its tools within 0.5 seconds"):
        await line.call("echo", {"text": "x"})
    await until(lambda: running("mute"), holds=False)
    await line.close()


async def test_a_server_that_died_is_started_again_and_the_call_is_not_repeated(sandbox: Sandbox) -> None:
    line = line_to(plain("good"), sandbox)
    assert await line.call("echo", {"text": "x"}) == "x (1)"
    (pid,) = running("good")
    os.kill(pid, 9)
    await until(line._keeper.done)
    assert await line.call("echo", {"text": "x"}) == "x (1)"  # Of the new one.
    await line.close()


async def test_what_a_server_asks_of_us_is_refused(sandbox: Sandbox) -> None:
    assert await said(sandbox, plain("asks")) == "refused refused refused"


async def test_a_call_that_is_given_up_harms_no_other(sandbox: Sandbox) -> None:
    line = line_to(plain("good"), sandbox)
    await line.offers()
    (pid,) = running("good")
    os.kill(pid, 19)  # It stands still.
    given_up = asyncio.create_task(line.call("echo", {"text": "x"}))
    await asyncio.sleep(0)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    os.kill(pid, 18)
    assert (await line.call("echo", {"text": "y"})).startswith("y")
    await line.close()


# What was approved.


async def test_what_was_approved_is_used_and_nothing_else(sandbox: Sandbox) -> None:
    good = plain("good")
    text = await approved_text(good, sandbox)
    line = line_to(good, sandbox, approved=text)
    assert await line.call("echo", {"text": "x"}) == "x (1)"
    await line.close()

    other = plain("other")
    line = line_to(other, sandbox, approved=text_of(other, offers_of(text)))
    with pytest.raises(ToolError, match=r"offers other tools than were approved .*: dugnad servers approve tried"):
        await line.call("echo", {"text": "x"})
    assert line.withdrawn
    await until(lambda: running("other"), holds=False)
    await line.close()


async def test_a_server_that_changes_its_tools_while_it_runs_is_withdrawn(sandbox: Sandbox) -> None:
    server = plain("rug")
    line = line_to(server, sandbox, approved=await approved_text(server, sandbox))
    assert await line.call("echo", {"text": "x"}) == "x (1)"  # From here on it says something else.
    await until(lambda: line.withdrawn)
    with pytest.raises(ToolError, match="offers other tools than were approved"):
        await line.call("echo", {"text": "x"})
    await until(lambda: running("rug"), holds=False)
    await line.close()


async def test_a_change_that_is_not_told_is_found_too(sandbox: Sandbox, folder: Path) -> None:
    server = plain("quiet-rug")
    often = LineLimits(list_again_seconds=0.0)
    line = line_to(server, sandbox, approved=await approved_text(server, sandbox), limits=often)
    assert await line.call("echo", {"text": "x"}) == "x (1)"
    with pytest.raises(ToolError, match="offers other tools than were approved"):
        await line.call("echo", {"text": "x"})
    await line.close()


async def test_the_hash_covers_how_it_is_run_and_what_it_says(sandbox: Sandbox) -> None:
    server = plain("good")
    line = line_to(server, sandbox)
    offers = await line.offers()
    await line.close()
    hashes = {hash_of(text_of(server, offers))}
    for changed in (
        plain("good", command=("/usr/bin/python3", "other.py")), plain("good", hosts=("evil.example",)),
        plain("good", environment={"TOKEN": "env:TOKEN"}), plain("good", tree=True), plain("good", readable=("/opt",)),
        Server(name="tried", url="https://example.org/mcp"),
        Server(name="tried", url="https://example.org/mcp", headers={"Authorization": "env:X"}),
    ):  # fmt: skip
        hashes.add(hash_of(text_of(changed, offers)))
    assert len(hashes) == 8
    assert hash_of(text_of(plain("good", seconds=5.0, roles=("coder",)), offers)) in hashes  # These are the user's own.


# Over HTTP.


async def test_headers_go_to_the_server_and_nowhere_else(sandbox: Sandbox) -> None:
    elsewhere = Asked("200 OK")
    async with answering(elsewhere) as other:
        moved = Asked("307 Temporary Redirect", f"Location: {other}\r\n")
        async with answering(moved) as url:
            server = Server(
                name="far", url=url, headers={"Authorization": "Bearer env:KEY"}, secrets={"KEY": "secret-word"}
            )
            line = line_to(server, sandbox)
            with pytest.raises(ToolError, match="not followed") as caught:
                await line.offers()
            await line.close()
    assert "authorization: bearer secret-word" in moved.heads[0].lower()
    assert elsewhere.heads == []
    assert "secret-word" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Asked("401 Unauthorized"), "did not start: it answered 401 Unauthorized"),
        (Asked("200 OK", "Content-Type: text/html\r\n", b"<html>"), "Unexpected content type: text/html"),
        (Asked("200 OK", "Content-Type: application/json\r\n", b"{nonsense"), "Failed to parse"),
        (Asked("202 Accepted"), "202 Accepted"),
    ],
    ids=["unauthorized", "page", "nonsense", "silence"],
)
async def test_an_address_that_is_no_server_is_told_in_one_sentence(answer: Asked, words: str) -> None:
    async with answering(answer) as url:
        line = McpConnection(Server(name="far", url=url), approved=None, limits=PATIENT)
        with pytest.raises(ToolError, match=words) as caught:
            await line.offers()
        assert "\n" not in str(caught.value)
        await line.close()


async def test_a_response_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dugnad.tools.mcp.transport.RESPONSE_BYTES_MAX", 100_000)
    body = b'{"jsonrpc": "2.0", "id": 1, "result": {"x": "' + b"x" * 5_000_000
    async with answering(Asked("200 OK", "Content-Type: application/json\r\n", body)) as url:
        line = McpConnection(Server(name="far", url=url), approved=None, limits=PATIENT)
        with pytest.raises(ToolError, match="did not start: it sent more than"):
            await line.offers()
        await line.close()


async def test_a_server_whose_variables_are_not_set_is_not_started(sandbox: Sandbox) -> None:
    server = plain("good", environment={"A": "env:UNSET_A", "B": "env:UNSET_B"})
    with pytest.raises(ToolError, match="needs UNSET_A and UNSET_B in the environment"):
        await said(sandbox, server)
