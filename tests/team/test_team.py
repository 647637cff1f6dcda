"""The team as one object: the example people see first, budgets, reports, resuming, and living in another program."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from dugnad import Budget, Report, Team, tool
from dugnad.errors import BadInput, BoardClosed
from dugnad.models import ScriptedModel
from dugnad.models.port import Request
from dugnad.models.scripted import Step
from dugnad.settings import Limits, TeamLimits
from dugnad.team import requests
from dugnad.tools.message_tools import RESTED
from dugnad.types import Event, NewTask, Task
from tests.agent.stage_agent import END, FAST, TITLE, all_told, call, last_results
from tests.conftest import Opener
from tests.team.stage_team import Paused, kill, until, until_status, within

QUICK = TeamLimits(idle_seconds=0.3, sweep_seconds=0.3, stop_seconds=5, cancel_seconds=0.3)


def open_team(url: str, model: Any, **fields: Any) -> Team:
    fields.setdefault("limits", QUICK)
    fields.setdefault("agent_limits", FAST)
    fields.setdefault("board_limits", Limits(lease_seconds=2.0, backoff_seconds=0.01))
    return Team.open(url, model=model, **fields)


async def green(task: Task) -> str | None:
    return None


async def test_the_example_of_the_readme_runs(url: str, tmp_path: Any) -> None:
    path = tmp_path / "text"
    path.write_text("one two three")

    @tool
    def word_count(path: str) -> int:
        """Count the words in a file."""
        with open(path) as file:
            return len(file.read().split())

    script = {
        "Write slugify() with tests": [
            call("word_count", path=str(path)),
            call("finish", result="slugify() is written."),
        ],
        "Review slugify()": [Step(say="Looks good.")],
    }
    model = ScriptedModel(script)
    async with open_team(url, model, check=green) as team:
        await team.spawn("alice", role="coder", tools=[word_count])
        await team.spawn("bob", role="reviewer")
        code = await team.put("Write slugify() with tests", role="coder", check="pytest -q")
        await team.put("Review slugify()", needs=[code], role="reviewer")
        report = await within(team.run(budget=Budget(tasks=20, dollars=None, tokens=1_000_000)))
    assert isinstance(report, Report)
    assert report.exit_code == 0
    assert [(task.title, task.state, task.teammate, task.result) for task in report.tasks] == [
        ("Write slugify() with tests", "done", "alice", "slugify() is written."),
        ("Review slugify()", "done", "bob", "Looks good."),
    ]
    assert last_results(SimpleNamespace(asked=[model.asked[1]])) == ["3"]
    assert "slugify() is written." in all_told(model.asked[-1])
    assert set(report.cost) == {"alice", "bob"}
    assert "Write slugify() with tests by alice" in str(report)


async def test_one_who_rested_while_another_worked_comes_back_for_what_follows(url: str) -> None:
    """The reviewer's rest is shorter than the coder's work."""
    script = {"Write": [Step(say="written", seconds=1.2)], "Review": [Step(say="reviewed")]}
    async with open_team(url, ScriptedModel(script)) as team:
        await team.spawn("alice", role="coder")
        await team.spawn("bob", role="reviewer", prompt="You review.", plan=False)
        code = await team.put("Write", role="coder")
        await team.put("Review", needs=[code], role="reviewer")
        report = await within(team.run())
        stopped = [event for event in await team.board.events() if event.kind == "stopped_teammate"]
        assert "bob" in {event.data["name"] for event in stopped}
        assert (await team.board.teammate("bob")).prompt == "You review."
    assert [task.state for task in report.tasks] == ["done", "done"]
    assert report.exit_code == 0


async def test_events_are_an_async_iterator_from_the_first_to_the_last(url: str) -> None:
    async with open_team(url, ScriptedModel({TITLE: [END]})) as team:
        events = team.events()
        assert isinstance(events, AsyncIterator)
        seen: list[Event] = []

        async def listen() -> None:
            async for event in events:
                seen.append(event)
                if event.kind == "done":
                    return

        listening = asyncio.ensure_future(listen())
        await team.spawn("alice")
        await team.put(TITLE)
        await within(team.run())
        await within(listening)
        later = [event.seq async for event in first(team.events(seen[-2].seq), 1)]
    assert [event.seq for event in seen] == list(range(seen[0].seq, seen[0].seq + len(seen)))
    assert later == [seen[-1].seq]


async def first(events: AsyncIterator[Event], count: int) -> AsyncIterator[Event]:
    async for event in events:
        yield event
        count -= 1
        if not count:
            return


async def test_the_budget_of_a_run_caps_all_that_was_put_together(url: str) -> None:
    def endless(request: Request) -> Step:
        return call("schedule_followup", title=f"{request.title}x") if request.turn == 1 else END

    async with open_team(url, ScriptedModel(endless), board_limits=Limits(depth_max=1_000)) as team:
        for name in ("alice", "bob", "carol"):
            await team.spawn(name)
        for title in ("a", "b", "c"):
            await team.put(title)
        report = await within(team.run(budget=Budget(tasks=10)))
        (account,) = report.accounts.values()
        assert (account.runs, account.tasks_max) == (10, 10)
        assert len(report.in_state("done")) == 10
        assert report.exit_code == 3
        assert "--tasks" in "\n".join(report.next_steps())
        again = await within(team.run(budget=Budget(tasks=15)))
        assert [each.runs for each in again.accounts.values()] == [15]


async def test_tasks_put_at_the_same_moment_share_one_budget(url: str) -> None:
    async with open_team(url, ScriptedModel({"*": [END]})) as team:
        await team.spawn("alice")
        await asyncio.gather(*(team.put(f"t{number}") for number in range(5)))
        report = await within(team.run(budget=Budget(tasks=3)))
        assert [each.runs for each in report.accounts.values()] == [3]
        assert len(report.tasks) == 5
        assert report.exit_code == 3


async def test_a_goal_has_its_own_budget_and_is_gone_on_with(url: str) -> None:
    model = ScriptedModel({"Goal": [call("schedule_followup", title="Part"), END], "Part": [END]})
    async with open_team(url, model) as team:
        await team.spawn("alice")
        report = await within(team.run("Goal", budget=Budget(tasks=1)))
        assert report.exit_code == 3
        report = await within(team.run("Part of nothing"))
        assert report.exit_code == 0
        roots = {task.root for task in report.tasks}
        assert roots.isdisjoint({1})
        (part,) = [task for task in await team.board.list_tasks(root=1) if task.title == "Part"]
        assert part.state == "ready"


async def test_a_budget_for_several_goals_is_refused(url: str) -> None:
    async with open_team(url, ScriptedModel({})) as team:
        await team.board.put_many([NewTask(title="a"), NewTask(title="b")])
        with pytest.raises(BadInput, match="2 are open"):
            await team.run(budget=Budget(tasks=1))


async def test_what_failed_makes_the_exit_code_one(url: str) -> None:
    script = {"Bad": [call("give_up", reason="It cannot be done.")], "Good": [END]}
    async with open_team(url, ScriptedModel(script)) as team:
        await team.spawn("alice")
        bad = await team.put("Bad")
        await team.put("Behind", needs=[bad])
        await team.put("Good")
        report = await within(team.run())
    assert report.exit_code == 1
    assert {task.title: task.state for task in report.tasks} == {"Bad": "failed", "Behind": "skipped", "Good": "done"}
    assert any(f"dugnad retry {bad.id} " in step for step in report.next_steps())


async def test_a_run_ends_when_only_a_person_can_help(url: str) -> None:
    async with open_team(url, ScriptedModel({TITLE: [call("ask_human", question="Which?"), END]})) as team:
        await team.spawn("alice")
        task = await team.put(TITLE)
        await team.put("Behind", needs=[task])
        report = await within(team.run())
        assert report.exit_code == 1
        assert [asked.text for asked in report.requests] == ["Which?"]
        assert await team.standing([task.root]) == "waiting"
        await requests.answer(team.board, str(task.id), "That one.")
        report = await within(team.run())
        assert report.exit_code == 0


@pytest.mark.parametrize("agents", [0, 2])
async def test_a_task_for_one_who_was_stopped_ends_the_run_as_stuck(url: str, agents: int) -> None:
    async with open_team(url, ScriptedModel({"*": [END]}), agents=agents) as team:
        await team.spawn("alice")
        await team.spawn("bob")
        await requests.stop(team.board, "bob", now=True)
        task = await team.put(TITLE, assignee="bob")
        await team.put("Other")
        report = await within(team.run())
        assert await team.standing([task.root]) == "stuck"
        assert (await team.board.teammate("bob")).status == "stopped"
    assert {each.title: each.state for each in report.tasks} == {TITLE: "ready", "Other": "done"}
    assert report.exit_code == 1


async def test_a_team_without_anybody_does_not_wait_for_ever(url: str) -> None:
    async with open_team(url, ScriptedModel({})) as team:
        await team.put(TITLE)
        report = await within(team.run())
    assert report.exit_code == 1
    assert report.next_steps()


async def test_a_run_of_nothing_is_over_at_once(url: str) -> None:
    async with open_team(url, ScriptedModel({})) as team:
        report = await within(team.run())
    assert (report.exit_code, list(report.tasks)) == (0, [])


# Resuming.


STEPS = {TITLE: [call("note", title="a", text="b"), call("list_tasks"), END]}


async def test_a_second_team_goes_on_after_the_first_was_cancelled(url: str) -> None:
    model = Paused(STEPS, where=lambda request: request.turn == 2)

    async def program() -> None:
        async with open_team(url, model) as team:
            await team.spawn("alice")
            await team.put(TITLE)
            await team.run()

    running = asyncio.ensure_future(program())
    await within(model.reached.wait())
    running.cancel()
    await asyncio.sleep(0.05)
    model.go.set()  # The turn under way is let come to its end.
    with pytest.raises(asyncio.CancelledError):
        await within(running)
    again = ScriptedModel(STEPS)
    async with open_team(url, again) as team:
        report = await within(team.run())
        assert len(await team.board.search_notes()) == 1
    assert (report.exit_code, [task.tries for task in report.tasks]) == (0, [0])
    assert [request.turn for request in again.asked] == [3]


async def test_a_second_team_goes_on_after_the_first_was_killed(url: str) -> None:
    model = Paused(STEPS, where=lambda request: request.turn == 2)
    first_team = open_team(url, model)
    await first_team.__aenter__()
    await first_team.spawn("alice")
    await first_team.put(TITLE)
    host = await first_team.start()
    await within(model.reached.wait())
    await kill(host)
    again = ScriptedModel(STEPS)
    async with open_team(url, again) as team:
        report = await within(team.run())
    assert (report.exit_code, [task.tries for task in report.tasks]) == (0, [1])
    assert [request.turn for request in again.asked] == [2, 3]
    await first_team.board.close()


async def test_a_second_team_takes_those_who_rested_when_the_first_was_killed(url: str, opener: Opener) -> None:
    board = await opener()
    first_team = open_team(url, ScriptedModel({}), limits=TeamLimits(idle_seconds=600, sweep_seconds=0.3))
    await first_team.__aenter__()
    await first_team.spawn("alice")
    host = await first_team.start()
    await until_status(board, "alice", "idle")
    await kill(host)
    await until_status(board, "alice", "lost")
    task = await board.put(TITLE)
    async with open_team(url, ScriptedModel({TITLE: [END]})) as team:
        report = await within(team.run())
        assert (await board.find(task.id)).state == "done"
    assert report.exit_code == 0
    await first_team.board.close()


# In someone's own program.


async def test_a_team_leaves_no_task_and_no_signal_handler_behind(url: str) -> None:
    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    before = asyncio.all_tasks()
    async with open_team(url, ScriptedModel({"*": [END]}), agents=3) as team:
        for number in range(6):
            await team.put(f"t{number}")
        await within(team.run())
        assert {each: signal.getsignal(each) for each in handlers} == handlers
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() - before == set()


async def test_a_host_runs_beside_other_work_until_the_block_ends(url: str, opener: Opener) -> None:
    board = await opener()
    async with open_team(url, ScriptedModel({"*": [END]}), agents=2, limits=QUICK) as team:
        host = await team.start()
        assert await team.start() is host
        for number in range(3):  # Also after everybody has rested.
            task = await board.put(f"t{number}")

            async def is_done(task: Task = task) -> bool:
                return (await board.find(task.id)).state == "done"

            await until(board, is_done)
            await until_status(board, "alice", "stopped")
            assert (await board.teammate("alice")).reason == RESTED
    assert not any(each.alive for each in await board.hosts())


async def test_a_team_that_is_not_open_says_so() -> None:
    with pytest.raises(BoardClosed, match="async with"):
        await Team.open("sqlite:///nowhere.db").put("x")


async def test_who_joins_has_the_model_of_its_role_and_each_model_is_opened_and_closed_once(url: str) -> None:
    opened: list[str | None] = []
    closed: list[str | None] = []

    class Closing(ScriptedModel):
        async def close(self) -> None:
            closed.append(self.name)

    def open_named(name: str | None) -> Any:
        opened.append(name)
        return Closing({"*": [END]}, name=str(name))

    async with open_team(url, "default", open_named=open_named, agents=3) as team:
        await team.spawn("alice", model="special")
        for number in range(4):
            await team.put(f"t{number}")
        await within(team.run())
    assert sorted(opened, key=str) == sorted(set(opened), key=str)
    assert set(opened) <= {"default", "special"}
    assert len(closed) == len(opened)


async def test_the_budget_of_a_goal_that_goes_on_is_changed_only_where_it_is_named(opener: Opener, url: str) -> None:
    board = await opener()
    async with Team.open(url, model=ScriptedModel({}), budget=Budget(tasks=7, tokens=9_000)) as team:
        goal = await team.goal("Goal", budget=Budget(tokens=5_000))
        assert (await board.budget(goal.id)).caps == Budget(tasks=7, tokens=5_000)
        await board.set_budget(goal.id, Budget(tasks=70, tokens=50_000))  # A person raised it.
        assert (await team.goal("Goal")).id == goal.id
        assert await team.roots(None, None) == [goal.id]
        assert (await board.budget(goal.id)).caps == Budget(tasks=70, tokens=50_000), "the team's are for new goals"
        await team.roots(None, Budget(tasks=80))
        assert (await board.budget(goal.id)).caps == Budget(tasks=80, tokens=50_000)
