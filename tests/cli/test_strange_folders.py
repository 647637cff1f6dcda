"""A `.dugnad` that came with the project: nothing in it leads elsewhere, whatever command is typed."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import stat
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from dugnad.board.store.disk import enter
from dugnad.board.store.migrations import latest
from dugnad.cli import main
from dugnad.errors import BoardUnreachable
from dugnad.safe_open import held
from dugnad.settings import ShellLimits
from dugnad.tools.shell.outputs import Outputs
from tests.cli.shell import run_anew as run
from tests.cli.shell import start
from tests.cli.stranger import SCRIPT, Stranger
from tests.proof import every

COMMANDS = (
    ("add", "A task"), ("run", "A goal"), ("run", "--in-place", "A goal"), ("work",), ("chat",), ("tasks",),
    ("show", "1"), ("log",), ("notes",), ("notes", "--write", "a", "b"), ("team",), ("spawn", "alice"),
    ("stop", "alice"), ("tell", "alice", "x"), ("inbox",), ("answer", "1", "yes"), ("approve", "1"),
    ("reject", "1", "--why", "x"), ("retry", "1"), ("cancel", "1"), ("release", "1"), ("budget", "1"),
    ("budget", "1", "--tasks", "9"), ("doctor",), ("rehearse",), ("trust",), ("trust", "--yes"), ("prune", "--yes"),
)  # fmt: skip


def linked(name: str, to: str) -> Callable[[Path, Path], None]:
    def make(project: Path, outside: Path) -> None:
        path = project / ".dugnad" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(outside / to)

    return make


def whole(project: Path, outside: Path) -> None:
    (project / ".dugnad").symlink_to(outside / "folder")


def journal(project: Path, outside: Path) -> None:
    """SQLite deletes the file that such a journal names, when it has played it back."""
    (project / ".dugnad").mkdir()
    file = project / ".dugnad" / "board.db"
    with sqlite3.connect(file) as made:
        made.execute("CREATE TABLE t (a)")
    made.close()
    name = str(outside / "letter").encode()
    page = file.read_bytes()
    magic = bytes.fromhex("d9d505f920a163d7")
    words = [1, 7, len(page) // 4096, 512, 4096]
    head = (magic + b"".join(each.to_bytes(4, "big") for each in words)).ljust(512, b"\0")
    total = 7 + sum(page[at] for at in range(4096 - 200, 0, -200))
    body = (1).to_bytes(4, "big") + page[:4096] + (total & 0xFFFFFFFF).to_bytes(4, "big")
    end = (
        (4_294_967_295).to_bytes(4, "big") + name + len(name).to_bytes(4, "big") + sum(name).to_bytes(4, "big") + magic
    )
    file.with_name("board.db-journal").write_bytes(head + body + end)


HOSTILE: dict[str, Callable[[Path, Path], None]] = {
    "the sockets' folder is a link": linked("board.db.wake", "folder"),
    "the sockets' folder is a link to the home": linked("board.db.wake", "."),
    "a socket is a link": linked("board.db.wake/aaaa", "letter"),
    "the output is a link": linked("output", "folder"),
    "a task's output is a link": linked("output/1", "folder"),
    "the trees are a link": linked("trees", "folder"),
    "a tree's lock is a link": linked("trees/1-a.1.lock", "new"),
    "the copies are a link": linked("work", "folder"),
    "a copy is a link": linked("work/1", "folder"),
    "a copy's lock is a link": linked("work/1.lock", "new"),
    "the board is a link to a file": linked("board.db", "letter"),
    "the board is a link to nothing": linked("board.db", "new.db"),
    "the log of the board is a link": linked("board.db-wal", "letter"),
    "the index of the board is a link": linked("board.db-shm", "letter"),
    "the journal of the board is a link": linked("board.db-journal", "letter"),
    "the journal names another file": journal,
    "the ignored names are a link": linked(".gitignore", "letter"),
    "all of it is a link": whole,
}  # fmt: skip


@pytest.mark.parametrize("name", every(4, HOSTILE))
def test_nothing_outside_a_cloned_project_is_touched(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    it = Stranger(folder)
    it.publish(HOSTILE[name])
    (it.clone / "script.yaml").write_text(SCRIPT)
    before = it.seen_outside()
    for words in (("add", "A task"), ("run", "A goal")):
        ran = run(*words, folder=it.clone, given="", HOME=str(it.home), DUGNAD_MODEL="scripted:script.yaml")
        assert it.seen_outside() == before, words
        assert ran.returncode in (1, 2), (words, ran.stdout)
        assert ran.stderr.count("\n") == 1, ran.stderr
    monkeypatch.chdir(it.clone)
    monkeypatch.setenv("HOME", str(it.home))
    monkeypatch.setenv("DUGNAD_MODEL", "scripted:script.yaml")
    for words in COMMANDS:
        done = CliRunner().invoke(main, words, input="")
        assert done.exception is None or isinstance(done.exception, SystemExit), words
        assert it.seen_outside() == before, words


def test_a_control_shows_that_such_a_journal_deletes_the_file_it_names(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("dear diary")
    journal(tmp_path, tmp_path)
    opened = sqlite3.connect(tmp_path / ".dugnad" / "board.db")
    opened.execute("SELECT count(*) FROM sqlite_master").fetchall()
    opened.close()
    assert not (tmp_path / "letter").exists()


def test_the_folder_and_its_files_are_private_also_where_they_were_not(folder: Path) -> None:
    own = folder / ".dugnad"
    assert run("add", "A task", folder=folder).returncode == 0
    assert (own / ".gitignore").read_text() == "*\n"
    (own / "output").mkdir()
    (own / ".gitignore").write_text("!board.db\n")
    for path, mode in ((own, 0o755), (own / "board.db", 0o664), (own / "output", 0o777)):
        os.chmod(path, mode)
    assert run("tasks", folder=folder).returncode == 0
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (own, *own.iterdir())}
    assert all(mode in (0o600, 0o700) for mode in modes.values()), modes
    assert (own / ".gitignore").read_text() == "*\n"


def make_hard_link(own: Path) -> None:
    (own.parent / "other").write_bytes(b"")
    os.link(own.parent / "other", own / "board.db")


def make_device(own: Path) -> None:
    os.mknod(own / "board.db", stat.S_IFCHR | 0o600, os.makedev(1, 5))


def give_away(own: Path) -> None:
    os.chown(own, 12_345, -1)


def give_the_board_away(own: Path) -> None:
    (own / "board.db").write_bytes(b"")
    os.chown(own / "board.db", 12_345, -1)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (make_hard_link, "board.db is a link"),
        (lambda own: os.mkfifo(own / "board.db"), "board.db is in the way"),
        (lambda own: os.mkfifo(own / "board.db.wake"), "board.db.wake is in the way"),
        (lambda own: ((own / "work").mkdir(), os.mkfifo(own / "work" / "1.lock")), "1.lock is in the way"),
        (make_device, "board.db is in the way"),
        (give_away, ".dugnad belongs to another user"),
        (give_the_board_away, "board.db belongs to another user"),
        (lambda own: (own.rmdir(), own.write_text("x")), ".dugnad is in the way"),
        (lambda own: (own / ".gitignore").mkdir(), "Is a directory"),
    ],
)
def test_what_is_no_file_and_no_folder_of_our_own_is_refused(
    tmp_path: Path, make: Callable[[Path], object], says: str
) -> None:
    if os.geteuid() != 0 and make in (make_device, give_away, give_the_board_away):
        pytest.skip("Only root can make a device, or give a file to another user.")
    own = tmp_path / ".dugnad"
    own.mkdir()
    make(own)
    for words in (("add", "A task"), ("tasks",)):
        ran = run(*words, folder=tmp_path, given="")
        assert ran.returncode == 1
        assert says in ran.stderr or words == ("tasks",), ran.stderr
        assert ran.stderr.count("\n") == 1


def test_only_sockets_that_are_ours_are_taken_away(folder: Path) -> None:
    assert run("add", "A task", folder=folder).returncode == 0
    wake = folder / ".dugnad" / "board.db.wake"
    wake.mkdir(exist_ok=True)
    left = ("0123abc", "not ours.sock")  # Of a process that is gone, and somebody else's.
    for name in left:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        made.bind(str(wake / name))
        made.close()
    (wake / "letter").write_text("dear diary")
    assert run("add", "Another", folder=folder).returncode == 0
    assert sorted(each.name for each in wake.iterdir()) == ["letter", "not ours.sock"]


def test_output_stays_inside_when_its_folder_becomes_a_link(folder: Path) -> None:
    outside = folder / "outside"
    (outside / "1").mkdir(parents=True)
    (outside / "1" / "old.log").write_text("dear diary")
    outputs = Outputs(folder / ".dugnad" / "output" / "1", ShellLimits(outputs_bytes_max=1, output_bytes_max=10))
    first = outputs.log_of_call("t1.e1.1.1")
    first.add(b"said")
    outputs.close(first)
    shutil.rmtree(folder / ".dugnad" / "output")
    (folder / ".dugnad" / "output").symlink_to(outside)
    second = outputs.log_of_call("t1.e1.1.2")
    second.add(b"said")
    outputs.close(second)
    assert second.trouble
    assert outputs.piece("old", 0, 10) is None
    assert not outputs.has("old")
    assert [each.name for each in (outside / "1").iterdir()] == ["old.log"]


def test_no_link_is_followed_from_the_folder_on(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "project").symlink_to(tmp_path / "real")  # The way to a project may be a link.
    with held(tmp_path / "project" / ".dugnad" / "a" / "b", make=True) as inside:
        assert os.fstat(inside).st_ino == (tmp_path / "real" / ".dugnad" / "a" / "b").stat().st_ino
    (tmp_path / "real" / ".dugnad" / "link").symlink_to("a")
    with pytest.raises(OSError, match=r"Not a directory|levels of symbolic links"):
        held(tmp_path / "project" / ".dugnad" / "link" / "b").__enter__()
    with pytest.raises(BoardUnreachable, match="link is a link"):
        enter(tmp_path / "project" / ".dugnad")


def made_up(statements: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with sqlite3.connect(path) as made:
            made.executescript(statements.replace("NEWEST", str(latest())))
        made.close()

    return make


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (made_up("PRAGMA user_version = 1000000"), "Upgrade dugnad"),
        (made_up("CREATE TABLE t (a); CREATE TRIGGER x INSERT ON t BEGIN DELETE FROM t; END"), "triggers or views"),
        (made_up("CREATE TABLE t (a); PRAGMA user_version = NEWEST"), "its tables are not those of a board"),
        (made_up("CREATE TABLE identity (id text); INSERT INTO identity VALUES ('x'); PRAGMA user_version = NEWEST"),
         "its tables are not those of a board"),
    ],
)  # fmt: skip
def test_a_board_that_somebody_put_together_is_refused_in_a_sentence(
    tmp_path: Path, make: Callable[[Path], None], says: str
) -> None:
    (tmp_path / ".dugnad").mkdir()
    make(tmp_path / ".dugnad" / "board.db")
    ran = run("add", "A task", folder=tmp_path, given="")
    assert ran.returncode in (1, 2)
    assert says in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_a_board_elsewhere_in_a_project_leads_nowhere_either(folder: Path) -> None:
    it = Stranger(folder)

    def make(project: Path, outside: Path) -> None:
        (project / "data").mkdir()
        (project / "data" / "board.db.wake").symlink_to(outside)

    it.publish(make)
    before = it.seen_outside()
    url = f"sqlite:///{it.clone}/data/board.db"
    assert run("add", "A task", "--board", url, folder=it.clone).returncode == 0
    assert it.seen_outside() == before
    os.symlink(it.outside / "letter", it.clone / "data" / "board.db-journal")
    ran = run("add", "A task", "--board", url, folder=it.clone)
    assert (ran.returncode, "board.db-journal is a link" in ran.stderr) == (1, True)


def test_a_swap_while_a_team_works_leads_nowhere(folder: Path) -> None:
    """Between two commands of one task, the folder of what they print becomes a link out of the project."""
    outside, own = folder / "outside", folder / "project" / ".dugnad"
    (outside / "1").mkdir(parents=True)
    (folder / "project").mkdir()
    steps = [f'  - calls: [{{bash: {{command: "echo {each}"}}}}]' for each in ("one", "two", "three")]
    (folder / "project" / "script.yaml").write_text('"*":\n' + "\n".join(steps) + '\n  - say: "It is done."\n')
    here = folder / "project"
    program = start("run", "A goal", "--model", "scripted:script.yaml", "--json", folder=here, home=folder)
    swapped = False
    while program.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            program.wait(timeout=0.01)
        if not swapped and (own / "output" / "1").is_dir():
            os.rename(own / "output", own / "moved")
            os.symlink(outside, own / "output")
            swapped = True
    assert swapped
    said = program.communicate()[0]
    assert '"done"' in said
    assert list((outside / "1").iterdir()) == []
