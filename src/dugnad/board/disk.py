"""Which kind of disk a path is on. SQLite's locks and WAL cannot be trusted over a network."""

from __future__ import annotations

from pathlib import Path

_NETWORK = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "gluster", "lustre", "fuse.sshfs", "fuse.s3fs", "davfs")


def network_filesystem(path: Path, mounts: str) -> str | None:
    """The type of the network file system that holds `path`, by the text of /proc/mounts, or None."""
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = fields[1].encode().decode("unicode_escape")
        if len(point) >= len(best) and (path == Path(point) or Path(point) in path.parents):
            best, kind = point, fields[2]
    return kind if kind.startswith(_NETWORK) else None


def read_mounts() -> str:
    try:
        return Path("/proc/mounts").read_text("utf-8", errors="replace")
    except OSError:
        return ""  # Not Linux: nothing is known, and SQLite's own locking has to do.
