"""Checks of the place of a board's file: the kind of disk, and the files beside it. SQLite's locks and WAL cannot be
trusted over a network, and SQLite follows links and uses the journals that it finds beside its file."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...errors import BoardOnNetworkDisk, BoardReadOnly, BoardUnreachable
from ...safe_open import OWN, held, owners
from .queries import load_setup

_PLAIN = (stat.S_ISREG, stat.S_ISDIR)
_NAMES_A_FILE = bytes.fromhex("d9d505f920a163d7")  # The end of a journal that belongs to more than one database.

_NETWORK = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "gluster", "lustre", "sshfs", "s3fs", "davfs", "rclone")
_PAGES = 1_000
_ESCAPED = re.compile(r"\\([0-7]{3})")  # The kernel writes a space in a path as \040.


def network_filesystem(path: Path, mounts: str) -> str | None:
    """The type of the network file system that holds `path`, by the text of /proc/mounts, or None."""
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), fields[1])
        if len(point) >= len(best) and (path == Path(point) or Path(point) in path.parents):
            best, kind = point, fields[2]
    return kind if kind.removeprefix("fuse.").startswith(_NETWORK) else None


def read_mounts() -> str:
    try:
        return Path("/proc/mounts").read_text("utf-8", errors="replace")
    except OSError:
        return ""  # Not Linux: nothing is known, and SQLite's own locking must be enough.


def enter(folder: Path) -> None:
    """Prepare `.dugnad` before anything in it is used: make it, keep it private and out of version control.

    Refuse it if anything in it, or in its folders, could lead elsewhere."""
    ignored = folder / ".gitignore"
    try:
        with held(folder, make=True) as inside:
            for name in (".", *os.listdir(inside)):
                with contextlib.suppress(FileNotFoundError):  # Other processes come and go, and their files with them.
                    _look_at(folder, name, inside)
        if not ignored.exists() or ignored.stat().st_size != 2 or ignored.read_bytes() != b"*\n":
            ignored.write_bytes(b"*\n")
    except OSError as trouble:
        if os.path.lexists(folder):
            _check(folder, os.lstat(folder), (stat.S_ISDIR,))
        raise BoardReadOnly(f"The folder {folder} for the board cannot be made: {trouble.strerror}.") from None


def _look_at(folder: Path, name: str, inside: int) -> None:
    found = os.stat(name, dir_fd=inside, follow_symlinks=False)
    _check(folder / name, found)
    if found.st_mode & 0o077 and os.geteuid() in (0, found.st_uid):
        os.chmod(name, stat.S_IMODE(found.st_mode) & 0o700, dir_fd=inside)
    if stat.S_ISDIR(found.st_mode) and name != ".":
        _look_through(folder / name)


def _look_through(folder: Path) -> None:
    with held(folder) as inside:
        for entry in os.scandir(inside):
            if not entry.is_dir(follow_symlinks=False) and not entry.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    _check(folder / entry.name, entry.stat(follow_symlinks=False), (stat.S_ISSOCK,))


def _check(path: Path, found: os.stat_result, kinds: tuple[Callable[[int], bool], ...] = _PLAIN) -> None:
    """Refuse a path that is not of these kinds, that is a link, or that belongs to another user."""
    linked = stat.S_ISLNK(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_nlink > 1)
    if found.st_uid not in owners():
        says = "belongs to another user, who could make your teammates do anything"
    elif linked or not any(is_one(found.st_mode) for is_one in kinds):
        says = f"is {'a link' if linked else 'in the way'}: the board's folder has files and folders of its own only"
    else:
        return
    raise BoardUnreachable(f"{path} {says}. Look at it, then remove it.")


def check_place(path: Path) -> None:
    """Check the board's file and the files beside it, once in each process, before SQLite opens them."""
    if path.parent.name == OWN:
        enter(path.parent)
        with contextlib.suppress(OSError):  # SQLite would let everybody read it; its other files get the same mode.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path = Path(os.path.realpath(path))
    for suffix in ("", "-wal", "-shm", "-journal"):
        with contextlib.suppress(FileNotFoundError):
            _check(path.with_name(path.name + suffix), os.lstat(f"{path}{suffix}"))
    _refuse_foreign_journal(Path(f"{path}-journal"))
    if kind := network_filesystem(path.parent.resolve(), read_mounts()):
        raise BoardOnNetworkDisk(
            f"{path} is on a network file system ({kind}), where SQLite can lose writes: "
            "use a path on a local disk, or a PostgreSQL board for many machines."
        )


def _refuse_foreign_journal(journal: Path) -> None:
    """SQLite would delete the file that a journal names at its end. A board's journal names none."""
    with contextlib.suppress(FileNotFoundError), journal.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - len(_NAMES_A_FILE)))
        if file.read() == _NAMES_A_FILE:
            raise BoardUnreachable(f"{journal} is not a board's: it names another file. Look at it, then remove it.")


def shrink(connection: Any, whole: bool) -> bool:
    """Give free pages of a SQLite file back, some at a time. An older file must be rewritten as a whole, while all
    others wait; returns False if `whole` does not allow that."""
    setup = load_setup("sqlite")
    if by_parts := bool(connection.execute(setup["can_shrink"]).fetchone()[0]):
        for _ in range(0, connection.execute(setup["free_pages"]).fetchone()[0], _PAGES):
            connection.executescript(setup["give_back"])  # A script: each step of this statement gives one page.
    elif whole:
        connection.executescript(setup["vacuum"])
    connection.execute(setup["checkpoint"]).fetchall()
    return by_parts or whole
