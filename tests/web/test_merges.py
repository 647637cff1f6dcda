"""What was merged, what is being delivered, and what did not go in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dugnad.prompts import tell
from dugnad.settings import Limits
from dugnad.types import Amount, Turn
from dugnad.web.shapes import merges_shape, transcripts_to_read, verdict_of
from tests.board.test_events import all_events
from tests.conftest import Opener
from tests.team.stage_team import Paused, hosting, until_ended, within
from tests.team.stage_trees import finish, shell, worktrees, write
from tests.web.stage_shapes import Shape, Told, by, tides, told
from tests.workspace.repository import new_repository

__all__ = ["tides"]  # The fixture.


async def test_merges_list_the_commits_the_queue_and_what_is_red(tides: Told) -> None:
    story = tides.story
    shape = merges_shape(tides.view, tides.now)
    assert shape["into"] == "dugnad/main"
    merged = by("task", shape["merged"])
    assert [each for each in merged if each in (story["read"], story["cache"])] == [story["cache"], story["read"]]
    assert (merged[story["cache"]]["commit"], merged[story["cache"]]["triggers"]) == (story.commits["cache"], ".envrc")
    assert story["rewrite"] in by("id", shape["queue"])
    assert "Ran 14 tests" in by("id", shape["red"])[story["old"]]["says"]
    assert shape["conflicts"] == []


def verdict_turn(number: int, text: str, *, verdict: bool = True) -> Turn:
    body = {"place": 0, "text": text, **({"verdict": True} if verdict else {"ends": {"as": "Done", "result": "ok"}})}
    return Turn(
        task=1, epoch=1, number=number, kind="tool", body=json.dumps(body), used=Amount(), covers=None, at=number
    )


async def test_a_conflict_names_the_files_and_both_tasks(tides: Told) -> None:
    story = tides.story
    text = "\n".join(
        [
            tell("delivery.conflict", target="dugnad/main"),
            tell(
                "delivery.target_brought_in", target="dugnad/main", head="abc",
                others=f"1a2b3c4 Keep the stations (of a day) (#{story['cache']}, by carol)\n5d6e7f8 By hand (by you)",
            ),
            tell("delivery.marked", files="tides/a.py, tides/b.py", target="dugnad/main", said="CONFLICT (content)"),
        ]
    )  # fmt: skip
    assert verdict_of(text) == "conflict"
    asked = {task: (epoch, after) for task, epoch, after in transcripts_to_read(tides.view)}
    assert asked[story["curve"]] == (1, 0)
    shape = merges_shape(tides.view, tides.now, turns={story["curve"]: [verdict_turn(3, text)]})
    (found,) = shape["conflicts"]
    assert (found["task"], found["files"]) == (story["curve"], ["tides/a.py", "tides/b.py"])
    assert found["with"] == [story["cache"]]
    again = [verdict_turn(3, text), verdict_turn(5, "Handed in.", verdict=False)]
    shape = merges_shape(tides.view, tides.now, turns={story["curve"]: again})
    assert shape["conflicts"] == []
    assert story["curve"] in by("id", shape["queue"])


async def test_a_real_conflict_is_found_in_the_transcript(opener: Opener, tmp_path: Path) -> None:
    """A host merges in a real repository, so this also fails if the runtime begins to word it differently."""
    board = await opener(limits=Limits(backoff_seconds=0.01))
    root = new_repository(tmp_path / "p", {"a": "0\n"})
    await board.spawn("alice")
    await board.spawn("bob")
    second = [write("a", "2\n"), finish("It is 2."), shell("echo 1 and 2 > a"), finish("It is both.")]
    model = Paused(
        {"First": [write("a", "1\n"), finish()], "Second": second},
        where=lambda request: request.title == "Second" and request.turn in (2, 4),
    )
    async with worktrees(board, root) as places, hosting(board, model, workspaces=places):
        task = await board.put("Second")
        await within(model.reached.wait())
        (first,) = await until_ended(board, await board.put("First"))
        model.reached.clear()
        model.go.set()
        model.go.clear()
        await within(model.reached.wait())
        view = told(await all_events(board)).at()
        turns = {
            number: await board.transcript(number, epoch, after=after)
            for number, epoch, after in transcripts_to_read(view)
        }
        (found,) = merges_shape(view, view.at, turns=turns)["conflicts"]
        model.go.set()
        await until_ended(board, task)
    assert (found["task"], found["with"], found["files"]) == (task.id, [first.id], ["a"])
    view = told(await all_events(board)).at()
    assert [each["task"] for each in merges_shape(view, view.at)["merged"]] == [task.id, first.id]


@pytest.mark.parametrize(
    ("prompt", "slots", "wanted"),
    [
        ("red", {"command": "make", "output": "no"}, "red"),
        ("red_together", {"target": "main", "output": "no"}, "red"),
        ("conflict", {"target": "main"}, "conflict"),
        ("changes_wanted", {"who": "bob", "id": 3, "round": 1, "most": 3, "words": "more"}, None),
    ],
)
def test_a_verdict_is_read_from_the_prompt_that_said_it(prompt: str, slots: Shape, wanted: str | None) -> None:
    assert verdict_of(tell(f"delivery.{prompt}", **slots)) == wanted
    assert verdict_of("Red: `make`") is None


async def test_a_turn_that_another_program_wrote_does_no_harm(tides: Told) -> None:
    odd = [
        Turn(task=1, epoch=1, number=1, kind="tool", body=body, used=Amount(), covers=None, at=1)
        for body in ("no json", "[]", '{"text": 5, "verdict": true}', '{"ends": "Done"}')
    ]
    shape = merges_shape(tides.view, tides.now, turns={tides.story["curve"]: odd})
    assert shape["conflicts"] == []
