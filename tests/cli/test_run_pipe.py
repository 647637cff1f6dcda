"""`dugnad run` and `dugnad work` as a script sees them: plain lines, one JSON object, an exit code."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.shell import environment, run
from tests.cli.terminal import MODEL, SECONDS, make_project, rest, started, states, told, until_line

TITLE = "A title that is as long as a title may be and that nobody would want to see wrapped " * 2
SCRIPT = f"""
Give up:
  - calls: [{{give_up: {{reason: There is no such thing}}}}]
Ask:
  - calls: [{{ask_human: {{question: "Which colour?"}}}}]
  - say: So be it.
Many:
  - calls: [{{add_task: {{title: One}}}}, {{add_task: {{title: Two}}}}, {{add_task: {{title: Three}}}}]
  - say: Three tasks.
Long:
  - {{seconds: 60, say: Too late.}}
Hostile:
  - calls: [{{add_task: {{title: "{TITLE.strip()}"}}}}, {{add_task: {{title: "\\e[31mred\\r\\n\\aline"}}}}]
  - say: "\\e]0;mine\\a"
"*":
  - calls: [{{note: {{title: A word, text: for all}}}}]
  - say: It is done.
"""
# How a goal ends, with which code, and what a person is told to do next.
ENDS = [
    ("Good", (), 0, ""),
    ("Give up", (), 1, "dugnad retry 1    There is no such thing"),
    ("Ask", (), 1, 'dugnad answer m1 "..."    alice waits for you: Which colour?'),
    ("Many", ("--tasks", "2"), 3, "dugnad budget 1 --add --tasks 10    raises the cap; then `dugnad run`"),
]
HEADS = {0: "All done.", 1: "Some work is not done.", 3: "The budget ran out with work left."}
STOPPING = "Stopping: turns under way are being recorded. Ctrl-C again ends at once.\n"
KEYS = [
    "exit",
    "tasks",
    "budgets",
    "spent",
    "took",
    "alone",
    "saved",
    "by",
    "requests",
    "failed_teammates",
    "interrupted",
    "deliveries",
    "others_waiting",
    "preflight",
    "says",
    "next",
]


@pytest.fixture
def project(folder: Path) -> Path:
    make_project(folder, SCRIPT)
    return folder


@pytest.mark.parametrize(("goal", "options", "code", "step"), ENDS)
def test_the_exit_code_says_how_it_ended_and_the_report_what_to_do_next(
    project: Path, goal: str, options: tuple[str, ...], code: int, step: str
) -> None:
    ran = run("run", goal, *options, *MODEL, folder=project)
    assert (ran.returncode, ran.stderr) == (code, "")
    assert f'#1    human added "{goal}"\n' in ran.stdout
    assert f"\n\n{HEADS[code]}\n" in ran.stdout
    assert [line for line in ran.stdout.splitlines() if line.startswith("     next")] == (
        [f"     next  {step}"] if step else []
    )


@pytest.mark.parametrize(("goal", "options", "code", "step"), ENDS[2:])
def test_what_is_said_to_do_next_lets_the_work_go_on(
    project: Path, goal: str, options: tuple[str, ...], code: int, step: str
) -> None:
    said = json.loads(run("run", goal, *options, *MODEL, "--json", folder=project).stdout)
    assert (said["exit"], said["next"]) == (code, [step])
    words = shlex.split(said["next"][0].partition("    ")[0])
    assert run(*words[1:], folder=project).returncode == 0
    assert run("run", *MODEL, folder=project).returncode == 0
    assert set(states(project).values()) == {"done"}


def test_a_pipe_gets_plain_whole_lines(project: Path) -> None:
    said = run("run", "Hostile", *MODEL, folder=project, COLUMNS="40", FORCE_COLOR="1", TERM="xterm-256color").stdout
    assert "\x1b" not in said
    assert not [each for each in said if each != "\n" and ord(each) < 32]
    assert f'alice added "{TITLE.strip()[:119].rstrip()}' in said  # Shortened where it must be, never wrapped.
    assert 'alice added "␛[31mred ␇line"' in said
    lines = said.splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith("Team ")) + 1
    assert all(line[2] == line[5] == ":" and line[:2].isdigit() for line in lines[first : lines.index("All done.") - 1])
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize(("goal", "options", "code", "step"), ENDS)
def test_json_is_one_object(project: Path, goal: str, options: tuple[str, ...], code: int, step: str) -> None:
    ran = run("run", goal, *options, *MODEL, "--json", folder=project)
    assert (ran.returncode, ran.stderr, ran.stdout.count("\n")) == (code, "", 1)
    said = json.loads(ran.stdout)
    assert list(said) == KEYS
    assert (said["exit"], said["interrupted"], said["says"]) == (code, False, HEADS[code])
    assert said["tasks"][0]["title"] == goal
    assert said["budgets"][0]["root"] == 1
    assert said["by"]["alice"]["tokens"] <= said["spent"]["tokens"]
    assert said["failed_teammates"] == {}
    assert [asked["text"] for asked in said["requests"]] == (["Which colour?"] if goal == "Ask" else [])
    assert said["next"] == ([step] if step else [])


def test_json_of_an_interrupted_run_is_one_object_too(project: Path) -> None:
    run("add", "Long", folder=project)
    with (
        started("log", "--follow", folder=project) as log,
        started("run", *MODEL, "--json", folder=project) as program,
    ):
        until_line(log, "claimed it")
        program.send_signal(signal.SIGINT)
        out, err = rest(program)
    assert (program.returncode, err, out.count("\n")) == (130, STOPPING, 1)
    said = json.loads(out)
    assert list(said) == KEYS
    assert (said["exit"], said["interrupted"], said["tasks"][0]["state"]) == (130, True, "ready")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_that_waits_for_its_model(project: Path, number: signal.Signals) -> None:
    with started("run", "Long", *MODEL, folder=project) as program:
        until_line(program, "claimed it")
        program.send_signal(number)
        out, err = rest(program)
    assert (program.returncode, err) == (130, STOPPING)
    assert "#1    alice released it: the run was stopped\n" in out
    assert out.endswith("     next  dugnad run    continues with what is left\n")
    (attempt,) = told(project, "show", "1")["attempts"]
    assert attempt["ended_as"] == "released"


@pytest.mark.parametrize(("goal", "options", "code", "step"), ENDS[1::2])
def test_a_reader_that_leaves_early_stops_no_work(
    project: Path, goal: str, options: tuple[str, ...], code: int, step: str
) -> None:
    words = " ".join(f"'{word}'" for word in (sys.executable, "-m", "dugnad", "run", goal, *options, *MODEL))
    ran = subprocess.run(
        ["bash", "-c", f"{words} | head -3; exit ${{PIPESTATUS[0]}}"], cwd=project, capture_output=True, text=True,
        env=environment(HOME=str(project)), timeout=SECONDS, check=False,
    )  # fmt: skip
    assert (ran.stdout.count("\n"), ran.stderr) == (3, "")
    assert set(states(project).values()) == ({"failed"} if code == 1 else {"done", "ready"})
    assert ran.returncode == code, step


def test_a_full_disk_under_standard_output_stops_no_work(project: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "dugnad", "run", "Good", *MODEL], cwd=project, stdout=full, stderr=subprocess.PIPE,
            text=True, env=environment(HOME=str(project)), timeout=SECONDS, check=False,
        )  # fmt: skip
    assert "Traceback" not in ran.stderr
    assert states(project) == {"Good": "done"}


def test_others_look_on_and_answer_while_a_run_goes_on(project: Path) -> None:
    make_project(project, SCRIPT, "[team]\nidle_seconds = 30\n")
    with started("run", "Ask", *MODEL, folder=project) as program:
        seen = until_line(program, "waits for the human")
        assert any('alice asked human: "Which colour?"' in line for line in seen)
        with started("log", "--follow", "--after", "0", folder=project) as log:
            until_line(log, "waits for the human")
            assert told(project, "tasks", "--waiting")["tasks"][0]["reason"] == "Which colour?"
            assert told(project, "team")["teammates"][0]["holds"] == [1]
            run("answer", "1", "Blue.", folder=project)
            until_line(log, "finished it: So be it.")
            log.send_signal(signal.SIGINT)
            assert log.wait(SECONDS) == 130
        out, err = rest(program)
    assert (program.returncode, err) == (0, "")
    assert "So be it." in out


def test_two_runs_of_one_goal_share_it(project: Path) -> None:
    with started("run", "Many", *MODEL, folder=project) as first:
        until_line(first, 'human added "Many"')
        with started("run", "Many", *MODEL, "--json", folder=project) as second:
            for program in (first, second):
                _, err = rest(program)
                assert (program.returncode, err) == (0, "")
    tasks = told(project, "tasks", "--all")["tasks"]
    goals = [task for task in tasks if task["title"] == "Many"]
    assert [task["claims"] for task in tasks] == [1] * len(tasks)
    assert len(goals) == 1 or goals[0]["ended_at"] <= goals[1]["put_at"]  # It may have ended before the second came.


def test_work_takes_what_is_for_its_roles_and_says_who_worked(project: Path) -> None:
    run("add", "Good", "--role", "coder", folder=project)
    run("add", "Other", "--role", "writer", folder=project)
    ran = run("work", "--agents", "1", "--roles", "coder", *MODEL, folder=project)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "alice finished it: It is done." in ran.stdout
    assert ran.stdout.endswith("alice worked here; nothing is left to do.\n")
    assert states(project) == {"Good": "done", "Other": "ready"}
    said = json.loads(run("work", "--agents", "1", "--roles", "writer", *MODEL, "--json", folder=project).stdout)
    says = "bob worked here; nothing is left to do."
    assert said == {"teammates": ["bob"], "interrupted": False, "preflight": None, "says": says}
    assert states(project) == {"Good": "done", "Other": "done"}


def test_nothing_to_do_is_said(project: Path) -> None:
    ran = run("run", *MODEL, folder=project)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.strip() == 'There is nothing to do. Give the team a goal: dugnad run "GOAL", or dugnad add.'
    said = json.loads(run("run", *MODEL, "--json", folder=project).stdout)
    assert list(said) == KEYS
    assert (said["exit"], said["tasks"], said["says"]) == (0, [], ran.stdout.strip())


def test_a_run_with_a_goal_says_what_else_waits_and_leaves_it_unless_told_otherwise(project: Path) -> None:
    run("add", "Left over", folder=project)
    run("add", "Give up", folder=project)
    ran = run("run", "Good", "--tokens", "300000", *MODEL, folder=project)
    assert (ran.returncode, ran.stderr) == (0, "")
    said = "2 other tasks wait on this board; --all or `dugnad work` works on them too."
    assert ran.stdout.count(said) == 2  # When it begins, and in the report.
    assert states(project) == {"Left over": "ready", "Give up": "ready", "Good": "done"}
    everything = json.loads(run("run", "Good again", "--all", *MODEL, "--json", folder=project).stdout)
    assert (everything["exit"], everything["others_waiting"]) == (1, 0)
    assert {task["title"] for task in everything["tasks"]} == {"Left over", "Give up", "Good again"}
    assert states(project)["Left over"] == "done"
