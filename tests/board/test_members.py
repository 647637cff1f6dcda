"""Teammates, and the hosts that run them."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from dugnad.board import Board
from dugnad.errors import BadInput, BadText, HostLost, NotReady, StoppedTeammate, UnknownHost, UnknownTeammate
from dugnad.tools.message_tools import MADE_ROOM, RESTED
from dugnad.types import Done, Teammate, Waiting
from tests.board.crew import both, crew
from tests.board.raw import connect, lapse, race, run
from tests.conftest import Opener


async def kinds(board: Board) -> list[str]:
    return [event.kind for event in await board.events()]


async def test_every_start_of_a_host_has_a_new_id(opener: Opener) -> None:
    one, two = await opener(), await opener()
    hosts = [await board.start_host("laptop") for board in (one, two, one)]
    assert len(set(hosts)) == 3
    assert {(host.id, host.label, host.alive) for host in await two.hosts()} == {(h, "laptop", True) for h in hosts}


async def test_starting_a_host_again_under_the_same_id_is_one_start(board: Board) -> None:
    assert await board.start_host("laptop", host="mine") == "mine"
    assert await board.start_host("laptop", host="mine") == "mine"
    assert await kinds(board) == ["host_started"]


async def test_a_heartbeat_tells_the_claims_the_host_still_has(board: Board) -> None:
    for title in "abc":
        await board.put(title)
    team = await crew(board, "alice", "bob")
    first, second = await team.must_claim("alice"), await team.must_claim("bob")
    assert await board.heartbeat(team.host) == [(first.task.id, first.epoch), (second.task.id, second.epoch)]
    await board.settle(first, Done())
    assert await board.heartbeat(team.host) == [(second.task.id, second.epoch)]
    other = await board.start_host("other")
    assert await board.heartbeat(other) == []


async def test_a_heartbeat_keeps_the_claims_of_a_host_alive(board: Board, url: str) -> None:
    await board.put("goal")
    team = await crew(board)
    claim = await team.must_claim()
    await lapse(url, team.host)
    assert await board.heartbeat(team.host) == [(claim.task.id, claim.epoch)], "late, but nobody had taken it back"
    assert await board.take_back() == []
    assert "host_back" not in await kinds(board)


async def test_nothing_is_taken_from_a_host_that_beats_at_this_moment_although_late(board: Board, url: str) -> None:
    await board.put("goal")
    team = await crew(board)
    claim = await team.must_claim()
    await lapse(url, team.host)
    if url.startswith("postgres"):  # SQLite has one writer: there is no moment between the two.
        connection = await connect(url)
        async with connection.transaction():  # As a heartbeat does that has not committed yet.
            await connection.fetch("SELECT id FROM hosts WHERE id = $1 FOR UPDATE", team.host)
            assert await board.take_back() == []
        await connection.close()
    assert await board.take_back() == [claim.task.id]
    assert (await kinds(board))[-2:] == ["host_lost", "taken_back"]


async def test_a_lost_host_comes_back_empty_handed(board: Board, url: str) -> None:
    await board.put("goal")
    team = await crew(board)
    claim = await team.must_claim()
    await lapse(url, team.host)
    assert await board.take_back() == [claim.task.id]
    assert [host.alive for host in await board.hosts()] == [False]
    with pytest.raises(HostLost):
        await team.claim()
    assert await board.heartbeat(team.host) == []
    assert (await kinds(board))[-1] == "host_back"
    assert [host.alive for host in await board.hosts()] == [True]
    assert await board.heartbeat(team.host) == []
    assert (await kinds(board)).count("host_back") == 1


async def test_it_is_known_without_a_write_when_there_is_something_to_take_back(board: Board, url: str) -> None:
    assert await board.next_lapse() is None
    await board.put("goal")
    team = await crew(board)
    other = await board.start_host("other")
    await team.must_claim()
    assert 0 < (await board.next_lapse() or 0) <= board.limits.lease_seconds
    await board.stop_host(team.host)
    assert await board.next_lapse() == 0, "it holds a task, and needs no lease to be gone"
    await board.take_back()
    assert (await board.next_lapse() or 0) > 0
    await run(url, "UPDATE hosts SET lease_until = 9000000000000 WHERE id = $1", other)
    assert await board.next_lapse() == 0, "nobody believes a lease that long"
    await lapse(url, other)
    assert (await board.next_lapse() or 0) < 0
    await board.take_back()
    assert await board.next_lapse() is None


async def test_a_lease_that_ends_too_far_away_is_void(board: Board, url: str) -> None:
    await board.put("goal")
    team = await crew(board)
    claim = await team.must_claim()
    await run(url, "UPDATE hosts SET lease_until = lease_until + $1 WHERE id = $2", 10**9, team.host)
    assert (await board.teammate("alice")).status == "lost"
    assert await board.take_back() == [claim.task.id]
    assert "host_lost" in await kinds(board)


async def test_only_a_host_that_was_watched_and_has_not_renewed_since_is_lost(board: Board, url: str) -> None:
    await board.put("goal")
    team = await crew(board)
    claim = await team.must_claim()
    (seen,) = await board.hosts()
    await lapse(url, team.host)
    assert await board.take_back(silent={}) == [], "nobody has watched anybody yet"
    assert await board.take_back(silent={team.host: seen.lease_until}) == [], "it is not the lease that was seen"
    assert "host_lost" not in await kinds(board)
    assert await board.take_back(silent={team.host: 1}) == [claim.task.id]


async def test_only_one_of_two_boards_takes_back_a_lost_claim(opener: Opener, url: str) -> None:
    one, two = await opener(), await opener()
    await one.put("goal")
    team = await crew(one)
    claim = await team.must_claim()
    await lapse(url, team.host)
    assert sorted(await race(url, one.take_back(), two.take_back())) == [[], [claim.task.id]]
    assert Counter(await kinds(one)) >= Counter(["host_lost", "taken_back"])
    assert (await kinds(one)).count("host_lost") == 1


async def test_a_stopped_host_is_gone_and_its_claims_are_lost_at_once(board: Board) -> None:
    await board.put("goal")
    team = await crew(board)
    claim = await team.must_claim()
    await board.stop_host(team.host)
    await board.stop_host(team.host)
    assert (await kinds(board)).count("host_stopped") == 1
    assert await board.hosts() == []
    assert await board.take_back() == [claim.task.id]
    for call in (board.heartbeat(team.host), team.claim(), board.seat(team.host)):
        with pytest.raises(HostLost):
            await call


async def test_a_host_nobody_knows_is_an_error(board: Board) -> None:
    await board.spawn("alice")
    for call in (board.heartbeat("nobody"), board.stop_host("nobody")):
        with pytest.raises(UnknownHost):
            await call
    with pytest.raises(HostLost):
        await board.seat("nobody")


async def test_a_teammate_is_wanted_then_seated_then_stopped_and_wanted_again(board: Board) -> None:
    host = await board.start_host("laptop")
    wanted = await board.spawn("alice", roles=["coder", "tester"], lead=True, prompt="Be kind.", model="m")
    assert (wanted.status, wanted.host, wanted.roles, wanted.lead) == ("wanted", None, ("coder", "tester"), True)
    assert (wanted.prompt, wanted.model) == ("Be kind.", "m")
    (seated,) = await board.seat(host)
    assert (seated.status, seated.host, seated.name) == ("idle", host, "alice")
    assert seated.seat > wanted.seat
    await board.stop_teammate("alice", reason="enough")
    stopped = await board.teammate("alice")
    assert (stopped.status, stopped.host, stopped.reason) == ("stopped", None, "enough")
    assert await board.seat(host) == [], "the stopped are not taken"
    again = await board.spawn("alice", roles=["reviewer"])
    assert (again.status, again.roles, again.reason, again.prompt) == ("wanted", ("reviewer",), None, "")
    assert (await board.seat(host))[0].seat > seated.seat


async def test_a_failed_teammate_says_why_and_may_be_spawned_again(board: Board) -> None:
    team = await crew(board)
    await board.fail_teammate("alice", by="host", reason="a bug")
    await board.fail_teammate("alice", by="host", reason="a bug")
    failed = await board.teammate("alice")
    assert (failed.status, failed.reason) == ("failed", "a bug")
    with pytest.raises(StoppedTeammate):
        await team.claim()
    assert (await board.spawn("alice")).status == "wanted"
    assert (await kinds(board)).count("failed_teammate") == 1


async def test_the_same_spawn_twice_is_one(opener: Opener, url: str) -> None:
    one, two = await opener(), await opener()
    first = await one.spawn("alice", roles=["coder"])
    assert await two.spawn("alice", roles=["coder"]) == first
    host = await one.start_host("laptop")
    await one.seat(host)
    assert (await two.spawn("alice", roles=["coder"])).status == "idle", "already there, so left as it is"
    assert await race(url, one.spawn("bob"), two.spawn("bob")) == [await one.teammate("bob")] * 2
    assert (await kinds(one)).count("spawned") == 2


async def test_a_spawn_under_a_taken_name_with_other_settings_is_refused(board: Board) -> None:
    host = await board.start_host("laptop")
    await board.spawn("alice", roles=["coder"], prompt="Be kind.")
    for _ in range(2):
        before = await board.last_event()
        for other in (
            {"roles": ["tester"], "prompt": "Be kind."},
            {"roles": ["coder"]},
            {"roles": ["coder"], "lead": True},
        ):
            with pytest.raises(NotReady, match="alice"):
                await board.spawn("alice", **other)  # type: ignore[arg-type]
        assert await board.last_event() == before
        await board.seat(host)


async def test_of_two_spawns_that_differ_at_once_one_is_refused(opener: Opener, url: str) -> None:
    one, two = await opener(), await opener()
    answers = await race(url, one.spawn("alice", roles=["coder"]), two.spawn("alice", roles=["tester"]))
    assert sorted(type(answer).__name__ for answer in answers) == ["NotReady", "Teammate"]


@pytest.mark.parametrize("name", ["human", "board", "", "two words", "@alice", "å", "x" * 41, "a\0", "a\n"])
async def test_a_name_that_cannot_be_is_refused(board: Board, name: str) -> None:
    with pytest.raises(BadInput):
        await board.spawn(name)
    with pytest.raises((BadText, BadInput)):
        await board.spawn("alice", roles=[name] if name not in ("human", "board") else ["not a role"])
    assert await board.team() == []


async def test_a_wanted_teammate_is_taken_by_exactly_one_of_two_racing_hosts(opener: Opener, url: str) -> None:
    one, two = await opener(), await opener()
    hosts = [await one.start_host("one"), await two.start_host("two")]
    await one.spawn("alice")
    seats = await race(url, one.seat(hosts[0], count=5), two.seat(hosts[1], count=5))
    assert sorted(map(len, seats)) == [0, 1]
    await one.spawn("bob")
    named = await race(url, one.seat(hosts[0], name="bob"), two.seat(hosts[1], name="bob"))
    assert sorted(type(answer).__name__ for answer in named) == ["NotReady", "list"]


async def test_of_many_wanted_teammates_each_is_taken_once_by_racing_hosts(opener: Opener) -> None:
    one, two = await opener(), await opener()
    names = [f"mate{number}" for number in range(120)]
    await both(*(one.spawn(name) for name in names))

    async def take_all(board: Board) -> list[Teammate]:
        host = await board.start_host("host")
        taken: list[Teammate] = []
        while len(page := await board.seat(host, count=1)) > 0:
            taken += page
        return taken

    taken = [mate for part in await asyncio.gather(*(take_all(board) for board in (one, two))) for mate in part]
    assert Counter(mate.name for mate in taken) == Counter(names)
    assert {mate.name: mate.host for mate in taken} == {mate.name: mate.host for mate in await one.team()}


async def test_leads_are_seated_first_and_no_more_than_asked_for(board: Board) -> None:
    host = await board.start_host("laptop")
    for name in ("zoe", "adam"):
        await board.spawn(name)
    await board.spawn("mia", lead=True)
    assert [mate.name for mate in await board.seat(host, count=1)] == ["mia"]
    assert len(await board.seat(host, count=5)) == 2
    assert await board.seat(host, count=5) == []


async def test_seating_a_seated_teammate_at_its_own_host_changes_nothing(board: Board) -> None:
    team = await crew(board)
    before = await board.last_event()
    (again,) = await board.seat(team.host, name="alice")
    assert again == await board.teammate("alice")
    assert await board.last_event() == before


@pytest.mark.parametrize("how", ["dies", "stops"])
async def test_a_teammate_moves_when_its_host_dies_or_stops(board: Board, url: str, how: str) -> None:
    team = await crew(board)
    old = await board.teammate("alice")
    other = await board.start_host("other")
    assert await board.seat(other) == [], "not while its host lives"
    with pytest.raises(NotReady):
        await board.seat(other, name="alice")
    if how == "dies":
        await lapse(url, team.host)
        assert (await board.teammate("alice")).status == "lost"
        assert await board.seat(other) == [], "not before its host is declared lost: a clock may have jumped"
        await board.take_back()
    else:
        await board.stop_host(team.host)
    assert (await board.teammate("alice")).status == ("lost" if how == "dies" else "wanted")
    (moved,) = await board.seat(other)
    assert (moved.status, moved.host) == ("idle", other)
    assert moved.seat > old.seat
    if how == "dies":
        await board.heartbeat(team.host)
    with pytest.raises(HostLost):
        await team.claim()
    for call in (
        board.stop_teammate("alice", by="old host", seat=old.seat),
        board.fail_teammate("alice", by="old host", reason="bug", seat=old.seat),
    ):
        with pytest.raises(HostLost, match="taken over"):
            await call
    assert (await board.teammate("alice")).status == "idle"
    await board.stop_teammate("alice", by="other", seat=moved.seat)
    assert (await board.teammate("alice")).status == "stopped"


async def test_stopping_twice_is_one_stop_and_the_human_cannot_be_stopped(board: Board) -> None:
    await crew(board)
    await board.stop_teammate("alice")
    await board.stop_teammate("alice")
    assert (await kinds(board)).count("stopped_teammate") == 1
    with pytest.raises(BadInput):
        await board.stop_teammate("human")
    with pytest.raises(UnknownTeammate):
        await board.stop_teammate("nobody")
    with pytest.raises(UnknownTeammate):
        await board.teammate("nobody")


async def test_the_status_is_what_the_board_shows_at_that_moment(board: Board, url: str) -> None:
    async def status() -> str:
        return (await board.teammate("alice")).status

    await board.put("goal")
    await board.spawn("alice")
    assert await status() == "wanted"
    host = await board.start_host("laptop")
    await board.seat(host)
    assert await status() == "idle"
    claim = await board.claim("alice", host)
    assert claim is not None
    assert await status() == "working"
    await board.settle(claim, Waiting(on="human", question="which?"))
    assert await status() == "waiting"
    await board.put("more")
    second = await board.claim("alice", host)
    assert second is not None
    assert await status() == "working", "though one task of its waits"
    await board.settle(second, Done())
    await board.reply((await board.requests())[0].request or "", "human", "this")
    assert await status() == "idle"
    await lapse(url, host)
    assert await status() == "lost"
    await board.heartbeat(host)
    assert await status() == "idle"
    await board.stop_teammate("alice")
    assert await status() == "stopped"
    await board.spawn("alice")
    await board.fail_teammate("alice", by="host", reason="bug")
    assert await status() == "failed"


async def test_a_negative_count_is_refused_alike_on_both_databases(board: Board) -> None:
    team = await crew(board)
    for call in (board.seat(team.host, count=-1), board.take_back(count=-1), board.take("alice", "k", count=-1)):
        with pytest.raises(BadInput):
            await call


async def test_those_that_rest_are_read_behind_those_who_are_there(board: Board) -> None:
    for name, reason in (("anna", RESTED), ("bert", f"{MADE_ROOM}carl"), ("dora", "enough"), ("emil", "Rested.")):
        await board.spawn(name)
        await board.stop_teammate(name, by="board", reason=reason)
    await board.spawn("fred")
    await board.spawn("gert")
    await board.fail_teammate("gert", by="gert", reason=RESTED)
    assert [member.name for member in await board.team(here=True)] == ["fred", "anna", "bert"]
    assert [member.name for member in await board.team(here=True, most=1)] == ["fred"]
    assert len(await board.team()) == 6
