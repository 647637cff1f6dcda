"""A push between the processes of one machine that share a SQLite board.

Each process binds a datagram socket in a folder beside the board; after a commit the writer sends what changed to
every other socket there. A nudge may be lost (a full queue, a stopped process); the slow sweep covers that.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

_PATH_BYTES_MAX = 100  # A unix socket's address holds little more.
_DATAGRAM_BYTES_MAX = 8192
_DRAIN_MAX = 64


class Nudge:
    """This process's socket, and the others' to send to."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._name = name
        self._folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._owed: set[str] = set()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.socket.bind(self._address(name))
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sender.setblocking(False)

    def _address(self, name: str) -> str:
        path = str(self._folder / name)
        if len(os.fsencode(path)) > _PATH_BYTES_MAX:
            return f"/proc/self/fd/{self._folder_fd}/{name}"
        return path

    def send(self, payload: str) -> None:
        """Tell every other process. Called by the writer thread after a commit."""
        data = payload.encode()
        for name in os.listdir(self._folder_fd):
            if name == self._name:
                continue
            try:
                # Who missed one must look at everything: the database decides what concerns it.
                self._sender.sendto(b"?" if name in self._owed else data, self._address(name))
                self._owed.discard(name)
            except OSError as trouble:
                if trouble.errno == errno.ECONNREFUSED:  # Its process is gone.
                    with contextlib.suppress(OSError):
                        os.unlink(name, dir_fd=self._folder_fd)
                    self._owed.discard(name)
                elif trouble.errno in (errno.EAGAIN, errno.ENOBUFS):
                    self._owed.add(name)

    def drain(self, heard: Callable[[str], None]) -> None:
        """Hand on what arrived. A queue that was found full may have lost some: "?" says so."""
        for count in range(_DRAIN_MAX):
            try:
                heard(self.socket.recv(_DATAGRAM_BYTES_MAX).decode())
            except (BlockingIOError, InterruptedError):
                if count >= 10:
                    heard("?")
                return

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._name, dir_fd=self._folder_fd)
        self.socket.close()
        self._sender.close()
        os.close(self._folder_fd)
