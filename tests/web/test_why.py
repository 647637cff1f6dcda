"""Why a task is not running, and why nothing moves: sentences that are true by the board's own rules."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from dugnad.board import Board
from dugnad.errors import DugnadError
from dugnad.tools.message_tools import RESTED
from dugnad.tools.policy import question
from dugnad.types import Amount, Budget, Done, Failed, Need, NewTask, Pace, Released, Waiting
from dugnad.web.history import BoardHistory, BoardView
from dugnad.web.why import free_for, why_not, why_still
from tests.board.crew import Crew, crew, expire
from tests.board.stage import Stage
from tests.board.test_events import all_events
from tests.board.test_state_machine import BoardMachine


async def seen(board: Board) -> tuple[BoardView, int]:
    history = BoardHistory()
    for event in await all_events(board):
        history.add(event)
    leases = {host.id: host.lease_until for host in await board.hosts()}
    return history.at(leases=leases), await board.now_ms()


async def why(board: Board, task: int) -> str | None:
    view, now = await seen(board)
    return why_not(task, view, now)


async def still(board: Board) -> str | None:
    return why_still(*await seen(board))


async def busy(board: Board, team: Crew, *names: str) -> None:
    """Give each something to do, so that it can take nothing else."""
    for name in names:
        await board.put(f"what {name} does", assignee=name, priority=9)
        await team.must_claim(name)


# Needs.


async def test_the_task_at_the_root_of_a_chain_is_named_with_what_it_waits_for(board: Board) -> None:
    team = await crew(board, "alice")
    first = await board.put("Ask")
    second = await board.put("Build", needs=[first.id])
    third = await board.put("Ship", needs=[second.id])
    await board.settle(await team.must_claim(), Waiting(on="human", question="Which one?"))
    asked = (await board.requests())[0]
    waits = f"""waits for your answer: "Which one?"; `dugnad answer m{asked.id} "..."`."""
    assert await why(board, first.id) == f"#{first.id} {waits}"
    assert await why(board, second.id) == f"#{second.id} waits for #{first.id} 'Ask', which {waits}"
    assert await why(board, third.id) == f"#{third.id} waits for #{second.id}; behind that, #{first.id} 'Ask' {waits}"
    assert await still(board) == f"Nothing moves: #{first.id} 'Ask' {waits[:-1]} (2 tasks behind it wait too)."


async def test_of_several_needs_the_one_that_does_not_move_is_named(board: Board) -> None:
    team = await crew(board, "alice", roles=["coder"])
    runs = await board.put("Runs", role="coder")
    stuck = await board.put("Stuck", role="tester")
    last = await board.put("Last", needs=[runs.id, Need(stuck.id, "green")])
    await team.must_claim(task=runs.id)
    assert await why(board, last.id) == (
        f"#{last.id} waits for #{runs.id} and #{stuck.id} (green); of these, #{stuck.id} 'Stuck' is ready, but no "
        "teammate with the role tester is there; `dugnad spawn NAME --role tester` adds one."
    )
    only = await board.put("Only", needs=[Need(runs.id, "approved")])
    assert await why(board, only.id) == (
        f"#{only.id} waits for #{runs.id} 'Runs' to end as approved, which is in the hands of alice."
    )
    assert await still(board) is None


async def test_of_many_needs_a_few_are_named(board: Board) -> None:
    many = await board.put_many([NewTask(title=f"part {number}") for number in range(9)])
    last = await board.put("All", needs=[task.id for task in many])
    first, second, third = (task.id for task in many[:3])
    said = await why(board, last.id)
    assert said is not None
    assert said.startswith(f"#{last.id} waits for #{first}, #{second}, #{third} and 6 other tasks; of these, #{first} ")


# What is ready.


async def test_nobody_can_work_while_no_host_is_running(board: Board, url: str) -> None:
    task = await board.put("Work")
    says = "is ready, but no host is running; `dugnad run` or `dugnad work` starts one"
    assert await why(board, task.id) == f"#{task.id} {says}."
    team = await crew(board, "alice")
    assert await why(board, task.id) == f"#{task.id} is ready, and alice can take it at once."
    assert await still(board) is None
    await expire(url, team.host)  # Nobody has noticed yet, so the log does not say it.
    assert await why(board, task.id) == f"#{task.id} {says}."
    assert await still(board) == f"Nothing moves: #{task.id} 'Work' {says}."


async def test_a_role_that_nobody_has(board: Board) -> None:
    await crew(board, "alice", roles=["coder"])
    task = await board.put("Look", role="tester")
    says = "is ready, but no teammate with the role tester is there; `dugnad spawn NAME --role tester` adds one"
    assert await why(board, task.id) == f"#{task.id} {says}."
    assert await still(board) == f"Nothing moves: #{task.id} 'Look' {says}."


async def test_a_task_that_is_not_for_the_only_teammate(board: Board) -> None:
    await crew(board, "alice", roles=["reviewer"])
    task = await board.put("Review", role="reviewer", not_for="alice")
    assert await why(board, task.id) == (
        f"#{task.id} is ready, but it is not for alice, the only teammate with the role reviewer; "
        "`dugnad spawn NAME --role reviewer` adds another."
    )


async def test_all_who_could_take_it_are_at_work(board: Board) -> None:
    team = await crew(board, "alice", "bob", roles=["coder"])
    task = await board.put("More", role="coder")
    await busy(board, team, "alice")
    assert await why(board, task.id) == f"#{task.id} is ready, and bob can take it at once."
    await busy(board, team, "bob")
    assert await why(board, task.id) == (
        f"#{task.id} is ready, but all 2 teammates with the role coder work on other tasks."
    )
    own = await board.put("For one", assignee="bob")
    assert await why(board, own.id) == f"#{own.id} is ready, but it is for bob, who works on another task."
    assert await still(board) is None


async def test_a_lead_takes_no_work_for_anyone(board: Board) -> None:
    host = await board.start_host("here")
    await board.spawn("lena", roles=["planner"], lead=True)
    await board.seat(host, name="lena")
    task = await board.put("Anything")
    assert await why(board, task.id) == (
        f"#{task.id} is ready, but no teammate who takes work for anyone is there; `dugnad spawn NAME` adds one."
    )


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("enough", "it is for bob, who is gone (enough); `dugnad spawn bob` brings it back"),
        (RESTED, f"it is for bob, who is gone ({RESTED}); `dugnad spawn bob` brings it back"),
    ],
)
async def test_an_assignee_that_was_stopped(board: Board, reason: str, says: str) -> None:
    await crew(board, "alice", "bob")
    task = await board.put("For bob", assignee="bob")
    await board.stop_teammate("bob", reason=reason)
    assert await why(board, task.id) == f"#{task.id} is ready, but {says}."


async def test_an_assignee_that_nobody_knows_and_a_team_that_rests(board: Board) -> None:
    await crew(board, "alice", "bob", roles=["coder"])
    task = await board.put("For carol", assignee="carol")
    assert await why(board, task.id) == (
        f"#{task.id} is ready, but it is for carol, and the team has no teammate of that name; `dugnad spawn carol` "
        "adds it."
    )
    code = await board.put("Code", role="coder")
    for name in ("alice", "bob"):
        await board.stop_teammate(name, reason=RESTED)
    assert await why(board, code.id) == (
        f"#{code.id} is ready, but every teammate with the role coder rests; a running host brings one back, or "
        "`dugnad spawn alice` does."
    )


async def test_a_teammate_that_has_not_joined_yet_and_one_whose_host_was_lost(board: Board, url: str) -> None:
    await board.start_host("here")
    await board.spawn("alice", roles=["coder"])
    task = await board.put("Code", role="coder")
    assert await why(board, task.id) == f"#{task.id} is ready, but alice has not joined a host yet."
    other = await board.start_host("there")
    await board.seat(other, name="alice")
    await expire(url, other)
    await board.take_back()
    assert await why(board, task.id) == f"#{task.id} is ready, but the host of alice was lost."


async def test_a_goal_without_a_run_left(board: Board) -> None:
    team = await crew(board, "alice")
    goal = await board.put("Goal", budget=Budget(tasks=1))
    child = await board.put("Child", parent=goal.id)
    await board.settle(await team.must_claim(task=goal.id), Done())
    says = f"the cap on tasks of #{goal.id} is reached: `dugnad budget {goal.id} --add --tasks 10` raises it"
    assert await why(board, child.id) == f"#{child.id} is ready, but {says}."
    assert await still(board) == f"Nothing moves: #{child.id} 'Child' is ready, but {says}."
    await board.raise_budget(goal.id, Budget(tasks=1))
    assert await still(board) is None


async def test_hosts_that_work_on_another_goal_only(board: Board) -> None:
    mine, other = await board.put("Mine"), await board.put("Other")
    host = await board.start_host("here", scope=[mine.id])
    await board.spawn("alice")
    await board.seat(host, name="alice")
    assert await why(board, other.id) == (
        f"#{other.id} is ready, but the hosts that run work on other goals only; `dugnad work` or `dugnad run --all` "
        "takes it up."
    )
    assert await why(board, mine.id) == f"#{mine.id} is ready, and alice can take it at once."


# What is not due, what waits, what is claimed.


async def test_what_is_not_due_says_when_and_why(board: Board) -> None:
    team = await crew(board, "alice")
    task = await board.put("Later", delay_seconds=600)
    said = await why(board, task.id)
    assert said is not None
    assert said.startswith(f"#{task.id} is not due before ")
    assert said.endswith(("(in 9m 59s).", "(in 10m)."))
    assert ((await still(board)) or "").startswith(f"Nothing moves: #{task.id} 'Later' is not due before ")
    again = await board.put("Again")
    await board.settle(await team.must_claim(), Released("the tide is out", delay_seconds=60))
    said = await why(board, again.id)
    assert said is not None
    assert said.startswith(f"#{again.id} is put off until ")
    assert said.endswith("): the tide is out.")
    view, now = await seen(board)
    assert why_not(task.id, view, now + 700_000).endswith(
        "no host is running; `dugnad run` or `dugnad work` starts one."
    )


async def test_what_is_due_counts_as_ready(board: Board) -> None:
    await crew(board, "alice")
    task = await board.put("Soon", delay_seconds=10)
    view, now = await seen(board)
    view.leases = dict.fromkeys(view.hosts, now + 10**6)
    assert why_not(task.id, view, now + 20_000) == f"#{task.id} is ready, and alice can take it at once."
    assert why_still(view, now + 20_000) is None


async def test_a_plan_that_a_lead_approves_can_be_approved_instead(board: Board) -> None:
    team = await crew(board, "alice")
    await board.spawn("lena", lead=True)
    task = await board.put("Plan it", plan=True)
    await board.settle(await team.must_claim(), Waiting(on="plan", question="First this.", ask="lena"))
    asked = (await board.requests("lena"))[0]
    assert await why(board, task.id) == (
        f"""#{task.id} waits for lena's approval of its plan: "First this."; `dugnad approve m{asked.id}` answers """
        "instead."
    )


async def test_a_call_that_a_policy_asks_about(board: Board) -> None:
    team = await crew(board, "alice")
    task = await board.put("Publish")
    asks = question("alice", task, "bash", {"command": "make"}, f"t{task.id}.e1.1.0")
    await board.settle(await team.must_claim(), Waiting(on="human", question=asks))
    said = await why(board, task.id)
    assert said is not None
    assert said.startswith(f'#{task.id} waits for your approval of a tool call: "May alice run bash for')
    assert said.endswith(f"`dugnad approve m{(await board.requests())[0].id}`.")


async def test_work_that_waits_for_its_review(board: Board) -> None:
    team = await crew(board, "alice", roles=["reviewer"])
    task = await board.put("Work")
    claim = await team.must_claim()
    review = await board.follow_up(
        claim, "Look", role="reviewer", not_for="alice", kind="review", reviews=task.id, key="review"
    )
    await board.settle(claim, Waiting(on="tasks", tasks=(review.id,)))
    said = await why(board, task.id)
    assert said == (
        f"#{task.id} waits for its review #{review.id} 'Look', which is ready, but it is not for alice, the only "
        "teammate with the role reviewer; `dugnad spawn NAME --role reviewer` adds another."
    )
    assert ((await still(board)) or "").endswith("(1 task behind it waits too).")


async def test_work_that_waits_for_budget(board: Board) -> None:
    team = await crew(board, "alice", "bob")
    goal = await board.put("Goal", budget=Budget(tokens=100))
    child = await board.put("Child", parent=goal.id)
    first, second = await team.must_claim("alice"), await team.must_claim("bob")
    await board.reserve(first, Amount(tokens=80))
    await board.settle(second, Waiting(on="budget", amount=Amount(tokens=50)))
    assert await why(board, child.id) == (
        f"#{child.id} waits until other tasks give back what they reserved of the budget of #{goal.id}."
    )
    await board.settle(first, Waiting(on="budget", amount=Amount(tokens=500)))
    said = f"the cap on tokens of #{goal.id} is reached: `dugnad budget {goal.id} --add --tokens 100000` raises it"
    assert await why(board, goal.id) == f"#{goal.id} waits for budget, and {said}."


async def test_what_runs_needs_no_reason_until_its_host_is_lost(board: Board, url: str) -> None:
    team = await crew(board, "alice")
    task = await board.put("Work")
    await team.must_claim()
    assert await why(board, task.id) is None
    assert await still(board) is None
    await expire(url, team.host)
    lost = "was in the hands of alice, whose host (test host) was lost; no other host is running; `dugnad run` or"
    assert await why(board, task.id) == f"#{task.id} {lost} `dugnad work` starts one."
    await board.start_host("another")
    assert ((await still(board)) or "").endswith("was lost; another host takes it back when the lease has run out.")


async def test_a_provider_key_that_cools_down(board: Board) -> None:
    team = await crew(board, "alice")
    task = await board.put("Work")
    claim = await team.must_claim()
    key = await board.reserve(claim, Amount(tokens=1), pace=Pace(key="anthropic:3f9a"))
    await board.spend(claim, key, Amount())
    await board.cool_down("openai:77", reason="429", by="alice", seconds=600)
    assert await why(board, task.id) is None  # It is another key.
    await board.cool_down("anthropic:3f9a", reason="429: slow down", by="alice", seconds=600)
    said = await still(board)
    assert said is not None
    assert said.startswith(f"Nothing moves: #{task.id} 'Work' is in the hands of alice, and the provider key ")
    assert "anthropic:3f9a cools down until " in said
    assert said.endswith("): 429: slow down.")
    view, now = await seen(board)
    view.leases = dict.fromkeys(view.hosts, now + 10**7)
    assert why_still(view, now + 601_000) is None


async def test_what_has_ended_needs_no_reason(board: Board) -> None:
    team = await crew(board, "alice")
    done, failed = await board.put("Done"), await board.put("Failed")
    await board.settle(await team.must_claim(task=done.id), Done())
    await board.settle(await team.must_claim(task=failed.id), Failed("no"))
    assert await why(board, done.id) is None
    assert await why(board, failed.id) is None
    assert await still(board) is None


async def test_ten_thousand_stuck_tasks_are_explained_at_once(board: Board) -> None:
    for batch in range(10):
        goal = await board.put(f"Goal {batch}", role="nobody")
        new = [NewTask(title=f"{batch}.{number}", parent=goal.id, role="tester") for number in range(999)]
        await board.put_many(new)
    await crew(board, "alice", roles=["coder"])
    view, now = await seen(board)
    began = time.process_time()
    said = why_still(view, now)
    took = time.process_time() - began
    assert said is not None
    assert said.endswith("(9,999 other tasks for such a reason wait too).")
    assert took < 1.0


# By the board's own rules.


class SaysWho(BoardMachine):
    """What is said of ready tasks is what claiming them comes to."""

    def teardown(self) -> None:
        for side in self.sides if self.sound else ():
            self.wait(self.try_all(side.board))
        super().teardown()

    async def try_all(self, board: Board) -> None:
        view, now = await seen(board)
        ready = [each for each, task in view.tasks.items() if task["state"] == "ready"]
        for each in ready:
            free = free_for(view.tasks[each], view, now)
            for name, member in view.teammates.items():
                if member["state"] != "seated" or view.held_by.get(name):
                    continue
                try:
                    claimed = await board.claim(name, member["host"], task=int(each))
                except DugnadError:
                    claimed = None
                assert (claimed is not None) == (name in free), (each, name, why_not(each, view, now))
                if claimed is not None:
                    return  # From here on the view is out of date.


@pytest.mark.parametrize("examples", [6, pytest.param(100, marks=pytest.mark.proof)])
@pytest.mark.timeout(1_800)
def test_who_can_take_a_task_is_who_the_board_gives_it_to(examples: int) -> None:
    with asyncio.Runner() as runner:
        stage = Stage(runner.get_loop())
        run_state_machine_as_test(
            lambda: SaysWho(stage),
            settings=settings(
                max_examples=examples, stateful_step_count=40, derandomize=True, database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )  # fmt: skip
