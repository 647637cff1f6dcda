"""Twenty small tasks, worked by three teammates with a real model that is far too small for them.

    twenty_tasks.py PYTHON [FOLDER]

PYTHON is an interpreter that has the packages of requirements.txt; the board stays in FOLDER, if one is given. The
model gives every odd reply there is: empty, cut off, malformed, calls of tools that do not exist. What it answers does
not matter here. What must hold: nothing crashes, every task ends (a person who looks in gives up what stands still), no
budget is passed, and the log replays to the state of the board.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from dugnad import Agent, Board, Task, drain, open_board, open_model, tool
from dugnad.models.port import Request, Said
from dugnad.settings import AgentLimits, Limits
from dugnad.tools.built_in import BUILT_IN
from dugnad.types import ENDED
from tests.real_model.relay import relay
from tests.real_model.serve import running
from tests.real_model.tasks import AUTO, INSISTING, PAGE, PLAIN, Asked

TEMPLATE = Path(__file__).parent / "tools.jinja"
TEAM = ("alice", "bob", "carol")
LIMITS = AgentLimits(
    output_tokens_max=80, turns_max=3, model_seconds_max=90, odd_replies_max=3, summary_tokens_max=300,
    retries_max=1, retry_seconds=0.2, patience_max=2, give_back_seconds=1,
)  # fmt: skip
BOARD_LIMITS = Limits(attempts_max=2, backoff_seconds=0.2, cooldown_seconds=0.5)
# All of them would fill half of such a model's window.
FEW = tuple(each for each in BUILT_IN if each.name in ("schedule_followup", "note", "finish", "ask_human", "compact"))
SOON_SECONDS = 5
ROUNDS = 4  # Of work, and of a person looking in.
SLOTS = 2
THREADS = 1  # With two, each waits for the other at every step, and a busy neighbour makes it ten times slower.


@tool(safe=True)
def read_page(page: int) -> str:
    """Read a page of the yearbook.

    Args:
        page: Its number, from 1.
    """
    return f"Page {page}. {PAGE * 60}"


async def put(board: Board, asked: Sequence[Asked]) -> dict[int, str]:
    """Put the tasks on the board; their kinds, by root."""
    ids: dict[str, int] = {}
    for each in asked:
        needs = (ids[each.after],) if each.after else ()
        made = await board.put(each.title, body=each.body, budget=each.budget, needs=needs)
        ids[each.title] = made.id
    return {ids[each.title]: each.kind for each in asked}


async def warm_up(url: str) -> None:
    """Let every slot of the server read the tools once: it keeps them, and no task's budget has to pay for it."""
    specs = tuple(each.spec for each in (*FEW, read_page))
    request = Request(system="", messages=(Said("Hello."),), tools=specs, output_tokens_max=1, seconds_max=600)
    model = open_model("openai:smollm2", base_url=url)
    await asyncio.gather(*(model.ask(request) for _ in range(SLOTS)), return_exceptions=True)
    await model.close()


async def work(board: Board, url: str, window_tokens: int) -> int:
    """Let the team work until nothing is left that it could do soon. The number of attempts."""
    model = open_model("openai:smollm2", base_url=url, window_tokens=window_tokens)
    agents = [
        Agent(
            board=board, teammate=await board.spawn(name), model=model, tools=[read_page], built_in=FEW, limits=LIMITS
        )
        for name in TEAM
    ]
    attempts = 0
    try:
        while True:
            attempts += len(await drain(board, agents))
            now = time.time() * 1000  # The board's clock, near enough: both are on this machine.
            scheduled = await board.list_tasks(states=["scheduled"])
            due = [task.due_at or 0 for task in scheduled if not (await board.budget(task.root)).held]
            if not due or min(due) - now > SOON_SECONDS * 1000:
                return attempts
            await asyncio.sleep(0.2)
    finally:
        await model.close()


async def as_a_human(board: Board) -> int:
    """Answer what was asked, and give up what stands still. The number of tasks that may go on."""
    answered = 0
    for asked in await board.requests():
        if "turns were taken" in asked.text or asked.request is None:
            continue
        await board.reply(asked.request, "human", "Green.")
        answered += 1
    for task in await board.list_tasks(states=["waiting", "ready", "scheduled", "blocked"]):
        held = (await board.budget(task.root)).held
        if task.state in ("waiting", "scheduled") or held:
            late = "it is for later than today" if task.state == "scheduled" else "it took too many turns"
            await board.cancel(task.id, why=f"the budget's {held} are spent" if held else late)
    return answered


async def all_phases(board: Board, python: str) -> tuple[dict[int, str], list[str]]:
    """The three ways of asking, one after another; what kind each root is, and what crashed."""
    kinds: dict[int, str] = {}
    crashes: list[str] = []

    async def phase(name: str, asked: Sequence[Asked], url: str, window_tokens: int) -> None:
        began = time.monotonic()
        kinds.update(await put(board, asked))
        attempts = 0
        try:
            for _ in range(ROUNDS):
                attempts += await work(board, url, window_tokens)
                if not await as_a_human(board):
                    break
        except Exception:
            crashes.append(traceback.format_exc())
        took = time.monotonic() - began
        print(f"{name}: {len(asked)} tasks, {attempts} attempts, {took:.0f} seconds", flush=True)

    with running(python, 4096, SLOTS, THREADS) as url:
        await phase("its own template", PLAIN, url, 4096)
    with running(python, 8192, SLOTS, THREADS, TEMPLATE) as url:
        await warm_up(url)
        async with relay(url) as insisting:
            await phase("tools, insisted on", INSISTING, insisting, 8192)
        await phase("tools, as it likes", AUTO, url, 8192)
    return kinds, crashes


# What came of it.


async def standing(board: Board, task: Task) -> str | None:
    """How a task ended or why it waits, for a person to read. None: nobody could tell."""
    if task.ended:
        words = task.outcome or task.reason or task.result
        return f"{task.state}: {words}" if words else None
    held = (await board.budget(task.root)).held
    if held:
        return f"parked: the budget's {held} are spent"
    if task.state == "waiting":
        if task.request:
            asked, _ = await board.request(task.request)
            return f"waiting: {asked.recipient} was asked: {asked.text}"
        return f"waiting for {task.waiting_for}: {task.reason or 'see its children'}"
    if task.state == "ready" and (task.role or task.assignee):
        return f"ready, for {task.assignee or task.role}"
    if task.state == "scheduled":
        return "scheduled, for later"
    needs = [f"#{need.task}, which is {state}" for need, state in await board.needs_of(task.id) if state not in ENDED]
    return f"{task.state}: needs {', '.join(needs)}" if needs else None


async def odd_replies(board: Board, tasks: Sequence[Task]) -> Counter[str]:
    found: Counter[str] = Counter()
    for task in tasks:
        for attempt in await board.attempts(task.id):
            for turn in await board.transcript(task.id, attempt.epoch):
                found.update(_oddities(turn.kind, json.loads(turn.body)))
    found["pauses of the server"] = sum(event.kind == "cooled" for event in await all_events(board))
    return found


def _oddities(kind: str, body: dict) -> list[str]:
    if kind == "reply":
        reply = body["reply"]
        names = ["replies", *["tool calls"] * len(reply["calls"])]
        names += ["cut off"] if reply["stop"] == "length" else []
        names += ["empty"] if not reply["calls"] and not reply["text"].strip() else []
        return names
    if kind == "tool" and body.get("bad"):
        return ["unknown tool" if body["text"].startswith("Error: There is no tool") else "malformed call"]
    if kind == "tool" and body["text"].startswith("Error:"):
        return ["refused by the tool"]
    if kind == "summary":
        return ["summaries" if "summary" in body else "shortenings"]
    return []


async def all_events(board: Board) -> list:
    found: list = []
    while page := await board.events(after=found[-1].seq if found else 0):
        found += page
    return found


async def troubles(board: Board, kinds: dict[int, str], tasks: Sequence[Task]) -> list[str]:
    """Every promise that does not hold."""
    found = []
    for task in tasks:
        if not task.ended or await standing(board, task) is None:
            found.append(f"#{task.id} {task.title!r} is {task.state}, and nobody can tell why")
    for root in kinds:
        account = await board.budget(root)
        if account.tasks_max is not None and account.runs > account.tasks_max:
            found.append(f"#{root} had {account.runs} runs of {account.tasks_max}")
        for unit, most in (("tokens", account.tokens_max), ("milliseconds", account.milliseconds_max)):
            used = getattr(account.spent, unit) + getattr(account.reserved, unit)
            if most is not None and used > most:
                found.append(f"#{root} used {used} of {most} {unit}")
    if await board.replayed_state() != await board.observed_state():
        found.append("the log does not replay to the state of the board")
    return found


async def main(python: str, kept: str | None = None) -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        async with await open_board(f"sqlite:///{kept or temporary}/board.db", limits=BOARD_LIMITS) as board:
            kinds, crashes = await all_phases(board, python)
            tasks = await board.list_tasks(page=1_000)
            print()
            for task in tasks:
                kind = kinds.get(task.id, f"put by {task.put_by}")
                words = " ".join((await standing(board, task) or "?").split())
                print(f"#{task.id:<3} {kind:18} {task.title[:30]:30} {words[:110]}")
            print()
            for kind, number in sorted(Counter((kinds[t.root], t.state) for t in tasks).items()):
                print(f"{kind[0]:18} {kind[1]:10} {number}")
            print("\n" + ", ".join(f"{name}: {number}" for name, number in (await odd_replies(board, tasks)).items()))
            found = [*crashes, *await troubles(board, kinds, tasks)]
    for each in found:
        print(f"TROUBLE: {each}")
    print(f"{len(tasks)} tasks, {len(found)} troubles, {time.monotonic() - began:.0f} seconds.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
