"""A small network for tests: hosts in network namespaces of their own, each on its own wire to where the database is.

    python namespaces.py lab SOCKET              a namespace in which port 5432 leads to the database's Unix socket,
                                                 and port 22 to a git that serves the repositories of this machine
    python namespaces.py join LAB N COMMAND ...  the command in a namespace of its own, on wire N to the lab, or on
                                                 several: N,M
    python namespaces.py wire LAB N (up | down)  cut a wire at the lab's end, silently, or mend it
    python namespaces.py ssh ADDRESS HOST WORDS  in the place of ssh: git's own words to the lab, and what it answers

LAB is the process id of the first. Nothing of the machine's own network is touched, no program is needed, and neither
is root, where people may make user namespaces. All of it is gone when its processes are.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import shlex
import socket
import struct
import sys
import threading
from pathlib import Path

PORT = 5432
GIT_PORT = 22
_NEWUSER, _NEWNET = 0x10000000, 0x40000000
_NEWLINK, _NEWADDR = 16, 20
_REQUEST, _ACKNOWLEDGE, _NEW = 0x1, 0x4, 0x200 | 0x400
_UP = 0x1


class NoNamespaces(Exception):
    """This machine does not let us make network namespaces: run as root, or allow user namespaces."""


def lab_address(number: int) -> str:
    """Where the hosts on this wire find the database."""
    return f"10.77.{number}.1"


# Namespaces.


def _call(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        why = os.strerror(ctypes.get_errno())
        raise NoNamespaces(f"{name}: {why}. {NoNamespaces.__doc__}")


def _new_network() -> None:
    """Leave for a network of one's own; who may not becomes root in a user namespace first."""
    user, group = os.geteuid(), os.getegid()
    try:
        _call("unshare", _NEWNET)
    except NoNamespaces:
        _call("unshare", _NEWUSER | _NEWNET)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def _enter(lab: int, kind: str) -> None:
    with Path(f"/proc/{lab}/ns/{kind}").open() as place:
        _call("setns", place.fileno(), 0)


def _become_its_root(lab: int) -> None:
    if os.readlink(f"/proc/{lab}/ns/user") != os.readlink("/proc/self/ns/user"):
        _enter(lab, "user")


# Wires, by the kernel's own protocol.


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def _ask_kernel(kind: int, body: bytes, flags: int = 0) -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        head = struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | _ACKNOWLEDGE | flags, 1, 0)
        kernel.send(head + body)
        (code,) = struct.unpack_from("=i", kernel.recv(65_536), 16)
        if code:
            raise NoNamespaces(f"The kernel refused to lay a wire: {os.strerror(-code)}.")


def _link(index: int = 0, flags: int = 0, change: int = 0) -> bytes:
    return struct.pack("=BxHiII", 0, 0, index, flags, change)


def _lay_wire(number: int, lab: int) -> None:
    """A wire from here to the lab: `ownN` at this end, `wireN` at the other."""
    name, there, process = 3, 1, 19  # What the kernel calls a link's name, the other end, and whose namespace.
    own = b"own%d\0" % number
    other = _link() + _attribute(name, b"wire%d\0" % number) + _attribute(process, struct.pack("=I", lab))
    kind_and_ends = _attribute(1, b"veth\0") + _attribute(2, _attribute(there, other))
    _ask_kernel(_NEWLINK, _link() + _attribute(name, own) + _attribute(18, kind_and_ends), _NEW)


def _switch(name: str, up: bool) -> None:
    _ask_kernel(_NEWLINK, _link(socket.if_nametoindex(name), _UP if up else 0, _UP))


def _give_address(name: str, address: str) -> None:
    packed = socket.inet_aton(address)
    place = struct.pack("=BBBBi", socket.AF_INET, 24, 0, 0, socket.if_nametoindex(name))
    _ask_kernel(_NEWADDR, place + _attribute(2, packed) + _attribute(1, packed), _NEW)


# The programs.


async def _lab(path: str) -> None:
    """Passes bytes on between the wires and the database until it is killed."""
    _new_network()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while some := await reader.read(65_536):
                writer.write(some)
                await writer.drain()
        except OSError:
            pass  # One end went away; so does the other.
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_unix_connection(path)
        await asyncio.gather(pass_on(reader, forth), pass_on(back, writer))

    async def serve_git(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        program, repository = shlex.split((await reader.readline()).decode())
        git = await asyncio.create_subprocess_exec(
            "git", program.removeprefix("git-"), repository, stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert git.stdin is not None
        assert git.stdout is not None
        await asyncio.gather(pass_on(reader, git.stdin), pass_on(git.stdout, writer))
        await git.wait()

    await asyncio.start_server(serve_git, "0.0.0.0", GIT_PORT)
    async with await asyncio.start_server(serve, "0.0.0.0", PORT) as server:
        print("ready", flush=True)
        await server.serve_forever()


def _ssh(address: str, command: str) -> None:
    """Ends when the other side has said all; with an error if it is silent for long, as ssh is told to."""
    with socket.create_connection((address, GIT_PORT), timeout=5) as line:
        line.settimeout(None)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in ((socket.TCP_KEEPIDLE, 1), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 2)):
            line.setsockopt(socket.IPPROTO_TCP, option, value)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 3_000)
        line.sendall(f"{command}\n".encode())

        def send() -> None:
            while some := os.read(0, 65_536):
                line.sendall(some)
            line.shutdown(socket.SHUT_WR)

        threading.Thread(target=send, daemon=True).start()
        while some := line.recv(65_536):
            os.write(1, some)


def _join(lab: int, numbers: list[int], command: list[str]) -> None:
    _become_its_root(lab)
    _call("unshare", _NEWNET)
    with Path("/proc/self/ns/net").open() as own:
        _switch("lo", up=True)
        for number in numbers:
            _lay_wire(number, lab)
            _give_address(f"own{number}", f"10.77.{number}.2")
            _switch(f"own{number}", up=True)
        _enter(lab, "net")
        for number in numbers:
            _give_address(f"wire{number}", lab_address(number))
            _switch(f"wire{number}", up=True)
        _call("setns", own.fileno(), 0)
    os.execv(command[0], command)


def main(what: str, *given: str) -> None:
    if what == "lab":
        asyncio.run(_lab(given[0]))
    elif what == "join":
        _join(int(given[0]), [int(each) for each in given[1].split(",")], list(given[2:]))
    elif what == "ssh":
        _ssh(given[0], given[-1])
    elif what == "wire":
        _become_its_root(int(given[0]))
        _enter(int(given[0]), "net")
        _switch(f"wire{given[1]}", up=given[2] == "up")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except NoNamespaces as trouble:
        sys.exit(str(trouble))
