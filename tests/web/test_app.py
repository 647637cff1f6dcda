"""What the page reads: every address, live and in the past, and what is not there."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from dugnad import __version__
from dugnad.board import Board, open_board
from dugnad.types import Amount, Done, Failed, NewTurn
from dugnad.view.events import QUIET
from dugnad.web import following
from dugnad.web.app import board_app, static_files
from dugnad.web.following import FollowedBoard, followed
from dugnad.web.guard import site_of
from dugnad.web.sessions import Sessions
from tests.board.crew import crew
from tests.board.raw import grow_old, lapse
from tests.conftest import Opener
from tests.web.asking import OWN, PORT, Desk, WebClock, ask, caught_up, desk
from tests.web.boards import Story, every_state


async def told_board(folder: Path) -> Story:
    return await every_state(folder / "project")


# Sessions.


async def test_a_link_is_exchanged_for_a_cookie_and_says_what_it_is_for(board: Board) -> None:
    async with desk(board) as made:
        key = made.sessions.new_key("steer", boards=[made.boards[0].identity], who="eve")
        body = [json.dumps({"key": key}).encode()]
        answer = await ask(made.app, "POST", "/api/session", OWN, body)
        assert answer.json == {
            "scope": "steer", "who": "eve", "expires_at": made.clock.now + 43_200_000, "version": __version__,
            "boards": [{"id": made.boards[0].identity[:12], "name": "board 0", "where": "here"}],
        }  # fmt: skip
        cookie = answer.header("set-cookie") or ""
        assert cookie.startswith(f"dugnad-{PORT}=")
        assert cookie.endswith("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict")
        assert key not in cookie
        own = ("cookie", cookie.partition(";")[0])
        assert (await ask(made.app, "GET", "/api/session", [own])).json == answer.json
        again = await ask(made.app, "POST", "/api/session", OWN, body)
        assert (again.status, again.kind, again.header("set-cookie")) == (401, "BadKey", None)


@pytest.mark.parametrize("key", [None, 7, "", "x", ["x"], {"a": 1}, "x" * 60_000])
async def test_a_wrong_key_gives_no_session(board: Board, key: object) -> None:
    async with desk(board) as made:
        answer = await ask(made.app, "POST", "/api/session", OWN, [json.dumps({"key": key}).encode()])
        assert (answer.status, answer.kind, answer.header("set-cookie")) == (401, "BadKey", None)


async def test_ending_a_session_removes_the_cookie(board: Board) -> None:
    async with desk(board) as made:
        own = made.cookie(made.session("look"))
        answer = await ask(made.app, "POST", "/api/session/end", [own, *OWN], [b"{}"])
        assert answer.status == 200
        assert "Max-Age=0" in (answer.header("set-cookie") or "")
        assert (await ask(made.app, "GET", "/api/session", [own])).status == 401


async def test_a_session_sees_its_own_boards_and_no_other(opener: Opener, folder: Path) -> None:
    other = await open_board(f"sqlite:///{folder}/other.db")
    async with desk(await opener(), other) as made:
        first, second = made.boards
        id = made.session("look", first)
        assert [
            each["id"] for each in (await ask(made.app, "GET", "/api/session", [made.cookie(id)])).json["boards"]
        ] == [first.id]
        assert (await made.get("state", id=id)).status == 200
        assert (await made.get("state", id=id, board=second)).status == 404
        both = made.session("look")
        assert (await made.get("state", id=both, board=second)).status == 200
    await other.close()


# Looking.


async def test_every_view_answers_live_and_at_every_event(folder: Path) -> None:
    story = await told_board(folder)
    async with await open_board(story.url) as board, desk(board) as made:
        id, last = made.session("look"), made.boards[0].history.last
        for path in ("state", "timeline", "money", "merges", "notes", "messages", "messages?with=alice"):
            sign = "&" if "?" in path else "?"
            assert (await made.get(path, id=id)).status == 200
            for at in range(0, last + 1, 7):
                answer = await made.get(f"{path}{sign}at={at}", id=id)
                assert answer.status == 200, (path, at, answer.body)
        for task in story.tasks.values():
            for path in (f"tasks/{task}", f"tasks/{task}/diff", f"tasks/{task}?at={last}"):
                assert (await made.get(path, id=id)).status == 200, path


async def test_the_state_has_what_the_commands_say(folder: Path) -> None:
    story = await told_board(folder)
    async with await open_board(story.url) as board, desk(board) as made:
        state = (await made.get("state")).json
        assert state["counts"] == await board.count_tasks()
        assert (state["seq"], state["last"], state["live"], state["reading"], state["trouble"]) == (
            await board.last_event(), await board.last_event(), True, None, None,
        )  # fmt: skip
        assert [each["id"] for each in state["tasks"]] == [task.id for task in await board.list_tasks(page=1_000)]
        assert {each["name"]: each["status"] for each in state["team"]} == {
            each.name: each.status for each in await board.team()
        }
        assert {each["id"]: each["alive"] for each in state["hosts"]}.items() <= {
            each.id: each.alive for each in await board.hosts()
        }.items()


async def test_a_host_that_lived_on_while_nobody_watched_is_alive(
    board: Board, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_LEASES_SECONDS", -1.0)
    team = await crew(board)
    async with desk(board) as made:
        await lapse(url, team.host)
        assert [each["alive"] for each in (await made.get("state")).json["hosts"]] == [False]
        await board.heartbeat(team.host)
        state = (await made.get("state")).json
        assert [each["alive"] for each in state["hosts"]] == [True]
        assert [each["status"] for each in state["team"]] == ["idle"]


@pytest.mark.parametrize("at", ["-1", "x", "1.5", "1e3", "9" * 20, " 1", "٣"])
async def test_an_event_number_that_is_none_is_refused(board: Board, at: str) -> None:
    await board.put("one")
    async with desk(board) as made:
        assert (await made.get(f"state?at={at.encode().decode('latin-1')}")).status == 400


async def test_a_point_that_the_log_does_not_have_is_said(opener: Opener, url: str) -> None:
    board = await opener()
    for number in range(5):
        await board.put(f"{number}")
    await grow_old(url, 60)  # Only what is older than now is pruned.
    await board.prune(0)
    await board.put("new")
    async with desk(board) as made:
        first, last = made.boards[0].history.first, made.boards[0].history.last
        assert first > 0
        early, late = await made.get(f"state?at={first - 1}"), await made.get(f"state?at={last + 1}")
        assert (early.status, early.kind) == (404, "UnknownEvent")
        assert early.json["error"]["message"] == f"The events up to {first} were pruned; go back to {first} at most."
        assert late.json["error"]["message"] == f"The log has no event {last + 1} yet; the last one is {last}."
        assert len((await made.get(f"state?at={first}")).json["tasks"]) == 5
        assert len((await made.get(f"state?at={last}")).json["tasks"]) == 6
        assert (await made.get(f"changes?after={first - 1}&until={last}")).status == 404


async def test_a_task_that_is_not_there_is_not_found(board: Board) -> None:
    await board.put("one")
    async with desk(board) as made:
        for path in ("tasks/2", "tasks/2/turns", "tasks/2/turns/1/1", "tasks/2/diff", "tasks/1/turns/1/1"):
            assert (await made.get(path)).status == 404, path
        for path in ("tasks/0", "tasks/x", "tasks/1.5", "tasks/99999999999999999999", "tasks/-1"):
            assert (await made.get(path)).status == 400, path
        assert (await made.get(f"tasks/1?at={made.boards[0].history.first}")).status == 404


async def test_a_task_has_its_log_its_checks_and_its_tracebacks(board: Board) -> None:
    team = await crew(board)
    await board.put("work")
    claim = await team.must_claim()
    reply = {"text": "I check.", "calls": [["c1", "run_check", "{}"]], "model": "m", "usage": [1, 1, 0, 0]}
    bodies = [
        ("reply", {"said": "Begin.", "reply": reply}),
        ("tool", {"place": 0, "text": "Red: `make`\nFAILED"}),
        ("reply", {"said": "", "reply": reply}),
        ("tool", {"place": 0, "text": "Green: `make` succeeded in your tree."}),
    ]
    for number, (kind, body) in enumerate(bodies, start=1):
        turn = NewTurn(number=number, kind=kind, body=json.dumps(body), used=Amount(tokens=5))  # type: ignore[arg-type]
        await board.record(claim, turn)
    await board.keep_traceback(claim, "Traceback: KeyError")
    await board.settle(claim, Failed("a bug"))
    async with desk(board) as made:
        task = (await made.get("tasks/1")).json
        assert [(each["green"], each["output"][:4]) for each in task["checks"]] == [(False, "Red:"), (True, "Gree")]
        assert task["tracebacks"] == {"1": "Traceback: KeyError"}
        assert [each["kind"] for each in task["events"]] == ["put", "claimed", "failed"]
        before = (await made.get(f"tasks/1?at={made.boards[0].history.last - 1}")).json
        assert before["tracebacks"] == {}


async def test_turns_come_in_pages_and_a_reply_with_its_results(board: Board) -> None:
    team = await crew(board)
    await board.put("work")
    claim = await team.must_claim()
    number = 0
    for reply in range(30):
        calls = [[f"c{place}", "bash", json.dumps({"command": f"echo {reply}"})] for place in range(2)]
        said = {"text": f"reply {reply}", "calls": calls, "model": "m", "usage": [1, 1, 0, 0]}
        turns = [("reply", {"said": "x" * 5_000, "reply": said})]
        turns += [("tool", {"place": place, "text": f"result {reply}.{place}", "bad": place == 1}) for place in (0, 1)]
        for kind, body in turns:
            number += 1
            await board.record(claim, NewTurn(number=number, kind=kind, body=json.dumps(body)))  # type: ignore[arg-type]
    async with desk(board) as made:
        seen, after, more, pages = [], 0, True, 0
        while more:
            page = (await made.get(f"tasks/1/turns?epoch=1&after={after}&page=7")).json
            seen += page["turns"]
            after, more, pages = page["after"], page["more"], pages + 1
        assert pages > 5
        assert [each["text"] for each in seen] == [f"reply {reply}" for reply in range(30)]
        for reply, each in enumerate(seen):
            assert [(call["name"], call["result"], call["failed"]) for call in each["calls"]] == [
                ("bash", f"result {reply}.0", False), ("bash", f"result {reply}.1", True),
            ]  # fmt: skip
        assert (len(seen[0]["said"]), seen[0]["cut"]) == (2_000, True)
        whole = (await made.get("tasks/1/turns/1/1")).json["turn"]
        assert (len(whole["said"]), whole.get("cut")) == (5_000, None)
        assert [call["result"] for call in whole["calls"]] == ["result 0.0", "result 0.1"]
        assert (await made.get("tasks/1/turns/1/999")).status == 404


@pytest.mark.parametrize(
    "body", ["{}", "[]", "7", '"x"', '{"reply": 7}', '{"reply": {"calls": [[1]]}}', '{"place": 9}']
)
@pytest.mark.parametrize("kind", ["reply", "tool", "summary", "request", "trouble"])
async def test_a_turn_of_any_form_is_shown(board: Board, kind: str, body: str) -> None:
    team = await crew(board)
    await board.put("work")
    claim = await team.must_claim()
    await board.record(claim, NewTurn(number=1, kind=kind, body=body))  # type: ignore[arg-type]
    async with desk(board) as made:
        assert (await made.get("tasks/1/turns?epoch=1")).status == 200
        assert (await made.get("tasks/1/turns/1/1")).status == 200
        assert (await made.get("tasks/1")).status == 200


# The log.


async def test_the_log_is_read_forwards_and_backwards_without_a_gap(board: Board) -> None:
    team = await crew(board)
    for number in range(30):
        await board.put(f"{number}")
        await board.settle(await team.must_claim(), Done("ok"))
    events = await board.events(0, page=1_000)
    everything = [event.seq for event in events]
    spoken = [event.seq for event in events if event.kind not in QUIET]
    async with desk(board) as made:
        id = made.session("look")
        for more, expected in (("", spoken), ("&all=1", everything)):
            forwards, after, goes_on = list[int](), 0, True
            while goes_on:
                page = (await made.get(f"events?after={after}&page=13{more}", id=id)).json
                forwards += [each["seq"] for each in page["events"]]
                after, goes_on = forwards[-1], page["more"]
            assert forwards == expected
            backwards, before, goes_on = list[int](), 10**9, True
            while goes_on:
                page = (await made.get(f"events?before={before}&page=13{more}", id=id)).json
                backwards = [each["seq"] for each in page["events"]] + backwards
                before, goes_on = backwards[0], page["more"]
            assert backwards == expected
        of_task = (await made.get("events?task=3", id=id)).json["events"]
        assert [each["seq"] for each in of_task] == [
            each.seq for each in events if each.task == 3 and each.kind not in QUIET
        ]
        assert set(of_task[0]) == {"seq", "at", "kind", "task", "actor", "says"}
        then = (await made.get("events?at=40&page=500", id=id)).json["events"]
        assert [each["seq"] for each in then] == [seq for seq in spoken if seq <= 40]


async def test_what_changed_between_two_points_is_one_answer(board: Board) -> None:
    team = await crew(board)
    await board.put("one")
    left = await board.last_event()
    await board.settle(await team.must_claim(), Done("ok"))
    async with desk(board) as made:
        found = (await made.get(f"changes?after={left}")).json
        assert (found["from"]["seq"], found["to"]["seq"]) == (left, await board.last_event())
        assert [(each["id"], each["was"], each["is"]) for each in found["tasks"]] == [(1, "ready", "done")]


# Diffs.


async def test_a_diff_has_the_lines_as_they_were_merged(folder: Path) -> None:
    story = await told_board(folder)
    async with await open_board(story.url) as board, followed(board, name="x", where="y", root=story.project) as found:
        await caught_up(found)
        made = desk_for(found)
        diff = (await made.get(f"tasks/{story['read']}/diff")).json
        assert (diff["commit"], diff["into"], diff["merged"], diff["says"]) == (
            story.commits["read"], "dugnad/main", True, None,
        )  # fmt: skip
        file = diff["files"][0]
        assert (file["path"], file["cut"], file["binary"]) == ("tides/stations.py", False, False)
        kinds = [line["kind"] for line in file["lines"]]
        assert (kinds[0], kinds.count("+"), kinds.count("-")) == ("@", file["added"], file["removed"])
        assert all(line["old"] is None for line in file["lines"] if line["kind"] == "+")
        none = (await made.get(f"tasks/{story['goal']}/diff")).json
        assert (none["files"], none["commit"]) == ([], None)
        assert none["says"].startswith("No work of this task is in the repository")


async def test_without_a_folder_a_diff_says_why_there_is_none(board: Board) -> None:
    await board.put("one")
    async with desk(board) as made:
        diff = (await made.get("tasks/1/diff")).json
        assert diff["says"].startswith("The project's folder is not known here")


def desk_for(found: FollowedBoard) -> Desk:
    clock, site = WebClock(), site_of(PORT)
    sessions = Sessions(now_ms=clock)
    return Desk(board_app([found], sessions, site, environment={}), sessions, clock, [found], site)


# Files.


async def test_the_files_of_the_page_are_packed_and_asked_for_once(board: Board) -> None:
    async with desk(board) as made:
        plain = await ask(made.app, "GET", "/")
        packed = await ask(made.app, "GET", "/", [("accept-encoding", "br, gzip")])
        assert gzip.decompress(packed.body) == plain.body == static_files()["index.html"].content
        etag = plain.header("etag") or ""
        assert plain.header("cache-control") == "no-cache"
        again = await ask(made.app, "GET", "/", [("if-none-match", f'"x", {etag}')])
        assert (again.status, again.body) == (304, b"")
        assert (await ask(made.app, "HEAD", "/")).status == 200


async def test_a_board_that_is_still_read_says_how_far(opener: Opener) -> None:
    board = await opener()
    await board.put("one")
    made = desk_for(FollowedBoard(board, identity=await board.identity(), name="x", where="y"))
    assert (await made.get("state")).json["reading"] == 0.0
    waiting = await made.get("state?at=1")
    assert (waiting.status, waiting.kind) == (503, "Reading")
