"""A real ssh server on loopback, with keys of its own: Debian's sshd, for one user that exists in its sandbox alone."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UNPACKED = Path(sys.prefix) / "sshd"
_SETTINGS = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
"""
_CLIENT = """
Host *
  IdentityFile {folder}/{key}
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/{known}
  StrictHostKeyChecking yes
  BatchMode yes
  ConnectTimeout 20
"""


class SshServer:
    """A server that can be killed and started again at the same address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        for name in ("host_key", "other_host_key", "key", "other_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
        shutil.copy(folder / "key.pub", folder / "authorized")
        (folder / "passwd").write_text(f"keeper:x:1000:1000::{folder}:/bin/sh\n")
        (folder / "group").write_text("keeper:x:1000:\n")
        self.port = 0
        self.start()

    def start(self) -> None:
        for _ in range(10):  # Another process may take a port that was free.
            if not self.port:
                with socket.create_server(("127.0.0.1", 0)) as free:
                    self.port = free.getsockname()[1]
            if self._answers():
                break
            self.kill()
            self.port = 0
        for name in ("known", "wrongly_known"):
            key = (self.folder / ("host_key.pub" if name == "known" else "other_host_key.pub")).read_text()
            (self.folder / name).write_text(f"[127.0.0.1]:{self.port} {key}")

    def _answers(self) -> bool:
        settings, log = self.folder / "sshd_config", self.folder / "log"
        settings.write_text(_SETTINGS.format(port=self.port, folder=self.folder))
        installed = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
        program = installed or str(UNPACKED / "usr" / "sbin" / "sshd")
        assert Path(program).exists(), "There is no ssh server: run `make proof`, which fetches one, or install it."
        with log.open("wb") as out:
            # Killing the first process of a PID namespace kills all of it, as a crash of the machine does.
            self.process = subprocess.Popen(
                [shutil.which("bwrap") or f"{sys.prefix}/bin/bwrap", "--die-with-parent", "--unshare-user",
                 "--unshare-pid", "--uid", "1000", "--gid", "1000", "--dev-bind", "/", "/", "--proc", "/proc",
                 "--ro-bind", str(self.folder / "passwd"), "/etc/passwd",
                 "--ro-bind", str(self.folder / "group"), "/etc/group", program, "-D", "-e", "-f", str(settings)],
                env={"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": _libraries()}, stdin=subprocess.DEVNULL,
                stdout=out, stderr=out,
            )  # fmt: skip
        while self.process.poll() is None:
            if b"Server listening on" in log.read_bytes():
                return True
            try:
                self.process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
        if b"Address already in use" in log.read_bytes():
            return False
        raise AssertionError(log.read_text())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)

    def address(self, repository: Path) -> str:
        return f"ssh://keeper@127.0.0.1:{self.port}{repository}"

    def client(self, key: str = "key", known: str = "known") -> str:
        """The command with which a user reaches it, by a key and by the server's key as the user knows it."""
        settings = self.folder / f"client_{key}_{known}"
        settings.write_text(_CLIENT.format(folder=self.folder, key=key, known=known))
        return f"ssh -F {settings}"


def _libraries() -> str:
    return os.pathsep.join(sorted({str(each.parent) for each in UNPACKED.rglob("lib*.so*")}))


@contextmanager
def ssh_server(folder: Path) -> Iterator[SshServer]:
    server = SshServer(folder)
    try:
        yield server
    finally:
        server.kill()
