"""Which kind of disk a path is on. SQLite's locks and WAL cannot be trusted over a network."""

from __future__ import annotations

import re
from pathlib import Path

_NETWORK = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "gluster", "lustre", "sshfs", "s3fs", "davfs", "rclone")
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
        return ""  # Not Linux: nothing is known, and SQLite's own locking has to do.
