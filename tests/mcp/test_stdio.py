"""`dugnad mcp` as a process: it serves one program on its standard streams, and is a host that may die at any time."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.cli.shell import environment, run
from tests.mcp.clients import HANGS, StdioClient, called, envelope, git, make_project

HERE = Path(__file__).parent


def board_of(folder: Path, *words: str) -> str:
    ran = run(*words, folder=folder)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture
def project(folder: Path) -> Path:
    return make_project(folder)


def test_a_task_is_worked_in_a_worktree_survives_a_red_check_and_is_merged(project: Path) -> None:
    board_of(project, "add", "Write hello.txt", "--check", "test -f hello.txt")
    with StdioClient(project, name="claude-code") as client:
        assert client.greeted["result"]["serverInfo"]["name"] == "dugnad"
        given = client("next_task")
        assert given.folder.is_dir()
        assert given.folder != project
        red = client("finish", **given.held, result="Nothing yet.")
        assert "the check is red" in red
        (given.folder / "hello.txt").write_text("hello\n")
        assert "merged into dugnad/main" in client("finish", **given.held, result="It is there.")
        assert client.close() == 0
    assert git(project, "show", "dugnad/main:hello.txt") == "hello"
    shown = board_of(project, "show", "1")
    assert "claude" in shown
    transcript = board_of(project, "show", "1", "--transcript")
    assert "mcp:claude started" in transcript
    assert "calls finish" in transcript


def test_the_end_of_its_input_gives_everything_back(project: Path) -> None:
    board_of(project, "add", "Write it")
    with StdioClient(project) as client:
        given = client("next_task")
        (given.folder / "half").write_text("half\n")
        assert client.close() == 0
    (task,) = json.loads(board_of(project, "tasks", "--json"))["tasks"]
    assert task["state"] == "ready"
    with StdioClient(project) as again:
        given = again("next_task")
        assert (given.folder / "half").read_text() == "half\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_in_order(project: Path, number: signal.Signals) -> None:
    board_of(project, "add", "Write it")
    with StdioClient(project) as client:
        client("next_task")
        client.process.send_signal(number)
        assert client.process.wait(HANGS) == 0
    (task,) = json.loads(board_of(project, "tasks", "--json"))["tasks"]
    assert task["state"] == "ready"


def give_back(project: Path) -> None:
    """Wait until nobody holds the task. No other host looks at it, and no command changes it."""
    while json.loads(board_of(project, "tasks", "--json"))["tasks"][0]["state"] != "ready":
        time.sleep(0.05)


@pytest.mark.parametrize("how", ["killed", "unburied", "asked"])
def test_killed_it_gives_its_task_back_and_another_goes_on(project: Path, how: str) -> None:
    board_of(project, "add", "Write it")
    with StdioClient(project, name="first") as client:
        given = client("next_task")
        (given.folder / "half").write_text("half\n")
        if how == "asked":  # So does Codex, and it waits a few milliseconds.
            client.process.send_signal(signal.SIGTERM)
            time.sleep(0.007)
        client.process.send_signal(signal.SIGKILL)
        if how == "killed":
            client.process.wait(HANGS)
        give_back(project)
        client.process.wait(HANGS)
    with StdioClient(project, name="second") as other:
        taken = other("next_task")
        assert taken.held["task"] == 1
        assert taken.held["epoch"] > given.held["epoch"]
        assert (taken.folder / "half").read_text() == "half\n"
        assert "merged into" in other("finish", **taken.held, result="Whole.")
    team = {each["name"]: each for each in json.loads(board_of(project, "team", "--json"))["teammates"]}
    assert team["first"]["status"] == "stopped"


def test_killed_with_its_guardian_it_is_a_lost_host_like_any_other(project: Path) -> None:
    board_of(project, "add", "Write it")
    with StdioClient(project, name="first") as client:
        given = client("next_task")
        (guardian,) = [each for each in psutil.Process(client.process.pid).children() if "mcp" in each.cmdline()]
        guardian.kill()
        client.process.kill()  # It stays unburied until the end of the block.
        with StdioClient(project, name="second") as other:  # It finds the dead process of its machine at once.
            while "Nothing yet" in (taken := other("next_task")):
                pass
            assert taken.held["epoch"] > given.held["epoch"]


def test_a_client_that_is_killed_closes_the_line(project: Path) -> None:
    """The client is a process of its own here, which started the server as real ones do."""
    board_of(project, "add", "Write it")
    client = subprocess.Popen(
        [sys.executable, str(HERE / "doomed_client.py")], cwd=project, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, env=environment(), text=True,
    )  # fmt: skip
    assert client.stdout is not None
    assert "You hold task 1" in client.stdout.readline()
    server = int(client.stdout.readline())
    watched = os.pidfd_open(server)
    client.kill()
    client.wait(HANGS)
    assert select.select([watched], [], [], HANGS)[0], "The server did not end."
    os.close(watched)
    client.stdout.close()
    (task,) = json.loads(board_of(project, "tasks", "--json"))["tasks"]
    assert task["state"] == "ready"


def test_without_a_board_the_client_is_told_what_to_do(project: Path) -> None:
    with StdioClient(project) as client:
        assert "There is no board" in client.greeted["error"]["message"]
        assert "dugnad add" in client.greeted["error"]["message"]
        assert client.close() != 0
        assert "There is no board" in client.errors()
    assert not (project / ".dugnad").exists()


def test_a_project_that_is_not_trusted_is_refused_by_name(project: Path, folder: Path) -> None:
    board_of(project, "add", "Write it")
    with StdioClient(project, XDG_STATE_HOME=str(folder / "another-user")) as client:
        assert "dugnad trust" in client.greeted["error"]["message"]
        assert client.close() != 0
        assert "dugnad trust" in client.errors()


def test_a_name_that_is_taken_is_refused_and_a_wrong_one_too(project: Path) -> None:
    board_of(project, "add", "Write it")
    with StdioClient(project, "--as", "ada") as first, StdioClient(project, "--as", "ada") as second:
        assert "result" in first.greeted
        assert "Another teammate is called ada" in second.greeted["error"]["message"]
    for name in ("human", "", "a b", "dugnad"):
        with StdioClient(project, "--as", name) as wrong:
            assert "error" in wrong.greeted, name


def test_lines_that_are_no_messages_do_no_harm(project: Path) -> None:
    board_of(project, "add", "Write it")
    with StdioClient(project) as client:
        client.write(b"garbage\n\n{\n[]\nnull\n\xff\xfe\n" + b"[" * 5_000 + b"\n")
        codes = [client.read()["error"]["code"] for _ in range(6)]
        assert set(codes) <= {-32700, -32600}
        huge = json.dumps(called("note", {"title": "x" * 9_000_000}, "huge"))
        client.write(huge.encode() + b"\n")
        assert client.read()["error"]["code"] == -32700
        half = json.dumps(called("note", {"title": "a\ud800b", "text": "c"}, "half"))
        client.write(half.encode() + b"\n")
        assert "result" in client.answer_to("half")
        assert "Write it" in client("tasks")


def test_many_calls_at_once_are_refused_and_the_server_lives(project: Path) -> None:
    board_of(project, "add", "Write it")
    with StdioClient(project) as client:
        held = client("next_task").held
        for number in range(200):
            note = called("note", {**held, "title": f"Note {number}", "text": "x"}, f"n{number}")
            client.write(json.dumps(note).encode() + b"\n")
        answers = [client.read() for _ in range(200)]
        refused = [each for each in answers if "error" in each]
        assert all(each["error"]["code"] == -32000 for each in refused)
        assert len(refused) < 200
        assert not client("tasks").refused


def test_a_cancelled_wait_and_a_late_cancellation_are_ignored(project: Path) -> None:
    board_of(project, "add", "Write it")
    with StdioClient(project) as client:
        client("next_task")
        client.tell("notifications/cancelled", requestId=2)
        client.write(json.dumps(called("next_task", {}, "w")).encode() + b"\n")
        client.tell("notifications/cancelled", requestId="w")
        assert "Write it" in client("tasks")


def test_a_client_without_a_session_is_served_too(project: Path) -> None:
    board_of(project, "add", "Write it")
    with StdioClient(project, greets=False) as client:
        found = client.ask("server/discover", _meta=envelope())
        assert found["result"]["supportedVersions"] == ["2026-07-28"]
        found = client.ask("tools/call", name="next_task", arguments={}, _meta=envelope())
        assert "You are modern." in found["result"]["content"][0]["text"]


@pytest.mark.proof
def test_the_official_client_works_a_task_in_both_eras(project: Path) -> None:
    board_of(project, "add", "One")
    board_of(project, "add", "Two")
    ran = subprocess.run(
        [sys.executable, str(HERE / "sdk_client.py")], cwd=project, capture_output=True, text=True, timeout=HANGS,
        env=environment(), check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    versions = [line.split()[0] for line in ran.stdout.splitlines()]
    assert versions == ["2025-11-25", "2026-07-28"]
    assert ran.stdout.count("is over") == 2
