"""Which hosts a command may reach, and how it asks for one: pure, and strict where there is a choice.

There is one form of request, `CONNECT name:port HTTP/1.x`, and one form of name: letters, digits and hyphens between
dots, and a letter at the beginning of the last part. So no notation of an address is a name.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ...errors import BadInput

HEAD_BYTES_MAX = 8 * 1024
PROXY_PORT = 30_128  # Of the sandbox's own loopback, below what the kernel gives out by itself.
TOOLS_PORT = 30_129  # The same, for a server of ours for one command.
_HEADERS_MAX = 64
_SHOWN_MAX = 5
LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"(?=.{{1,253}}\Z)(?:{LABEL}\.)+[a-z](?:[a-z0-9-]{{0,61}}[a-z0-9])?")
PORT = re.compile(r"[1-9][0-9]{0,4}")
_FIRST = re.compile(rb"CONNECT ([\x21-\x7e]+) HTTP/1\.[01]")
_HEADER = re.compile(rb"([A-Za-z0-9!#$%&'*+.^_`|~-]+):[ \t]*([\x20-\x7e\t]*)")
_BODIES = (b"content-length", b"transfer-encoding", b"trailer", b"upgrade", b"expect")
# Addresses that no name of the outside world leads to: this machine, its neighbours, the cloud's own services.
_INSIDE = tuple(
    ipaddress.IPv4Network(each)
    for each in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16",
        "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
        "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
    )
)  # fmt: skip
# Of IPv6 only the part that is given out to the world, without the ranges in it that have another meaning.
_OUTSIDE_6 = ipaddress.IPv6Network("2000::/3")
_INSIDE_6 = tuple(map(ipaddress.IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))


@dataclass(frozen=True, slots=True)
class Destination:
    """One entry of a list: a name or, with `below`, every name below it; and the port."""

    name: str
    port: int = 443
    below: bool = False

    def covers(self, name: str, port: int) -> bool:
        return port == self.port and (name.endswith(f".{self.name}") if self.below else name == self.name)

    def __str__(self) -> str:
        return f"{'*.' if self.below else ''}{self.name}{'' if self.port == 443 else f':{self.port}'}"


class DestinationRefused(Exception):
    """A request that is refused, with the status and the sentence of the answer."""

    def __init__(self, status: int, says: str) -> None:
        super().__init__(says)
        self.status, self.says = status, says


def parse_hosts(entries: Sequence[str]) -> tuple[Destination, ...]:
    """BadInput: an entry is not a name, nor `*.` and a name, with at most a port behind it."""
    return tuple(dict.fromkeys(_parse_host(entry) for entry in entries))


def _is_host(name: str, port: str) -> bool:
    return bool(_NAME.fullmatch(name) and PORT.fullmatch(port)) and int(port) <= 65_535


def _parse_host(entry: str) -> Destination:
    name, colon, port = entry.partition(":")
    below = name.startswith("*.")
    name = name.removeprefix("*.").lower() if entry.isascii() else ""
    if not _is_host(name, port if colon else "443"):
        raise BadInput(f"{entry!r} is not a host to be reached; write pypi.org, *.example.org or example.org:8443.")
    return Destination(name, int(port) if colon else 443, below)


def read_head(head: bytes) -> tuple[str, int]:
    """The name and port that a request asks for; `head` is the request up to the empty line. Refused: anything else."""
    first, *headers = head.split(b"\r\n")
    asked = _FIRST.fullmatch(first)
    if asked is None:
        if re.match(rb"[A-Z]+ http://", first):
            raise DestinationRefused(405, "Only https works here: the proxy takes CONNECT and nothing else")
        raise DestinationRefused(400, "The proxy takes CONNECT name:port HTTP/1.1 and nothing else")
    name, _, port = asked[1].decode("ascii").partition(":")
    name = name.lower()
    if not _is_host(name, port):
        raise DestinationRefused(403, "Hosts are reached by name and port, never by address")
    read_headers(headers, {name, f"{name}:{port}"})
    return name, int(port)


def read_headers(lines: Sequence[bytes], names: Collection[str], *, body: bool = False) -> list[tuple[bytes, bytes]]:
    """The headers of a request, each with its name in small letters. Refused: one of them is not right, names another
    host, or announces a body where there is none."""
    if len(lines) > _HEADERS_MAX:
        raise DestinationRefused(431, "The request has too many headers")
    found: list[tuple[bytes, bytes]] = []
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None or (not body and header[1].lower() in _BODIES):
            raise DestinationRefused(400, "The request has a header that does not belong there")
        if header[1].lower() == b"host" and header[2].strip().lower().decode("ascii") not in names:
            raise DestinationRefused(400, "The request names two hosts")
        found.append((header[1].lower(), line))
    return found


def judge(hosts: Sequence[Destination], name: str, port: int) -> None:
    """Refused: none of the entries covers it."""
    if any(host.covers(name, port) for host in hosts):
        return
    named = ", ".join(str(host) for host in hosts[:_SHOWN_MAX])
    more = f" and {len(hosts) - _SHOWN_MAX} more" if len(hosts) > _SHOWN_MAX else ""
    raise DestinationRefused(403, f"{name}:{port} is not among the hosts that can be reached from here: {named}{more}")


def is_outside(address: str) -> bool:
    """Whether an address belongs to the outside world, and not to this machine, its network or its cloud."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv4Address):
        return not any(found in each for each in _INSIDE)
    return found in _OUTSIDE_6 and not any(found in each for each in _INSIDE_6)
