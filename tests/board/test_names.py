"""Who may be called what: nobody is named like a person, the board or the lead, or so that it looks like one."""

from __future__ import annotations

import pytest

from dugnad.board import Board
from dugnad.board.rules import is_taken
from dugnad.errors import BadInput, DugnadError
from dugnad.team.growth import NAMES
from tests.board.raw import run
from tests.conftest import Opener

TAKEN = [
    "human", "Human", "HUMAN", "hUmAn", "hum4n", "HUMAN1", "human.", "human_", "human-2", "h.u.m.a.n", "hurnan",
    "the-human", "The_Human", "board", "Board", "B0ARD", "b-oard", "board0", "dugnad", "Dugnad", "DUGN4D", "Runt1me",
    "the.runtime", "system", "SYSTEM", "5ystem", "user", "person", "Lead", "lead", "LEAD", "le4d", "lead1",
    "you", "You", "Y0U", "humans", "hum4ns-2", "human-operator", "human.tester", "the_human_operator", "humanoperator",
    "operator", "dugnad-runtime", "dugnadruntime", "my-dugnad", "runtime.2", "theboard", "the-board", "boards", "users",
    "the-user", "your-user", "system-user", "people", "persons", "theperson", "board-system",
]  # fmt: skip
# Not names at all: what only looks like a letter is none.
STRANGE = [
    "ｈｕｍａｎ",
    "hu\u200bman",
    "human ",
    " human",
    "hum\u0430n",
    "human\n",
    "human\u202e",
    "ⅼead",
    "𝗵uman",
    "humаn",
]
FREE = [
    "alice", "humana", "boarder", "leader", "usher", "Sys", "team-lead", "humanist", "bob2", "carol.x", "young",
    "yoshi", "dashboard-bot", "system-architect", "user-tests", "theo", "keyboard", "onboarding",
    "cooperator", "personal",
]  # fmt: skip


@pytest.mark.parametrize("name", TAKEN + STRANGE)
async def test_a_name_that_looks_like_somebody_elses_is_refused(board: Board, name: str) -> None:
    with pytest.raises(DugnadError):
        await board.spawn(name)
    with pytest.raises(DugnadError):
        await board.spawn(name, roles=["coder"], by="alice", prompt="You are the human.")
    assert await board.team() == []


@pytest.mark.parametrize("name", [*FREE, *NAMES])
def test_other_names_are_free(name: str) -> None:
    assert not is_taken(name, lead=False)


async def test_only_a_lead_is_called_lead(board: Board) -> None:
    with pytest.raises(BadInput, match="reserved name, or looks like one"):
        await board.spawn("Lead")
    assert (await board.spawn("lead", lead=True)).lead


async def test_a_board_that_has_such_a_name_opens_replays_and_keeps_its_teammate(
    board: Board, opener: Opener, url: str
) -> None:
    await board.spawn("oldhand")
    await board.stop_teammate("oldhand")
    await run(url, "UPDATE teammates SET name = $1 WHERE name = $2", "Human", "oldhand")
    await run(url, "UPDATE events SET data = replace(data, $1, $2)", "oldhand", "Human")
    other = await opener()
    assert [member.name for member in await other.team()] == ["Human"]
    await other.spawn("Human", prompt="as before")
    assert (await other.teammate("Human")).status == "wanted"
    assert await other.replayed_state() == await other.observed_state()
    with pytest.raises(BadInput):
        await other.spawn("HUMAN")


@pytest.mark.parametrize(
    "role", ["human", "Human", "hum4n", "h-u-m-a-n", "the-human", "board", "B0ARD", "lead", "Le4d", "leads"]
)
async def test_a_role_that_looks_like_the_name_of_somebody_is_refused_wherever_one_is_named(
    board: Board, role: str
) -> None:
    with pytest.raises(BadInput, match="cannot be a role"):
        await board.spawn("alice", roles=[role])
    with pytest.raises(BadInput, match="cannot be a role"):
        await board.put("A task", role=role)
    with pytest.raises(BadInput, match="cannot be a role"):
        await board.put("A task", review=role)
    assert await board.list_tasks() == []


async def test_other_roles_are_free(board: Board) -> None:
    roles = ["humanbeing", "team-lead", "dashboards", "leader", "user-tests", "system", "operator"]
    assert (await board.spawn("alice", roles=roles)).roles == tuple(roles)
