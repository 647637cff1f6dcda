"""A command uses a server of the user's own at the server's own address, with any program, and nothing else near it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from dugnad.errors import BadInput
from dugnad.workspace.sandbox.destinations import PROXY_PORT
from dugnad.workspace.sandbox.proxy import Network, NetworkLimits, Passage
from dugnad.workspace.sandbox.sandbox import CommandResult, Sandbox
from tests.workspace.attempts import BARE
from tests.workspace.running import strict_here, until


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Says which request came, and with how many bytes of body; more than one request can come."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = [
                int(each.split(b":")[1]) for each in head.lower().split(b"\r\n") if each[:15] == b"content-length:"
            ]
            body = await reader.readexactly(length[0]) if length else b""
            host = next(each for each in head.split(b"\r\n") if each.lower().startswith(b"host:"))
            said = b"%s | %s | %d bytes\n" % (head.split(b"\r\n")[0], host, len(body))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said))
            if b"connection: close" in head.lower():
                break
    except (OSError, EOFError):
        pass
    writer.close()


@asynccontextmanager
async def serving(address: str, port: int = 0) -> AsyncIterator[int]:
    server = await asyncio.start_server(_answer, address, port, limit=2**20)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async with serving("127.0.0.1") as made:
        yield made


def unused(address: str = "127.0.0.1") -> int:
    with socket.socket() as it:
        it.bind((address, 0))
        return int(it.getsockname()[1])


async def ask(
    command: str, tree: Path, *services: str, hosts: tuple[str, ...] = (), **network: object
) -> CommandResult:
    sandbox = Sandbox(strict_here(), network=Network(**network))  # type: ignore[arg-type]
    try:
        return await sandbox.using(services).run(command, tree=tree, seconds=120, output_bytes_max=9_999, hosts=hosts)
    finally:
        await sandbox.close()


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "[::1]"])
async def test_any_program_reaches_a_service_by_the_name_it_has_outside(tree: Path, port: int, name: str) -> None:
    """The server has only one of the two addresses that localhost has."""
    ran = await ask(f"curl -sS http://{name}:{port}/v1?a=b -d hello", tree, f"localhost:{port}")
    assert ran.output.decode() == f"POST /v1?a=b HTTP/1.1 | Host: {name}:{port} | 5 bytes\n"
    assert ran.refused == ()


async def test_a_program_that_knows_no_proxy_reaches_it(tree: Path, port: int) -> None:
    code = f"import http.client as h; c = h.HTTPConnection('localhost', {port}); c.request('GET', '/x'); "
    code += "print(c.getresponse().read().decode()); c.request('GET', '/y'); print(c.getresponse().read().decode())"
    ran = await ask(f'env -i /usr/bin/python3 -c "{code}"', tree, f"localhost:{port}")
    assert [line.split()[1] for line in ran.output.decode().split("\n") if line] == ["/x", "/y"]


async def test_a_service_that_only_listens_on_version_6_is_reached_by_both_addresses(tree: Path) -> None:
    async with serving("::1") as port:
        ran = await ask(
            f"curl -sS http://127.0.0.1:{port}/a; curl -sS http://[::1]:{port}/b", tree, f"localhost:{port}"
        )
    assert [line.split()[1] for line in ran.output.decode().splitlines()] == ["/a", "/b"]


@pytest.mark.parametrize("by_proxy", ["", "--noproxy ''"])
async def test_a_service_elsewhere_has_its_own_address_and_name_inside(tree: Path, by_proxy: str) -> None:
    """127.0.0.9 is an address like 10.0.0.9: another one than the sandbox's own."""
    passages: list[Passage] = []
    async with serving("127.0.0.9") as port:

        async def resolve(name: str, port: int) -> Sequence[str]:
            return {"gateway.corp": ["127.0.0.9"]}[name]

        ran = await ask(
            f"curl -sS {by_proxy} http://gateway.corp:{port}/a; curl -sS {by_proxy} http://127.0.0.9:{port}/b", tree,
            f"gateway.corp:{port}", resolve=resolve, on_passage=passages.append,
        )  # fmt: skip
    assert [line.split()[1] for line in ran.output.decode().splitlines()] == ["/a", "/b"]
    assert [(each.host, each.address) for each in passages] == [("gateway.corp", "127.0.0.9")] * 2


async def test_the_address_of_another_machine_is_there_inside_and_its_service_alone_answers(tree: Path) -> None:
    """Nothing is at that address outside, so the refusal shows that the connection came as far as the proxy."""
    limits = NetworkLimits(connect_seconds=0.2)
    ran = await ask(
        "export no_proxy=*; curl -sS http://192.0.2.7:4000/; curl -sS http://192.0.2.7:4001/; "
        "curl -sS http://192.0.2.8:4000/; curl -gsS http://[2001:db8::7]:4000/",
        tree, "192.0.2.7:4000", "[2001:db8::7]:4000", limits=limits,
    )  # fmt: skip
    said = ran.output.decode().splitlines()
    assert said[0] == "dugnad: The service 192.0.2.7:4000 does not answer; start it."
    assert [line.split()[1] for line in said[1:3]] == ["(7)", "(7)"]  # What curl says when it cannot connect.
    assert said[3] == "dugnad: The service [2001:db8::7]:4000 does not answer; start it."


async def test_a_name_is_resolved_once_for_all_commands(tree: Path) -> None:
    asked: list[str] = []

    async def resolve(name: str, port: int) -> Sequence[str]:
        asked.append(name)
        return ["127.0.0.9" if len(asked) == 1 else "127.0.0.8"]

    async with serving("127.0.0.9") as port:
        sandbox = Sandbox(strict_here(), network=Network(resolve=resolve))
        for more in ((), (f"gateway.corp:{unused()}",)):
            using = sandbox.using((f"gateway.corp:{port}", *more))
            ran = await using.run(f"curl -sS http://gateway.corp:{port}/a", tree=tree, seconds=60, output_bytes_max=999)
            assert ran.code == 0
        await sandbox.close()
    assert asked == ["gateway.corp"]


async def test_a_name_without_an_address_starts_nothing_and_is_asked_for_again(tree: Path) -> None:
    asked: list[str] = []

    async def resolve(name: str, port: int) -> Sequence[str]:
        asked.append(name)
        raise OSError("no such name")

    sandbox = Sandbox(strict_here(), network=Network(resolve=resolve)).using(("gateway.corp:4000",))
    for _ in range(2):
        with pytest.raises(BadInput, match=r"The service gateway\.corp:4000 has no address"):
            await sandbox.run("touch ran", tree=tree, seconds=60, output_bytes_max=999)
    await sandbox.close()
    assert not (tree / "ran").exists()
    assert len(asked) == 2


async def test_two_services_on_one_port_are_two(tree: Path) -> None:
    async with serving("127.0.0.9") as port, serving("127.0.0.8", port):
        passages: list[Passage] = []
        await ask(
            f"for n in 8 9; do curl -sS http://127.0.0.$n:{port}/; done", tree, f"127.0.0.8:{port}",
            f"127.0.0.9:{port}", on_passage=passages.append,
        )  # fmt: skip
    assert [each.address for each in passages] == ["127.0.0.8", "127.0.0.9"]


@pytest.mark.parametrize("how", ["-p", ""])
async def test_the_proxy_leads_to_a_service_too_by_a_tunnel_and_by_a_plain_request(
    tree: Path, port: int, how: str
) -> None:
    url = f"http://localhost:{port}"
    ran = await ask(
        f"head -c 300000 /dev/zero > it; for n in 1 2; do curl -sS {how} --noproxy '' {url}/$n --data-binary @it "
        f"-x http://127.0.0.1:{PROXY_PORT}; done",
        tree, f"localhost:{port}",
    )  # fmt: skip
    assert ran.output.decode() == "".join(
        f"POST /{n} HTTP/1.1 | Host: localhost:{port} | 300000 bytes\n" for n in (1, 2)
    )


async def test_a_name_that_is_a_host_too_is_reached_by_the_proxy_and_is_still_the_service(tree: Path) -> None:
    async def resolve(name: str, port: int) -> Sequence[str]:
        return ["127.0.0.9"]

    async with serving("127.0.0.9") as port:
        ran = await ask(
            f"echo $NO_PROXY; curl -sS http://gateway.corp:{port}/a; curl -sSp http://gateway.corp:8443/", tree,
            f"gateway.corp:{port}", hosts=("gateway.corp:8443",), resolve=resolve,
        )  # fmt: skip
    said = ran.output.decode().splitlines()
    assert said[0] == "localhost,127.0.0.1,::1,127.0.0.9"
    assert said[1].startswith("GET /a ")
    assert ran.refused == ("gateway.corp leads to an address inside this machine's network",)


async def test_a_service_that_is_down_is_told_to_the_program_and_to_the_run(tree: Path) -> None:
    port = unused()
    says = f"The service localhost:{port} does not answer; start it"
    ran = await ask(
        f"head -c 3000000 /dev/zero > it; curl -sSi http://localhost:{port}/ --data-binary @it; "
        f"curl -sSi -x http://127.0.0.1:{PROXY_PORT} --noproxy '' http://localhost:{port}/; "
        f"exec 3<>/dev/tcp/127.0.0.1/{port}; printf '\\x16\\x03\\x01' >&3; cat <&3; echo ended",
        tree, f"localhost:{port}",
    )  # fmt: skip
    said = ran.output.decode()
    assert said.count(f"HTTP/1.1 502 {says}") == 2
    assert said.count(f"dugnad: {says}.") == 2
    assert said.endswith("ended\n")  # TLS gets no words of HTTP.
    assert ran.refused == (says,)


async def test_a_server_that_runs_on_has_its_services(tree: Path, port: int) -> None:
    sandbox = Sandbox(strict_here())
    command = f"while read it; do curl -sS http://localhost:{port}/$it; done"
    server = await sandbox.using((f"localhost:{port}",)).open(command, tree=tree)
    for word in ("one", "two"):
        server.stdin.write(f"{word}\n".encode())
        assert (await server.stdout.readline()).startswith(f"GET /{word} ".encode())
    await server.close()
    await sandbox.close()


async def test_nothing_of_services_is_left_afterwards(tree: Path, port: int) -> None:
    sandbox = Sandbox(strict_here())
    using = sandbox.using((f"localhost:{port}", "192.0.2.7:80"))
    line = f"curl -s http://localhost:{port}/"
    await using.run("true", tree=tree, seconds=60, output_bytes_max=99)
    children = psutil.Process().children()
    [starter] = [each for each in children if "dugnad.workspace.sandbox.helper.server" in each.cmdline()]
    before = (starter.num_fds(), psutil.Process().num_fds())
    await asyncio.gather(*(using.run(line, tree=tree, seconds=60, output_bytes_max=999) for _ in range(4)))
    server = await using.open(f"{line}; cat", tree=tree)
    assert await server.stdout.readline()
    await server.close()
    await until(lambda: (starter.num_fds(), psutil.Process().num_fds()) == before)
    await sandbox.close()


async def test_other_commands_of_the_same_sandbox_have_no_services(tree: Path, port: int) -> None:
    sandbox = Sandbox(strict_here())
    using = sandbox.using((f"localhost:{port}",))
    line = f"curl -s http://localhost:{port}/"
    assert (await using.run(line, tree=tree, seconds=60, output_bytes_max=999)).code == 0
    assert (await sandbox.run(line, tree=tree, seconds=60, output_bytes_max=999)).code == 7
    await sandbox.close()


async def test_connections_to_services_are_bounded_and_may_be_idle_for_longer(tree: Path, port: int) -> None:
    limits = NetworkLimits(connections_max=1, idle_seconds=0.2)
    ran = await ask(
        f"exec 3<>/dev/tcp/127.0.0.1/{port}; curl -sSi http://localhost:{port}/ | head -n1; sleep 0.5; "
        f"printf 'GET /late HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' >&3; grep -m1 late <&3",
        tree, f"localhost:{port}", limits=limits,
    )  # fmt: skip
    said = ran.output.decode()
    assert "503 There are too many connections at one time" in said
    assert "GET /late HTTP/1.1 | Host: x" in said
    cut = replace(limits, service_idle_seconds=0.2)
    ran = await ask(f"exec 3<>/dev/tcp/127.0.0.1/{port}; cat <&3; echo over", tree, f"localhost:{port}", limits=cut)
    assert ran.output.endswith(b"over\n")


async def test_a_bare_command_has_the_machines_own_network_and_no_listener(tree: Path, port: int) -> None:
    sandbox = Sandbox(BARE, unsafe=True)
    ran = await sandbox.using((f"localhost:{port}", "no-such-name.invalid:1")).run(
        f"curl -sS http://localhost:{port}/; echo $http_proxy", tree=tree, seconds=60, output_bytes_max=999
    )
    await sandbox.close()
    assert ran.output.decode() == f"GET / HTTP/1.1 | Host: localhost:{port} | 0 bytes\n\n"


async def test_a_service_cannot_send_a_program_further(tree: Path, port: int) -> None:
    """It may say where to ask next, and that is refused like any other address."""
    places = [f"http://localhost:{port}/", f"http://127.0.0.1:{port}/", "http://169.254.169.254/", "http://0.0.0.0:1/"]

    async def lead_away(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        where = places[int(head.split()[1].decode().strip("/"))].encode()
        writer.write(b"HTTP/1.1 307 Further\r\nContent-Length: 0\r\nConnection: close\r\nLocation: %s\r\n\r\n" % where)
        writer.close()

    leading = await asyncio.start_server(lead_away, "127.0.0.1", 0)
    its_port = leading.sockets[0].getsockname()[1]
    asks = f"for way in \"--noproxy '*'\" \"--noproxy '' -x 127.0.0.1:{PROXY_PORT}\"; do for n in 0 1 2 3; do "
    asks += f"eval curl -sSL $way http://localhost:{its_port}/$n; echo; done; done"
    ran = await ask(asks, tree, f"localhost:{its_port}")
    leading.close()
    assert b" | Host: " not in ran.output
    assert ran.output.count(b"curl: (7)") == 4
    assert ran.output.count(b"dugnad: Only https works here") == 4
