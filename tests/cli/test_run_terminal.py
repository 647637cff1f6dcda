"""`dugnad run` and `dugnad work` as a person sees them: on a terminal of any size, with Ctrl-C, beside another one."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.cli.shell import run
from tests.cli.terminal import BRIEF, MODEL, Terminal, make_project, states, terminal, told

# One that thinks for a minute, one that is done at once, one that waits for both, and a question.
STILL = """
Build it:
  - calls:
      - add_task: {title: Think hard}
      - add_task: {title: Begin, priority: 5}
      - add_task: {title: Put it together, needs: ["2", "3"]}
      - ask_human: {question: "Which colour?"}
  - say: All is planned.
Think hard:
  - seconds: 60
    say: I have thought.
"*":
  - calls: [{note: {title: A word, text: for all}}]
  - say: It is done.
"""
LONG = """
"*":
  - calls: [{note: {title: A word, text: for all}}]
  - {seconds: 60, say: Too late.}
"""
QUICK = """
"*":
  - calls: [{note: {title: A word, text: for all}}]
  - say: It is done.
"""
SIZES = [(80, 24), (120, 40), (40, 12)]


def stands_still(screen: Terminal) -> None:
    """The team of STILL has done all it can without an answer."""
    screen.until(lambda: "1 claimed · 1 waiting · 1" in screen.text and " done" in screen.text, "the still picture")


def holds_no_view(text: str) -> bool:
    """Neither its last line, nor its headline, nor the key that was pressed under it."""
    return not any(mark in text for mark in ("Ctrl-C", " · ", "^C"))


def nothing_is_left_of_the_view(screen: Terminal) -> None:
    assert holds_no_view(screen.everything)
    assert screen.is_sane


def view_of(screen: Terminal) -> list[str]:
    """The live view: from its headline to its last line."""
    (first,) = [place for place, line in enumerate(screen.lines) if " · " in line]
    return screen.text.splitlines()[first:]


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_the_live_view_shows_the_whole_on_any_screen(folder: Path, columns: int, rows: int) -> None:
    make_project(folder, STILL, BRIEF.replace("[team]\n", "[team]\nagents_start = 3\n"))
    with terminal("run", "Build it", "--tasks", "10", *MODEL, folder=folder, columns=columns, rows=rows) as screen:
        screen.shows("3 of 10 tasks", "waits for you: Which", "dugnad answer m1")
        stands_still(screen)
        view = view_of(screen)
        assert view[0].startswith("Build it   1 claimed · 1 waiting · 1 b")
        assert len(view) < rows
        assert "#2  claimed" in screen.text
        (thinking,) = [line for line in screen.lines if "working" in line]
        owner = thinking.split()[0]
        assert any("#2" in line and owner in line and "Think" in line for line in screen.lines)
        if columns >= 80:
            assert "#2 turn 1, asks scripted:script" in thinking
            assert thinking.split("scripted:script ")[1].split()[0].rstrip("s").isdigit()
            assert any("#4  blocked" in line and "Put it together" in line for line in screen.lines)
            assert any("#3  done" in line and "Begin" in line for line in screen.lines)
            assert "waits for the human: Which colour?" in screen.text
        assert "Ctrl-C stops the team in order" in view[-1]
        assert holds_no_view("\n".join(screen.above))  # Drawn in place: nothing scrolled away.
        assert not screen.cursor_is_visible
        screen.interrupt()
        assert screen.ends() == 130
        nothing_is_left_of_the_view(screen)
        assert "Interrupted." in screen.everything


def test_the_view_is_drawn_in_place_and_then_gives_way_to_the_report(folder: Path) -> None:
    make_project(folder, QUICK.replace("- say", "- seconds: 1\n    say"))
    with terminal("run", "Build it", *MODEL, folder=folder) as screen:
        screen.shows("turn 2, asks scripted:script")
        assert screen.text.count("Build it   1 claimed") == 1
        assert screen.ends() == 0
        nothing_is_left_of_the_view(screen)
        report = screen.text[screen.text.index("All done.") :].splitlines()
        assert [line.split()[0] for line in report] == ["All", "done", "It", "budget", "alice", "took"]


HOSTILE = """
Build it:
  - calls:
      - add_task: {title: "Clear \\e[2J\\e[H\\e]0;mine\\a it", priority: 5}
      - add_task: {title: "A title that is far too long for any screen of this width, and goes on, and on, and on"}
      - add_task: {title: "東京タワー漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字"}
      - add_task: {title: "🚀🚀🚀🚀🚀 👨‍👩‍👧‍👦 and e\\u0301 too"}
      - add_task: {title: "שלום \\u202eback to front\\u202c مرحبا"}
      - ask_human: {question: "\\e[31mRed\\e[0m?\\r\\nSure?"}
  - say: "\\e[5mDone\\a"
"*":
  - calls: [{note: {title: "\\e[1A\\e[2K", text: for all}}]
  - say: "\\e[?25h\\e[3J"
"""


def test_titles_of_any_kind_do_the_screen_no_harm(folder: Path) -> None:
    make_project(folder, HOSTILE, "[team]\nidle_seconds = 60\n")
    with terminal("run", "Build it", *MODEL, folder=folder, columns=80, rows=24) as screen:
        screen.shows("1 waiting · 5 done", "waits for you: ␛[31mRed␛[0m? Sure?")
        rows = [line for line in screen.lines if line.startswith("#")]
        assert [row.split()[1] for row in rows] == ["waiting", *["done"] * 5]
        assert len({row.index("done") for row in rows[1:]}) == 1  # The columns stand under one another.
        assert holds_no_view("\n".join(screen.above))
        assert run("answer", "m1", "yes", folder=folder).returncode == 0
        assert screen.ends() == 0
        assert "done  #2 Clear ␛[2J␛[H␛]0;mine␇ it" in screen.text
        assert "␛[5mDone␇" in screen.text
        nothing_is_left_of_the_view(screen)
        for order in (b"\x1b[2J", b"\x1b]0;", b"\x1b[31m", b"\x1b[5m", b"\x1b[3J", "\u202e".encode(), b"\x07"):
            assert order not in screen.drawn


def test_a_window_that_changes_its_size_is_drawn_anew(folder: Path) -> None:
    make_project(folder, STILL)
    with terminal("run", "Build it", *MODEL, folder=folder, columns=110, rows=32) as screen:
        stands_still(screen)
        for columns, rows in ((60, 14), (120, 40), (80, 24)):
            screen.resize(columns, rows)
            seen = len(screen.drawn)
            screen.until(lambda before=seen: screen.drawn[before:].count(b"Ctrl-C stops") >= 2, "two drawings")
            screen.shows("Build it   1 claimed", "dugnad answer m1", "Ctrl-C stops the team in order")
            assert view_of(screen)[-1].startswith("Ctrl-C stops")
            assert screen.text.count("Ctrl-C stops") == 1
        screen.interrupt()
        assert screen.ends() == 130
        assert holds_no_view(screen.text)
        assert "Interrupted." in screen.text
        assert screen.is_sane


def test_control_c_gives_the_task_back_and_the_next_run_goes_on_in_the_same_transcript(folder: Path) -> None:
    make_project(folder, LONG)
    with terminal("run", "Build it", *MODEL, folder=folder) as screen:
        screen.shows("turn 2, asks")
        screen.interrupt()
        assert screen.ends() == 130
        assert "Interrupted." in screen.text
        assert "ready  #1 Build it" in screen.text
        assert "dugnad run    continues with what is left" in screen.text
        nothing_is_left_of_the_view(screen)
    seen = told(folder, "show", "1", "--transcript")
    assert (seen["task"]["state"], seen["task"]["tries"]) == ("ready", 0)
    (attempt,) = seen["attempts"]
    assert (attempt["ended_as"], attempt["reason"]) == ("released", "the run was stopped")
    assert [turn["kind"] for turn in seen["transcript"]] == ["reply", "tool"]
    make_project(folder, QUICK)
    with terminal("run", *MODEL, folder=folder) as screen:
        assert screen.ends() == 0
        assert "done  #1 Build it" in screen.text
    again = told(folder, "show", "1", "--transcript")
    assert again["attempts"][1]["continues"] == attempt["epoch"]
    assert again["attempts"][1]["ended_as"] == "done"
    assert again["transcript"][:2] == seen["transcript"]
    assert [turn["kind"] for turn in again["transcript"][2:]] == ["reply"]  # What was done is not done again.


def test_control_c_twice_ends_at_once_and_the_next_run_takes_over_without_waiting(folder: Path) -> None:
    make_project(folder, LONG, "[team]\nstop_seconds = 50\n[limits]\nlease_seconds = 100\n")
    with terminal("run", "Build it", *MODEL, folder=folder) as screen:
        screen.shows("turn 2, asks")
        screen.interrupt()
        screen.shows("Stopping: turns under way are being recorded. Ctrl-C again ends at once.")
        screen.interrupt()
        assert screen.ends() == 130
        assert screen.is_sane
        assert screen.screen.cursor.x == 0  # The shell's prompt comes on a line of its own.
    assert told(folder, "show", "1")["task"]["state"] == "claimed"  # As a kill would leave it.
    make_project(folder, QUICK)
    with terminal("run", *MODEL, folder=folder) as screen:  # Fails after 60 seconds, and the lease is 100.
        assert screen.ends() == 0
    first, second = told(folder, "show", "1")["attempts"]
    assert first["ended_as"] == "lost"
    assert (second["continues"], second["ended_as"]) == (first["epoch"], "done")


def test_sigterm_is_like_one_control_c(folder: Path) -> None:
    make_project(folder, LONG)
    with terminal("run", "Build it", *MODEL, folder=folder) as screen:
        screen.shows("turn 2, asks")
        screen.program.send_signal(signal.SIGTERM)
        assert screen.ends() == 130
        nothing_is_left_of_the_view(screen)
    assert told(folder, "show", "1")["attempts"][0]["ended_as"] == "released"


def test_control_z_lets_the_run_rest_and_fg_goes_on(folder: Path) -> None:
    make_project(folder, QUICK.replace("- say", "- seconds: 1.5\n    say"))
    shell = ["bash", "--norc", "--noprofile", "-i"]
    with terminal(command=shell, folder=folder, PS1="shell> ") as screen:
        screen.shows("shell>")
        screen.type(f"{sys.executable} -m dugnad run 'Build it' {' '.join(MODEL)}\n")
        screen.shows("turn 2, asks")
        screen.type("\x1a")
        screen.shows("Stopped")
        screen.type("fg\n")
        screen.shows("All done.", "done  #1 Build it", "tokens")
        screen.type("echo it ended with $?\n")
        screen.shows("it ended with 0")
        assert screen.cursor_is_visible
        screen.type("exit\n")
        screen.ends()


def test_a_question_in_the_view_is_answered_in_another_terminal(folder: Path) -> None:
    make_project(folder, STILL.replace("seconds: 60", "seconds: 0"), "[team]\nidle_seconds = 30\n")
    with terminal("run", "Build it", *MODEL, folder=folder) as screen:
        screen.shows("1 waiting · 3 done", 'dugnad answer m1 "..."   (in another terminal)')
        assert "goes on" in run("answer", "m1", "Blue.", folder=folder).stdout
        assert screen.ends() == 0
        assert "All is planned." in screen.text
    assert set(states(folder).values()) == {"done"}


def test_two_terminals_at_one_goal_do_nothing_twice(folder: Path) -> None:
    parts = ", ".join(f"{{add_task: {{title: Part {number}}}}}" for number in range(1, 7))
    goal = 'Build it:\n  - calls: [{ask_human: {question: "Shall we?"}}]\n'
    goal += f"  - calls: [{parts}, {{finish: {{result: planned}}}}]\n"
    make_project(folder, goal + '"*":\n  - {seconds: 0.6, say: It is done.}\n', "[team]\nidle_seconds = 30\n")
    with terminal("run", "Build it", *MODEL, folder=folder) as first:
        first.shows("Build it   1 waiting")
        with terminal("run", "Build it", *MODEL, folder=folder) as second:
            second.shows("Build it   1 waiting")
            assert "goes on" in run("answer", "m1", "Yes.", folder=folder).stdout
            assert (first.ends(), second.ends()) == (0, 0)
            for screen in (first, second):
                assert screen.text.count("done  #") == 7
                nothing_is_left_of_the_view(screen)
    tasks = told(folder, "tasks", "--all")["tasks"]
    assert [(task["state"], task["claims"]) for task in tasks] == [("done", 1)] * 7


def test_work_shows_the_board_and_leaves_when_it_was_quiet_for_long_enough(folder: Path) -> None:
    make_project(folder, QUICK, "[team]\nidle_seconds = 4\n")
    run("add", "First", folder=folder)
    with terminal("work", "--agents", "2", *MODEL, folder=folder) as screen:
        screen.shows("1 done", "alice", "bob", "idle")
        run("add", "Second", folder=folder)
        screen.shows("2 done")
        assert screen.ends() == 0
        assert screen.text.splitlines()[-1] == "alice, bob worked here; nothing is left to do."
        nothing_is_left_of_the_view(screen)


def test_work_that_finds_nothing_waits_for_a_quiet_while_before_it_leaves(folder: Path) -> None:
    make_project(folder, QUICK, "[team]\nidle_seconds = 30\n")
    run("add", "First", folder=folder)
    run("cancel", "1", folder=folder)
    with terminal("work", *MODEL, folder=folder) as screen:
        screen.shows("alice", "idle")
        run("add", "Second", folder=folder)
        screen.shows("1 done")
        screen.interrupt()
        assert screen.ends() == 130
        assert "worked here; interrupted." in screen.text
