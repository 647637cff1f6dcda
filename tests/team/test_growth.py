"""A team that fits the work: who joins while ready work waits, who comes back, who makes room; and one single chain."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dugnad import Team
from dugnad.board import Board
from dugnad.models import ScriptedModel
from dugnad.team import requests
from dugnad.team.growth import NAMES, Joins, fresh_names, joining, one_chain
from dugnad.tools.message_tools import RESTED
from dugnad.types import Task, Teammate
from tests.agent.stage_agent import END, TITLE, call
from tests.conftest import Opener
from tests.team import stage_team
from tests.team.stage_team import hosting, limits, until, until_ended, until_status, within


def member(name: str, status: str = "idle", *roles: str, **given: Any) -> Teammate:
    told: dict[str, Any] = {
        "name": name, "roles": roles, "lead": False, "prompt": "", "model": "", "plan": False, "status": status,
        "host": None if status in ("stopped", "failed", "wanted") else "here", "seat": 1, "reason": None,
        "spawned_at": 0,
    }  # fmt: skip
    return Teammate(**{**told, **given})


def rested(name: str, *roles: str) -> Teammate:
    return member(name, "stopped", *roles, reason=RESTED)


def names(ready: dict[str, int], *team: Teammate, most: int = 3, **given: bool) -> list[str]:
    return [each.name for each in joining(ready, team, host="here", agents_max=most, **given)]


# Pure.


def test_nobody_joins_when_those_at_rest_can_take_what_waits() -> None:
    assert names({}) == []
    assert names({"": 1}, member("alice")) == []
    assert names({"coder": 1}, member("alice", "idle", "coder")) == []
    assert names({"": 2}, member("alice"), member("bob", "wanted")) == []


def test_as_many_join_as_there_is_work_for_and_room() -> None:
    assert names({"": 2}) == ["alice", "bob"]
    assert names({"": 9}) == ["alice", "bob", "carol"]
    assert names({"": 9}, member("alice", "working"), member("x", "working")) == ["bob"]
    assert names({"": 9}, *(member(name, "working") for name in "abc")) == []
    assert names({"": 9}, most=0) == []


def test_those_elsewhere_take_no_room_here_and_a_lead_takes_none() -> None:
    elsewhere = member("x", "working", host="there")
    assert names({"": 9}, elsewhere, member("lena", "idle", lead=True), most=1) == ["alice"]


def test_work_for_a_role_nobody_has_calls_for_one_who_has_it() -> None:
    assert joining({"coder": 5}, [member("x", "working")], host="here", agents_max=3) == [Joins("alice", ("coder",))]
    assert joining({"coder": 1, "tester": 1}, [], host="here", agents_max=3) == [
        Joins("alice", ("coder",)),
        Joins("bob", ("tester",)),
    ]


def test_one_at_rest_makes_room_for_a_role_nobody_has() -> None:
    full = [member("a", "idle", "tester"), member("b", "working"), member("c", "working")]
    assert joining({"coder": 1}, full, host="here", agents_max=3) == [Joins("alice", ("coder",), "a")]
    busy = [member(name, "working") for name in "abc"]
    assert joining({"coder": 1}, busy, host="here", agents_max=3) == []


def test_one_at_rest_makes_room_for_one_only() -> None:
    full = [member("a", "idle", "tester"), member("b", "working"), member("c", "working")]
    (joins,) = joining({"coder": 1, "writer": 1}, full, host="here", agents_max=3)
    assert joins.instead_of == "a"


def test_one_at_rest_that_has_work_itself_makes_no_room() -> None:
    full = [member("a", "idle", "tester"), member("b", "working"), member("c", "working")]
    assert joining({"coder": 1, "tester": 1}, full, host="here", agents_max=3) == []


def test_those_who_rested_come_back_before_strangers() -> None:
    assert names({"": 2}, rested("zoe")) == ["zoe", "alice"]
    assert names({"coder": 1}, rested("zoe", "coder", "tester")) == ["zoe"]
    assert names({"": 1}, member("zoe", "stopped", reason="enough")) == ["alice"]
    assert names({"": 1}, member("zoe", "failed", reason="bug")) == ["alice"]


def test_without_strangers_only_those_who_rested_come_back() -> None:
    assert names({"": 5}, rested("zoe"), most=0, strangers=False) == ["zoe"]
    assert names({"coder": 5}, rested("zoe", "tester"), most=0, strangers=False) == ["zoe"] * 0
    assert names({"": 5}, most=0, strangers=False) == []


def test_work_for_one_who_rested_brings_just_that_one_back() -> None:
    full = [member(name, "working") for name in "abc"]
    assert names({"@zoe": 2}, rested("zoe", "coder"), *full) == ["zoe"]
    assert names({"@zoe": 2}, member("zoe", "stopped", reason="enough")) == []
    assert names({"@zoe": 2}, member("zoe", "working")) == []
    assert names({"@nobody": 2, "@human": 1}) == []


def test_a_lead_that_rested_comes_back_for_its_own_work_and_no_other() -> None:
    lena = member("lena", "stopped", lead=True, reason=RESTED)
    assert names({"@lena": 1}, lena) == ["lena"]
    assert names({"": 1}, lena) == ["alice"]


def test_work_that_is_not_for_the_only_one_who_could_take_it_calls_for_another() -> None:
    alice = member("alice", "idle", "reviewer")
    assert joining({"reviewer!alice": 3}, [alice], host="here", agents_max=3) == [Joins("bob", ("reviewer",))]
    assert joining({"!alice": 3}, [alice], host="here", agents_max=3) == [Joins("bob", ())]
    assert joining({"reviewer!alice": 1}, [], host="here", agents_max=3) == [Joins("bob", ("reviewer",))]
    assert names({"!alice": 1}, member("lena", "idle", lead=True)) == ["bob"], "a lead takes only its own"


def test_another_who_is_there_and_may_take_it_is_enough() -> None:
    alice, bob = (member(name, "idle", "reviewer") for name in ("alice", "bob"))
    assert names({"reviewer!alice": 1, "reviewer!bob": 1}, alice, bob) == []
    assert names({"!alice": 1}, alice, bob) == []
    elsewhere = member("bob", "working", "reviewer", host="there")
    assert joining({"reviewer!alice": 1}, [alice, elsewhere], host="here", agents_max=1) == []


def test_for_what_is_not_for_one_another_who_rested_comes_back_first() -> None:
    alice = member("alice", "working", "reviewer")
    assert names({"reviewer!alice": 1}, alice, rested("zoe", "reviewer")) == ["zoe"]
    assert names({"reviewer!alice": 1}, rested("alice", "reviewer"), rested("zoe", "coder")) == ["bob"]
    assert names({"reviewer!alice": 1}, rested("alice", "reviewer"), strangers=False) == []
    assert names({"reviewer!alice": 1}, rested("zoe", "reviewer"), strangers=False, most=0) == ["zoe"]


@pytest.mark.parametrize("status", ["idle", "waiting"])
def test_the_only_one_makes_room_for_one_who_may_take_what_it_may_not(status: str) -> None:
    alice = member("alice", status, "coder", "reviewer")
    room = [Joins("bob", ("reviewer",), "alice")]
    assert joining({"reviewer!alice": 1}, [alice], host="here", agents_max=1) == room
    assert joining({"reviewer!alice": 1, "coder": 1}, [alice], host="here", agents_max=1) == []
    busy = member("alice", "working", "reviewer")
    assert joining({"reviewer!alice": 1}, [busy], host="here", agents_max=1) == []


def test_one_who_is_quite_idle_makes_room_before_one_whose_task_waits() -> None:
    team = [member("alice", "waiting", "coder"), member("zoe", "idle", "coder")]
    assert joining({"reviewer": 1}, team, host="here", agents_max=2) == [Joins("bob", ("reviewer",), "zoe")]


@given(
    ready=st.dictionaries(
        st.sampled_from(["", "coder", "tester", "@a", "@b", "@x", "!a", "coder!a", "tester!i"]), st.integers(1, 5)
    ),
    team=st.lists(
        st.builds(
            member,
            st.sampled_from("abcdefgh"),
            st.sampled_from(["idle", "working", "waiting", "wanted", "lost"]),
            st.sampled_from(["coder", "tester"]),
        ),
        unique_by=lambda each: each.name,
    ),
    resting=st.lists(st.builds(rested, st.sampled_from("ijkl")), unique_by=lambda each: each.name),
    most=st.integers(0, 5),
)
def test_a_team_never_grows_past_its_bound_and_nobody_joins_twice(
    ready: dict[str, int], team: list[Teammate], resting: list[Teammate], most: int
) -> None:
    joins = joining(ready, [*team, *resting], host="here", agents_max=most)
    assert len({each.name for each in joins}) == len(joins)
    assert not {each.name for each in joins} & {each.name for each in team}
    there = sum(each.host == "here" or each.status == "wanted" for each in team)
    growing = [each for each in joins if each.instead_of is None]
    assert there + len(growing) <= max(most, there)
    leaving = [each.instead_of for each in joins if each.instead_of]
    assert len(set(leaving)) == len(leaving)


def test_names_never_run_out() -> None:
    found = list(itertools.islice(fresh_names(["alice", "bob-2"]), 60))
    assert len(set(found)) == 60
    assert not {"alice", "bob-2", "human", "board"} & set(found)
    assert found[: len(NAMES) - 1] == list(NAMES[1:])


async def chain_of(board: Board, *needs: list[int]) -> int:
    """What `one_chain` says of tasks that need those before them."""
    made: list[Task] = []
    for each in needs:
        made.append(await board.put(f"t{len(made)}", needs=[made[place].id for place in each]))
    return one_chain([await board.find(task.id) for task in made])


@pytest.mark.parametrize(
    ("needs", "length"),
    [
        ([[], [0], [1]], 3),
        ([[], [0], [1], [2], [3]], 5),
        ([[], [0]], 0),
        ([[], [], []], 0),
        ([[], [0], [0]], 0),
        ([[], [0], [1], []], 0),
        ([[], [0], [0, 1]], 3),
        ([], 0),
    ],
)
async def test_one_single_chain_is_told_from_work_for_a_team(board: Board, needs: Any, length: int) -> None:
    assert await chain_of(board, *needs) == length


def test_every_field_of_a_join_is_named() -> None:
    assert [each.name for each in fields(Joins)] == ["name", "roles", "instead_of", "why"]


# With a host.


async def test_a_host_grows_to_its_bound_while_work_waits_and_not_beyond(board: Board) -> None:
    model = stage_team.Paused({"*": [END]})
    async with hosting(board, model, agents=3) as host:
        tasks = [await board.put(f"t{number}") for number in range(6)]

        async def three_work() -> bool:
            return [each.status for each in await board.team()] == ["working"] * 3

        await until(board, three_work)
        await asyncio.sleep(0.5)  # Some looks later.
        assert len(await board.team()) == len(host.workers) == 3
        model.go.set()
        done = await until_ended(board, *tasks)
    assert {task.state for task in done} == {"done"}
    assert len(await board.team()) == 3


async def test_a_team_shrinks_by_idling_and_comes_back_as_it_was(board: Board) -> None:
    await board.spawn("zoe", roles=["coder"], prompt="You code.", model="", plan=False)
    async with hosting(board, ScriptedModel({"*": [END]}), agents=1, limits={"idle_seconds": 0.2}):
        for number in range(2):
            await until_ended(board, await board.put(f"t{number}", role="coder"))
            gone = await until_status(board, "zoe", "stopped")
            assert (gone.reason, gone.prompt) == (RESTED, "You code.")
    assert [each.name for each in await board.team()] == ["zoe"]


async def test_one_who_must_show_a_plan_must_do_so_also_after_a_rest(board: Board) -> None:
    await board.spawn("zoe", plan=True, prompt="You plan.", model="m")
    await board.spawn("lena", lead=True)
    async with hosting(board, ScriptedModel({"*": [END] * 9}), limits={"idle_seconds": 0.2}):
        for name in ("zoe", "lena"):
            await until_status(board, name, "stopped")
        tasks = [await board.put(f"For {name}", assignee=name) for name in ("zoe", "lena")]
        await until_ended(board, tasks[1])
        zoe, lena = [await board.teammate(name) for name in ("zoe", "lena")]
        assert (zoe.plan, zoe.prompt, zoe.model, lena.lead) == (True, "You plan.", "m", True)


async def test_a_role_nobody_has_gets_somebody_in_the_place_of_one_at_rest(board: Board) -> None:
    await board.spawn("zoe", roles=["tester"])
    async with hosting(board, ScriptedModel({"*": [END]}), agents=1):
        await until_status(board, "zoe", "idle")
        (done,) = await until_ended(board, await board.put(TITLE, role="coder"))
        zoe = await board.teammate("zoe")
        assert (zoe.status, zoe.reason) == ("stopped", f"made room for {done.teammate}")
        assert (await board.teammate(str(done.teammate))).roles == ("coder",)


async def test_one_who_made_room_comes_back_when_its_turn_is_come(board: Board) -> None:
    await board.spawn("zoe", roles=["tester"])
    async with hosting(board, ScriptedModel({"*": [END]}), agents=1):
        await until_status(board, "zoe", "idle")
        await until_ended(board, await board.put("Code", role="coder"))
        await until_ended(board, await board.put("Test", role="tester"))
        await until_ended(board, await board.put("Code again", role="coder"))


async def test_one_who_made_room_comes_back_as_it_was(board: Board) -> None:
    await board.spawn("zoe", roles=["tester"], prompt="You test.")
    async with hosting(board, ScriptedModel({"*": [END]}), agents=1):
        await until_status(board, "zoe", "idle")
        await until_ended(board, await board.put("Code", role="coder"))
        (done,) = await until_ended(board, await board.put("Test", role="tester"))
        assert done.teammate == "zoe"
        assert (await board.teammate("zoe")).prompt == "You test."


@pytest.mark.parametrize("roles", [[], ["reviewer"]])
async def test_a_team_of_one_makes_room_for_one_who_may_review_its_work(board: Board, roles: list[str]) -> None:
    await board.spawn("zoe", roles=roles)
    async with hosting(board, ScriptedModel({"*": [END]}), agents=1):
        await until_status(board, "zoe", "idle")
        fields = {"role": roles[0]} if roles else {}
        (done,) = await until_ended(board, await board.put("Review", not_for="zoe", **fields))
        assert done.state == "done"
        assert done.teammate != "zoe"
        assert (await board.teammate("zoe")).reason == f"made room for {done.teammate}"
        (back,) = await until_ended(board, await board.put("Review that", not_for=done.teammate, **fields))
        assert back.teammate == "zoe"


async def test_one_whose_task_waits_makes_room_and_comes_back_to_it(board: Board) -> None:
    await board.spawn("zoe", roles=["coder"])
    model = ScriptedModel({"Write": [call("ask_human", question="Which?"), END], "*": [END]})
    async with hosting(board, model, agents=1):
        task = await board.put("Write", role="coder")
        await until_status(board, "zoe", "waiting")
        (done,) = await until_ended(board, await board.put("Review", role="reviewer", not_for="zoe"))
        assert (await board.teammate("zoe")).reason == f"made room for {done.teammate}"
        await requests.answer(board, str(task.id), "That one.")
        (written,) = await until_ended(board, task)
    assert (written.state, written.teammate) == ("done", "zoe")


async def test_a_host_for_certain_roles_grows_for_these_also_when_one_is_shut_out(board: Board) -> None:
    async with hosting(board, ScriptedModel({"*": [END]}), only_roles=("reviewer",), agents=2) as host:
        await until_ended(board, await board.put("Review", role="reviewer", not_for="zoe"))
        assert host.joining({"coder!zoe": 1}, await board.team()) == []


async def test_whom_a_human_stopped_stays_stopped(board: Board) -> None:
    await board.spawn("zoe", roles=["coder"])
    async with hosting(board, ScriptedModel({"*": [END]}), agents=2):
        await until_status(board, "zoe", "idle")
        await requests.stop(board, "zoe")
        await until_status(board, "zoe", "stopped")
        (done,) = await until_ended(board, await board.put(TITLE, role="coder"))
        assert done.teammate != "zoe"
        assert (await board.teammate("zoe")).status == "stopped"


async def test_work_that_comes_while_all_are_busy_brings_another(opener: Opener) -> None:
    board = await opener()
    model = stage_team.Paused({"*": [END]}, where=lambda request: request.title == "Long")
    async with hosting(board, model, agents=2):
        long = await board.put("Long")
        await within(model.reached.wait())
        (short,) = await until_ended(board, await board.put("Short"))
        assert (await board.find(long.id)).state == "claimed"
        model.go.set()
        await until_ended(board, long)
    assert short.state == "done"


async def test_work_that_was_taken_meanwhile_calls_for_nobody(board: Board) -> None:
    await board.spawn("zoe")
    model = stage_team.Paused({"*": [END]}, where=lambda request: request.title == "One")
    one = await board.put("One")

    async def two_is_taken() -> None:
        model.go.set()
        await stage_team.until_state(board, one.id + 1, "claimed", "done")

    late = stage_team.AnswerLost(board, "ready_work", two_is_taken, where=lambda got: got and model.reached.is_set())
    async with hosting(late, model, agents=2):
        await within(model.reached.wait())
        two = await board.put("Two")
        await until_ended(board, one, two)
        await asyncio.sleep(0.5)
    assert late.happened == 1
    assert [each.name for each in await board.team()] == ["zoe"]


async def test_a_host_that_may_not_grow_lets_work_wait(board: Board) -> None:
    model = stage_team.Paused({"*": [END]})
    await board.spawn("zoe")
    async with hosting(board, model):
        tasks = [await board.put(f"t{number}") for number in range(3)]
        await within(model.reached.wait())
        await stage_team.until_state(board, tasks[0], "claimed")
        await asyncio.sleep(0.4)
        assert [each.name for each in await board.team()] == ["zoe"]
        model.go.set()
        await until_ended(board, *tasks)


async def test_what_nobody_there_may_take_ends_the_run_as_stuck_and_says_whom_to_spawn(url: str) -> None:
    async with Team.open(url, model=ScriptedModel({"*": [END]}), limits=limits(idle_seconds=0.3)) as team:
        await team.spawn("alice", role="reviewer")
        task = await team.put(TITLE, role="reviewer", not_for="alice")
        report = await within(team.run())
        assert task.not_for == "alice"
        assert await team.standing([task.root]) == "stuck"
        assert report.exit_code == 1
        (step,) = report.next_steps()
        assert step.startswith("dugnad spawn NAME --role reviewer ")
        assert f"#{task.id} is for anybody but alice" in step
        await team.spawn("bob", role="reviewer")
        assert (await within(team.run())).exit_code == 0
