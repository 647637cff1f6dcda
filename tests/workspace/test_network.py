"""A command reaches the hosts it was given through the proxy, and hears in a sentence why it reaches no other."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from dugnad.errors import BadInput
from dugnad.workspace.sandbox.destinations import PROXY_PORT
from dugnad.workspace.sandbox.proxy import Network, NetworkLimits
from dugnad.workspace.sandbox.sandbox import CommandResult, Sandbox
from tests.workspace.attempts import BARE, WORD
from tests.workspace.outside import Outside, outside
from tests.workspace.running import run, strict_here, until

# Opens a tunnel as file 3, and shows how the request was answered.
TUNNEL = f"""tunnel() {{ exec 3<>/dev/tcp/127.0.0.1/{PROXY_PORT}; printf 'CONNECT %s HTTP/1.1\\r\\n\\r\\n' $1 >&3
  read -r how <&3; echo "${{how%?}}"; read -r empty <&3; }}
"""


@pytest.fixture
async def world() -> AsyncIterator[Outside]:
    async with outside() as made:
        yield made


@pytest.fixture
async def sandbox(world: Outside) -> AsyncIterator[Sandbox]:
    made = Sandbox(strict_here(), network=world.network())
    yield made
    await made.close()


async def ask(sandbox: Sandbox, command: str, tree: Path, *hosts: str) -> CommandResult:
    return await sandbox.run(TUNNEL + command, tree=tree, seconds=60, output_bytes_max=9_999, hosts=hosts)


async def test_a_command_reaches_the_host_it_was_given_and_is_heard_back(
    sandbox: Sandbox, tree: Path, world: Outside
) -> None:
    host = f"files.example.org:{world.open_port}"
    ran = await ask(sandbox, f"tunnel {host}; echo through the wall >&3; head -n1 <&3", tree, host)
    assert ran.output.decode() == "HTTP/1.1 200 Connection established\nthrough the wall\n"
    assert ran.refused == ()
    [passage] = world.passages
    assert (passage.tree, passage.host, passage.port) == (tree, "files.example.org", world.open_port)
    assert (passage.address, passage.refused) == ("127.0.0.1", "")


async def test_each_request_is_logged_where_nobody_else_listens(
    tree: Path, world: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    here = world.network()
    sandbox = Sandbox(strict_here(), network=Network(resolve=here.resolve, inside=here.inside))
    host = f"files.example.org:{world.open_port}"
    with caplog.at_level("INFO", "dugnad"):
        await ask(sandbox, f"tunnel {host}; tunnel evil.example:443", tree, host)
    await sandbox.close()
    assert f"passage to={host} address=127.0.0.1 refused=" in caplog.text
    assert "passage to=evil.example:443 address= refused=evil.example:443 is not " in caplog.text


async def test_programs_find_the_proxy_by_themselves(sandbox: Sandbox, tree: Path, world: Outside) -> None:
    """With -p curl asks for a tunnel also where there is no TLS."""
    host = f"files.example.org:{world.secret_port}"
    ran = await ask(sandbox, f"curl -sSp --http0.9 http://{host}/", tree, host)
    assert ran.output.decode() == WORD


async def test_a_host_that_is_not_on_the_list_is_refused_with_a_sentence(
    sandbox: Sandbox, tree: Path, world: Outside
) -> None:
    ran = await ask(sandbox, "tunnel bad.example.org:443; cat <&3", tree, "files.example.org")
    says = "bad.example.org:443 is not among the hosts that can be reached from here: files.example.org"
    assert ran.output.decode().startswith(f"HTTP/1.1 403 {says}\n")
    assert ran.output.decode().endswith(f"dugnad: {says}.\n")
    assert ran.refused == (says,)
    assert [passage.refused for passage in world.passages] == [says]
    assert world.resolved == []


async def test_what_cannot_be_reached_says_so(sandbox: Sandbox, tree: Path, world: Outside) -> None:
    for name, says in (
        ("nowhere", "cannot be reached"),
        ("inside", "leads to an address inside this machine's network"),
    ):
        ran = await ask(sandbox, f"tunnel {name}.example.org:9", tree, "*.example.org:9")
        assert says in ran.output.decode()


async def test_without_hosts_there_is_no_proxy(sandbox: Sandbox, tree: Path) -> None:
    ran = await ask(sandbox, f"env | grep -i proxy; exec 3<>/dev/tcp/127.0.0.1/{PROXY_PORT}", tree)
    assert ran.code != 0
    assert b"refused" in ran.output
    assert b"http://" not in ran.output


async def test_what_runs_on_the_loopback_inside_is_reached_directly(sandbox: Sandbox, tree: Path) -> None:
    command = "/usr/bin/python3 -m http.server 8000 --bind 127.0.0.1 2>/dev/null & "
    command += "until curl -s http://127.0.0.1:8000/ -o it; do sleep 0.05; done; echo got"
    assert (await ask(sandbox, command, tree, "files.example.org")).output.endswith(b"got\n")


async def test_a_server_that_runs_on_has_its_hosts_until_it_is_closed(
    sandbox: Sandbox, tree: Path, world: Outside
) -> None:
    host = f"files.example.org:{world.open_port}"
    loop = 'while read word; do tunnel "$word"; echo hello >&3; head -n1 <&3; done'
    server = await sandbox.open(TUNNEL + loop, tree=tree, hosts=(host,))
    for _ in range(2):
        server.stdin.write(f"{host}\n".encode())
        assert (await server.stdout.readline()).startswith(b"HTTP/1.1 200")
        assert await server.stdout.readline() == b"hello\n"
    await server.close()


async def test_two_commands_at_once_have_each_their_own_hosts(sandbox: Sandbox, tree: Path, world: Outside) -> None:
    port = world.open_port
    commands = [
        ask(
            sandbox, f"tunnel one.example.org:{port}; tunnel two.example.org:{port}", tree, f"{name}.example.org:{port}"
        )
        for name in ("one", "two")
    ]
    first, second = [ran.output.splitlines() for ran in await asyncio.gather(*commands)]
    assert [line.split()[1] for line in (first[0], first[-1])] == [b"200", b"403"]
    assert [line.split()[1] for line in (second[0], second[-1])] == [b"403", b"200"]


async def test_much_is_carried_both_ways_and_whole(sandbox: Sandbox, tree: Path, world: Outside) -> None:
    host = f"files.example.org:{world.open_port}"
    command = f"tunnel {host} > /dev/null; (seq 1000000 >&3) & head -n 1000000 <&3 | cksum; seq 1000000 | cksum"
    said = (await ask(sandbox, command, tree, host)).output.splitlines()
    assert len(said) == 2
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("limits", "command", "shows"),
    [
        (
            NetworkLimits(connections_max=1),
            "tunnel {host}; exec 4>&3; tunnel {host}",
            b"503 There are too many connections",
        ),
        (NetworkLimits(bytes_max=10), "tunnel {host}; seq 1000 >&3; cat <&3 | wc -c", b"\n0\n"),
        (NetworkLimits(idle_seconds=0.2), "tunnel {host}; cat <&3; echo over", b"over"),
        (NetworkLimits(head_seconds=0.2), f"exec 3<>/dev/tcp/127.0.0.1/{PROXY_PORT}; cat <&3", b"408 "),
    ],
)
async def test_what_a_command_may_use_of_the_network_is_bounded(
    tree: Path, world: Outside, limits: NetworkLimits, command: str, shows: bytes
) -> None:
    sandbox = Sandbox(strict_here(), network=world.network(limits=limits))
    host = f"files.example.org:{world.open_port}"
    ran = await ask(sandbox, command.format(host=host), tree, host)
    await sandbox.close()
    assert shows in ran.output
    assert not ran.timed_out


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("CONNECT one.example.org:{port} HTTP/1.1\\r\\n\\r\\n", b" 200 "),
        ("CONNECT one.example.org:{port} HTTP/1.1\\r\\n\\r\\nCONNECT two.example.org:1 HTTP/1.1\\r\\n\\r\\n", b" 400 "),
        ("CONNECT one.example.org:{port} HTTP/1.1\\n\\n", b" 400 "),
        ("CONNECT one.example.org:{port} HTTP/1.1\\r\\nA: b\\n", b" 400 "),
    ],
)
async def test_a_request_that_is_not_in_the_one_form_is_answered_at_once(
    sandbox: Sandbox, tree: Path, world: Outside, text: str, status: bytes
) -> None:
    port = world.open_port
    command = (
        f"exec 3<>/dev/tcp/127.0.0.1/{PROXY_PORT}; printf '{text.format(port=port)}' > it; cat it >&3; head -n1 <&3"
    )
    assert status in (await ask(sandbox, command, tree, f"*.example.org:{port}")).output


async def test_a_request_without_end_is_cut_off(sandbox: Sandbox, tree: Path) -> None:
    command = f"exec 3<>/dev/tcp/127.0.0.1/{PROXY_PORT}; tr '\\0' x < /dev/zero >&3; echo gone"
    assert b"gone" in (await ask(sandbox, command, tree, "files.example.org")).output


async def test_nothing_of_the_proxy_is_left_afterwards(sandbox: Sandbox, tree: Path, world: Outside) -> None:
    host = f"files.example.org:{world.open_port}"
    await run(sandbox, "true", tree)
    [starter] = [
        each for each in psutil.Process().children() if "dugnad.workspace.sandbox.helper.server" in each.cmdline()
    ]
    before = (starter.num_fds(), psutil.Process().num_fds())
    for _ in range(3):
        await asyncio.gather(*(ask(sandbox, f"tunnel {host}; tunnel {host}", tree, host) for _ in range(3)))
    await asyncio.gather(*(ask(sandbox, "true", tree, host) for _ in range(3)))
    server = await sandbox.open(f"{TUNNEL} tunnel {host}; cat", tree=tree, hosts=(host,))
    assert (await server.stdout.readline()).startswith(b"HTTP/1.1 200")
    await server.close()
    await until(lambda: (starter.num_fds(), psutil.Process().num_fds()) == before)
    assert os.listdir(tree) == []


async def test_a_list_that_cannot_be_right_starts_nothing(sandbox: Sandbox, tree: Path) -> None:
    with pytest.raises(BadInput, match=r"127\.0\.0\.1.*is not a host"):
        await ask(sandbox, "touch ran", tree, "127.0.0.1")
    assert os.listdir(tree) == []


async def test_a_bare_command_has_the_machines_own_network(tree: Path, world: Outside) -> None:
    bare = Sandbox(BARE, unsafe=True)
    ran = await bare.run(
        f"exec 3<>/dev/tcp/127.0.0.1/{world.open_port}; echo $https_proxy", tree=tree, seconds=30, output_bytes_max=99,
        hosts=("files.example.org",),
    )  # fmt: skip
    await bare.close()
    assert (ran.code, ran.output) == (0, b"\n")
