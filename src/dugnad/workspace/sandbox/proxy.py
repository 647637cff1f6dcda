"""The one way out of a sandbox: a proxy on its loopback that carries bytes to allowed hosts, and says what it refuses.

It runs outside; the sockets it listens on were made inside. A name is resolved once, all its addresses are checked, and
the connection goes to one of exactly these. The bytes are not looked into.

A service of the user's own has a socket at its own address and port; what comes there goes to that service alone.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ...logs import logger
from .destinations import HEAD_BYTES_MAX, Destination, DestinationRefused, is_outside, judge, read_head
from .services import Service, asked_service, listened_at

_READ_BYTES = 65_536
_BARE_LINE_FEED = re.compile(rb"(?<!\r)\n")
_HTTP = re.compile(rb"[A-Z]{3,20} ")
_REFUSALS_KEPT = 20
_LOG = logger(__name__)

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLimits:
    """What one command may use of the network."""

    connections_max: int = 64  # At one time.
    bytes_max: int = 4 * 1024**3  # Both ways, of all its connections.
    head_seconds: float = 10.0
    connect_seconds: float = 20.0
    idle_seconds: float = 120.0
    service_idle_seconds: float = 1_800.0  # A model on the user's own machine may think for long before it says a word.


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A request to get out, for the log: from which tree, where to, and why it was refused, if it was."""

    tree: Path
    host: str  # Empty where the request could not be understood.
    port: int
    address: str = ""
    refused: str = ""


async def _resolve(name: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def log_passage(passage: Passage) -> None:
    where = f"{passage.host}:{passage.port}"
    _LOG.info("passage to=%s address=%s refused=%s", where, passage.address, passage.refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """How allowed hosts are reached, and who hears of it. `inside` are addresses that count as outside even so."""

    on_passage: Callable[[Passage], None] = log_passage
    resolve: Resolve = _resolve
    inside: frozenset[str] = frozenset()
    limits: NetworkLimits = field(default_factory=NetworkLimits)


@dataclass(slots=True)
class _ProxyRequest:
    """What one connection is for, as far as it is known."""

    service: Service | None
    host: str = ""
    its_port: int = 0
    tunnel: bool = False  # It waits to hear that it is connected.
    first: bytes = b""  # What is sent on at the beginning.

    @property
    def name(self) -> str:
        return self.host if self.service is None else self.service.name

    @property
    def port(self) -> int:
        return self.its_port if self.service is None else self.service.port


class Proxy:
    """For one command. It serves from the moment it is handed a socket until it is stopped."""

    def __init__(
        self, hosts: Sequence[Destination], tree: Path, network: Network, services: Sequence[Service] = ()
    ) -> None:
        self._hosts, self._tree, self._network = hosts, tree, network
        self._listened_at = listened_at(services)
        self._services = {spelling: each for each in reversed(services) for spelling in each.spellings}
        self._bytes_left = network.limits.bytes_max
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._connections = 0
        self._stopped = False
        self.refused: list[str] = []  # The first refusals, each once.

    def serve(self, listener: socket.socket) -> None:
        """Serve those who come to this socket. Where it was made says which service it is for, if it is for one."""
        service = self._listened_at.get(listener.getsockname()[:2])
        self._keep(self._listen(listener, service))

    async def _listen(self, listener: socket.socket, service: Service | None) -> None:
        server = await asyncio.start_server(lambda *streams: self._keep(self._attend(service, *streams)), sock=listener)
        if self._stopped:
            server.close()
        self._servers.append(server)

    def stop(self) -> None:
        self._stopped = True
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()

    def _keep(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _attend(
        self, service: Service | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One connection: what it asks for, whether it may, there and back."""
        asked = _ProxyRequest(service)
        self._connections += 1
        try:
            most = self._network.limits.connections_max
            if self._connections > 2 * most:  # Not even listened to: each takes an open file of this process.
                writer.transport.abort()
                return
            if service is None:
                await self._understand(asked, reader)
            if self._connections > most:
                raise DestinationRefused(503, "There are too many connections at one time")
            away = await (self._connect(asked.name, asked.port) if asked.service is None else self._use(asked.service))
        except DestinationRefused as refusal:
            self._tell(asked.name, asked.port, refused=refusal.says)
            await self._refuse(refusal, asked, reader, writer)
        except OSError:
            pass  # The command closed the connection.
        else:
            try:
                away[1].write(asked.first)
                if asked.tunnel:
                    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await self._carry(reader, writer, *away, local=asked.service is not None)
            finally:
                away[1].close()
        finally:
            self._connections -= 1
            writer.close()

    async def _understand(self, asked: _ProxyRequest, reader: asyncio.StreamReader) -> None:
        """What a request to the proxy asks for."""
        head, rest = await self._hear(reader)
        if found := asked_service(head, self._services):
            asked.service, asked.first = found
        else:
            asked.host, asked.its_port = read_head(head)
            judge(self._hosts, asked.name, asked.port)
        asked.tunnel = not asked.first
        if rest and asked.tunnel:
            raise DestinationRefused(400, "Something came with the request, before it was answered")
        asked.first += rest

    async def _refuse(
        self,
        refusal: DestinationRefused,
        asked: _ProxyRequest,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Answer a request in words. Those who come for a service may speak another protocol, and are cut off then."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(self._network.limits.head_seconds):
                unheard = asked.service is not None and not asked.tunnel and not asked.first
                if unheard and not _HTTP.match(await reader.read(_READ_BYTES)):
                    writer.transport.abort()
                    return
                writer.write(_answer(refusal))
                if asked.service is not None:
                    writer.write_eof()
                    while await reader.read(_READ_BYTES):  # What is left unread would take back the answer.
                        pass

    async def _hear(self, reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
        data = b""
        try:
            async with asyncio.timeout(self._network.limits.head_seconds):
                while b"\r\n\r\n" not in data:
                    if _BARE_LINE_FEED.search(data):
                        raise DestinationRefused(400, "A line of the request does not end as it should")
                    if len(data) > HEAD_BYTES_MAX:
                        raise DestinationRefused(431, "The request is too long")
                    if not (more := await reader.read(HEAD_BYTES_MAX)):
                        raise DestinationRefused(400, "The request ended before it was complete")
                    data += more
        except TimeoutError:
            raise DestinationRefused(408, "The request did not come in time") from None
        head, _, rest = data.partition(b"\r\n\r\n")
        return head, rest

    async def _connect(self, name: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to an address that the resolver gave. If any address is inside, the whole name is refused."""
        try:
            async with asyncio.timeout(self._network.limits.connect_seconds):
                addresses = list(dict.fromkeys(await self._network.resolve(name, port)))
        except (OSError, UnicodeError, TimeoutError):
            raise DestinationRefused(502, f"{name} has no address") from None
        for address in addresses:
            if address not in self._network.inside and (not is_outside(address) or _is_ours(address)):
                raise DestinationRefused(403, f"{name} leads to an address inside this machine's network")
        return await self._dial(name, port, addresses)

    async def _use(self, service: Service) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await self._dial(service.name, service.port, service.addresses)
        except DestinationRefused as refusal:
            raise DestinationRefused(502, f"The service {service} does not answer; start it") from refusal

    async def _dial(
        self, name: str, port: int, addresses: Sequence[str]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        for address in addresses:
            try:
                async with asyncio.timeout(self._network.limits.connect_seconds):
                    streams = await asyncio.open_connection(address, port, flags=socket.AI_NUMERICHOST)
            except (OSError, TimeoutError):
                continue
            self._tell(name, port, address=address)
            return streams
        raise DestinationRefused(502, f"{name}:{port} cannot be reached")

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, their_reader: asyncio.StreamReader,
        their_writer: asyncio.StreamWriter, *, local: bool,
    ) -> None:  # fmt: skip
        loop, limits = asyncio.get_running_loop(), self._network.limits
        seconds = limits.service_idle_seconds if local else limits.idle_seconds

        async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(_READ_BYTES):
                self._bytes_left -= len(data)
                if self._bytes_left < 0:
                    self._tell("", 0, refused="The command has used up what it may carry over the network")
                    raise ConnectionAbortedError
                sink.write(data)
                await sink.drain()
                idle.reschedule(loop.time() + seconds)
            if sink.can_write_eof():
                sink.write_eof()

        try:
            async with asyncio.timeout(seconds) as idle, asyncio.TaskGroup() as both:
                both.create_task(carry(reader, their_writer))
                both.create_task(carry(their_reader, writer))
        except* OSError:  # A side went away, it was idle for too long, or has carried too much.
            writer.transport.abort()  # Not an orderly end: the other side must not take it for one.
            their_writer.transport.abort()

    def _tell(self, name: str, port: int, *, address: str = "", refused: str = "") -> None:
        if refused and refused not in self.refused and len(self.refused) < _REFUSALS_KEPT:
            self.refused.append(refused)
        self._network.on_passage(Passage(tree=self._tree, host=name, port=port, address=address, refused=refused))


def _is_ours(address: str) -> bool:
    """Whether it is an address of this machine: only then can a socket be bound to it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as own, suppress(OSError):
        own.bind((address, 0))
        return True
    return False


def _answer(refusal: DestinationRefused) -> bytes:
    """The sentence is in the first line too: that is what many programs show."""
    body = f"dugnad: {refusal.says}.\n".encode()
    head = f"HTTP/1.1 {refusal.status} {refusal.says}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body
