"""Every attempt to reach more than the hosts on the list, or than a service of the user's own, is stopped. Each works
where what stops it is not there."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dugnad.workspace.sandbox.destinations import PROXY_PORT
from dugnad.workspace.sandbox.sandbox import Sandbox
from tests.workspace.attempts import BARE, WORD, find_python
from tests.workspace.outside import ELSEWHERE, Outside, outside
from tests.workspace.running import strict_here

PRELUDE = f"""
import socket, struct, sys, urllib.request
WORD, PORT, OPEN = {WORD.encode()!r}, {{secret_port}}, {{open_port}}
def got(*parts):
    said = b"".join(parts)
    sys.exit(WORD not in said)
def heard(it):
    it.settimeout(10)
    said = b""
    try:
        while more := it.recv(65536):
            said += more
    except OSError:
        pass
    return said
def proxy(*texts, port={PROXY_PORT}):
    it = socket.create_connection(("127.0.0.1", port), 10)
    for text in texts:
        it.sendall(text if isinstance(text, bytes) else text.encode())
    it.shutdown(socket.SHUT_WR)
    return heard(it)
def tunnel(host, port=PORT):
    return proxy(f"CONNECT {{{{host}}}}:{{{{port}}}} HTTP/1.1\\r\\n\\r\\n")
def plain(host, said=None):
    return proxy(f"GET http://{{{{host}}}}/ HTTP/1.1\\r\\nHost: {{{{said or host}}}}\\r\\n\\r\\n")
def direct(*place):
    try:
        return heard(socket.create_connection(place, 5))
    except OSError:
        return b""
GOOD = f"CONNECT files.example.org:{{{{OPEN}}}} HTTP/1.1\\r\\n"
BAD = f"CONNECT secret.example.org:{{{{PORT}}}} HTTP/1.1\\r\\n"
"""


@dataclass(frozen=True, slots=True)
class WayOut:
    """`works`: where the same text gets the word. With the machine's network; with a list that has the host and
    addresses inside allowed; as services; or, for what no setting allows, as the proper request for the same."""

    name: str
    code: str
    works: str  # "bare", "listed", "service" or the proper request.


LITERALS = ("127.0.0.2", "127.2", "2130706434", "0x7f000002", "0177.0.0.2", "0x7f.0.0.2")
PROPER = "got(tunnel('secret.example.org'))"
WAYS = (
    WayOut("connect directly", "got(heard(socket.create_connection(('127.0.0.1', PORT), 5)))", "bare"),
    WayOut("connect directly to another address",
           f"got(heard(socket.create_connection(('{ELSEWHERE}', PORT), 5)))", "bare"),
    WayOut("send a datagram out", "it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); it.settimeout(1)\n"
           "it.connect(('127.0.0.1', {datagram_port})); it.send(b'?'); got(it.recv(99))", "bare"),
    WayOut("ask a name server", "it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); it.settimeout(1)\n"
           "it.sendto(b'?', ('{elsewhere}', {datagram_port})); got(it.recv(99))", "bare"),
    *(WayOut(f"dial {each}", f"got(tunnel('{each}'))", f"got(heard(socket.create_connection(('{each}', PORT), 5)))")
      for each in LITERALS),
    WayOut("dial an address of version 6", "got(tunnel('[::ffff:127.0.0.2]'), tunnel('[::1]'))", PROPER),
    WayOut("ask for a host that is not on the list", PROPER, "listed"),
    WayOut("ask for another port of a host on the list", "got(tunnel('files.example.org'))", "listed"),
    WayOut("end the name with a dot", "got(tunnel('secret.example.org.'))", PROPER),
    WayOut("hide the name behind a user", "got(tunnel('files.example.org@secret.example.org'))", PROPER),
    WayOut("write the name in wide letters", "got(tunnel('ｓecret.example.org'), tunnel('secret。example.org'))",
           PROPER),
    WayOut("end the name with a zero",
           "got(proxy(b'CONNECT secret.example.org\\0.files.example.org:%d HTTP/1.1\\r\\n\\r\\n' % PORT))", PROPER),
    WayOut("send two requests", "got(proxy(GOOD + '\\r\\n' + BAD + '\\r\\n'))", PROPER),
    WayOut("send the second in the tunnel",
           "got(proxy(GOOD + '\\r\\n'), proxy(GOOD, '\\r\\n', BAD + '\\r\\n'))", PROPER),
    WayOut("send the second as the body of the first",
           "got(proxy(GOOD + f'Content-Length: {{len(BAD) + 2}}\\r\\n\\r\\n' + BAD + '\\r\\n'))", PROPER),
    WayOut("fold a header", "got(proxy(GOOD + 'A: b\\r\\n ' + BAD + '\\r\\n'))", PROPER),
    WayOut("end lines with a line feed alone",
           "got(proxy(BAD.replace('\\r', '') + '\\n'), proxy(GOOD.replace('\\r', '') + BAD + '\\r\\n'))", PROPER),
    WayOut("end lines with a carriage return alone", "got(proxy(GOOD[:-1] + BAD + '\\r\\n'))", PROPER),
    WayOut("name another host in a header",
           "got(proxy(GOOD + f'Host: secret.example.org:{{PORT}}\\r\\n\\r\\n'))", PROPER),
    WayOut("get by the absolute form",
           "got(proxy(f'GET http://secret.example.org:{{PORT}}/ HTTP/1.1\\r\\nHost: files.example.org\\r\\n\\r\\n'))",
           PROPER),
    WayOut("get by a program", "got(urllib.request.urlopen(f'http://secret.example.org:{{PORT}}/').read())", PROPER),
    WayOut("use a name that leads inside", "got(tunnel('inside.example.net'))", "listed"),
    WayOut("use a name that leads inside and outside", "got(tunnel('mixed.example.net'))", "listed"),
    WayOut("use a name that leads inside in disguise", "got(tunnel('mapped.example.net'))", "listed"),
    WayOut("use a name that leads inside the second time",
           "tunnel('rebinding.example.net', 1); got(tunnel('rebinding.example.net'))", "listed"),
    WayOut("reach the cloud's own service",
           "got(tunnel('metadata.example.net'), tunnel('169.254.169.254', 80))", PROPER),
    WayOut("reach another sandbox's proxy", "got(tunnel('other.example.org'))", "listed"),
    WayOut("take the proxy's place", "it = socket.socket(); it.setsockopt(1, 2, 1); it.setsockopt(1, 15, 1)\n"
           f"it.bind(('127.0.0.1', {PROXY_PORT})); it.listen(); got(WORD)", "bare"),
    # Each of them beside a service on the open port.
    WayOut("dial another port of the service", "got(direct('127.0.0.1', PORT), direct('::1', PORT))", "service"),
    WayOut("dial the service's port elsewhere", f"got(direct('{ELSEWHERE}', OPEN))", "service"),
    WayOut("dial every port near the service's",
           "got(*(direct('127.0.0.1', each) for each in (PORT, OPEN + 1, OPEN - 1)))", "service"),
    WayOut("dial the wildcard", "got(direct('0.0.0.0', PORT), direct('::', PORT))", "service"),
    WayOut("dial the service in disguise", "got(direct('::ffff:127.0.0.1', PORT))", "service"),
    *(WayOut(f"ask the proxy for {each} of the service", f"got(tunnel('{each}'), plain(f'{each}:{{{{PORT}}}}'))",
             "got(tunnel('localhost'))")
      for each in ("localhost.", "x.localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "[::ffff:127.0.0.1]",
                   "[::ffff:7f00:1]", "[0:0:0:0:0:0:0:1]", "*", "0.0.0.0", "[::]", "files.example.org@localhost")),
    WayOut("ask the proxy for another port of the service",
           "got(tunnel('localhost'), tunnel('127.0.0.1'), tunnel('[::1]'))", "service"),
    WayOut("get another port of the service",
           "got(plain(f'localhost:{{PORT}}'), plain(f'127.0.0.1:{{PORT}}'))", "service"),
    WayOut("get the service's port elsewhere", f"got(plain(f'{ELSEWHERE}:{{{{OPEN}}}}'), tunnel('{ELSEWHERE}', OPEN))",
           "service"),
    WayOut("name another port in the header Host", "got(plain(f'localhost:{{OPEN}}', f'localhost:{{PORT}}'))",
           "got(plain(f'localhost:{{PORT}}'))"),
    WayOut("name the service in the header Host alone", "got(plain(f'localhost:{{PORT}}', f'localhost:{{OPEN}}'))",
           "got(plain(f'localhost:{{PORT}}'))"),
    WayOut("ask for another port behind a request for the service",
           "ask = 'GET http://localhost:%d/ HTTP/1.1\\r\\n\\r\\n'; got(proxy(ask % OPEN + ask % PORT))",
           "got(plain(f'localhost:{{PORT}}'))"),
    WayOut("ask the service's socket as if it were the proxy",
           "got(proxy(f'CONNECT localhost:{{PORT}} HTTP/1.1\\r\\n\\r\\n', port=OPEN))", "got(tunnel('localhost'))"),
    WayOut("send a datagram to the service's port", "it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
           "it.settimeout(1); it.connect(('127.0.0.1', {datagram_port})); it.send(b'?'); got(it.recv(99))", "bare"),
    WayOut("take the service's place", "it = socket.socket(); it.setsockopt(1, 2, 1); it.setsockopt(1, 15, 1)\n"
           "it.bind(('127.0.0.1', OPEN)); it.listen(); got(WORD)", "service"),
)  # fmt: skip


@pytest.fixture
async def world() -> AsyncIterator[Outside]:
    async with outside() as made:
        yield made


async def gets_out(way: str, world: Outside, sandbox: Sandbox, tree: Path, hosts: tuple[str, ...]) -> bool:
    words = {"secret_port": world.secret_port, "open_port": world.open_port, "datagram_port": world.datagram_port}
    (tree / "way.py").write_text(PRELUDE.format(**words) + way.format(**words, elsewhere=ELSEWHERE))
    ran = await sandbox.run(f"{find_python()} way.py", tree=tree, seconds=60, output_bytes_max=4_000, hosts=hosts)
    assert not re.search(rb"(Name|Syntax|Type|Value|Index)Error", ran.output), ran.output  # Not a way, but a mistake.
    return ran.code == 0


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
async def test_no_way_out_leads_further_than_the_list(way: WayOut, world: Outside, tree: Path) -> None:
    port = world.secret_port
    listed = (f"files.example.org:{world.open_port}", f"*.example.net:{port}", "*.example.net:80", "*.example.net:1")
    sandbox = Sandbox(strict_here(), network=world.network())
    neighbour = await sandbox.open("cat", tree=tree, hosts=(f"other.example.org:{port}",))
    services = (f"localhost:{world.open_port}", f"127.0.0.1:{world.datagram_port}")
    assert not await gets_out(way.code, world, sandbox.using(services), tree, listed)
    await neighbour.close()
    await sandbox.close()

    world.resolved.clear()
    bare = way.works == "bare" or "create_connection" in way.works
    lax = (
        Sandbox(BARE, unsafe=True)
        if bare
        else Sandbox(strict_here(), network=world.network(ELSEWHERE, f"::ffff:{ELSEWHERE}")).using(
            (f"localhost:{port}", f"{ELSEWHERE}:{world.open_port}")
        )
    )
    code = way.code if way.works in ("bare", "listed", "service") else way.works
    assert await gets_out(
        code, world, lax, tree, (*listed, *(f"{name}.example.org:{port}" for name in ("secret", "files", "other")))
    )
    await lax.close()
