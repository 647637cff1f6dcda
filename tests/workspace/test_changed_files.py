"""Files that others change too: nothing they wrote is lost, and nothing half-written is ever seen."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from dugnad.errors import ToolError
from dugnad.workspace.files.files import Files
from tests.workspace.attacking import EXCHANGING, attacker, put


def test_what_somebody_else_changed_since_it_was_read_is_not_overwritten(files: Files, root: Path) -> None:
    path = put(root, "x", "mine\n")
    (root / "link").symlink_to("x")
    stamp = path.stat().st_mtime_ns
    files.read("link")
    path.write_text("hers\n")
    os.utime(path, ns=(stamp, stamp))  # Same size, same time: only the content tells.
    for attempt in (lambda: files.write("x", "again"), lambda: files.edit("x", "hers", "again", every=True)):
        with pytest.raises(ToolError, match="has changed since you read it"):
            attempt()
    assert path.read_text() == "hers\n"
    files.read("x")
    files.write("x", "both")
    assert path.read_text() == "both"


def test_an_edit_of_a_text_that_is_there_once_needs_no_new_look(files: Files, root: Path) -> None:
    path = put(root, "x", "mine\n")
    files.read("x")
    path.write_text("mine\nhers\n")
    files.edit("x", "mine", "ours")
    assert path.read_text() == "ours\nhers\n"
    with pytest.raises(ToolError, match="has changed since you read it"):
        files.write("x", "again")  # What she wrote was not read yet.
    files.edit("x", "ours", "yours")
    assert path.read_text() == "yours\nhers\n"


def test_ones_own_writes_are_not_somebody_elses(files: Files, root: Path) -> None:
    put(root, "x", "1")
    files.read("x")
    files.write("x", "2")
    files.edit("x", "2", "3")
    os.utime(root / "x")  # Touched, and the same.
    files.write("x", "4")
    assert (root / "x").read_text() == "4"


def test_a_file_that_was_replaced_by_another_of_the_same_name_has_changed(files: Files, root: Path) -> None:
    put(root, "x", "1")
    files.read("x")
    put(root, "new", "2").rename(root / "x")
    with pytest.raises(ToolError, match="has changed since"):
        files.write("x", "3")


def test_a_file_that_was_deleted_since_can_be_made_again(files: Files, root: Path) -> None:
    put(root, "x", "1").unlink()
    files.write("x", "1")
    (root / "x").unlink()
    assert files.write("x", "2").startswith("Made ")


def test_a_file_too_large_to_be_read_as_a_whole_is_known_by_its_time_and_size(folder: Path) -> None:
    files = Files(folder, file_bytes_max=100)
    put(folder, "x", "line\n" * 50)
    files.read("x")
    files.write("x", "small")
    put(folder, "x", "line\n" * 50)
    files.read("x")
    os.utime(folder / "x", ns=(1, 1))
    with pytest.raises(ToolError, match="has changed since"):
        files.write("x", "small")


class Meanwhile:
    """Does something just before the written file gets its name: where ids are asked for, others may come between."""

    def __init__(self, *deeds: object) -> None:
        self.deeds = list(deeds)

    def __call__(self) -> str:
        if self.deeds:
            self.deeds.pop(0)()  # type: ignore[operator]
        return "1234"


def test_what_others_write_in_the_middle_of_a_change_is_not_lost(folder: Path) -> None:
    path = put(folder, "x", "1")
    files = Files(folder, new_id=Meanwhile(lambda: path.write_text("2"), lambda: put(folder, "new", "theirs")))
    with pytest.raises(ToolError, match="has changed since"):
        files.edit("x", "1", "3")
    with pytest.raises(ToolError, match="was made by somebody else just now"):
        files.write("new", "mine")
    assert (path.read_text(), (folder / "new").read_text()) == ("2", "theirs")
    assert sorted(os.listdir(folder)) == ["new", "x"]


def test_a_half_written_file_in_the_way_is_never_written_through(folder: Path) -> None:
    put(folder, "victim", "kept")
    (folder / ".dugnad-1234.tmp").symlink_to("victim")
    with pytest.raises(ToolError):
        Files(folder, new_id=Meanwhile()).write("x", "1")
    assert (folder / "victim").read_text() == "kept"


def test_edits_from_many_threads_all_count(files: Files, root: Path) -> None:
    put(root, "x", "".join(f"<{number}>\n" for number in range(40)))
    threads = [threading.Thread(target=files.edit, args=("x", f"<{number}>", f"[{number}]")) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (root / "x").read_text() == "".join(f"[{number}]\n" for number in range(40))


def test_whoever_reads_during_a_write_sees_the_old_file_or_the_new_one(files: Files, root: Path) -> None:
    texts = ["a" * 100_000, "b" * 100_000]
    put(root, "x", texts[0])
    over = threading.Event()

    def write() -> None:
        for number in range(200):
            files.write("x", texts[number % 2])
        over.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not over.is_set():
        assert (root / "x").read_text() in texts
    writer.join()


def test_a_renaming_attacker_never_gets_a_write_outside_or_into_what_is_protected(files: Files, root: Path) -> None:
    put(root, "a/file", "x")
    put(root, "b/file", "x")
    put(root, ".git/kept", "x")
    put(root.parent, "outside/file", "outside")
    ended = {True: 0, False: 0}
    with attacker(root, EXCHANGING):
        while sum(ended.values()) < 600 or not all(ended.values()):
            try:
                files.write(f"a/new{sum(ended.values())}/x", "x")
                ended[True] += 1
            except ToolError:
                ended[False] += 1
    assert os.listdir(root.parent / "outside") == ["file"]
    assert os.listdir(root / ".git") == ["kept"]
