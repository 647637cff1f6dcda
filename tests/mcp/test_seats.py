"""Clients come and go: their names, their ends, and what others see of it."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dugnad.board import Board, open_board
from dugnad.mcp.seats import NameTaken, name_for
from dugnad.models import ScriptedModel
from dugnad.models.scripted import Step
from dugnad.settings import Patience, TeamLimits
from dugnad.team import RunPlan, Team
from dugnad.tools.message_tools import RESTED
from dugnad.types import Task
from tests.agent.stage_commands import until_true
from tests.mcp.clients import HANGS, hosting, state_of


async def test_a_person_shuts_a_client_down_and_it_stays_down(board: Board) -> None:
    task = await board.put("Write it")
    async with hosting(board) as host:
        client = await host()
        held = await client.works()
        await board.stop_teammate("claude", reason="enough for today")
        await state_of(board, task.id, "ready")
        while not (found := await client("finish", **held, result="Done.")).refused:
            pass
        assert found.text.startswith("Stop:")
        assert "enough for today" in found
        assert (await client("next_task")).text.startswith("Stop:")
    assert (await board.find(task.id)).state == "ready"


async def test_a_request_to_stop_is_news_and_is_accepted_between_tasks(board: Board) -> None:
    await board.put("Write it")
    async with hosting(board) as host:
        client = await host()
        held = await client.works()
        await board.tell("human", "claude", "Please stop.", kind="shutdown")
        assert "> Please stop." in await client("progress", **held, text="Writing.")
        await client("finish", **held, result="Done.")
        async with asyncio.timeout(HANGS):
            while not (found := await client("next_task")).refused:
                pass
    assert found.text.startswith("Stop:")


async def test_a_cancelled_task_is_lost(board: Board) -> None:
    task = await board.put("Write it")
    async with hosting(board) as host:
        client = await host()
        held = await client.works()
        await board.cancel(task.id)
        async with asyncio.timeout(HANGS):
            while not (found := await client("progress", **held, text="Writing.")).refused:
                pass
        assert "You lost" in found or "it is cancelled" in found
        assert "it is cancelled" in await client("finish", **held, result="Done.")


async def test_a_host_that_was_stopped_by_another_loses_and_comes_back(board: Board) -> None:
    task = await board.put("Write it")
    async with hosting(board) as host:
        client = await host()
        held = await client.works()
        await board.stop_host(host.host.host.id)
        assert (await board.teammate("claude")).status == "stopped"
        await board.take_back()
        await host.host.host._renew()  # The next heartbeat; the lease is too long to wait for.
        found = await client("finish", **held, result="Done.")
        assert found.refused
        held = await client.works()
        assert held["epoch"] > 1
        assert "is over" in await client("finish", **held, result="Done.")
    assert (await board.find(task.id)).state == "done"


async def test_a_client_that_waits_keeps_waiting_while_its_host_starts_anew(board: Board) -> None:
    async with hosting(board, wait_seconds=HANGS) as host:
        client = await host()
        waiting = asyncio.create_task(client("next_task"))
        await until_true(lambda: client.seat.client.asking > 0)
        await board.stop_host(host.host.host.id)
        await host.host.host._renew()  # The next heartbeat; the lease is too long to wait for.
        await board.put("Write it")
        assert "You hold task 1" in await waiting


async def test_everything_is_given_back_at_the_end_and_the_name_comes_back(board: Board) -> None:
    task = await board.put("Write it")
    async with hosting(board) as host:
        client = await host()
        await client.works()
    assert (await board.find(task.id)).state == "ready"
    left = await board.teammate("claude")
    assert (left.status, left.reason) == ("stopped", "its client left")
    async with hosting(board) as host:
        again = await host()
        assert again.name == "claude"
        given = await again("next_task")
        assert given.held["task"] == task.id
        assert "was cut off" in given


async def test_two_clients_of_one_program_get_two_names(board: Board) -> None:
    async with hosting(board) as host, hosting(board) as elsewhere:
        assert [(await host()).name, (await elsewhere()).name, (await host()).name] == [
            "claude",
            "claude-2",
            "claude-3",
        ]
        with pytest.raises(NameTaken, match="Another teammate is called claude"):
            await elsewhere("claude", exactly=True)


async def test_the_name_of_a_teammate_that_is_no_client_is_taken(board: Board) -> None:
    await board.spawn("claude")
    async with hosting(board) as host:
        assert (await host()).name == "claude-2"


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("claude-code", "claude"),
        ("codex-mcp-client", "codex"),
        ("opencode", "opencode"),
        ("Some Thing 2.0", "some-thing-2-0"),
        ("", "agent"),
        ("///", "agent"),
        ("ÄÖ", "agent"),
        ("x" * 99, "x" * 30),
    ],
)
def test_a_program_gets_a_name_that_people_would_use(program: str, name: str) -> None:
    assert name_for(program) == name


async def test_a_quiet_client_gives_its_task_back_with_its_work(board: Board) -> None:
    task = await board.put("Write it")
    async with hosting(board, limits=TeamLimits(quiet_seconds=0.2)) as host:
        client = await host()
        held = await client.works()
        await state_of(board, task.id, "ready")
        late = await client("finish", **held, result="Done.")
        assert late.refused
        again = await client("next_task")
        assert "was quiet for" in again.text or again.held["epoch"] > held["epoch"]


async def test_work_that_needs_a_review_waits_for_it_and_is_delivered_when_the_client_asks_again(board: Board) -> None:
    task = await board.put("Write it", review="reviewer")
    async with hosting(board) as host:
        author = await host("author")
        reviewer = await host("critic", roles=("reviewer",))
        waits = await author("finish", **await author.works(), result="Written.")
        assert "waits for #2" in waits
        held = await reviewer.works()
        wrong = await reviewer("finish", **held, result="Fine.")
        assert wrong.refused
        assert "approved" in wrong
        await reviewer("finish", **held, result="Fine.", outcome="approved")
        asking = asyncio.create_task(author("next_task"))
        await state_of(board, task.id, "done")
        await board.put("More")
        assert "More" in await asking


async def test_a_task_that_needs_a_plan_asks_the_person_for_trust(board: Board) -> None:
    task = await board.put("Rebuild it", plan=True)
    async with hosting(board, wait_seconds=0.5) as host:
        client = await host()
        asking = asyncio.create_task(client("next_task"))
        await state_of(board, task.id, "waiting")
        assert "needs a plan" in await asking
        (plan,) = await board.requests()
        assert plan.request is not None
        await board.reply(plan.request, "human", accepted=True)
        assert (await client.works())["task"] == task.id


async def test_a_goal_is_put_without_a_claim_once(board: Board) -> None:
    async with hosting(board) as host:
        client = await host()
        for _ in range(2):
            assert "#1 'Ship it'" in await client("add_task", title="Ship it", body="Soon.")
        assert (await client("add_task", title="x", task=1)).refused
    (goal,) = await board.list_tasks()
    assert (goal.put_by, goal.parent) == ("claude", None)
    assert (await board.budget(goal.id)).tasks_max == TeamLimits().errand_tasks_max


async def test_notes_and_messages_need_no_claim(board: Board) -> None:
    async with hosting(board) as host:
        client = await host()
        assert "Note 1" in await client("note", title="Trap", text="It bites.")
        assert "> It bites." in await client("search_notes", words="bites")
        assert "Sent to human" in await client("message", to="human", text="Hello.")
        assert (await client("message", text="Hello.")).refused
        assert (await client("message", to="nobody", text="Hello.")).refused


async def test_another_mind_goes_on_where_a_client_left_off(board: Board) -> None:
    """What a client did is a transcript like any other."""
    task = await board.put("Write it")
    async with hosting(board) as host:
        client = await host()
        held = await client.works()
        await client("progress", **held, text="Half of it is written.")
    async with hosting(board) as host:
        given = await (await host("other"))("next_task")
        assert given.held["task"] == task.id
        assert "claude worked on this task before you" in given
        assert "progress" in given


async def test_what_a_finish_came_to_is_told_also_if_nobody_asks_for_it_again(board: Board) -> None:
    release = asyncio.Event()

    async def check(task: Task) -> str | None:
        await release.wait()
        return None

    task = await board.put("Write it", check="make test")
    async with hosting(board, check=check, wait_seconds=0.3) as host:
        client = await host()
        held = await client.works()
        assert "still being checked" in await client("finish", **held, result="Done.")
        release.set()
        await state_of(board, task.id, "done")
        async with asyncio.timeout(HANGS):
            while f"#{task.id} is over" not in await client("next_task"):
                pass


async def test_a_call_that_is_hung_up_on_is_recorded_as_a_whole(board: Board) -> None:
    await board.put("Write it")
    async with hosting(board) as host:
        client = await host()
        held = await client.works()
        for number in range(20):
            calling = asyncio.create_task(client("note", **held, title=f"Note {number}", text="x"))
            for _ in range(number):
                await asyncio.sleep(0)
            calling.cancel()
        assert "is over" in await client("finish", **held, result="Done.")


async def test_a_host_of_clients_brings_nobody_else_back(board: Board) -> None:
    await board.spawn("rested")
    await board.stop_teammate("rested", by="rested", reason=RESTED)
    await board.spawn("wanted")
    await board.put("Write it")
    async with hosting(board, wait_seconds=0.5) as host:
        client = await host()
        await client("tasks")
        await host.host.host._see_to_members()
        await host.host.host._grow()
        team = {each.name: each.status for each in await board.team()}
    assert team == {"rested": "stopped", "wanted": "wanted", "claude": "idle"}


async def test_a_team_is_assembled_and_ends_as_if_no_client_were_there(board: Board, url: str) -> None:
    async with hosting(board) as host:
        await host()
        model = ScriptedModel(lambda request: Step(say="Done."))
        async with Team(RunPlan(url=url, model=model, agents=1), board=board) as team:
            assert len(await team.assemble(1, here=True)) == 1
            await board.put("Write it")
            report = await asyncio.wait_for(team.run(), HANGS)
        assert report.exit_code == 0


async def test_an_agent_of_our_own_goes_on_with_what_a_client_began(board: Board, url: str) -> None:
    task = await board.put("Write it")
    async with hosting(board) as host:
        client = await host()
        held = await client.works()
        await client("progress", **held, text="Half of it is written.")
        await client("add_task", **held, title="The other half")
    model = ScriptedModel(lambda request: Step(say="Whole now."))
    async with Team(RunPlan(url=url, model=model, agents=1), board=board) as team:
        await asyncio.wait_for(team.run(), HANGS)
    assert {each.state for each in await board.list_tasks()} == {"done"}
    assert (await board.find(task.id)).result == "Whole now."


async def test_a_board_in_trouble_delays_a_call_and_no_more(folder: Path) -> None:
    """The file is locked by somebody else for longer than the board waits."""
    patience = Patience(busy_seconds=0.2, poll_seconds=0.5)
    async with await open_board(f"sqlite:///{folder}/board.db", patience=patience) as board, hosting(board) as host:
        await board.put("Write it")
        client = await host()
        held = await client.works()
        with closing(sqlite3.connect(folder / "board.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            found = await client("note", **held, title="Trap", text="It bites.")
            assert found.refused
            assert "The board does not answer" in found
            other.execute("ROLLBACK")
        async with asyncio.timeout(HANGS):
            assert (await client("next_task")).held == held  # The mind begins anew with what the board has.
        assert "is over" in await client("finish", **held, result="Done.")
