"""Teammates with somebody else's agent as their mind, at a host: checks, leases, messages, and being stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from dugnad import Team
from dugnad.agent.external.agent import ExternalAgent
from dugnad.agent.external.command import ExternalCommand
from dugnad.board import Board
from dugnad.config.project import Role
from dugnad.errors import BadInput
from dugnad.models import ScriptedModel
from dugnad.models.scripted import Step
from dugnad.settings import TeamLimits
from dugnad.team.workspaces.workspace import Workshop, shared
from dugnad.types import HUMAN, Budget, Teammate
from dugnad.workspace.sandbox.sandbox import Sandbox
from tests.agent.stage_agent import TITLE
from tests.agent.standin import asked, block, prompts, script, stand_in
from tests.team.stage_team import hosting, short_lease, until, until_ended, until_state, within


def minds(board: Board, sandbox: Sandbox, tree: Path, command: ExternalCommand) -> Any:
    def mind(member: Teammate, may_act: Callable[[], bool]) -> ExternalAgent:
        return ExternalAgent(board=board, teammate=member, command=command, sandbox=sandbox, tree=tree, may_act=may_act)

    return mind


async def until_there(path: Path) -> None:
    async with asyncio.timeout(120):
        while not path.exists():  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.02)


def running(folder: Path) -> list[int]:
    """Processes of the stand-in that live."""
    found = []
    for each in psutil.process_iter():
        try:
            if any(str(folder / "programs") in word for word in each.cmdline()) and each.status() != "zombie":
                found.append(each.pid)
        except psutil.Error:
            continue
    return found


async def test_a_red_check_begins_another_run_with_what_it_printed(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    await board.spawn("alice")
    script(tree, {"say": "I think so."}, {"say": "Now it is.", "write": {"out.txt": "built"}})
    places = shared(Workshop(board=board, sandbox=sandbox, outputs=tree.parent / "outputs"), tree)
    async with hosting(board, None, mind=minds(board, sandbox, tree, stand_in(folder)), workspaces=places):
        (done,) = await until_ended(board, await board.put(TITLE, check="cat out.txt"))
    assert (done.state, done.result) == ("done", "Now it is.")
    second = prompts(tree)[1]
    assert "the check is red" in second
    assert "No such file" in second
    assert "> I think so." in second


async def test_its_claim_is_kept_alive_for_as_long_as_it_runs(
    opener: Any, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    board: Board = await opener(**short_lease(2.0))
    await board.spawn("alice")
    script(tree, {"say": "Done.", "until": "go"})
    async with hosting(board, None, mind=minds(board, sandbox, tree, stand_in(folder))) as host:
        task = await board.put(TITLE)
        await until_there(tree / ".waits")
        renewed: set[float] = set()
        async with asyncio.timeout(120):
            while len(renewed) < 5:  # Each a third of a lease later: more than one has passed.
                renewed.add(host._lease_until)
                await asyncio.sleep(0.02)
        assert not await board.take_back()
        (tree / "go").touch()
        (done,) = await until_ended(board, task)
    assert done.state == "done"
    assert [attempt.ended_as for attempt in await board.attempts(task.id)] == ["done"]


async def test_what_a_person_says_while_it_runs_begins_one_more_run(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    await board.spawn("alice")
    await board.spawn("bob")
    script(tree, {"say": "Done.", "until": "go"}, {"say": "Done, with tabs."})
    async with hosting(board, None, mind=minds(board, sandbox, tree, stand_in(folder))):
        task = await board.put(TITLE, assignee="alice")
        await until_there(tree / ".waits")
        await board.tell(HUMAN, "alice", "Use tabs.")
        (tree / "go").touch()
        (done,) = await until_ended(board, task)
    assert done.result == "Done, with tabs."
    first, second = prompts(tree)
    assert "Use tabs." not in first
    assert "> Use tabs." in second
    assert [attempt.ended_as for attempt in await board.attempts(task.id)] == ["done"]


async def test_a_host_that_stops_ends_the_command_and_another_goes_on(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    await board.spawn("alice")
    script(tree, {"hang": "600"}, {"say": "Done."})
    command = stand_in(folder)
    fields: dict[str, Any] = {"mind": minds(board, sandbox, tree, command), "limits": {"stop_seconds": 0.1}}
    fields["limits"]["cancel_seconds"] = 20.0
    async with hosting(board, None, **fields):
        task = await board.put(TITLE)
        await until_there(tree / ".hangs")
        assert running(folder)
    assert not running(folder)
    assert (await board.find(task.id)).state == "ready"
    async with hosting(board, None, mind=minds(board, sandbox, tree, command)):
        (done,) = await until_ended(board, task)
    assert done.state == "done"
    assert "was interrupted" in prompts(tree)[1]


async def test_a_task_that_is_cancelled_ends_the_command(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    await board.spawn("alice")
    script(tree, {"hang": "600"})
    limits = {"cancel_seconds": 20.0}
    async with hosting(board, None, mind=minds(board, sandbox, tree, stand_in(folder)), limits=limits):
        task = await board.put(TITLE)
        await until_there(tree / ".hangs")
        await board.cancel(task.id)
        async with asyncio.timeout(120):
            while running(folder):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    assert (await board.find(task.id)).state == "cancelled"


async def test_over_its_time_it_is_ended_with_everything_it_started(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    await board.spawn("alice")
    script(tree, {"hang": "600"}, {"say": "Quicker now."})
    async with hosting(board, None, mind=minds(board, sandbox, tree, stand_in(folder, seconds=3.0))) as host:
        task = await board.put(TITLE)
        await until_there(tree / ".hangs")
        host.workers["alice"].agent.command = stand_in(folder)  # type: ignore[attr-defined]
        (done,) = await until_ended(board, task)
    assert (done.state, done.result) == ("done", "Quicker now.")
    assert not running(folder)
    assert "which is its limit" in prompts(tree)[-1]  # As an earlier attempt.
    *earlier, last = [attempt.ended_as for attempt in await board.attempts(done.id)]
    assert (set(earlier), last) == ({"retry"}, "done")


async def test_follow_ups_of_one_are_worked_by_others_of_any_kind(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path, url: str
) -> None:
    script(tree, {"say": block(result="built", follow_ups=[{"title": "Review it", "role": "reviewer"}])})
    command = stand_in(folder)
    scripted = ScriptedModel({"Review it": [Step(say="It is good.")]})
    shop = Workshop(board=board, sandbox=sandbox, outputs=tree.parent / "outputs")
    team = Team.open(
        url, model=scripted, sandbox=sandbox, workspaces=shared(shop, tree),
        limits=TeamLimits(idle_seconds=600.0),
        roles={"coder": Role(model="command:claude", prompt="You build.")},
        open_named=lambda name: command if name == "command:claude" else scripted,
    )  # fmt: skip
    async with team:
        await team.spawn("alice", role="coder")
        await team.spawn("bob", role="reviewer")
        await team.put(TITLE, role="coder")
        report = await within(team.run(budget=Budget(tasks=10, tokens=3_000_000)))
    assert report.exit_code == 0
    ended = {task.title: task for task in await board.list_tasks() if task.state == "done"}
    assert (ended[TITLE].teammate, ended["Review it"].teammate) == ("alice", "bob")
    assert ended["Review it"].result == "It is good."
    assert len(asked(tree)) == 1
    assert "You build." in prompts(tree)[0]


async def test_a_team_of_commands_without_a_price_takes_no_cap_in_dollars(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path, url: str
) -> None:
    async with Team.open(url, model=stand_in(folder, "codex"), sandbox=sandbox) as team:
        await team.put(TITLE)
        with pytest.raises(BadInput, match="A cap in dollars cannot be kept"):
            await team.run(budget=Budget(dollars=1.0))


async def test_a_command_that_is_not_there_is_the_teammates_trouble_and_not_the_tasks(
    board: Board, sandbox: Sandbox, tree: Path
) -> None:
    await board.spawn("alice")
    command = ExternalCommand(name="command:nobody", run=("no-such-agent",))
    async with hosting(board, None, mind=minds(board, sandbox, tree, command)) as host:
        task = await board.put(TITLE)

        async def has_failed() -> bool:
            return (await board.teammate("alice")).status == "failed" and "alice" in host.failed

        await until(board, has_failed)
        assert "no-such-agent" in host.failed["alice"]
        await until_state(board, task, "ready")


async def test_a_failed_agent_that_speaks_of_authentication_stops_nobody(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    await board.spawn("alice")
    script(tree, {"say": "The authentication is red: 401 Unauthorized, invalid api key", "refused": True},
           {"say": "Now it is green."})  # fmt: skip
    async with hosting(board, None, mind=minds(board, sandbox, tree, stand_in(folder))) as host:
        (done,) = await until_ended(board, await board.put("Mend the authentication"))
        assert not host.failed
    assert (done.state, done.result) == ("done", "Now it is green.")
    assert [attempt.ended_as for attempt in await board.attempts(done.id)] == ["retry", "done"]
