"""Files of a workspace: read with numbers, replaced as a whole or not at all, and never over what others wrote."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dugnad.errors import ToolError
from dugnad.workspace.files.files import PROTECTED, Files
from tests.workspace.attacking import put

# Reading.


def test_a_text_is_read_with_line_numbers(files: Files, root: Path) -> None:
    put(root, "src/x.py", "one\n\ttwo\n")
    assert files.read("src/x.py") == "     1\tone\n     2\t\ttwo"


def test_a_part_of_a_text_says_where_to_go_on(files: Files, root: Path) -> None:
    put(root, "x", "".join(f"line {number}\n" for number in range(1, 11)))
    assert files.read("x", first_line=3, lines=2) == (
        "     3\tline 3\n     4\tline 4\n[Lines 3 to 4 of 10; go on with first_line=5.]"
    )
    assert files.read("x", first_line=10) == "    10\tline 10"
    with pytest.raises(ToolError, match="has only 10 lines"):
        files.read("x", first_line=11)
    with pytest.raises(ToolError, match="count from 1"):
        files.read("x", first_line=0)


def test_what_is_unusual_about_a_text_is_told(files: Files, root: Path) -> None:
    put(root, "crlf", b"a\r\nb\r\n")
    put(root, "latin", b"gr\xf6\xdfe")
    put(root, "marked", "größe\n".encode("utf-16"))
    put(root, "empty", b"")
    assert files.read("crlf") == "     1\ta\n     2\tb\n[Lines end with CRLF.]"
    assert files.read("latin") == ("     1\tgröße\n[Not UTF-8, shown as Latin-1; no line end after the last line.]")
    assert files.read("marked") == "     1\tgröße\n[UTF-16-LE with a byte-order mark.]"
    assert files.read("empty") == "[empty is empty.]"


def test_a_picture_or_a_program_is_named_and_not_shown(files: Files, root: Path) -> None:
    put(root, "x.png", b"\x89PNG\r\n\x1a\n" + bytes(2_000))
    put(root, "x.bin", b"a\0b")
    assert files.read("x.png") == "[x.png is a PNG image of 2,008 bytes; it is not shown.]"
    assert files.read("x.bin") == "[x.bin is a binary file of 3 bytes; it is not shown.]"


def test_what_is_shown_is_bounded(folder: Path) -> None:
    files = Files(folder, output_chars_max=1_000, file_bytes_max=100_000)
    put(folder, "wide", "x" * 50_000 + "\nend\n")
    put(folder, "long", "line\n" * 1_000)
    put(folder, "huge", b"x" + "größe\n".encode() * 30_000)
    assert files.read("wide").endswith("… [48,000 characters more]\n[Lines 1 to 1 of 2; go on with first_line=2.]")
    assert len(files.read("long")) < 1_100
    assert "only the first 99,993 of 240,001 bytes" in files.read("huge", first_line=10_000, lines=50_000)
    for number in range(300):
        put(folder, f"many/{number:03}", "x")
    assert len(files.list_dir("many")) < 1_100
    assert files.list_dir("many").endswith("of 300 are shown; ask for less at once.]")


def test_a_file_that_is_not_there_is_answered_with_names_that_are(files: Files, root: Path) -> None:
    put(root, "src/settings.py", "")
    with pytest.raises(ToolError, match=r"There is no src/setings.py. Did you mean src/settings.py\?"):
        files.read("src/setings.py")
    with pytest.raises(ToolError, match=r"There is no src/setings.py."):
        files.edit("src/setings.py", "a", "b")


def test_a_folder_is_listed_with_kinds_and_sizes(files: Files, root: Path) -> None:
    put(root, "a/x", "")
    put(root, "b.txt", "1234")
    (root / "link").symlink_to("b.txt")
    os.mkfifo(root / "pipe")
    (root / os.fsdecode(b"bad\xff\n")).touch()
    assert files.list_dir() == "a/\nb.txt  4 bytes\nbad\ufffd\ufffd  0 bytes\nlink -> b.txt\npipe  (a named pipe)"
    (root / "none").mkdir()
    assert files.list_dir("none") == "[none is empty.]"
    with pytest.raises(ToolError, match="not a folder"):
        files.list_dir("b.txt")


# Writing.

PATH = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=12).filter(
        lambda name: name not in (".", "..", *PROTECTED)
    ),
    min_size=1,
    max_size=4,
).map("/".join)

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff"))  # With these two an edit has its own rules.


@settings(max_examples=150)
@given(path=PATH, text=TEXT)
def test_what_is_written_is_there_byte_for_byte_under_any_name(path: str, text: str) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as made:
        files = Files(Path(made))
        assert files.write(path, text).startswith("Made ")
        assert (Path(made) / path).read_bytes() == text.encode()
        assert files.write(path, text + "x").startswith("Replaced ")
        assert files.edit(path, text + "x", "y", every=True).startswith("Changed ")
        assert (Path(made) / path).read_bytes() == b"y"
        left = [each for each in Path(made).rglob("*") if each.is_file()]
        assert left == [Path(made) / path], "nothing else is left behind"


def test_permissions_are_kept_and_new_files_have_the_usual_ones(files: Files, root: Path) -> None:
    put(root, "run.sh", "echo").chmod(0o751)
    files.write("run.sh", "echo 2")
    files.edit("run.sh", "2", "3")
    assert (root / "run.sh").stat().st_mode & 0o7777 == 0o751
    files.write("new", "")
    put(root, "usual", "")
    assert (root / "new").stat().st_mode == (root / "usual").stat().st_mode


@pytest.mark.skipif(os.geteuid() != 0, reason="Only root can write a file that keeps another owner.")
def test_the_owner_is_kept(files: Files, root: Path) -> None:
    os.chown(put(root, "x", "1"), 1234, 4321)
    files.write("x", "2")
    assert ((root / "x").stat().st_uid, (root / "x").stat().st_gid) == (1234, 4321)


def test_a_link_stays_a_link_and_the_file_behind_it_is_written(files: Files, root: Path) -> None:
    put(root, "docs/AGENTS.md", "old")
    (root / "CLAUDE.md").symlink_to("docs/AGENTS.md")
    (root / "dangling").symlink_to("docs/new.md")
    files.write("CLAUDE.md", "new")
    files.write("dangling", "made")
    assert (root / "CLAUDE.md").is_symlink()
    assert (root / "docs/AGENTS.md").read_text() == "new"
    assert (root / "docs/new.md").read_text() == "made"


def test_nothing_outside_is_written(files: Files, root: Path) -> None:
    secret = put(root.parent, "outside/secret", "secret")
    (root / "link").symlink_to("../outside/secret")
    (root / "way").symlink_to(root.parent / "outside")
    for path in ("../outside/secret", str(secret), "link", "way/secret", "way/new", "../new", "a/../../outside/new"):
        for attempt in (lambda path=path: files.write(path, "x"), lambda path=path: files.edit(path, "secret", "x")):
            with pytest.raises(ToolError, match=r"leads out of the workspace|There is no a"):
                attempt()
    assert secret.read_text() == "secret"
    assert os.listdir(root.parent / "outside") == ["secret"]


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit", ".git/config", ".git", ".dugnad/board.db", "dugnad.toml", "./x/../.git/config",
        ".GIT/x", "Dugnad.toml", "sub/.git/config", "way/pre-commit", "to_toml", ".g\u200cit/config", ".git./config",
    ],
)  # fmt: skip
def test_what_belongs_to_git_or_to_dugnad_can_be_read_and_not_written(files: Files, root: Path, path: str) -> None:
    put(root, ".git/hooks/sample", "kept")
    put(root, "x/y", "")
    (root / "way").symlink_to(".git/hooks")
    (root / "to_toml").symlink_to("dugnad.toml")  # Which does not exist yet.
    before = sorted(root.rglob("*"))
    with pytest.raises(ToolError, match="belongs to git or to dugnad itself"):
        files.write(path, "x")
    with pytest.raises(ToolError):
        files.edit(path, "kept", "x")
    assert sorted(root.rglob("*")) == before
    assert files.read("way/sample").startswith("     1\tkept")


def test_a_read_only_file_a_folder_and_a_pipe_are_not_written(files: Files, root: Path) -> None:
    put(root, "fixed", "x").chmod(0o444)
    (root / "folder").mkdir()
    os.mkfifo(root / "pipe")
    for path, says in (("fixed", "read-only"), ("folder", "is a folder"), ("pipe", "a named pipe"), (".", "a folder")):
        with pytest.raises(ToolError, match=says):
            files.write(path, "y")
    with pytest.raises(ToolError, match="not a folder"):
        files.write("fixed/x", "y")
    assert (root / "fixed").read_text() == "x"


AS_A_USER = """
import os, sys
from pathlib import Path
from dugnad.errors import ToolError
from dugnad.workspace.files.files import PROTECTED, Files
if os.geteuid() == 0:
    os.setgid(65534), os.setuid(65534)
files = Files(Path(sys.argv[1]))
for call in (lambda: files.read("closed"), lambda: files.write("new", ""), lambda: files.read("shut/x"),
             lambda: files.edit("foreign", "a", "b")):
    try:
        print(call())
    except ToolError as error:
        print(error)
"""


def test_what_the_user_may_not_do_is_told(folder: Path) -> None:
    root = folder / "root"
    put(root, "closed", "x").chmod(0)
    put(root, "shut/x", "x").parent.chmod(0)
    put(root, "foreign", "a").chmod(0o444)
    root.chmod(0o555)
    folder.chmod(0o755)
    told = subprocess.run(
        [sys.executable, "-c", AS_A_USER, str(root)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    root.chmod(0o755)
    (root / "shut").chmod(0o755)
    refused = "is not permitted to this user."
    assert told == [
        f"closed {refused}",
        f"new {refused}",
        f"shut/x {refused}",
        "foreign is read-only; it was not changed.",
    ]


@pytest.fixture
def tiny(folder: Path) -> Iterator[Path]:
    """A disk on which next to nothing fits."""
    disk = folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("Only root can mount a small disk.")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_leaves_the_file_as_it_was(tiny: Path) -> None:
    files = Files(tiny)
    files.write("x", "small")
    for attempt in (lambda: files.write("x", "y" * 100_000), lambda: files.edit("x", "small", "y" * 100_000)):
        with pytest.raises(ToolError, match="The disk is full; x was not changed"):
            attempt()
    assert files.read("x").startswith("     1\tsmall")
    assert os.listdir(tiny) == ["x"]


def test_a_text_that_is_too_long_is_refused_before_anything_is_made(folder: Path) -> None:
    files = Files(folder, file_bytes_max=100)
    with pytest.raises(ToolError, match="longer than 100 bytes"):
        files.write("a/b", "x" * 101)
    put(folder, "big", "x" * 101)
    with pytest.raises(ToolError, match="has 101 bytes"):
        files.edit("big", "x", "y")
    assert os.listdir(folder) == ["big"]


def test_the_root_has_to_be_there(folder: Path) -> None:
    with pytest.raises(ToolError, match="There is no x"):
        Files(folder / "nowhere").read("x")
