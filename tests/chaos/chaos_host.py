"""Hosts as real processes for the storm: a team with a scripted model, which writes down what was acknowledged to it.

    python -m tests.chaos.chaos_host

It reads orders from its input, one JSON object a line. Each is carried out by a forked child, a new process with
nothing but the imported code, whose number is the answer; {"reap": number} waits for its end and answers how it ended.
The child lives until it is told to stop, or killed; and never longer than this process.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import json
import os
import random
import resource
import signal
import sys
import time
import traceback
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import dugnad.board.store.postgres
import dugnad.board.store.sqlite  # noqa: F401  Both are imported before the fork, not after each.
from dugnad import Team
from dugnad.board import Board
from dugnad.errors import BoardTrouble, StaleClaim
from dugnad.models.port import Price, Request, Said, ToolResult
from dugnad.models.scripted import ScriptedModel, Step
from dugnad.settings import Limits, TeamLimits
from dugnad.tools.built_in import BUILT_IN
from dugnad.types import Claim, Task

T = TypeVar("T")
LIMITS = Limits(
    lease_seconds=1.5, backoff_seconds=0.05, backoff_seconds_max=0.4, attempts_max=10_000, claims_max=10_000
)
TEAM_LIMITS = TeamLimits(idle_seconds=100_000, stop_seconds=2, sweep_seconds=0.5, cancel_seconds=2)
NAMES = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi")
OPEN_SECONDS_MAX = 120
RED = "the check is red"
PRICE = Price(input=1, output=5)


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a host is to be."""

    url: str
    folder: str
    name: str  # Of its files.
    knows_neighbours: bool
    fail_every: int = 0  # How many commits go well before the next one's writes fail; 0: all.


class Heard:
    """What this process was told by the board, a line each, written before it goes on."""

    def __init__(self, order: Order) -> None:
        self._folder = Path(order.folder)
        self._file = os.open(self._folder / f"{order.name}.heard", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def add(self, *what: object) -> None:
        _write(self._file, json.dumps(what).encode() + b"\n")

    def count(self, name: str) -> None:
        """One more of these; how many there are is the file's size."""
        file = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        _write(file, b".")
        os.close(file)


def _write(file: int, line: bytes) -> None:
    """Also while the board's writes are made to fail, which concerns the whole process: then at once after that."""
    while line:
        try:
            line = line[os.write(file, line) :]
        except OSError:
            os.sched_yield()


def listen_to(board: Board, heard: Heard) -> None:
    """Stand beside the board's verbs; what they do stays the same."""

    def beside(verb: str, note: Callable[[Any, tuple[Any, ...]], None]) -> None:
        original = getattr(board, verb)

        @functools.wraps(original)
        async def call(*given: Any, **fields: Any) -> Any:
            try:
                answer = await original(*given, **fields)
            except BoardTrouble:
                heard.count("troubles")
                raise
            except StaleClaim:
                claim = next(each for each in (*given, *fields.values()) if isinstance(each, Claim))
                heard.add("stale" if verb == "settle" else f"stale {verb}", claim.task.id, claim.epoch)
                raise
            note(answer, given)
            return answer

        setattr(board, verb, call)

    def claimed(claim: Claim | None, given: tuple[Any, ...]) -> None:
        if claim is not None:
            heard.add("claim", claim.task.id, claim.epoch)

    beside("claim", claimed)
    beside("settle", lambda how, given: heard.add("settled as", given[0].task.id, given[0].epoch, how))
    beside("record", lambda _, given: heard.add("turn", given[0].task.id, given[0].epoch, given[1].number))
    beside("reserve", lambda key, given: heard.add("reserve", key))
    beside("_put", lambda tasks, given: [heard.add("put", task.id) for task in tasks])
    beside("tell", lambda message, given: heard.add("told", message.id))
    beside("write_note", lambda note, given: heard.add("noted", note.id))
    beside("heartbeat", lambda held, given: None)


class FailingDisk:
    """The writing connection of a SQLite board. Now and then the kernel refuses to write what a commit is made of.

    By a limit on the size of files, which is the process's own: SQLite itself meets the error, at a place of the file
    that differs each time, sometimes with a part written. No compiler is needed for it, and no way into SQLite.
    """

    def __init__(self, inner: Any, board: Path, every: int, heard: Heard) -> None:
        self._inner, self._every, self._heard = inner, every, heard
        self._log = board.with_name(board.name + "-wal")
        self._calm = board.with_name("calm")
        self._commits = 0
        self._chance = random.Random(os.getpid())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def execute(self, statement: str, *given: Any) -> Any:
        if statement != "COMMIT":
            return self._inner.execute(statement, *given)
        self._commits += 1
        if self._commits % self._every or self._calm.exists():
            return self._inner.execute(statement)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        written = self._log.stat().st_size if self._log.exists() else 0
        resource.setrlimit(resource.RLIMIT_FSIZE, (self._chance.choice((1, written + 1, written + 5_000)), hard))
        try:
            return self._inner.execute(statement)
        except Exception:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            self._heard.count("failed")
            raise
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def script(request: Request) -> Step:
    """By the results heard so far: a note, a word to a peer, a follow-up now and then, mend what is red, finish."""
    seconds = zlib.crc32(f"{request.title} {request.turn}".encode()) % 40 / 1_000
    kind, _, number = request.title.partition(" ")
    if kind == "Answer":
        return Step(say="I have taken note.", seconds=seconds)
    place = int(number.partition(".")[2] or 0)
    heard = [message.name for message in request.messages if isinstance(message, ToolResult)]
    told_red = any(RED in message.text for message in request.messages if isinstance(message, Said))
    if "note" not in heard:
        calls: list[tuple[str, dict[str, Any]]] = [("note", {"title": request.title, "text": "This is how."})]
        if place % 3 == 1:
            peer = next(name for name in NAMES[place % 7 :] if name != request.teammate)
            calls.append(("send_message", {"to": peer, "text": f"About {request.title}: it goes well."}))
        return Step(calls=tuple(calls), seconds=seconds)
    if kind == "work" and place % 5 == 0 and "schedule_followup" not in heard:
        return Step(calls=(("schedule_followup", {"title": f"more {number}"}),), seconds=seconds)
    if told_red and heard.count("note") == 1:
        return Step(calls=(("note", {"title": f"mended {number}", "text": "It is green."}),), seconds=seconds)
    return Step(say=f"{request.title} is done.", seconds=seconds)


async def patiently(step: Callable[[], Awaitable[T]]) -> T:
    """Whoever starts hosts starts them again when the board is away; so do we, in one process."""
    deadline = time.monotonic() + OPEN_SECONDS_MAX
    while True:
        try:
            return await step()
        except BoardTrouble:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.2)


async def live(order: Order) -> None:
    told_to_stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told_to_stop.set)
    heard = Heard(order)

    async def check(task: Task) -> str | None:
        number = task.title.partition(" ")[2]
        found = await patiently(lambda: team.board.search_notes(f"mended {number}"))
        return None if any(note.title == f"mended {number}" for note in found) else "It is not mended."

    team = Team.open(
        order.url, model=ScriptedModel(script, price=PRICE), board_limits=LIMITS, limits=TEAM_LIMITS, seats_max=3,
        check=check, knows_neighbours=order.knows_neighbours,
    )  # fmt: skip
    await patiently(team.__aenter__)
    try:
        listen_to(team.board, heard)
        if order.fail_every:
            store: Any = team.board._store
            store.writer = FailingDisk(store.writer, store._path, order.fail_every, heard)
        await patiently(team.start)
        await told_to_stop.wait()
    finally:
        await team.__aexit__(None, None, None)


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG.


def begin(order: Order) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            die_with_parent()
            said = os.open(Path(order.folder) / f"{order.name}.said", os.O_WRONLY | os.O_CREAT)
            for stream in (1, 2):
                os.dup2(said, stream)
            asyncio.run(live(order))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return child


if __name__ == "__main__":
    die_with_parent()
    for each in BUILT_IN:
        assert each.spec.schema  # Made before the fork; it takes longer than all the rest.
    for line in sys.stdin:
        given = json.loads(line)
        if "reap" in given:
            print(os.waitstatus_to_exitcode(os.waitpid(given["reap"], 0)[1]), flush=True)
        else:
            print(begin(Order(**given)), flush=True)
