"""How the work under a root stands, and what a run came to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from dugnad.board import Board
from dugnad.board.records import Moment
from dugnad.models import ScriptedModel
from dugnad.models.port import Price
from dugnad.models.scripted import Step
from dugnad.team.report import Report, report, standing
from dugnad.types import Amount, Budget, NewTask, Spending, Waiting
from dugnad.view.summary import report_page, report_shape
from tests.agent.stage_agent import END, TITLE, call
from tests.board.crew import crew
from tests.team.stage_team import hosting, until, until_ended, until_state


@pytest.mark.parametrize(
    ("counts", "held", "deserted", "stands"),
    [
        ({}, False, True, "ended"),
        ({"done": 3, "failed": 1, "cancelled": 1, "skipped": 2}, True, True, "ended"),
        ({"ready": 1}, False, False, "working"),
        ({"claimed": 1}, True, True, "working"),  # What is under way is let come to its end.
        ({"claimed": 1, "ready": 3}, False, True, "working"),
        ({"ready": 1}, True, False, "budget"),
        ({"scheduled": 1}, True, False, "budget"),
        ({"scheduled": 1}, False, True, "working"),  # It comes due by itself.
        ({"ready": 1}, False, True, "stuck"),
        ({"ready": 1, "waiting": 1}, False, True, "stuck"),
        ({"waiting": 1, "done": 1}, False, True, "waiting"),
        ({"blocked": 1, "waiting": 1}, False, True, "waiting"),
        ({"waiting": 1}, False, False, "working"),
    ],
)
def test_how_it_stands(counts: dict[str, int], held: bool, deserted: bool, stands: str) -> None:
    now = Moment(
        team=[], ready={}, counts={1: counts}, accounts={1: account(held="tasks" if held else None)}, begun=set()
    )
    assert standing(now, [1], deserted=deserted) == stands


def account(**fields: Any) -> Spending:
    caps = dict.fromkeys(("tasks_max", "tokens_max", "microdollars_max", "milliseconds_max"))
    return Spending(
        **{"root": 1, **caps, "runs": 0, "tasks": 1, "spent": Amount(), "reserved": Amount(), "held": None, **fields}
    )


@pytest.mark.parametrize(
    ("states", "held", "interrupted", "code"),
    [
        (["done"], None, False, 0),
        (["done", "skipped", "cancelled"], None, False, 0),  # A way not taken is no failure.
        (["done"], "tokens", False, 0),  # The last of it took the rest of the budget, and nothing is left.
        (["failed"], "tokens", False, 1),
        (["done", "failed"], None, False, 1),
        (["done", "ready"], None, False, 1),
        (["done", "waiting"], "tokens", False, 3),
        (["failed", "ready"], "tasks", False, 3),
        (["done"], None, True, 130),
        (["ready"], "tasks", True, 130),
    ],
)
async def test_the_exit_code_says_how_it_ended(
    board: Board, states: list[str], held: str | None, interrupted: bool, code: int
) -> None:
    task = await board.put(TITLE)
    tasks = [replace(task, state=state) for state in states]
    found = Report(tasks=tasks, accounts={1: account(held=held)}, interrupted=interrupted)
    assert found.exit_code == code


async def test_who_failed_is_told_also_when_all_is_done(board: Board) -> None:
    """Another took over, and everything came to a good end; that one of them does not work is still to be known."""
    task = replace(await board.put(TITLE), state="done")
    found = Report(tasks=[task], accounts={1: account()}, trouble={"bob": "no such model"})
    assert found.exit_code == 0
    assert "failed  bob: no such model" in str(found)
    console = Console(width=100)
    with console.capture() as page:
        console.print(report_page(found))
    assert "failed  bob: no such model" in page.get()
    assert report_shape(found)["failed_teammates"] == {"bob": "no such model"}


async def worked(board: Board, script: dict[str, list[Step]], *titles: str, **fields: Any) -> list[int]:
    """Roots, each worked as far as it goes."""
    await board.spawn("alice")
    model = ScriptedModel(script, price=Price(input=1.0, output=2.0))
    tasks = [await board.put(title, **fields) for title in titles]
    async with hosting(board, model):
        for task in tasks:
            await until_state(board, task, "done", "failed", "waiting")
    return [task.id for task in tasks]


async def test_all_done_is_a_zero(board: Board) -> None:
    roots = await worked(board, {"*": [END]}, "One", "Two")
    found = await report(board, roots)
    assert (found.exit_code, found.left, found.next_steps()) == (0, [], [])
    assert {task.title for task in found.in_state("done")} == {"One", "Two"}
    assert found.cost["alice"].tokens == found.spent.tokens > 0
    assert found.spent.microdollars > 0
    text = str(found)
    assert "     done  #1 One by alice" in text
    assert "built" in text


async def test_other_roots_and_accounts_are_not_in_it(board: Board) -> None:
    roots = await worked(board, {"*": [END]}, "Mine", "Theirs")
    assert [task.title for task in (await report(board, roots[:1])).tasks] == ["Mine"]
    account = await board.put("The budget", kind="budget", assignee="human")
    assert (await report(board, [account.id])).tasks == []


async def test_a_failure_says_why_and_what_to_do(board: Board) -> None:
    roots = await worked(board, {TITLE: [call("give_up", reason="No way.")]}, TITLE)
    found = await report(board, roots)
    assert found.exit_code == 1
    (step,) = found.next_steps()
    assert step.startswith(f"dugnad retry {roots[0]} ")
    assert "No way." in step
    assert f"   failed  #{roots[0]} {TITLE} by alice\n           No way." in str(found)


async def test_a_spent_budget_with_work_left_is_a_three(board: Board) -> None:
    steps = {TITLE: [call("schedule_followup", title="More"), END]}
    roots = await worked(board, steps, TITLE, budget=Budget(tasks=1))
    await board.spawn("bob")
    async with hosting(board, ScriptedModel({"*": [END]})):
        more = next(task for task in await board.list_tasks() if task.title == "More")

        async def held() -> bool:
            return (await board.budget(roots[0])).held is not None

        await until(board, held)
        found = await report(board, roots)
        assert (found.exit_code, [task.id for task in found.left]) == (3, [more.id])
        assert found.next_steps()[0].startswith(f"dugnad budget {roots[0]} ")
        assert "--tasks" in found.next_steps()[0]
        await board.raise_budget(roots[0], Budget(tasks=1))
        await until_ended(board, more)
    assert (await report(board, roots)).exit_code == 0


async def test_a_question_that_waits_is_among_the_next_steps(board: Board) -> None:
    roots = await worked(board, {TITLE: [call("ask_human", question="Which\none?")]}, TITLE)
    found = await report(board, roots)
    assert found.exit_code == 1
    (step,) = found.next_steps()
    assert step.startswith(f"dugnad answer m{found.requests[0].id} ")
    assert step.endswith("alice waits for you: Which one?")


async def test_an_interrupted_run_is_resumable_and_says_so_by_its_code(board: Board) -> None:
    roots = await worked(board, {"*": [END]}, TITLE)
    assert (await report(board, roots, interrupted=True)).exit_code == 130


async def test_a_teammate_that_failed_is_named_with_the_reason(board: Board) -> None:
    roots = await worked(board, {"*": [END]}, TITLE)
    found = await report(board, roots, trouble={"alice": "ValueError: x"})
    assert "   failed  alice: ValueError: x" in str(found)


async def test_more_tasks_than_fit_one_page_are_all_in_it(board: Board) -> None:
    root = await board.put("Root", assignee="human")
    await board.put_many([NewTask(title=f"t{number}", parent=root.id) for number in range(990)])
    other = Report(tasks=(await report(board, [root.id])).tasks, accounts={})
    assert len(other.tasks) == 991
    assert other.spent == Amount()


async def test_a_terminal_obeys_nothing_that_an_agent_said(board: Board) -> None:
    """`print(report)` is what people do."""
    evil = "a\x1b[2Jb\x9bc\rd"
    roots = await worked(
        board, {TITLE: [call("give_up", reason=evil)], "Two": [call("ask_human", question=evil)]}, TITLE, "Two"
    )
    text = str(await report(board, roots, trouble={"alice": evil}))
    assert not [each for each in text if each != "\n" and (ord(each) < 32 or 127 <= ord(each) < 160)]


async def test_what_waits_under_another_goal_is_not_among_the_next_steps(board: Board) -> None:
    team = await crew(board)
    ours, other = await board.put("Ours", priority=1), await board.put("Other")
    for question in ("Mine?", "Theirs?"):
        await board.settle(await team.must_claim(), Waiting(on="human", question=question))
    end = await report(board, [ours.id])
    assert [asked.text for asked in end.requests] == ["Mine?"]
    assert not [step for step in end.next_steps() if "Theirs?" in step]
    assert [asked.text for asked in (await report(board, [other.id])).requests] == ["Theirs?"]


def test_of_several_goals_those_with_a_cap_are_accounted_for() -> None:
    accounts = {1: account(), 2: account(root=2, tokens_max=5_000), 3: account(root=3, milliseconds_max=60_000)}
    assert list(Report(accounts=accounts).capped) == [2, 3]
    assert list(Report(accounts={1: account()}).capped) == [1]


async def test_a_goal_at_its_cap_without_work_left_is_no_reason_for_a_three(board: Board) -> None:
    one, two = await board.put("One"), await board.put("Two")
    accounts = {one.root: account(root=one.root, held="tasks"), two.root: account(root=two.root)}
    found = Report(tasks=[replace(one, state="cancelled"), replace(two, state="waiting")], accounts=accounts)
    assert found.exit_code == 1
    assert not any("budget" in step for step in found.next_steps())


def test_where_nothing_is_left_nothing_has_to_be_mended() -> None:
    assert Report(trouble={"alice": "its key is wrong"}).next_steps() == []
