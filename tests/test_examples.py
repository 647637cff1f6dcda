"""Every example runs offline, says that a script plays the model, and tells the story its first lines promise."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"
LINES_MAX = 90
SCRIPTED = ("delegation_queue", "nested_chat", "conditional_routes", "self_scheduling")


def told_by(example: str, folder: Path) -> list[str]:
    """What an example prints, in an empty environment: no key, no board, nothing to ask."""
    ran = subprocess.run(
        [sys.executable, FOLDER / f"{example}.py"], cwd=folder, env={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.stderr == ""
    assert ran.returncode == 0
    assert list(folder.iterdir()) == [], "it leaves something behind"
    return ran.stdout.splitlines()


def test_a_planners_tasks_are_claimed_by_role_and_their_results_come_back_to_it(folder: Path) -> None:
    assert told_by("delegation_queue", folder) == [
        "A scripted model plays everybody.",
        "#1 Plan the summer fair: done, put by human, worked by paula",
        "#2 Find a date: done, put by paula, worked by rosa",
        "#3 Sketch the poster: done, put by paula, worked by dan",
        "#4 Add up the costs: done, put by paula, worked by ali",
        "The planner put its task down while they worked: yes. Its result:",
        "The fair is planned.",
        "Saturday the 14th: nothing else is on in town.",
        "A green field, three tents, large letters.",
        "Tents 300, music 200, printing 50: 550 in all.",
    ]


def test_only_the_answer_of_a_nested_chat_comes_back_and_its_cost_is_the_tasks(folder: Path) -> None:
    told = told_by("nested_chat", folder)
    assert told[0] == "A scripted model plays writer and editor."
    assert told[3:7] == [
        "  will: I have a draft. Let an editor look at it. [calls consult]",
        "  came back: No: the notes say Saturday the 14th. The rest is fine.",
        "  will: [calls finish]",
        "What the editor looked up on the way is not in it.",
    ]
    assert "The result: The fair is on Saturday the 14th." in told
    assert "The nested chat was paid from the same budget: yes." in told


def test_an_outcome_selects_the_way_and_the_budget_ends_a_circle(folder: Path) -> None:
    told = told_by("conditional_routes", folder)
    assert told[0] == "A scripted model plays reviewer and author."
    assert told[2:10] == [
        "Content with the second text, with at most 12 task runs:",
        "  Review, round 1: changes-requested",
        "  Publish, round 1: skipped, as it needs #1 to end as approved, which ended done as changes-requested",
        "  Rework, round 1: done",
        "  Review, round 2: approved",
        "  Publish, round 2: done",
        "  Rework, round 2: skipped, as it needs #4 to end as changes-requested, which ended done as approved",
        "  Budget: 4 of 12 used.",
    ]
    assert told[-3:] == [
        "  Publish, round 3: skipped, as it needs #13 to end as approved, which ended done as changes-requested",
        "  Rework, round 3: ready",
        "  Budget: 5 of 5 used; the rest is parked.",
    ]


def test_follow_ups_stop_at_the_cap_and_go_on_when_it_is_raised(folder: Path) -> None:
    told = told_by("self_scheduling", folder)
    assert told[0] == "A scripted model plays the reader."
    assert told[2:7] == [f"Read chapter {n}: done. Budget: {n} of 5 used." for n in range(1, 6)]
    assert told[7:9] == [
        "Read chapter 6: parked. Held by the cap on tasks.",
        "To go on: await board.raise_budget(1, Budget(tasks=5))",
    ]
    assert told[10:] == [
        "Read chapter 6: done. Budget: 6 of 10 used.",
        "Read chapter 7: done. Budget: 7 of 10 used.",
        "The queue is empty.",
    ]


@pytest.mark.parametrize("example", SCRIPTED)
def test_an_example_is_short_and_uses_only_what_is_meant_for_everybody(example: str) -> None:
    text = (FOLDER / f"{example}.py").read_text()
    assert len(text.splitlines()) <= LINES_MAX
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dugnad"):
            assert node.module in ("dugnad", "dugnad.models.scripted")
