"""Servers of the user's own that a command may use: each one address and port, in one spelling. Pure.

Every private address is refused to a command, except for what the user named here. The address of a service is the same
inside the sandbox as outside, and nothing but its port answers there.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...errors import BadInput
from .destinations import LABEL, PORT, PROXY_PORT, TOOLS_PORT, Destination, read_headers

_SERVICES_MAX = 16  # Of one command.
LOOPBACK = ("127.0.0.1", "::1")  # What `localhost` means, and it is asked of nobody.
_NAME = re.compile(rf"(?=.{{1,253}}\Z)(?:{LABEL}\.)*[a-z](?:[a-z0-9-]{{0,61}}[a-z0-9])?")
_ENTRY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:@/%*]+):([0-9]+)")
_PLAIN = re.compile(rb"([A-Z]{1,20}) http://([^/?#\x00-\x20\x7f-\xff]+)((?:[/?][\x21-\x7e]*)?) (HTTP/1\.[01])")
_TUNNEL = re.compile(rb"CONNECT ([\x21-\x7e]+) HTTP/1\.[01]")
_OF_THE_WAY = (b"host", b"connection", b"keep-alive", b"upgrade", b"te")  # And what is for a proxy.
# Nobody's own server is there: no address at all, many machines at once, what the cloud tells its machines, and IPv4 in
# disguise.
_NEVER = tuple(
    ipaddress.ip_network(each)
    for each in (
        "0.0.0.0/8", "100.100.100.200/32", "168.63.129.16/32", "169.254.0.0/16", "192.0.0.192/32", "224.0.0.0/4",
        "240.0.0.0/4", "::/128", "::ffff:0:0/96", "64:ff9b::/96", "2002::/16", "fd00:ec2::/32", "fe80::/10", "ff00::/8",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Service:
    """A server that the user named. `addresses` are where it is, each of them whole; a name has none until it is
    resolved, which happens once."""

    name: str  # A name, or an address.
    port: int
    addresses: tuple[str, ...] = ()

    @property
    def spellings(self) -> frozenset[str]:
        """All that a request may call it, in small letters."""
        return frozenset(_authority(each, self.port) for each in (self.name, *self.addresses))

    def resolved(self, addresses: Sequence[str]) -> Service:
        """With the first address that a resolver gave. BadInput: there is none, or no service can be there."""
        if not addresses:
            raise BadInput(f"The service {self} has no address; correct `services` in your config.toml.")
        if (found := _address(addresses[0])) is None:
            raise BadInput(f"The service {self} leads to {addresses[0]}, where no service can be; name another one.")
        return replace(self, addresses=(found,))

    def listening_at(self, address: str) -> Service:
        """The same, but tried at this address first: a server may have only one of the addresses of `localhost`."""
        return replace(self, addresses=tuple(dict.fromkeys((address, *self.addresses))))

    def __str__(self) -> str:
        return _authority(self.name, self.port)


def parse_services(entries: Sequence[str]) -> tuple[Service, ...]:
    """BadInput: an entry is not one name or address with a port."""
    if len(entries) > _SERVICES_MAX:
        raise BadInput(f"There are {len(entries)} services; name at most {_SERVICES_MAX}.")
    return tuple(dict.fromkeys(_parse(entry) for entry in entries))


def _parse(entry: str) -> Service:
    found = _ENTRY.fullmatch(entry) if entry.isascii() else None
    if found is None or not PORT.fullmatch(found[2]) or int(found[2]) > 65_535:
        raise _no_service(entry)
    name, port = found[1].lower(), int(found[2])
    if port in (PROXY_PORT, TOOLS_PORT):
        raise BadInput(f"{entry!r} has a port of the sandbox's own; let the service listen on another one.")
    if name == "localhost":
        return Service(name, port, LOOPBACK)
    if _NAME.fullmatch(name):
        return Service(name, port)
    address = _address(name[1:-1] if name.startswith("[") else name)
    if address is None or (":" in address) != name.startswith("["):
        raise _no_service(entry)
    return Service(address, port, (address,))


def _no_service(entry: str) -> BadInput:
    return BadInput(f"{entry!r} is not a service; write one name or address and a port, such as localhost:4000.")


def _address(text: str) -> str | None:
    """An address in its one spelling. None: it is none, or no service can be there."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    if getattr(found, "scope_id", None) or any(found in each for each in _NEVER):
        return None
    return str(found)


def _authority(name: str, port: int) -> str:
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def listened_at(services: Sequence[Service]) -> dict[tuple[str, int], Service]:
    """Where the sandbox listens for which service."""
    found: dict[tuple[str, int], Service] = {}
    for service in services:
        for address in service.addresses:
            found.setdefault((address, service.port), service.listening_at(address))
    return found


def names_beside(services: Sequence[Service], hosts: Sequence[Destination]) -> list[str]:
    """What programs reach without the proxy: the services, except those whose other ports are reached through it."""
    named = {each: None for service in services for each in (service.name, *service.addresses)}
    return [each for each in named if not any(host.covers(each, host.port) for host in hosts)]


def hosts_file(services: Sequence[Service]) -> bytes:
    """The sandbox's own list of names. All that a command can reach directly is in it."""
    own = [f"{each.addresses[0]} {each.name}\n" for each in services if each.name not in ("localhost", *each.addresses)]
    return "".join([*own, "127.0.0.1 localhost sandbox\n", "::1 localhost\n"]).encode()


def asked_service(head: bytes, services: Mapping[str, Service]) -> tuple[Service, bytes] | None:
    """The service that a request to the proxy asks for, and what is sent on to it: nothing for a tunnel, and the head
    of a plain request. None: it asks for something else. Refused: it is not clear what it asks for.

    A plain request is alone on its connection: whatever comes behind it goes to the same service.
    """
    first, *headers = head.split(b"\r\n")
    if found := _TUNNEL.fullmatch(first):
        service = services.get(authority := found[1].decode("ascii").lower())
        if service is not None:
            read_headers(headers, {authority})
        return None if service is None else (service, b"")
    if (found := _PLAIN.fullmatch(first)) is None:
        return None
    authority = found[2].decode("ascii").lower()
    if (service := services.get(authority, services.get(f"{authority}:80"))) is None:
        return None
    read = read_headers(headers, {authority, authority.removesuffix(":80")}, body=True)
    kept = [line for name, line in read if name not in _OF_THE_WAY and not name.startswith(b"proxy-")]
    path = found[3] if found[3].startswith(b"/") else b"/" + found[3]
    line = b" ".join((found[1], path, found[4]))
    own = (b"Host: " + authority.encode(), b"Connection: close", b"", b"")
    return service, b"\r\n".join([line, *kept, *own])
