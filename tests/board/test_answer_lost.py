"""Commit done, answer lost: every writing verb gives the answer it would have given, and did its work exactly once.

Each verb runs twice: on a board with a whole wire, and on one whose wire is cut at the verb's COMMIT. Ids and chance
are handed in, so the two must agree in the answer, in the log and in the tables; only times differ.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import asyncpg
import pytest

from dugnad.board import Board, open_board
from dugnad.clock import Sources
from dugnad.settings import Limits, Patience
from dugnad.types import Amount, Budget, Claim, Done, Failed, NewTask, NewTurn, Pace, Released, Task, Waiting
from tests.board.crew import claim_many
from tests.board.wire import Wire
from tests.postgres_server import PostgresServer
from tests.proof import every

TIMES = {"at", "put_at", "ended_at", "due_at", "sent_at", "shown_at", "claimed_at", "started_at", "spawned_at", "until"}
LIMITS = Limits(repeats_max=2, lease_seconds=3_000, lease_seconds_max=6_000)
PATIENCE = Patience(reconnect_seconds=10, poll_seconds=60)
PACE = Pace(key="provider", requests_per_minute=1)


@dataclass
class Scene:
    """What every case finds on its board."""

    board: Board
    host: str
    claim: Claim  # Alice's, on a root with a budget.
    ready: Task
    blocked: Task  # Behind `ready`.
    broken: Task  # Cancelled.
    reservation: str
    question: str  # Asked of the human.
    message: int  # For Alice.


async def set_up(board: Board) -> Scene:
    host = await board.start_host("one")
    other = await board.start_host("two")
    for name in ("alice", "bob", "carol", "dave"):
        await board.spawn(name)
    await board.seat(host, name="alice")
    await board.seat(other, name="dave")
    await board.put("held", budget=Budget(tasks=50, tokens=1_000))
    claim = await board.claim("alice", host)
    assert claim is not None
    await board.put("lost with its host")
    assert await board.claim("dave", other) is not None
    await board.stop_host(other)
    ready = await board.put("ready")
    blocked = await board.put("blocked", needs=[ready.id])
    broken = await board.put("broken")
    await board.cancel(broken.id)
    await board.follow_up(claim, "asked for before")
    asked = await board.tell("alice", "human", "why?", kind="question")
    told = await board.tell("human", "alice", "look here")
    reservation = await board.reserve(claim, Amount(tokens=10))
    assert asked.request is not None
    return Scene(board, host, claim, ready, blocked, broken, reservation, asked.request, told.id)


async def prune(scene: Scene) -> int:
    await asyncio.sleep(0.05)  # So that all there is is older than now.
    return (await scene.board.prune(0.02)).events


def turn(scene: Scene) -> NewTurn:
    return NewTurn(
        number=1, kind="reply", body='"x"', used=Amount(tokens=7), reservation=scene.reservation, shown=(scene.message,)
    )


Act = Callable[[Scene], Awaitable[Any]]
VERBS: dict[str, Act] = {
    "put": lambda s: s.board.put("new", needs=[s.ready.id]),
    "put_many": lambda s: s.board.put_many([NewTask(title="a"), NewTask(title="b", needs=(-1,), parent=-1)]),
    "follow_up": lambda s: s.board.follow_up(s.claim, "found"),
    "follow_up asked for before": lambda s: s.board.follow_up(s.claim, "asked for before"),
    "add_need": lambda s: s.board.add_need(s.blocked.id, s.claim.task.id),
    "cancel": lambda s: s.board.cancel(s.ready.id, why="not wanted"),
    "cancel with dependents": lambda s: s.board.cancel(s.ready.id, dependents=True),
    "cancel what is held": lambda s: s.board.cancel(s.claim.task.id),
    "release": lambda s: s.board.release(s.claim.task.id, why="stuck"),
    "retry": lambda s: s.board.retry(s.broken.id),
    "claim": lambda s: s.board.claim("alice", s.host),
    "claim a certain task": lambda s: s.board.claim("alice", s.host, task=s.ready.id),
    "claim many": lambda s: claim_many(s.board, ["alice", "alice"], s.host),
    "settle done": lambda s: s.board.settle(s.claim, Done("result", "approved"), handover='"word"'),
    "settle failed": lambda s: s.board.settle(s.claim, Failed("no")),
    "settle to retry": lambda s: s.board.settle(s.claim, Failed("no", retry=True)),
    "settle waiting for a human": lambda s: s.board.settle(s.claim, Waiting(on="human", question="may I?")),
    "settle waiting for tasks": lambda s: s.board.settle(s.claim, Waiting(on="tasks", tasks=(s.ready.id,))),
    "settle waiting for budget": lambda s: s.board.settle(s.claim, Waiting(on="budget", amount=Amount(tokens=995))),
    "settle released": lambda s: s.board.settle(s.claim, Released("later", 60)),
    "take_back": lambda s: s.board.take_back(),
    "record": lambda s: s.board.record(s.claim, turn(s)),
    "hand_over": lambda s: s.board.hand_over(s.claim, '"word"'),
    "merge_into": lambda s: s.board.merge_into(s.claim, "dugnad/main"),
    "reserve": lambda s: s.board.reserve(s.claim, Amount(tokens=20)),
    "reserve with a pace": lambda s: s.board.reserve(s.claim, Amount(tokens=20), pace=PACE),
    "cool_down": lambda s: s.board.cool_down("provider", reason="429", by="alice"),
    "spend": lambda s: s.board.spend(s.claim, s.reservation, Amount(tokens=3)),
    "forfeit": lambda s: s.board.forfeit(s.claim),
    "set_budget": lambda s: s.board.set_budget(s.claim.task.root, Budget(tasks=9)),
    "raise_budget": lambda s: s.board.raise_budget(s.claim.task.root, Budget(tasks=9, tokens=1)),
    "tell": lambda s: s.board.tell("alice", "bob", "hello"),
    "tell under a claim": lambda s: s.board.tell("alice", "bob", "hello", claim=s.claim),
    "ask": lambda s: s.board.tell("alice", "human", "how?", kind="question"),
    "broadcast": lambda s: s.board.broadcast("alice", "hello all"),
    "take": lambda s: s.board.take("alice", "turn 1"),
    "show": lambda s: s.board.show("alice", [s.message]),
    "reply": lambda s: s.board.reply(s.question, "human", "because"),
    "write_note": lambda s: s.board.write_note("alice", "title", "text"),
    "write_note under a claim": lambda s: s.board.write_note("alice", "title", "text", claim=s.claim),
    "start_host": lambda s: s.board.start_host("three"),
    "heartbeat": lambda s: s.board.heartbeat(s.host),
    "stop_host": lambda s: s.board.stop_host(s.host),
    "spawn": lambda s: s.board.spawn("erin", roles=["coder"]),
    "seat a certain teammate": lambda s: s.board.seat(s.host, name="bob"),
    "seat whoever is free": lambda s: s.board.seat(s.host, count=1),
    "stop_teammate": lambda s: s.board.stop_teammate("alice", reason="enough"),
    "fail_teammate": lambda s: s.board.fail_teammate("alice", by="one", reason="a bug", seat=1),
    "prune": prune,
}


def without_times(value: Any) -> Any:
    """As plain data; of a time, only whether there is one."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: (inner is not None) if key in TIMES else without_times(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_times(inner) for inner in value]
    return value


def sources(first: int) -> Sources:
    numbers = itertools.count(first)
    return Sources(new_id=lambda: f"id-{next(numbers)}", chance=lambda: 0.5)


@dataclass
class Expected:
    """What a verb comes to when nothing goes wrong."""

    answer: Any
    log: list[Any]
    state: Any


class Stage:
    """A server with the scene set up once, in a database that is copied for every run."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.known: dict[Act, Expected] = {}
        self._scene: Scene | None = None

    async def scene(self, name: str, port: int | None = None) -> Scene:
        """The scene on a board of its own, reached by this port."""
        if self._scene is None:
            await self._copy("template1", "scene")
            board = await open_board(self._url("scene"), limits=LIMITS, patience=PATIENCE, sources=sources(1))
            self._scene = await set_up(board)
            await board.close()
        await self._copy("scene", name)
        url = self._url(name).replace(f":{self.server.port}", f":{port or self.server.port}")
        board = await open_board(url, limits=LIMITS, patience=PATIENCE, sources=sources(1_000))
        return dataclasses.replace(self._scene, board=board)

    def _url(self, database: str) -> str:
        return self.server.url.rsplit("/", 1)[0] + f"/{database}"

    async def _copy(self, template: str, name: str) -> None:
        connection = await asyncpg.connect(self.server.url)
        await connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        # Sessions of the template may take a moment to be gone.
        await connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = $1", template
        )
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        await connection.close()

    async def expected(self, act: Act) -> Expected:
        if act not in self.known:
            scene = await self.scene("whole")
            answer = without_times(await act(scene))
            self.known[act] = Expected(answer, await log_of(scene.board), await state_of(scene.board))
            await scene.board.close()
        return self.known[act]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    server = PostgresServer()
    try:
        server.start()
        yield Stage(server)
    finally:
        server.remove()


@pytest.fixture
async def wire(stage: Stage) -> AsyncIterator[Wire]:
    async with Wire(stage.server.port) as made:
        yield made


@pytest.fixture
async def scene(stage: Stage, wire: Wire) -> AsyncIterator[Scene]:
    """The scene on a board behind the wire."""
    made = await stage.scene("cut", wire.port)
    yield made
    assert await made.board.replayed_state() == await made.board.observed_state()
    await made.board.close()


async def log_of(board: Board) -> list[Any]:
    return without_times(await board.events())  # type: ignore[no-any-return]


async def state_of(board: Board) -> Any:
    return without_times(await board.observed_state())


@pytest.mark.parametrize("act", every(4, VERBS.values()), ids=VERBS)
async def test_the_answer_of_a_done_commit_is_lost_and_given_all_the_same(
    stage: Stage, wire: Wire, scene: Scene, act: Act
) -> None:
    expected = await stage.expected(act)
    wire.cut_at_commit = "after"
    async with asyncio.timeout(120):
        answer = without_times(await act(scene))
    assert wire.cuts == 1
    assert answer == expected.answer
    assert await log_of(scene.board) == expected.log
    assert await state_of(scene.board) == expected.state


@pytest.mark.parametrize("act", every(4, VERBS.values()), ids=VERBS)
async def test_a_commit_that_never_reached_the_server_is_made_again(
    stage: Stage, wire: Wire, scene: Scene, act: Act
) -> None:
    """Numbers given out by the lost try are gone, so only the kinds of events are compared."""
    expected = await stage.expected(act)
    wire.cut_at_commit = "before"
    async with asyncio.timeout(120):
        await act(scene)
    assert wire.cuts == 1
    assert [event.kind for event in await scene.board.events()] == [event["kind"] for event in expected.log]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_calls_that_share_a_transaction_all_get_their_answers(
    wire: Wire, scene: Scene, when: Literal["before", "after"]
) -> None:
    board = scene.board
    before = await board.last_event()
    wire.cut_at_commit = when
    async with asyncio.timeout(120):
        tasks = await asyncio.gather(*(board.put(f"one of many {number}") for number in range(20)))
        wire.cut_at_commit = when
        answers = await asyncio.gather(
            board.reserve(scene.claim, Amount(tokens=1)),
            board.record(scene.claim, turn(scene)),
            board.tell("alice", "bob", "hello"),
            board.write_note("alice", "title", "text"),
            board.raise_budget(scene.claim.task.root, Budget(tokens=5)),
        )
    assert wire.cuts == 2
    assert len({task.id for task in tasks}) == 20
    assert answers[4].tokens_max == 1_005
    kinds = sorted(event.kind for event in await board.events(before))
    assert kinds == ["budget_set", "noted", *["put"] * 20, "reserved", "shown", "spent", "told", "turn"]


async def test_a_repeat_of_a_follow_up_by_the_wire_does_not_count_as_one_by_the_teammate(
    wire: Wire, scene: Scene
) -> None:
    """The guard against asking for the same again and again must not trip over a lost answer."""
    for _ in range(LIMITS.repeats_max - 1):
        await scene.board.follow_up(scene.claim, "asked for before")
    wire.cut_at_commit = "after"
    async with asyncio.timeout(120):
        assert (await scene.board.follow_up(scene.claim, "asked for before")).title == "asked for before"


async def test_an_answer_lost_twice_in_a_row_is_given_all_the_same(wire: Wire, scene: Scene) -> None:
    async def cut_again() -> None:
        while wire.cuts < 2:
            wire.cut_at_commit = wire.cut_at_commit or "after"
            await asyncio.sleep(0.001)

    async with asyncio.timeout(120):
        cutting = asyncio.ensure_future(cut_again())
        task = await scene.board.put("only one")
        await cutting
    assert [each.title for each in await scene.board.list_tasks(after=task.id - 1)] == ["only one"]
