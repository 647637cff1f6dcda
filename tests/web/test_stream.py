"""Streams: without a gap, without a repeat, without polling, and with an end."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dugnad.board import Board, open_board
from dugnad.settings import Patience
from dugnad.types import Done
from dugnad.view.events import QUIET
from dugnad.web import following, serving, stream
from dugnad.web.following import followed
from tests.board.crew import crew
from tests.board.raw import grow_old
from tests.conftest import Opener
from tests.postgres_server import PostgresServer
from tests.web.asking import caught_up, desk
from tests.web.streams import SECONDS, Site, site


async def spoken(board: Board) -> list[int]:
    """The numbers of all events that a page is told of."""
    found, after = [], 0
    while page := await board.events(after):
        found += [event.seq for event in page if event.kind not in QUIET]
        after = page[-1].seq
    return found


async def test_a_message_says_what_changed(board: Board, folder: Path) -> None:
    await board.put("before")
    async with site(board, folder=folder) as made, made.stream(after=await board.last_event()) as reader:
        task = await board.put("new", role="coder")
        told = await reader.next("message")
        assert told.id == told.data["seq"] == await board.last_event()
        assert [each["title"] for each in told.data["tasks"]] == ["new"]
        assert [(each["kind"], each["task"], each["says"]) for each in told.data["events"]] == [
            ("put", task.id, 'human added "new" for a coder')
        ]
        assert told.data["counts"] == {"ready": 2}
        expected = {"seq", "now", "tasks", "gone", "team", "hosts", "budgets", "requests", "cooldowns", "counts"}
        assert set(told.data) == expected | {"unread", "why", "events"}


async def test_a_reader_that_comes_back_misses_nothing_and_hears_nothing_twice(board: Board, folder: Path) -> None:
    chance, heard, ids = random.Random(7), list[int](), list[int]()
    team = await crew(board)
    began = await board.last_event()

    async def write() -> None:
        for number in range(80):
            await board.put(f"task {number}")
            if number % 3 == 0 and (claim := await board.claim("alice", team.host)) is not None:
                await board.settle(claim, Done("done"))
            await asyncio.sleep(chance.random() * 0.05)
        await board.put("the last")

    async with site(board, folder=folder) as made:
        writing = asyncio.create_task(write())
        last, rounds, titles = began, 0, set[str]()
        while "the last" not in titles:
            rounds += 1
            # A browser names the last id in a header; the address still has what the page began with.
            async with made.stream(after=began, **({"last-event-id": str(last)} if last != began else {})) as reader:
                for _ in range(chance.randint(1, 4)):
                    told = await reader.next("message")
                    heard += [each["seq"] for each in told.data["events"]]
                    titles |= {each["title"] for each in told.data["tasks"]}
                    last = told.id or 0
                    ids.append(last)
                    if "the last" in titles:
                        break
        await writing
    assert rounds >= 3
    assert ids == sorted(set(ids))
    assert heard == [seq for seq in await spoken(board) if seq > began]


async def test_the_tasks_of_the_messages_come_to_the_same_as_the_state(board: Board, folder: Path) -> None:
    team = await crew(board)
    async with site(board, folder=folder) as made:
        state = (await made.client.get(f"{made.board}/state")).json()
        tasks = {each["id"]: each for each in state["tasks"]}
        async with made.stream(after=state["seq"]) as reader:
            for number in range(10):
                await board.put(f"task {number}", needs=[number] if number else [])
                if claim := await board.claim("alice", team.host):
                    await board.settle(claim, Done("done"))
            last = await board.last_event()
            for told in await reader.until(lambda told: told.id == last):
                tasks |= {each["id"]: each for each in told.data["tasks"]}
        now = (await made.client.get(f"{made.board}/state")).json()
        assert list(tasks.values()) == now["tasks"]


async def test_many_readers_are_one_watcher_of_the_board_and_nothing_is_polled(opener: Opener, folder: Path) -> None:
    board = await opener(patience=Patience(poll_seconds=60))
    async with site(board, folder=folder) as made:
        readers = [made.stream(after=0) for _ in range(20)]
        opened = [await each.__aenter__() for each in readers]
        assert {topic: len(each) for topic, each in board._hub._watches.items()} == {"log": 1}
        before = made.boards[0].history.last
        await asyncio.sleep(0.5)
        assert made.boards[0].history.last == before
        await board.put("news")
        last = await board.last_event()
        for reader in opened:
            assert (await reader.until(lambda told: told.id == last))[-1].data["tasks"][0]["title"] == "news"
        for each in readers:
            await each.__aexit__(None, None, None)
        await until(lambda: len(made.server.streams) == 0)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not true():  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.01)


async def test_a_reader_that_reads_nothing_holds_up_nobody_and_gets_the_rest_in_one_piece(
    board: Board, folder: Path
) -> None:
    async with site(board, folder=folder) as made:
        with raw_page(made) as lazy:
            await until(lambda: len(made.server.streams) == 1)
            async with made.stream(after=0) as reader:
                for number in range(150):
                    await board.put(f"{number} {'x' * 190}", body="y" * 10_000)
                    if number % 10 == 0:
                        await asyncio.sleep(0.11)  # So that these become messages of their own.
                last = await board.last_event()
                prompt = await reader.until(lambda told: told.id == last)
            assert len(prompt) > 5
            await until(lambda: len(made.server.streams) == 1)
            lazy.settimeout(SECONDS)
            text = b""
            while f"id: {last}\n".encode() not in text or not text.endswith(b"\n\n\r\n"):  # The end of a chunk.
                text += await asyncio.to_thread(lazy.recv, 65_536)
            assert text.count(b"\ndata: ") <= len(prompt)


async def test_a_stream_ends_with_its_session_and_others_go_on(board: Board, folder: Path) -> None:
    async with site(board, folder=folder) as made, made.stream(after=0) as first:
        await board.put("one")
        await first.next("message")
        other = site_client(made)
        async with other.client, other.stream(after=await board.last_event()) as second:
            answer = await made.client.post("/api/session/end", json={}, headers=made.own)
            assert answer.status_code == 200
            assert (await first.next("end")).data["why"].startswith("The session has ended")
            with pytest.raises(EOFError):
                await first.next()
            await board.put("two")
            assert (await second.next("message")).data["tasks"][0]["title"] == "two"
        assert (await made.client.get(f"{made.board}/stream")).status_code == 401


def site_client(made: Site) -> Site:
    """Another browser."""
    import httpx2

    found = made.server.sessions.exchange(made.server.look_link.partition("=")[2])
    assert found is not None
    cookies = {f"dugnad-{made.server.port}": found[0]}
    client = httpx2.AsyncClient(base_url=made.server.url, cookies=cookies, timeout=SECONDS, trust_env=False)
    return Site(made.server, client, made.boards)


async def test_a_stream_ends_when_its_session_expires(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "KEEP_ALIVE_SECONDS", 600)
    async with desk(board) as made:
        session = made.sessions.find(made.session("look"))
        assert session is not None
        made.clock.now = session.expires_at - 100
        ending = stream.EventStream(
            made.boards[0], after=0, session=session, sessions=made.sessions, streams=stream.Streams()
        )
        sent = bytearray()

        async def receive() -> dict[str, str]:
            await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        async def send(message: object) -> None:
            sent.extend(message.get("body", b""))  # type: ignore[attr-defined]
            if b"still here" in sent:
                made.clock.now = session.expires_at

        async with asyncio.timeout(SECONDS):
            await ending({}, receive, send)
        assert b"event: end\n" in sent


async def test_a_server_that_ends_does_not_wait_for_open_pages(
    board: Board, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_END_SECONDS", 600)
    async with asyncio.timeout(SECONDS):
        with ExitStack() as pages:
            async with site(board, folder=folder) as made:
                for _ in range(50):
                    pages.enter_context(raw_page(made))
                await until(lambda: len(made.server.streams) == 50)


def raw_page(made: Site) -> socket.socket:
    """A page that has asked for the stream and reads nothing."""
    page = socket.create_connection(("127.0.0.1", made.server.port))
    page.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    cookie = next(iter(made.client.cookies.jar))
    lines = (f"GET {made.board}/stream?after=0 HTTP/1.1", f"Host: 127.0.0.1:{made.server.port}")
    page.sendall("\r\n".join((*lines, f"Cookie: {cookie.name}={cookie.value}", "", "")).encode())
    return page


@pytest.mark.parametrize("after", [10**6, 10**14])
async def test_a_number_that_the_log_does_not_have_means_reading_the_state_again(
    board: Board, folder: Path, after: int
) -> None:
    await board.put("one")
    async with site(board, folder=folder) as made, made.stream(after=after) as reader:
        told = await reader.next()
        assert (told.event, told.id) == ("reset", await board.last_event())
        await board.put("two")
        assert (await reader.next("message")).data["tasks"][0]["title"] == "two"


async def test_too_much_at_once_means_reading_the_state_again(board: Board, folder: Path) -> None:
    from dugnad.types import NewTask

    async with site(board, folder=folder) as made:
        await board.put_many([NewTask(title=f"{number}") for number in range(2_100)])
        await caught_up(made.boards[0])
        async with made.stream(after=0) as reader:
            assert (await reader.next()).event == "reset"


async def test_there_is_a_limit_to_open_streams_and_those_who_look_leave_room(
    board: Board, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "STREAMS_MAX", 4)
    monkeypatch.setattr(stream, "_STREAMS_LOOK_MAX", 2)
    async with site(board, folder=folder, scope="look") as made:
        streams = [made.stream(after=0) for _ in range(2)]
        for each in streams:
            await each.__aenter__()
        refused = await made.client.get(f"{made.board}/stream")
        assert (refused.status_code, refused.json()["error"]["kind"]) == (503, "TooManyStreams")
        await made.begin(made.server.steer_link())
        streams += [made.stream(after=0) for _ in range(2)]
        for each in streams[2:]:
            await each.__aenter__()
        assert (await made.client.get(f"{made.board}/stream")).status_code == 503
        for each in streams:
            await each.__aexit__(None, None, None)
        await until(lambda: len(made.server.streams) == 0)
        async with made.stream(after=0):
            pass


async def test_a_quiet_stream_says_now_and_then_that_it_is_there(
    board: Board, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "KEEP_ALIVE_SECONDS", 0.05)
    async with site(board, folder=folder) as made, made.stream(after=await board.last_event()) as reader:
        lines = [await anext(reader.lines) for _ in range(6)]
        assert lines == ["retry: 1000", "", ": still here", "", ": still here", ""]


async def test_a_log_that_was_pruned_meanwhile_is_read_again(opener: Opener, url: str) -> None:
    board, other = await opener(), await opener()
    await board.put("one")
    async with followed(board, name="x", where="y") as first:
        await caught_up(first)
    behind = first.history.last
    for number in range(5):
        await board.put(f"{number}")
    await grow_old(url, 60)  # Only what is older than now is pruned.
    await board.prune(0)
    again = asyncio.create_task(first.follow())
    await until(lambda: first.history.last > behind)
    await other.put("last")
    await until(lambda: len(first.view().tasks) == 7)
    assert first.history.first >= behind
    again.cancel()
    await asyncio.gather(again, return_exceptions=True)


# A board that goes away.


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    made = PostgresServer()
    try:
        made.start()
        yield made
    finally:
        made.remove()


async def test_a_board_that_cannot_be_reached_is_told_and_the_stream_goes_on_by_itself(
    own_server: PostgresServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "QUIET_SECONDS", 0.5)
    patience = Patience(reconnect_seconds=1, poll_seconds=0.5)
    async with await open_board(own_server.url, patience=patience) as board:
        await board.put("before")
        async with site(board, folder=folder) as made, made.stream(after=await board.last_event()) as reader:
            await asyncio.to_thread(own_server.stop)
            assert (await reader.next("trouble")).data["message"]
            state = (await made.client.get(f"{made.board}/state")).json()
            assert [each["title"] for each in state["tasks"]] == ["before"]
            assert state["trouble"]
            refused = await made.client.post(
                f"{made.board}/note", json={"title": "a", "text": "b"}, headers=made.own
            )  # fmt: skip
            assert refused.status_code == 503
            await asyncio.to_thread(own_server.start)
            while (told := await reader.next("trouble")).data["message"] is not None:
                pass
            assert told.data == {"message": None}
            await board.put("after")
            found = await reader.until(
                lambda told: any(each["title"] == "after" for each in told.data.get("tasks", ()))
            )
            assert found[-1].id == await board.last_event()
