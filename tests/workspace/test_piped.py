"""A long-running command is talked to over pipes, and ends with whoever started it, with all that it started."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import psutil
import pytest

from dugnad.errors import BadInput, ToolError
from dugnad.workspace.sandbox.destinations import TOOLS_PORT
from dugnad.workspace.sandbox.pipes import read_lines
from dugnad.workspace.sandbox.profile import CommandLimits
from dugnad.workspace.sandbox.sandbox import Probe, Sandbox
from tests.workspace.attempts import BARE
from tests.workspace.running import MARK, found_bwrap, marked, run, strict_here, until

ECHO = "while read line; do echo said: $line; done"


async def test_a_server_is_talked_to_until_its_input_ends(sandbox: Sandbox, tree: Path) -> None:
    server = await sandbox.open(f"{ECHO}; echo over >&2; exit 3", tree=tree)
    for word in (b"one\n", b"two\n"):
        server.stdin.write(word)
        assert await server.stdout.readline() == b"said: " + word
    assert server.code is None
    server.stdin.close()
    assert await server.stdout.read() == b""
    assert await server.wait() == 3
    assert (server.code, server.errors()) == (3, "over\n")
    await server.close()
    await server.close()
    assert os.listdir(tree) == []


async def test_its_streams_are_pipes_that_can_be_opened_by_name(sandbox: Sandbox, tree: Path) -> None:
    server = await sandbox.open("test -p /dev/stdin -a -p /dev/stdout && cat /dev/stdin > /dev/stdout", tree=tree)
    server.stdin.write(b"through\n")
    assert await server.stdout.readline() == b"through\n"
    await server.close()


@pytest.mark.parametrize("bare", [False, True], ids=["strict", "bare"])
async def test_closing_ends_it_with_everything_it_started(tree: Path, bare: bool) -> None:
    sandbox = Sandbox(BARE, unsafe=True) if bare else Sandbox(strict_here())
    background = f"sh -c 'trap \"\" TERM; sleep 500; : {MARK}'"
    server = await sandbox.open(f"{'' if bare else 'setsid'} {background} & echo up; {background}", tree=tree)
    assert await server.stdout.readline() == b"up\n"
    await until(marked)
    await server.close()
    assert not marked()
    assert server.code is not None
    assert server.stdin.is_closing()
    await sandbox.close()


async def test_much_is_said_both_ways_at_once(sandbox: Sandbox, tree: Path) -> None:
    server = await sandbox.open("cat", tree=tree)
    whole = bytes(range(256)) * 40_000

    async def say() -> None:
        server.stdin.write(whole)
        await server.stdin.drain()
        server.stdin.close()

    _, heard = await asyncio.gather(say(), server.stdout.read())
    assert heard == whole
    await server.close()


async def test_of_its_errors_the_last_are_kept(sandbox: Sandbox, tree: Path) -> None:
    server = await sandbox.open("seq 100000 >&2; echo done", tree=tree)
    assert await server.stdout.readline() == b"done\n"
    await server.wait()
    assert server.errors().endswith("99999\n100000\n")
    assert len(server.errors()) <= 64 * 1024
    await server.close()


async def test_it_lives_under_the_same_policy_and_limits(tree: Path, folder: Path) -> None:
    sandbox = Sandbox(strict_here(), limits=CommandLimits(open_files_max=64))
    (folder / "secret").write_text("secret")
    command = f"cat {folder}/secret; echo x > dugnad.toml; ulimit -n; echo $COLOUR; tail -n +3 /proc/net/dev | wc -l"
    server = await sandbox.open(command, tree=tree, environment={"COLOUR": "green"})
    assert (await server.stdout.read()).split() == [b"64", b"green", b"1"]
    await server.wait()
    assert "No such file" in server.errors()
    assert "Read-only file system" in server.errors()
    await sandbox.close()


async def test_one_that_cannot_be_made_is_an_error_that_says_why(tree: Path, folder: Path) -> None:
    sandbox = Sandbox(strict_here(), readable=(Path("/no/such/toolchain"),))
    with pytest.raises(ToolError, match=r"could not be made: .*no/such/toolchain"):
        await sandbox.open("touch ran", tree=tree)
    await sandbox.close()
    sandbox = Sandbox(Probe(level="strict", says="", bwrap=folder / "nowhere"))
    with pytest.raises(ToolError, match="could not be made: No such file"):
        await sandbox.open("touch ran", tree=tree)
    await sandbox.close()
    with pytest.raises(ToolError, match="None is wanted here"):
        await Sandbox(BARE).open("touch ran", tree=tree)
    assert os.listdir(tree) == []


async def test_it_ends_when_the_starter_does(sandbox: Sandbox, tree: Path) -> None:
    server = await sandbox.open(f"echo up; sleep 500; : {MARK}", tree=tree)
    assert await server.stdout.readline() == b"up\n"
    [starter] = [
        each for each in psutil.Process().children() if "dugnad.workspace.sandbox.helper.server" in each.cmdline()
    ]
    starter.kill()
    assert await server.stdout.read() == b""
    assert await server.wait() == 137
    await until(marked, holds=False)
    await server.close()
    assert (await run(sandbox, "echo again", tree)).output == b"again\n"


async def test_nothing_of_it_outlives_the_process_that_opened_it(tree: Path, folder: Path) -> None:
    script = folder / "opener.py"
    script.write_text(
        "import asyncio; from pathlib import Path; from dugnad.workspace.sandbox.sandbox import *\n"
        "async def main():\n"
        f"  sandbox = Sandbox(Probe(level='strict', says='', bwrap=Path({str(found_bwrap())!r})))\n"
        f"  server = await sandbox.open('touch up; sleep 500; : {MARK}', tree=Path({str(tree)!r}))\n"
        "  await server.wait()\n"
        "asyncio.run(main())\n"
    )
    opener = await asyncio.create_subprocess_exec(sys.executable, script)
    await until((tree / "up").exists)
    assert marked()
    opener.kill()
    await opener.wait()
    await until(marked, holds=False)
    await until(lambda: os.listdir(tree) == ["up"])


async def test_opening_and_closing_leaves_no_file_open_on_either_side(sandbox: Sandbox, tree: Path) -> None:
    await run(sandbox, "true", tree)
    [starter] = [
        each for each in psutil.Process().children() if "dugnad.workspace.sandbox.helper.server" in each.cmdline()
    ]
    before = (starter.num_fds(), psutil.Process().num_fds())
    for _ in range(5):
        servers = await asyncio.gather(*(sandbox.open(ECHO, tree=tree) for _ in range(3)))
        for server in servers:
            await server.close()
        await sandbox.run("cat", tree=tree, seconds=30, output_bytes_max=99, stdin=b"x")
    await until(lambda: (starter.num_fds(), psutil.Process().num_fds()) == before)


async def test_a_command_reads_what_it_is_given_and_nothing_more(sandbox: Sandbox, tree: Path) -> None:
    whole = b"line\n" * 500_000
    for text in (b"", b"\0\xff", whole):
        ran = await sandbox.run("cat | wc -c", tree=tree, seconds=60, output_bytes_max=99, stdin=text)
        assert ran.output.split() == [str(len(text)).encode()]
    ran = await sandbox.run("head -n1; echo x >&0", tree=tree, seconds=60, output_bytes_max=999, stdin=b"mine\nyours\n")
    assert ran.output.startswith(b"mine\n")
    assert ran.code != 0
    with pytest.raises(BadInput, match="4 MiB"):
        await sandbox.run("cat", tree=tree, seconds=1, output_bytes_max=1, stdin=b"x" * (4 * 1024 * 1024 + 1))


@pytest.mark.parametrize("bare", [False, True], ids=["strict", "bare"])
async def test_a_server_of_ours_is_reached_from_inside_and_by_no_other_command(tree: Path, bare: bool) -> None:
    sandbox = Sandbox(BARE, unsafe=True) if bare else Sandbox(strict_here())
    ports: list[int] = []
    servers: list[asyncio.Server] = []

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello\n")
        writer.close()

    def serve(listener: socket.socket) -> None:
        ports.append(listener.getsockname()[1])
        opening = asyncio.ensure_future(asyncio.start_server(greet, sock=listener))
        opening.add_done_callback(lambda made: servers.append(made.result()))

    ask = "read port; cat < /dev/tcp/127.0.0.1/$port || echo refused"
    inside, outside = await sandbox.serving(serve).open(ask, tree=tree), await sandbox.open(ask, tree=tree)
    await until(lambda: servers)
    assert bare or ports == [TOOLS_PORT]
    for command, answer in ((inside, b"hello\n"), (outside, b"hello\n" if bare else b"refused\n")):
        command.stdin.write(b"%d\n" % ports[0])
        assert await command.stdout.read() == answer
        await command.close()
    servers[0].close()
    await sandbox.close()


async def test_lines_are_read_whole_and_within_a_bound() -> None:
    reader = asyncio.StreamReader()
    for piece in (b"one\n\n  \ntw", b"o\n", b"x" * 1_000_000 + b"\n", b"last"):
        reader.feed_data(piece)
    reader.feed_eof()
    assert [len(line) async for line in read_lines(reader, 2_000_000)] == [3, 3, 1_000_000]
    endless = asyncio.StreamReader()
    endless.feed_data(b"x" * 1_000_000)
    with pytest.raises(ToolError, match="a line of more than 0 MiB"):
        async for _ in read_lines(endless, 500_000):
            pass
