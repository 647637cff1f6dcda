"""Opening beneath a root: what stays inside is found, nothing outside is, whatever is renamed or linked meanwhile."""

from __future__ import annotations

import ctypes
import os
import socket
import stat
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dugnad.errors import ToolError
from dugnad.workspace.files.paths import PARTS_MAX, Beneath, kind_of, parts_of, read_from, trouble
from tests.workspace.attacking import EXCHANGING, RENAMING, attacker


def by_kernel(root: Path, path: str) -> bytes:
    """What the kernel finds there, in one step: openat2 with RESOLVE_BENEATH and RESOLVE_NO_MAGICLINKS."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    held = os.open(root, os.O_PATH | os.O_DIRECTORY)
    how = struct.pack("=QQQ", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, 0, 0x08 | 0x02)
    found = call(437, held, os.fsencode("/".join(parts_of(path, root)) or "."), how, len(how))
    os.close(held)
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if not stat.S_ISREG(mode := os.fstat(found).st_mode):
        os.close(found)
        raise ToolError(f"{Path(path)} is {kind_of(mode)}, not a file.")
    return read_from(found, 1_000)


@pytest.fixture
def root(folder: Path) -> Path:
    """A root with a file, beside a folder that is none of its business."""
    for name in ("root/a/file", "root/b/file", "root/file", "root/alone", "outside/file"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("outside" if name.startswith("outside") else "inside")
    return folder / "root"


def content(tree: Beneath, path: str) -> bytes:
    parts = parts_of(path, tree.root)
    with tree.follow(parts) as opened:
        return read_from(opened.open_file("/".join(parts) or "."), 1_000)


@pytest.mark.parametrize("path", ["a/file", "./a//file", "a/../a/file", "to_a/file", "to_file", "deep/up/a/file"])
def test_what_stays_beneath_is_found_also_through_links(root: Path, path: str) -> None:
    (root / "to_a").symlink_to("a")
    (root / "to_file").symlink_to("to_a/../b/file")
    (root / "deep").mkdir()
    (root / "deep" / "up").symlink_to("..")
    assert content(Beneath(root), path) == b"inside"


@pytest.mark.parametrize(
    "path",
    [
        "../outside/file", "a/../../outside/file", "a/../../root/a/file", "out/file", "absolute/file", "to_file",
        "root_itself/a/file", "chain/file", "..",
    ],
)  # fmt: skip
def test_what_leaves_the_root_is_refused_even_if_it_comes_back(root: Path, path: str) -> None:
    (root / "out").symlink_to("../outside")
    (root / "absolute").symlink_to(root.parent / "outside")
    (root / "to_file").symlink_to("../outside/file")
    (root / "root_itself").symlink_to(root)
    (root / "chain").symlink_to("a/more")
    (root / "a" / "more").symlink_to("../../outside")
    with pytest.raises(OSError, match="cross-device"):
        content(Beneath(root), path)


def test_an_absolute_path_is_taken_only_beneath_the_root(root: Path) -> None:
    tree = Beneath(root)
    assert content(tree, f"{root}/a/file") == b"inside"
    for path in (f"{root.parent}/outside/file", "/etc/passwd", f"{root}x/file", "//etc/passwd"):
        with pytest.raises(ToolError, match="leads out of the workspace"):
            content(tree, path)
    with pytest.raises(OSError, match="cross-device"):
        content(tree, f"{root}/../outside/file")


def test_links_the_kernel_makes_up_are_refused() -> None:
    """Beneath /proc itself: there `root`, `cwd` and `fd` lead anywhere without a path."""
    tree = Beneath(Path("/proc"))
    assert content(tree, "self/comm")
    with open("/etc/hostname" if os.path.exists("/etc/hostname") else "/etc/passwd") as file:
        for path in ("self/root/etc/passwd", "self/cwd/x", f"self/fd/{file.fileno()}", "self/exe"):
            with pytest.raises(OSError):  # noqa: PT011
                content(tree, path)


def test_a_circle_of_links_ends(root: Path) -> None:
    (root / "x").symlink_to("y")
    (root / "y").symlink_to("x")
    (root / "longer").symlink_to("longer/longer")
    for path in ("x", "longer", "x/file"):
        with pytest.raises(OSError, match="symbolic links"):
            content(Beneath(root), path)


def test_pipes_sockets_folders_and_devices_are_told_apart_and_not_waited_for(root: Path) -> None:
    tree = Beneath(root)
    os.mkfifo(root / "pipe")
    (root / "to_pipe").symlink_to("pipe")
    with socket.socket(socket.AF_UNIX) as server:
        held = os.open(root, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{held}/socket" if os.path.exists("/proc/self/fd") else str(root / "socket"))
        os.close(held)
        kinds = {"pipe": "a named pipe", "to_pipe": "a named pipe", "socket": "a socket", "a": "a folder", ".": "a fol"}
        for path, kind in kinds.items():
            with pytest.raises(ToolError, match=f"is {kind}"):
                content(tree, path)
    with pytest.raises(ToolError, match="null is a device"):
        content(Beneath(Path("/dev")), "null")
    assert kind_of(stat.S_IFBLK) == "a device"


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("", "is empty"), ("a\0b", "NUL"), ("x/" * 3_000, "too long"), ("x" * 5_000, "too long"), ("\ud800", "half"),
        ("/".join("a" * (PARTS_MAX + 1)), "too long"),
    ],
)  # fmt: skip
def test_a_path_no_disk_could_hold_is_told(root: Path, path: str, says: str) -> None:
    with pytest.raises(ToolError, match=says):
        parts_of(path, root)


def test_a_name_that_is_too_long_for_the_disk_is_told(root: Path) -> None:
    with pytest.raises(OSError, match="name too long") as caught:
        content(Beneath(root), "x" * 300)
    assert str(trouble(caught.value, "x" * 300)).startswith("A name in xxx")
    assert len(str(trouble(caught.value, "x" * 300))) < 300


def test_a_system_error_without_a_sentence_of_its_own_is_told_in_its_words() -> None:
    assert str(trouble(OSError(5, "Input/output error"), "x")) == "x could not be used: Input/output error."


def test_folders_that_are_missing_are_made_beneath_only(root: Path) -> None:
    tree = Beneath(root)
    (root / "link").symlink_to("b/new")
    with tree.follow(("link", "deep", "file")) as opened:
        assert opened.real == ("b", "new", "deep", "file")
        opened.make_folders()
        assert (opened.real, opened.stat()) == (("b", "new", "deep", "file"), None)
    assert (root / "b" / "new" / "deep").is_dir()
    with pytest.raises(FileNotFoundError), tree.follow(("missing", "..", "file")):
        pass


def test_nothing_is_left_open(root: Path) -> None:
    tree = Beneath(root)
    os.mkfifo(root / "pipe")
    (root / "loop").symlink_to("loop")
    count = len(os.listdir("/dev/fd"))
    for path in ("a/file", "a", "../x", "loop", "pipe", "a/file/x", "none/none", "a/../b/file"):
        try:
            content(tree, path)
        except (OSError, ToolError):
            pass
    assert len(os.listdir("/dev/fd")) == count


NAMES = st.sampled_from(["a", "b", "file", "l", "m", "n", "..", ".", "outside", "root"])
PATHS = st.lists(NAMES, min_size=1, max_size=6).map("/".join)


@settings(max_examples=300)
@given(links=st.fixed_dictionaries({"l": PATHS, "a/m": PATHS, "b/n": PATHS}), paths=st.lists(PATHS, max_size=8))
def test_the_walk_finds_just_what_the_kernel_finds(links: dict[str, str], paths: list[str]) -> None:
    with tempfile.TemporaryDirectory() as made:
        root = Path(made) / "root"
        for name, text in (("root/a/file", "in a"), ("root/b/file", "in b"), ("outside/file", "outside")):
            (Path(made) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(made) / name).write_text(text)
        for name, target in links.items():
            (root / name).symlink_to(target)
        for path in paths:
            found = []
            for look in (by_kernel, lambda root, path: content(Beneath(root), path)):
                try:
                    found.append(look(root, path).decode())
                except OSError as error:
                    found.append(type(error).__name__ + str(error.errno))
                except ToolError as error:
                    found.append(str(error))
            assert found[0] == found[1]
            assert found[0] != "outside"


@pytest.mark.parametrize("script", [RENAMING, EXCHANGING], ids=["renaming", "exchanging"])
def test_a_renaming_attacker_never_gets_an_open_to_leave_the_root(root: Path, script: str) -> None:
    tree = Beneath(root)
    found = {b"inside": 0, b"refused": 0}
    with attacker(root, script):
        while sum(found.values()) < 4_000 or not all(found.values()):
            for path in ("a/file", "a/../a/file", "b/../a/file", "file", "alone"):
                try:
                    found[content(tree, path)] += (
                        1  # A KeyError here is an escape, and no end a pipe that is waited for.
                    )
                except (OSError, ToolError):
                    found[b"refused"] += 1


def test_a_renaming_attacker_never_gets_a_folder_made_outside(root: Path) -> None:
    tree = Beneath(root)
    made = {True: 0, False: 0}
    with attacker(root, EXCHANGING):
        while sum(made.values()) < 2_000 or not all(made.values()):
            try:
                with tree.follow(("a", f"new{sum(made.values())}", "file")) as opened:
                    opened.make_folders()
                made[True] += 1
            except OSError:
                made[False] += 1
    assert os.listdir(root.parent / "outside") == ["file"]
