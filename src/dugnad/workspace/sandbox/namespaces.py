"""Listening inside a sandbox's network, from outside: a socket stays in the namespace it was made in.

Nothing is in that network but its loopback, which gets the addresses that are listened at. So the way out needs no
program inside the sandbox that a command could replace.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Sequence
from contextlib import ExitStack

_NS_GET_USERNS = 0xB701
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
# By whether an address is of version 6.
_FREEBIND = (
    (socket.AF_INET, socket.IPPROTO_IP, 15),  # IP_FREEBIND.
    (socket.AF_INET6, socket.IPPROTO_IPV6, 78),  # IPV6_FREEBIND.
)
# Of rtnetlink(7).
_NETLINK_ROUTE, _RTM_NEWADDR, _NLM_REQUEST, _NLM_ACK, _NLM_CREATE = 0, 20, 0x1, 0x4, 0x400
_IFA_ADDRESS, _IFA_LOCAL, _IFA_NODAD, _SCOPE_HOST, _LOOPBACK_INDEX = 1, 2, 0x2, 254, 1
_BACKLOG = 64


def listen_inside(pid: int, places: Sequence[tuple[str, int]], channel: socket.socket, name: bytes) -> bool:
    """Make sockets that listen at these addresses and ports of the network a process is in, and send them over the
    channel.

    A child does it, because a process that entered a namespace cannot come back. False: it could not be done.
    """
    child = os.fork()
    if child == 0:
        try:
            _send_listeners(pid, places, channel, name)
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    return status == 0


def _send_listeners(pid: int, places: Sequence[tuple[str, int]], channel: socket.socket, name: bytes) -> None:
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    # Entering it takes rights in the user namespace it belongs to. Entering that one gives them.
    _enter(fcntl.ioctl(network, _NS_GET_USERNS), _CLONE_NEWUSER)
    _enter(network, _CLONE_NEWNET)
    with ExitStack() as made:
        listeners = [made.enter_context(each) for place in places if (each := _listener(*place))]
        socket.send_fds(channel, [name], [each.fileno() for each in listeners])


def _listener(address: str, port: int) -> socket.socket | None:
    """None: this machine has no addresses of version 6, so nobody asks for it."""
    family, level, option = _FREEBIND[":" in address]
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
        if not ipaddress.ip_address(address).is_loopback:
            _add_address(family, socket.inet_pton(family, address))
        listener.setsockopt(level, option, 1)  # The loopback may not be up yet.
        listener.bind((address, port))
    except OSError as trouble:
        if trouble.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL) and family == socket.AF_INET6:
            return None
        raise
    listener.listen(_BACKLOG)
    return listener


def _add_address(family: int, address: bytes) -> None:
    """Give the loopback an address, as `ip address add` does."""
    flags = _NLM_REQUEST | _NLM_ACK | _NLM_CREATE
    body = struct.pack("=BBBBI", family, len(address) * 8, _IFA_NODAD, _SCOPE_HOST, _LOOPBACK_INDEX)
    body += b"".join(struct.pack("=HH", 4 + len(address), kind) + address for kind in (_IFA_LOCAL, _IFA_ADDRESS))
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_ROUTE) as kernel:
        kernel.send(struct.pack("=IHHII", 16 + len(body), _RTM_NEWADDR, flags, 1, 0) + body)
        _, answer = struct.unpack_from("=16si", kernel.recv(4_096))
    if answer not in (0, -errno.EEXIST):
        raise OSError(-answer, "The address cannot be added")


def _enter(namespace: int, kind: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, kind):
        raise OSError(ctypes.get_errno(), "The namespace cannot be entered")
