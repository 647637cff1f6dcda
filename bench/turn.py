"""Measures what a turn costs beside a bare HTTP loop that sends the same bytes, in one run.

    python bench/turn.py [--json] [--quick]

cpu_ms_over_bare          CPU of one durable turn (messages looked for, budget reserved, model asked over HTTP with a
                          streamed reply, reply and cost recorded, one tool run, its result recorded; SQLite on disk)
                          less that of the bare loop, with no history (h0) and with a hundred messages of it (h100);
                          the median of a round, and of the rounds the best.
cpu_ms_per_call_at_1000   CPU of one such turn with 1,000 teammates in one process, all asking a model that takes 2 s.
kb_per_waiting_teammate   what each of those adds to the memory of the process while it waits.
mb_resident_at_1000       the memory of that whole process then.
first_request_cpu_ms      CPU of `dugnad run`, and of the programs it started, until its first request is at the model.
command_cpu_ms            CPU of the everyday commands on a board with a few tasks.
help_cpu_ms               CPU of `dugnad --help`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import psutil

sys.path.insert(0, str(Path(__file__).parent.parent))

from dugnad import Agent, Board, open_board, open_model, tool
from dugnad.models import Model
from dugnad.models.port import Reply, ToolCall, Usage
from dugnad.models.wire import ProviderWire
from dugnad.settings import AgentLimits, Limits
from dugnad.types import Claim, NewTask, NewTurn
from tests.models.provider_server import Answer, ProviderServer, Seen

ROOT = Path(__file__).parent.parent
DUGNAD = (sys.executable, "-m", "dugnad")
LIMITS = Limits(lease_seconds=3_600, lease_seconds_max=10**9, attempts_max=1_000, claims_max=1_000)
MODELS = {"anthropic": "anthropic:claude-sonnet-5-5", "openai": "openai-chat:gpt-4o"}
PATHS = {"anthropic": "/v1/messages", "openai": "/v1/chat/completions"}
HISTORY = (0, 100)


@contextmanager
def provider(delay: float) -> Iterator[str]:
    """The model, in a process of its own: every reply calls the tool `look`."""
    server = [sys.executable, "-m", "tests.models.provider_server", "--delay", str(delay)]
    command = [*server, "--text", "I look.", "--calls", 'look={"at":"it"}']
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


def open_one(kind: str, url: str) -> Model:
    return open_model(MODELS[kind], api_key="bench", base_url=url if kind == "anthropic" else f"{url}/v1")


marks: list[float] = []  # The CPU used until each call of the tool.


@tool(safe=True)
async def look(at: str) -> str:
    """Look at something."""
    marks.append(time.process_time())
    return f"It is there: {at}. " * 10


def agent_for(board: Board, teammate: Any, model: Model, turns: int) -> Agent:
    return Agent(board=board, teammate=teammate, model=model, tools=[look], limits=AgentLimits(turns_max=turns))


async def one_claim(board: Board, host: str, name: str, title: str, history: int) -> Claim:
    """A claimed task whose transcript has so many messages already."""
    await board.put(title)
    claim = await board.claim(name, host)
    assert claim is not None
    number = 0
    for pair in range(history // 2):
        reply = Reply(
            text="I look. " * 10,
            calls=(ToolCall(f"call_{pair}", "look", '{"at":"it"}'),),
            usage=Usage(input_tokens=100),
        )
        said: dict[str, Any] = {"packet": "Your task"} if not pair else {}
        said |= {"said": f"[turn {pair}]", "reply": body_of(reply)}
        for kind, body in (("reply", said), ("tool", {"place": 0, "text": "It is there. " * 20})):
            number += 1
            turn = NewTurn(number=number, kind=kind, body=json.dumps(body))  # type: ignore[arg-type]
            await board.record(claim, turn)
    return claim


def body_of(reply: Reply) -> dict[str, Any]:
    from dugnad.agent.conversation import reply_body

    return reply_body(reply)


async def turn_ms(kind: str, url: str, history: int, turns: int, bodies: dict[tuple[str, int], bytes]) -> float:
    """CPU of a turn: from one call of the tool to the next."""
    folder = Path(tempfile.mkdtemp(prefix="dugnad-bench-"))
    try:
        async with await open_board(f"sqlite:///{folder}/board.db", limits=LIMITS) as board:
            host = await board.start_host("bench")
            await board.spawn("alice")
            (alice,) = await board.seat(host)
            model = open_one(kind, url)
            costs = []
            each = 6 if history == 0 else turns  # No history stays none only for a few turns.
            for number in range(1 + turns // each):
                marks.clear()
                claim = await one_claim(board, host, "alice", f"look {number}", history)
                limit = each + history // 2 + 1
                with capturing(bodies, (kind, history)):
                    await agent_for(board, alice, model, limit).work(claim)
                steps = [after - before for before, after in pairwise(marks)]
                costs += steps[1:each]  # The first turn encodes what later ones reuse.
            await model.close()
            return statistics.median(costs) * 1000
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def capturing(bodies: dict[tuple[str, int], bytes], key: tuple[str, int]) -> Iterator[None]:
    """Keep the bytes of the first request with that history, for the bare loop."""
    if key in bodies:
        yield
        return
    original = ProviderWire.post

    async def post(self: ProviderWire, url: str, headers: Any, body: list[bytes], *more: Any) -> Any:
        bodies.setdefault(key, b"".join(body))
        return await original(self, url, headers, body, *more)

    ProviderWire.post = post  # type: ignore[method-assign]
    try:
        yield
    finally:
        ProviderWire.post = original  # type: ignore[method-assign]


async def bare_ms(kind: str, url: str, body: bytes, turns: int) -> float:
    """The same bytes, posted and the answer read, by aiohttp alone."""
    costs = []
    async with aiohttp.ClientSession() as session:
        for _ in range(turns):
            began = time.process_time()
            headers = {"content-type": "application/json"}
            async with session.post(f"{url}{PATHS[kind]}", data=body, headers=headers) as answer:
                await answer.read()
            costs.append(time.process_time() - began)
    return statistics.median(costs) * 1000


async def protocols(turns: int, rounds: int) -> dict[str, Any]:
    """Ours and the bare loop take turns. Of each the best round counts: what disturbs a round only adds to it."""
    found: dict[str, Any] = {kind: {"cpu_ms_over_bare": {}, "cpu_ms": {}, "cpu_ms_bare": {}} for kind in MODELS}
    bodies: dict[tuple[str, int], bytes] = {}
    ours: dict[tuple[str, int], list[float]] = {(kind, history): [] for kind in MODELS for history in HISTORY}
    bare: dict[tuple[str, int], list[float]] = {key: [] for key in ours}
    with provider(0.0) as url:
        for _ in range(rounds):
            for (kind, history), costs in ours.items():
                costs.append(await turn_ms(kind, url, history, turns, bodies))
                bare[kind, history].append(await bare_ms(kind, url, bodies[kind, history], turns))
    for (kind, history), costs in ours.items():
        floor = min(bare[kind, history])
        found[kind]["cpu_ms_over_bare"][f"h{history}"] = round(min(costs) - floor, 2)
        found[kind]["cpu_ms"][f"h{history}"] = round(min(costs), 2)
        found[kind]["cpu_ms_bare"][f"h{history}"] = round(floor, 2)
    return found


async def many(count: int, turns: int) -> dict[str, float]:
    """All of them in one process, waiting on a slow model."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    folder = Path(tempfile.mkdtemp(prefix="dugnad-bench-"))
    try:
        with provider(2.0) as url:
            async with await open_board(f"sqlite:///{folder}/board.db", limits=LIMITS) as board:
                return await waiting(board, url, count, turns)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def waiting(board: Board, url: str, count: int, turns: int) -> dict[str, float]:
    host = await board.start_host("bench")
    names = [f"mate{number}" for number in range(count + 1)]
    await asyncio.gather(*(board.spawn(name) for name in names))
    team = await board.seat(host, count=len(names))
    model = open_one("anthropic", url)
    await board.put_many([NewTask(title=f"task {number}") for number in range(len(names))])
    claims = {
        claim.teammate: claim for claim in await asyncio.gather(*(board.claim(name, host) for name in names)) if claim
    }
    first, *rest = team
    await agent_for(board, first, model, 1).work(claims[first.name])  # What everybody shares is loaded now.
    process = psutil.Process(os.getpid())
    before_kb = process.memory_info().rss / 1024
    began = time.process_time()
    agents = [agent_for(board, mate, model, turns) for mate in rest]
    work = asyncio.gather(*(agent.work(claims[agent.teammate.name]) for agent in agents))
    await asyncio.sleep(2.0 * turns)  # In the midst of the last call, or near it.
    while_waiting_kb = process.memory_info().rss / 1024
    await work
    cost = time.process_time() - began
    await model.close()
    return {
        "cpu_ms_per_call_at_1000": round(cost / (count * turns) * 1000, 2),
        "kb_per_waiting_teammate": round((while_waiting_kb - before_kb) / count, 1),
        "mb_resident_at_1000": round(while_waiting_kb / 1024, 1),
    }


def cpu_ms(*words: str, tries: int = 5, **where: Any) -> float:
    """CPU of the whole process, the interpreter's start included; the least of a few, for the noise only adds."""
    costs = []
    for _ in range(tries):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*DUGNAD, *words], check=True, stdout=subprocess.DEVNULL, **where)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        costs.append((after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime))
    return round(min(costs) * 1000, 1)


async def first_request_ms(project: Path, environment: dict[str, str]) -> float:
    """A run of one task, until its first request has arrived."""
    asked: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def answer(_: Seen) -> Answer:
        if not asked.done():
            used = psutil.Process(process.pid).cpu_times()
            asked.set_result(used.user + used.system + used.children_user + used.children_system)
        return Answer(calls=(("finish", '{"result": "done"}', None),))

    async with ProviderServer(answer) as server:
        environment = {**environment, "DUGNAD_MODEL": "openai:m", "DUGNAD_BASE_URL": f"{server.url}/v1"}
        process = await asyncio.create_subprocess_exec(
            *DUGNAD, "run", cwd=project, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        cost = await asyncio.wait_for(asked, 60)
        await process.wait()
    return round(cost * 1000, 1)


def commands() -> dict[str, Any]:
    """What a person waits for in a new project."""
    folder = Path(tempfile.mkdtemp(prefix="dugnad-bench-"))
    project = folder / "project"
    # Compiled modules must be kept, as they are after an installation.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = {**kept, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}
    where: dict[str, Any] = {"cwd": project, "env": environment}
    try:
        subprocess.run(["git", "init", "--quiet", str(project)], check=True, env=environment)
        user = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
        subprocess.run(["git", *user, "commit", "--quiet", "--allow-empty", "-m", "Begin"], check=True, **where)
        first = []
        for _ in range(4):
            cpu_ms("add", "Say hello", tries=1, **where)
            first.append(asyncio.run(first_request_ms(project, environment)))
        everyday = {"tasks": ["tasks"], "add": ["add", "Say hello"], "log": ["log"], "show": ["show", "1"]}
        return {
            "first_request_cpu_ms": min(first),
            "command_cpu_ms": {name: cpu_ms(*words, **where) for name, words in everyday.items()},
            "help_cpu_ms": cpu_ms("--help", **where),
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--quick", action="store_true", help="under a minute")
    given = parser.parse_args()
    found = asyncio.run(protocols(30, 5 if given.quick else 20))
    found |= asyncio.run(many(1_000, 3))
    found |= commands()
    if given.json:
        print(json.dumps(found))
        return
    for kind in MODELS:
        over, whole = found[kind]["cpu_ms_over_bare"], found[kind]["cpu_ms"]
        print(f"{kind:10} a turn costs {over['h0']} ms of CPU over the bare loop, {over['h100']} ms after 100 messages")
        print(f"{'':10} (in all {whole['h0']} and {whole['h100']} ms)")
    print(f"with 1,000 teammates in one process {found['cpu_ms_per_call_at_1000']} ms of CPU a turn")
    print(
        f"a waiting teammate takes {found['kb_per_waiting_teammate']} kB, all of it {found['mb_resident_at_1000']} MB"
    )
    print(f"a run asks its first model after {found['first_request_cpu_ms']} ms of CPU")
    print(", ".join(f"{name} takes {cost} ms" for name, cost in found["command_cpu_ms"].items()))
    print(f"help takes {found['help_cpu_ms']} ms")


if __name__ == "__main__":
    main()
