"""A push between the processes of one machine that share a SQLite board.

Each process binds a datagram socket in a folder beside the board; after a commit the writer sends the topics to every
other socket there. A datagram may be lost (a full queue, a stopped process); the slow sweep covers that. The folder may
have come with the project, so only sockets with a name like ours are sent to or removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path

from ...safe_open import held

_NAME = re.compile(r"[0-9A-Za-z-]{1,64}")
_DATAGRAM_BYTES_MAX = 8192
_DRAIN_MAX = 64
_TICK_SECONDS = 0.05


class Nudge:
    """This process's socket, and the others' to send to."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        with held(folder, make=True) as inside:
            self._folder_fd = os.dup(inside)
        self._owed: set[str] = set()
        self._peers: list[str] = []
        self._changed_at = 0
        self._list_until = 0.0
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        os.fchmod(self.socket.fileno(), 0o600)
        self.socket.bind(self._address(name))
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sender.setblocking(False)

    def _address(self, name: str) -> str:
        """The socket in the folder that was opened, even if its path now leads elsewhere."""
        held = f"/proc/self/fd/{self._folder_fd}"
        return f"{held if os.path.isdir(held) else self._folder}/{name}"

    def send(self, payload: Callable[[], str]) -> None:
        """Tell every other process, after a commit of this one."""
        if not (others := self._others()):
            return
        data = payload().encode()
        for name in others:
            try:
                # A process that missed a datagram is told to look at everything.
                self._sender.sendto(b"?" if name in self._owed else data, self._address(name))
                self._owed.discard(name)
            except OSError as trouble:
                if trouble.errno == errno.ECONNREFUSED:  # Its process is gone.
                    with contextlib.suppress(OSError):
                        if self._is_ours(name):
                            os.unlink(name, dir_fd=self._folder_fd)
                    self._owed.discard(name)
                elif trouble.errno in (errno.EAGAIN, errno.ENOBUFS):
                    self._owed.add(name)

    def _others(self) -> list[str]:
        """The other processes. Listing costs more than sending, so it is done when the folder changed, and for a moment
        after: two changes within one tick of its time stamp look like one."""
        changed_at, now = os.stat(self._folder_fd).st_mtime_ns, time.monotonic()
        if changed_at != self._changed_at:
            self._changed_at, self._list_until = changed_at, now + _TICK_SECONDS
        if now < self._list_until:
            names = [name for name in os.listdir(self._folder_fd) if name != self._name]
            self._peers = [name for name in names if self._is_ours(name)]
        return self._peers

    def _is_ours(self, name: str) -> bool:
        try:
            found = os.stat(name, dir_fd=self._folder_fd, follow_symlinks=False)
        except OSError:
            return False
        return bool(_NAME.fullmatch(name)) and stat.S_ISSOCK(found.st_mode) and found.st_uid in (0, os.geteuid())

    def drain(self, heard: Callable[[str], None]) -> None:
        """Pass on what arrived. A queue that was full may have lost some; then pass on "?" too."""
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
