"""Serving the page from this process: the socket, the links, and an end that no open page holds up."""

from __future__ import annotations

import asyncio
import errno
import gc
import ipaddress
import logging
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import uvicorn
from starlette.types import ASGIApp

from ..errors import BadInput
from .app import board_app
from .following import FollowedBoard
from .guard import site_of
from .sessions import Sessions, forget_old, sessions_file
from .stream import Streams

PORT = 7373
_PORTS_TRIED = 10
_END_SECONDS = 2  # For answers under way when the server ends.
_CONNECTIONS_MAX = 1_000
_LINE_BYTES_MAX = 16 * 1024  # Of the headers of a request.


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A server that answers. Its links are keys: who has one may use the page."""

    url: str
    port: int
    sessions: Sessions
    boards: Sequence[FollowedBoard]
    who: str
    streams: Streams
    look_link: str  # It may be shared, and works until the server ends.

    def steer_link(self) -> str:
        """A new link, which works once. One that was not used yet no longer works."""
        key = self.sessions.new_key("steer", boards=[each.identity for each in self.boards], who=self.who)
        return f"{self.url}/#steer={key}"


@asynccontextmanager
async def serving(
    boards: Sequence[FollowedBoard], *, listener: socket.socket, who: str, environment: Mapping[str, str],
    origin: str | None = None, mounts: Mapping[str, ASGIApp] | None = None,
) -> AsyncIterator[RunningServer]:  # fmt: skip
    """Serve these boards as long as the block lasts."""
    address, port = listener.getsockname()[:2]
    file = sessions_file(environment, port)
    forget_old(file.parent)
    sessions = Sessions(file)
    site = site_of(port, origin, address=address)
    app = board_app(boards, sessions, site, environment=environment, mounts=mounts)
    url = origin or f"http://{f'[{address}]' if ':' in address else address}:{port}"
    look = sessions.new_key("look", boards=[each.identity for each in boards])
    streams: Streams = app.state.served.streams
    server = _WebServer(app)
    running = asyncio.create_task(server.serve(sockets=[listener]), name="dugnad web")
    try:
        await server.answers.wait()
        yield RunningServer(
            url=url, port=port, sessions=sessions, boards=boards, who=who, streams=streams,
            look_link=f"{url}/#look={look}",
        )  # fmt: skip
    finally:
        streams.close()
        server.end()
        await running


async def settle_memory(boards: Sequence[FollowedBoard]) -> None:
    """When the logs were read, leave what they became out of garbage collection: a walk over all of it would hold up a
    request for a third of a second."""
    for each in boards:
        await each.read()
    gc.collect()
    gc.freeze()


class _WebServer(uvicorn.Server):
    """uvicorn without its own signals, and without its ten ticks a second."""

    def __init__(self, app: object) -> None:
        logging.getLogger("uvicorn").addHandler(logging.NullHandler())  # The guard logs what is worth it.
        super().__init__(
            uvicorn.Config(
                app,  # type: ignore[arg-type]
                http="h11", ws="none", lifespan="off", log_config=None, access_log=False, server_header=False,
                proxy_headers=False, limit_concurrency=_CONNECTIONS_MAX, timeout_graceful_shutdown=_END_SECONDS,
                h11_max_incomplete_event_size=_LINE_BYTES_MAX,
            )
        )  # fmt: skip
        self.answers = asyncio.Event()
        self._ends = asyncio.Event()

    def end(self) -> None:
        self.should_exit = True
        self._ends.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        self.answers.set()
        while not await self.on_tick(0):  # It sets the date of answers.
            try:
                async with asyncio.timeout(1):
                    await self._ends.wait()
            except TimeoutError:
                pass


def listen(address: str = "127.0.0.1", port: int | None = None) -> socket.socket:
    """A socket for the server. Without a port: the usual one, or the next that is free."""
    ports = range(PORT, PORT + _PORTS_TRIED) if port is None else (port,)
    for each in ports:
        try:
            return _bound(address, each)
        except OSError as trouble:
            if trouble.errno != errno.EADDRINUSE:
                raise BadInput(f"{address}, port {each}, cannot be used: {trouble.strerror}.") from None
    taken = f"Port {port} is taken" if port is not None else f"The ports {PORT} to {ports[-1]} are taken"
    raise BadInput(f"{taken}; choose another with --port.")


def _bound(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # The protocol is named, since asyncio sends small answers at once only where it is.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # After a restart, the port is free at once.
        made.bind((address, port))
        made.listen(128)
    except BaseException:
        made.close()
        raise
    return made


def checked_address(address: str, origin: str | None) -> str:
    """An address to listen at. One that other machines reach needs TLS in front, which the origin names."""
    try:
        found = ipaddress.ip_address("127.0.0.1" if address == "localhost" else address)
    except ValueError:
        raise BadInput(f"{address!r} is not an address; write 127.0.0.1, ::1 or another IP address.") from None
    if not found.is_loopback and origin is None:
        raise BadInput(
            f"Other machines can reach {found}, and would send keys and texts in the clear. Put a server with TLS in "
            "front, and name it: --origin https://dugnad.example.org"
        )
    return str(found)


def checked_origin(origin: str) -> str:
    """https://name or https://name:port, just as a browser writes it."""
    try:
        parts = urlsplit(origin.rstrip("/"))
        port, name = parts.port, parts.hostname or ""
    except ValueError:
        port, name, parts = None, "", urlsplit("")
    right = parts.scheme == "https" and name.isascii() and not (parts.path or parts.query or parts.fragment)
    if not right or not name or parts.username is not None:
        raise BadInput("--origin must be like https://dugnad.example.org: https, a name, and a port if it is not 443.")
    host = f"[{name}]" if ":" in name else name
    return f"https://{host}" + ("" if port in (None, 443) else f":{port}")
