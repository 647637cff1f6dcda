"""What stands outside for a command with a network of its own: a host it may reach, one it may not, and a resolver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from dugnad.workspace.sandbox.proxy import Network, NetworkLimits, Passage
from tests.workspace.attempts import WORD

HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"  # The first counts as the world's here, the second as this machine's.


@dataclass(slots=True)
class Outside:
    """`open_port` answers with what it was sent, and elsewhere with the secret word; the others, on every address of
    the loopback, with the secret word."""

    open_port: int
    secret_port: int
    datagram_port: int
    passages: list[Passage] = field(default_factory=list)
    resolved: list[str] = field(default_factory=list)

    async def resolve(self, name: str, port: int) -> Sequence[str]:
        """A name says where it leads. One that rebinds leads elsewhere from the second time on."""
        self.resolved.append(name)
        again = self.resolved.count(name) > 1
        found = {
            "metadata": ["169.254.169.254"], "inside": [ELSEWHERE], "mixed": [HERE, ELSEWHERE],
            "mapped": [f"::ffff:{ELSEWHERE}"], "rebinding": [ELSEWHERE if again else HERE], "nowhere": [],
        }  # fmt: skip
        return found.get(name.partition(".")[0], [HERE])

    def network(self, *inside: str, limits: NetworkLimits | None = None) -> Network:
        return Network(
            on_passage=self.passages.append,
            resolve=self.resolve,
            inside=frozenset({HERE, *inside}),
            limits=limits or NetworkLimits(),
        )


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def _tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(WORD.encode())
    writer.write_eof()
    try:
        await reader.read()  # Whoever closes with something unread takes back what was said.
    except OSError:
        pass
    writer.close()


class _Datagrams(asyncio.DatagramProtocol):
    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self.transport = transport

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        self.transport.sendto(WORD.encode(), address)


@asynccontextmanager
async def outside() -> AsyncIterator[Outside]:
    echo = await asyncio.start_server(_echo, HERE, 0)
    near = await asyncio.start_server(_tell, ELSEWHERE, echo.sockets[0].getsockname()[1])
    secret = await asyncio.start_server(_tell, "0.0.0.0", 0)
    loop = asyncio.get_running_loop()
    datagrams, _ = await loop.create_datagram_endpoint(_Datagrams, local_addr=("0.0.0.0", 0))
    try:
        yield Outside(
            echo.sockets[0].getsockname()[1],
            secret.sockets[0].getsockname()[1],
            datagrams.get_extra_info("sockname")[1],
        )
    finally:
        datagrams.close()
        echo.close()
        near.close()
        secret.close()
