"""`dugnad demo`: on a terminal, in a pipe, for a program, in a bare environment, and interrupted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.cli.shell import run, start
from tests.cli.terminal import SECONDS, terminal, told

WORDS = [sys.executable, "-m", "dugnad", "demo"]


def left_behind(folder: Path) -> list[list[str]]:
    """Processes that work in this folder, or were told of it."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if any(str(folder) in word for word in words) or process.cwd().startswith(str(folder)):
                found.append(words)
        except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
            continue
    return found


def are_gone(folder: Path) -> bool:
    """Whoever was told to leave has left, at the latest after a while."""
    found = [process for process in psutil.process_iter() if str(folder) in " ".join(_words(process))]
    return not psutil.wait_procs(found, timeout=SECONDS / 3)[1]


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@dataclass(frozen=True)
class Played:
    """Three demos at once, each in a place of its own."""

    folder: Path
    seen: str  # All that was ever shown on the terminal.
    end: str  # What was left on the terminal.
    sane: bool
    lines: str
    object: str
    errors: str
    codes: tuple[int, ...]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """On a terminal; in a pipe; and for a program, with nothing in the environment and as an ordinary user."""
    folder = tmp_path_factory.mktemp("demo")
    for name in ("pipe", "bare"):
        (folder / name).mkdir()
    ordinary = ["unshare", "--user", "--map-user=1000", "--map-group=1000"] if _may_unshare() else []
    bare = [*ordinary, "env", "-i", f"PATH={os.environ['PATH']}", f"TMPDIR={folder / 'bare'}", *WORDS, "--json"]
    programs = [
        subprocess.Popen(
            command, cwd=folder / name, env={**os.environ, "TMPDIR": str(folder / name)}, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )
        for name, command in (("pipe", WORDS), ("bare", bare))
    ]  # fmt: skip
    frames: dict[str, None] = {}
    with terminal("demo", "--keep", str(folder / "kept"), folder=folder, columns=110, rows=40) as screen:
        screen.until(lambda: frames.setdefault(screen.text) or not screen.lives)
        codes = [screen.ends()]
        said = [program.communicate(timeout=SECONDS) for program in programs]
        codes += [program.returncode for program in programs]
        yield Played(
            folder=folder, seen="\n".join(frames), end=screen.everything, sane=screen.is_sane, lines=said[0][0],
            object=said[1][0], errors=said[0][1] + said[1][1], codes=tuple(codes),
        )  # fmt: skip
    shutil.rmtree(folder, ignore_errors=True)


def _may_unshare() -> bool:
    try:
        return subprocess.run(["unshare", "--user", "--map-user=1000", "true"], check=False).returncode == 0
    except OSError:
        return False


def test_it_succeeds_everywhere_and_leaves_nobody_behind(played: Played) -> None:
    assert played.codes == (0, 0, 0)
    assert played.errors == ""
    assert left_behind(played.folder) == []
    assert played.sane


def test_the_scripted_model_is_named_as_one(played: Played) -> None:
    assert "offline, with a scripted model" in played.seen.replace("\n", " ")
    assert "asks scripted:demo" in played.seen
    assert played.lines.startswith("dugnad demo: offline, with a scripted model. Its replies come from a file")


def test_a_person_sees_every_part_of_the_idea(played: Played) -> None:
    seen = played.seen
    assert "Build slug, which makes titles into web addresses   1 claimed" in seen
    assert "blocked" in seen  # Tasks with needs.
    for name in ("alice", "bob", "carol"):
        assert any(f"working  #{number} " in line for line in _lines(seen, name) for number in range(1, 8)), name
    assert "claimed  alice" in seen
    assert 'added "Handle accents in slugify()"' in seen
    assert " told carol" in seen  # One of the coders; which of them takes a task is not certain.
    assert "carol works on a second host, another process, which will soon be killed." in seen
    assert "carol's host died in the middle of her task; watch how it continues." in seen
    assert "carol claimed it and continues, attempt 2" in seen
    assert " of 12 tasks, $0." in seen
    assert " of $0.50" in seen


def _lines(text: str, first: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(first)]


def test_at_the_end_the_result_works_and_it_says_where_to_look(played: Played) -> None:
    end = played.end
    assert "Ctrl-C" not in end  # Nothing is left of the live view.
    assert "which will soon be killed" not in end
    for words in (
        "All done.", "budget  #1: 7 of 12 task runs used, $0.", "What they built works:", "blabaer-pa-dugnad",
        "4 tests", "carol: Test slugify()", f"cd {played.folder / 'kept'}", "show 4 --transcript", " log  ",
    ):  # fmt: skip
        assert words in end
    ran = subprocess.run(
        [sys.executable, "slug.py", "Many hands"],
        cwd=played.folder / "kept",
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "many-hands\n"


def test_where_it_says_to_look_there_is_something_to_see(played: Played) -> None:
    kept = played.folder / "kept"
    tasks = told(kept, "tasks", "--all")["tasks"]
    assert {task["state"] for task in tasks} == {"done"}
    first, second = told(kept, "show", "4", "--transcript")["attempts"]
    assert (first["ended_as"], second["continues"], second["ended_as"]) == ("lost", first["epoch"], "done")
    assert told(kept, "budget", "1")["budget"]["runs"] == 7
    assert "took it back from carol" in run("log", "4", folder=kept).stdout
    git = subprocess.run(["git", "status", "--porcelain"], cwd=kept, capture_output=True, text=True, check=True)
    assert git.stdout == ""  # All is committed, and the board is kept out of it.


def test_a_pipe_gets_the_same_story_in_plain_lines(played: Played) -> None:
    lines = played.lines
    assert "\x1b" not in lines
    story = (
        "alice claimed it, attempt 1", 'alice added "Write slugify()" for a coder', "bob claimed it, attempt 1",
        "carol claimed it, attempt 1", ">>> kill -9 ", "took it back from carol",
        "carol claimed it and continues, attempt 2", "All done.", "What they built works:", "Where to look next:",
    )  # fmt: skip
    places = [lines.index(each) for each in story]
    assert places == sorted(places)
    assert " told carol" in lines
    folder = Path(next(line.split("cd ")[1] for line in lines.splitlines() if line.startswith("    cd ")))
    assert folder.parent == played.folder / "pipe"
    assert (folder / "slug.py").exists()


def test_a_program_gets_one_object(played: Played) -> None:
    assert played.object.count("\n") == 1
    said = json.loads(played.object)
    assert (said["exit"], said["interrupted"], said["failed_teammates"], said["next"]) == (0, False, {}, [])
    assert [task["state"] for task in said["tasks"]] == ["done"] * 7
    assert said["by"].keys() == {"alice", "bob", "carol"}
    assert said["killed"] > 0
    assert said["works"]["tests"] is True
    assert said["works"]["says"] == "blabaer-pa-dugnad"
    assert len(said["works"]["commits"]) == 5
    assert Path(said["folder"]).parent == played.folder / "bare"


def test_without_git_it_says_so(folder: Path) -> None:
    ran = subprocess.run(WORDS, cwd=folder, env={"PATH": str(folder)}, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("dugnad: The demo builds in a git project, and there is no git; install it first")
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize("place", ["full", "file/inside", "/proc/nowhere"])
def test_a_place_where_it_cannot_build_is_answered_with_one_sentence(folder: Path, place: str) -> None:
    (folder / "full").mkdir()
    (folder / "full" / "something").touch()
    (folder / "file").touch()
    ran = run("demo", "--keep", place, folder=folder)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("dugnad: ")
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize("times", [1, 2])
def test_control_c_in_the_middle_leaves_nobody_behind(folder: Path, times: int) -> None:
    with terminal("demo", "--keep", str(folder / "kept"), folder=folder, rows=40) as screen:
        screen.shows("carol", "2 claimed")
        screen.interrupt()
        if times == 2:
            screen.shows("Stopping")
            screen.interrupt()
        assert screen.ends() == 130
        assert screen.is_sane
        assert "What they built works" not in screen.everything
        assert "kept" in screen.everything or times == 2
    assert are_gone(folder)


@pytest.mark.parametrize("ending", ["two signals", "kill -9"])
def test_a_demo_that_is_ended_from_outside_takes_its_second_host_along(folder: Path, ending: str) -> None:
    program = start("demo", "--keep", str(folder / "kept"), folder=folder)
    assert program.stdout is not None
    try:
        assert any("claimed it" in line for line in program.stdout)
        if ending == "kill -9":
            program.kill()
        else:
            program.send_signal(signal.SIGTERM)
            program.send_signal(signal.SIGTERM)
        program.wait(timeout=SECONDS)
        assert are_gone(folder)
    finally:
        for process in psutil.process_iter():
            if str(folder / "kept") in " ".join(_words(process)):
                process.kill()  # It would hold the pipe open.
        program.communicate(timeout=SECONDS)
