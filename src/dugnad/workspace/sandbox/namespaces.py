"""Listening inside a sandbox's network, from outside: a socket stays in the namespace it was made in.

So the way out needs no program inside the sandbox that a command could replace.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket

_NS_GET_USERNS = 0xB701
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_IP_FREEBIND = 15
_BACKLOG = 64


def listen_inside(pid: int, port: int, channel: socket.socket, name: bytes) -> bool:
    """Make a socket that listens on the loopback of the network a process is in, and send it over the channel.

    A child does it, because a process that entered a namespace cannot come back. False: it could not be done.
    """
    child = os.fork()
    if child == 0:
        try:
            _send_listener(pid, port, channel, name)
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    return status == 0


def _send_listener(pid: int, port: int, channel: socket.socket, name: bytes) -> None:
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    # Entering it takes rights in the user namespace it belongs to. Entering that one gives them.
    _enter(fcntl.ioctl(network, _NS_GET_USERNS), _CLONE_NEWUSER)
    _enter(network, _CLONE_NEWNET)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)  # The loopback may not be up yet.
        listener.bind(("127.0.0.1", port))
        listener.listen(_BACKLOG)
        socket.send_fds(channel, [name], [listener.fileno()])


def _enter(namespace: int, kind: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, kind):
        raise OSError(ctypes.get_errno(), "The namespace cannot be entered")
