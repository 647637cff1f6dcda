"""Which disk a board is on, told from the text of /proc/mounts; and the board's folder while others use it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dugnad.board.store.disk import enter, network_filesystem, read_mounts

MOUNTS = """\
proc /proc proc rw,nosuid 0 0
/dev/sda1 / ext4 rw,relatime 0 0
server:/home /home nfs4 rw,vers=4.2 0 0
/dev/sdb1 /home/alice/local ext4 rw 0 0
//office/share /mnt/office\\040share cifs rw 0 0
host: /mnt/ssh fuse.sshfs rw 0 0
tmpfs /tmp tmpfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/boards", None),
        ("/home", "nfs4"),
        ("/home/alice/project", "nfs4"),
        ("/home/alice/local", None),
        ("/home/alice/local/project", None),
        ("/home/alice/localized", "nfs4"),
        ("/homeland", None),
        ("/mnt/office share/team", "cifs"),
        ("/mnt/office", None),
        ("/mnt/ssh/deep/er", "fuse.sshfs"),
        ("/tmp/x", None),
        ("/", None),
    ],
)
def test_the_innermost_mount_decides(path: str, kind: str | None) -> None:
    assert network_filesystem(Path(path), MOUNTS) == kind


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "afs", "ceph", "lustre", "fuse.sshfs"])
def test_each_network_file_system_is_known(kind: str) -> None:
    assert network_filesystem(Path("/net/team"), f"/dev/sda1 / ext4 rw 0 0\nwhat /net {kind} rw 0 0\n") == kind


@pytest.mark.parametrize("kind", ["fuse.glusterfs", "fuse.ceph-fuse", "fuse.ceph"])
def test_a_network_file_system_that_comes_by_way_of_fuse_is_known_too(kind: str) -> None:
    assert network_filesystem(Path("/net/team"), f"/dev/sda1 / ext4 rw 0 0\nwhat /net {kind} rw 0 0\n") == kind


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuse.bindfs", "ntfs"])
def test_local_file_systems_are_let_be(kind: str) -> None:
    assert network_filesystem(Path("/net/team"), f"what /net {kind} rw 0 0\n") is None


def test_the_last_of_two_mounts_on_one_point_is_the_one_in_use() -> None:
    assert network_filesystem(Path("/net/x"), "a /net nfs rw 0 0\nb /net ext4 rw 0 0\n") is None
    assert network_filesystem(Path("/net/x"), "b /net ext4 rw 0 0\na /net nfs rw 0 0\n") == "nfs"


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("/mnt/a\\040b\\040c", "/mnt/a b c/board"),
        ("/mnt/tab\\011bed", "/mnt/tab\tbed/board"),
        ("/mnt/line\\012feed", "/mnt/line\nfeed/board"),
        ("/mnt/back\\134slash", "/mnt/back\\slash/board"),
        ("/mnt/hash\\043", "/mnt/hash#/board"),
        ("/mnt/blåbær", "/mnt/blåbær/board"),
        ("/mnt/日本\\040語", "/mnt/日本 語/board"),
    ],
)
def test_the_mount_points_name_is_read_as_the_kernel_writes_it(written: str, path: str) -> None:
    assert network_filesystem(Path(path), f"/dev/sda1 / ext4 rw 0 0\nserver:/x {written} nfs4 rw 0 0\n") == "nfs4"


@pytest.mark.parametrize("text", ["", "\n\n", "odd line\n", "a b\n", "one\\x two\\ three\n"])
def test_a_text_that_says_nothing_is_no_reason_to_refuse(text: str) -> None:
    assert network_filesystem(Path("/some/where"), text) is None


def test_this_machines_own_mounts_can_be_read() -> None:
    text = read_mounts()
    assert network_filesystem(Path("/proc"), text) is None


def test_a_file_that_another_process_has_just_removed_is_no_trouble(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, listed, scanned = folder / ".dugnad", os.listdir, os.scandir
    enter(own)
    (own / "board.db.wake").mkdir(mode=0o700)
    pushed = own / "board.db.wake" / "x.1"

    def scan(at: Any) -> Iterator[os.DirEntry[str]]:
        found = list(scanned(at))
        pushed.unlink()
        return iter(found)

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(str(pushed))
        monkeypatch.setattr(os, "listdir", lambda at: [*listed(at), "board.db-journal"])
        monkeypatch.setattr(os, "scandir", scan)
        enter(own)
    assert not pushed.exists()
