"""What people get wrong, and what the world does to a command: one sentence, the right exit code, nothing lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pexpect
import pyte
import pytest

from tests.cli.shell import Shell, environment, run, run_anew, start


@pytest.fixture
def shell(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(folder)
    made = Shell(url)
    made.says("add", "one")
    made.says("spawn", "alice")
    return made


BAD_USE = [
    (["show", "abc"], "'abc' is not the number of a task"),
    (["show", "0"], "not the number of a task"),
    (["show", "-1"], "No such option"),
    (["show", "9" * 30], "not the number of a task"),
    (["show", "99"], "no task #99"),
    (["show"], "Missing argument"),
    (["add"], "Give either a title"),
    (["add", "  "], "needs a title"),
    (["add", "x" * 201], "at most 200"),
    (["add", "t", "--body", "b" * 300_000], "keep the rest in a file"),
    (["add", "t", "--needs", "7"], "#7"),
    (["add", "t", "--needs", "x"], "not the number of a task"),
    (["add", "t", "--needs", "1,1"], "given twice"),
    (["add", "t", "--needs", "1:not a word"], "cannot be an outcome"),
    (["add", "t", "--under", "77"], "#77"),
    (["add", "t", "--under", "1", "--tasks", "5"], "Only a goal has a budget"),
    (["add", "t", "--role", "two words"], "cannot be a role"),
    (["add", "t", "--priority", "high"], "not a valid integer"),
    (["run", "Build it", "--dollars", "two"], "'two' is not a valid number"),
    (["add", "t", "--priority", "99999999"], "priority"),
    (["add", "t", "--delay", "soon"], "not a time"),
    (["add", "t", "--delay", "nan"], "cannot be nan"),
    (["add", "t", "--delay", "-5"], "cannot be -5"),
    (["add", "t", "--dollars", "inf"], "cannot be inf"),
    (["add", "t", "--dollars", "lots"], "not a number"),
    (["add", "t", "--tasks", "1.5"], "not a whole number"),
    (["add", "t", "--tasks", "-1"], "cannot be -1"),
    (["add", "t", "--file", "nowhere.txt"], "nowhere.txt"),
    (["add", "a", "b"], "unexpected extra argument"),
    (["tell", "alice", "Use", "it"], "(it); put a text of several words in quotes"),
    (["add", "t", "--colour", "red"], "No such option"),
    (["run", "x", "--wait-for-quota", "nan"], "nan is not in the range"),
    (["chat", "--dollars", "nan"], "nan is not in the range"),
    (["tasks", "--limit", "0"], "0 is not in the range"),
    (["log", "99"], "no task #99"),
    (["log", "--after", "-1"], "not in the range"),
    (["notes", "--write", " ", "x"], "needs a title"),
    (["notes", "word", "--write", "a", "b"], "Search for words or use --write"),
    (["spawn", "two words"], "cannot be a teammate's name"),
    (["spawn", "human"], "'human' is a reserved name"),
    (["stop", "nobody"], "no teammate 'nobody'"),
    (["tell", "nobody", "x"], "no teammate 'nobody'"),
    (["tell", "alice", ""], "The text is empty"),
    (["inbox", "nobody"], "no teammate 'nobody'"),
    (["answer", "x1", "y"], "neither a task (12) nor a message (m34)"),
    (["answer", "5", "y"], "no task #5"),
    (["reject", "1"], "Missing option '--why'"),
    (["retry", "99"], "no task #99"),
    (["cancel", "99"], "no task #99"),
    (["release", "99"], "no task #99"),
    (["budget", "99"], "no task #99"),
    (["budget", "--tasks", "5"], "whose budget"),
    (["budget", "1", "--add"], "how much to add"),
    (["budget", "1", "--add", "--tasks", "none"], "how much to add"),
    (["run", "Build", "it", "now"], "Put the goal in quotes: dugnad run 'Build it now'"),
    (["run", "Build", "it", "--tasks", "3", "now"], "Put the goal in quotes: dugnad run 'Build it now'"),
    (["dance"], "No such command 'dance'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"), BAD_USE, ids=lambda each: " ".join(each)[:40] if isinstance(each, list) else ""
)
def test_bad_use_is_one_sentence_and_exit_code_2(shell: Shell, words: list[str], said: str) -> None:
    before = shell.on_board(lambda board: board.last_event())
    assert said in shell.fails(2, *words)
    assert shell.on_board(lambda board: board.last_event()) == before


REFUSED = [
    (["retry", "1"], "only a failed or cancelled task can be retried"),
    (["release", "1"], "only a claimed or waiting task can be released"),
    (["answer", "1", "y"], "waits for no answer"),
    (["spawn", "alice", "--role", "other"], "exists with other settings"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "said"), REFUSED, ids=lambda each: " ".join(each) if isinstance(each, list) else "")
def test_what_the_board_does_not_allow_now_is_exit_code_1(shell: Shell, words: list[str], said: str) -> None:
    assert said in shell.fails(1, *words)


def test_a_failure_is_an_object_for_a_program(shell: Shell) -> None:
    for words, kind, code in (
        (["show", "99"], "UnknownTask", 2),
        (["retry", "1"], "NotReady", 1),
        (["show", "x"], "BadUse", 2),
    ):
        ran = shell(*words, "--json")
        error = json.loads(ran.stdout)["error"]
        assert (error["kind"], error["exit"], ran.exit_code) == (kind, code, code)
        assert ran.stderr == f"dugnad: {error['message']}\n"


def test_text_that_is_not_text_is_refused(shell: Shell, folder: Path) -> None:
    assert "not UTF-8" in shell.fails(2, "add", "t", "--body", "-", given=b"\xff\xfe")
    assert "not UTF-8" in shell.fails(2, "add", "--file", "-", given=b"\xff\xfe")
    words = [sys.executable, "-m", "dugnad", "--board", shell.url, "add", b"half \xff \x1b[31m"]
    ran = subprocess.run(
        [os.fsencode(word) for word in words],
        cwd=folder, env=environment(), capture_output=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert ran.stderr.decode().startswith("dugnad: The title contains half of a surrogate pair")


def test_an_error_that_quotes_what_was_typed_moves_no_terminal(shell: Shell) -> None:
    said = shell.fails(2, "spawn", "a\x1b[2Jb")
    assert "\x1b" not in said


# The board's place.


def test_reading_makes_no_board_and_says_what_does(folder: Path) -> None:
    for words in (["tasks"], ["team"], ["log", "--follow"], ["inbox"], ["show", "1"], ["stop", "a"], ["budget"]):
        ran = run(*words, folder=folder)
        assert (ran.returncode, ran.stdout) == (1, "")
        assert ran.stderr == (
            f"dugnad: There is no board at {folder}/.dugnad/board.db yet; `dugnad add` or `dugnad run` makes one.\n"
        )
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("words", [["add", "one"], ["spawn", "alice"]])
def test_the_first_task_or_teammate_makes_the_board_out_of_gits_sight(folder: Path, words: list[str]) -> None:
    (folder / ".git").mkdir()
    (folder / "deep" / "down").mkdir(parents=True)
    assert run(*words, folder=folder / "deep" / "down", HOME="/").returncode == 0
    assert (folder / ".dugnad" / "board.db").exists()
    assert (folder / ".dugnad" / ".gitignore").read_text() == "*\n"
    assert run("tasks", folder=folder).returncode == 0


def test_the_board_is_the_one_nearest_to_the_command(folder: Path) -> None:
    here, there, far = (f"sqlite:///{folder}/{name}.db" for name in ("here", "there", "far"))
    run("add", "here", folder=folder, DUGNAD_BOARD=here)
    run("--board", there, "add", "there", folder=folder, DUGNAD_BOARD=here)
    run("--board", there, "add", "far", "--board", far, folder=folder, DUGNAD_BOARD=here)
    run("add", "own", folder=folder)
    for words, title in (
        (["--board", here], "here"),
        (["--board", there], "there"),
        (["--board", far], "far"),
        ([], "own"),
    ):
        tasks = json.loads(run(*words, "tasks", "--json", folder=folder).stdout)["tasks"]
        assert [task["title"] for task in tasks] == [title]


@pytest.mark.parametrize(
    ("board", "code", "said"),
    [
        ("mysql://localhost/x", 2, "'mysql' is not a kind of board"),
        ("board.db", 2, "is not a kind of board"),
        ("sqlite://board.db", 2, "three slashes"),
        ("postgresql://127.0.0.1:1/nothing", 1, ""),
        ("sqlite:////proc/nowhere/board.db", 1, "/proc/nowhere"),
    ],
)
def test_a_wrong_address_is_explained(folder: Path, board: str, code: int, said: str) -> None:
    ran = run("--board", board, "add", "x", folder=folder)
    assert (ran.returncode, ran.stdout) == (code, "")
    assert said in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_a_file_that_is_no_board_is_left_alone(folder: Path) -> None:
    (folder / "letter.db").write_text("Dear reader, " * 500)
    ran = run("--board", f"sqlite:///{folder}/letter.db", "tasks", folder=folder)
    assert ran.returncode == 1
    assert "is not a board" in ran.stderr
    assert (folder / "letter.db").read_text() == "Dear reader, " * 500


def test_a_file_in_the_way_of_the_boards_folder_is_named(folder: Path) -> None:
    (folder / ".dugnad").write_text("")
    ran = run("add", "x", folder=folder)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert f"{folder}/.dugnad is in the way" in ran.stderr


def test_a_folder_that_cannot_be_written_is_named() -> None:
    ran = run("add", "x", folder=Path("/proc"))  # Not even root makes anything there.
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("dugnad: The folder /proc/.dugnad for the board cannot be made: ")
    assert ran.stderr.count("\n") == 1


def test_a_broken_project_file_is_named_and_nothing_is_made(folder: Path) -> None:
    (folder / "dugnad.toml").write_text("agents = [")
    ran = run("add", "x", folder=folder)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "dugnad.toml" in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert not (folder / ".dugnad").exists()


# Several at once, and ends that come early.


def test_two_processes_add_at_once_and_nothing_is_lost(folder: Path) -> None:
    crowd = [start("add", f"task {number}", folder=folder) for number in range(4)]
    said = [process.communicate(timeout=120) for process in crowd]
    assert [process.returncode for process in crowd] == [0] * 4, said
    tasks = json.loads(run("tasks", "--json", folder=folder).stdout)["tasks"]
    assert sorted(task["title"] for task in tasks) == [f"task {number}" for number in range(4)]


@pytest.mark.parametrize("as_json", [False, True])
def test_following_shows_what_others_do_and_ends_with_ctrl_c(folder: Path, as_json: bool) -> None:
    run("add", "before", folder=folder)
    following = start("log", "--follow", *(["--json"] if as_json else []), folder=folder)
    assert following.stdout is not None
    assert "before" in following.stdout.readline()
    run("add", "after", folder=folder)
    assert "after" in following.stdout.readline()
    following.send_signal(signal.SIGINT)
    said, trouble = following.communicate(timeout=120)
    assert following.returncode == 130
    assert trouble.strip() == "dugnad: Interrupted."
    assert said == "" or json.loads(said)["error"]["kind"] == "Interrupted"


def test_a_reader_that_has_seen_enough_is_no_failure(folder: Path) -> None:
    run("add", "--file", "-", folder=folder, given="\n".join("a long title " * 10 for _ in range(300)))
    for words in (["tasks", "--limit", "300"], ["log", "--after", "0"], ["log", "--after", "0", "--json"]):
        command = f"{sys.executable} -m dugnad {' '.join(words)}"
        script = f"{command} | head -n 1; echo ${{PIPESTATUS[0]}}"
        ran = subprocess.run(
            ["bash", "-c", script],
            cwd=folder,
            env=environment(HOME=str(folder)),
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.stdout.splitlines()[-1] == "0"
        assert len(ran.stdout.splitlines()) == 2
        assert ran.stderr == ""


def test_an_output_that_knows_few_letters_gets_marks_for_the_others(folder: Path) -> None:
    run("add", "Skriv på norsk", folder=folder)
    ran = run_anew("tasks", folder=folder, PYTHONIOENCODING="ascii")
    assert ran.returncode == 0
    assert "Skriv p? norsk" in ran.stdout


def test_a_terminal_gets_colours_and_lines_that_fit_and_a_pipe_neither(folder: Path) -> None:
    run("add", "a title that goes on and on " * 5, "--role", "coder", folder=folder)
    command = f"{sys.executable} -m dugnad tasks"
    kept = environment(HOME=str(folder), TERM="xterm-256color", COLUMNS="80")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Forking a process with threads.
        seen = pexpect.run(command, cwd=folder, env=kept, encoding="utf-8", dimensions=(24, 80))
    assert "\x1b[32mready" in seen
    screen = pyte.Screen(80, 24)
    pyte.Stream(screen).feed(seen)
    assert screen.display[1].startswith("1  ready  any coder")
    assert screen.display[1].rstrip().endswith("…")
    assert screen.display[2].strip() == ""
    piped = run("tasks", folder=folder).stdout
    assert "\x1b" not in piped
    assert "…" not in piped
