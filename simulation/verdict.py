"""What is wrong with a board that nobody writes to any more: its log, its tables, and what its callers were told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from dugnad.board import Board
from dugnad.types import Event

from .oracle import SETTLED, faults, fold
from .promises import Fault


def unheard(events: Sequence[Event], acknowledged: Iterable[Sequence[object]], *, at_rest: bool = True) -> list[Fault]:
    """Acknowledgements the log does not bear out, and refusals it does not justify.

    ("put", task), ("claim", task, epoch), ("turn", task, epoch, number), ("reserve", key),
    ("settled as", task, epoch, how), and ("stale", task, epoch) for a settle that was refused as stale.
    """
    seen = fold(events, at_rest).seen
    over = {
        (event.task, event.data.get("epoch")) for event in events if event.kind in (*SETTLED, "taken_back", "cancelled")
    }
    found = []
    for each in map(tuple, acknowledged):
        if each[0] != "stale":
            if each not in seen:
                found.append(Fault(8, f"{each} was acknowledged and is not in the log"))
        elif ("settle", *each[1:]) in seen:
            found.append(Fault(4, f"{each} was refused as stale, and is in the log as settled"))
        elif each[1:] not in over:
            found.append(Fault(2, f"{each} was refused as stale, but nobody took it from its holder"))
    return found


def groundless(events: Sequence[Event]) -> int:
    """How many claims were taken back from a host that nobody had declared lost or stopped.

    A few may be: a lease can run out between looking for lost hosts and looking for their claims.
    """
    lost: set[object] = set()
    count = 0
    for event in events:
        if event.kind in ("host_lost", "host_stopped"):
            lost.add(event.data["host"])
        elif event.kind == "host_back":
            lost.discard(event.data["host"])
        elif event.kind == "taken_back":
            count += event.data["host"] not in lost
    return count


async def read_log(board: Board) -> list[Event]:
    events: list[Event] = []
    while page := await board.events(events[-1].seq if events else 0):
        events += page
    return events


async def verdict(board: Board, acknowledged: Iterable[Sequence[object]] = (), *, at_rest: bool = True) -> list[Fault]:
    """Everything that is wrong: what the log says by itself, and what `against_tables` finds."""
    events = await read_log(board)
    found = faults(events, at_rest=at_rest) + unheard(events, acknowledged, at_rest=at_rest)
    return found + await against_tables(board, events, at_rest=at_rest)


async def against_tables(board: Board, events: Sequence[Event], *, at_rest: bool = True) -> list[Fault]:
    """Where the log and the tables tell two stories."""
    found = []
    observed = await board.observed_state()
    try:
        replayed = await board.replayed_state()
    except KeyError as unknown:
        return [Fault(11, f"the log cannot be replayed: it speaks of {unknown}, of which it never told")]
    if replayed != observed:
        where = [
            f"{entity} {each}"
            for entity in observed
            for each in sorted(observed[entity].keys() | replayed[entity].keys())
            if observed[entity].get(each) != replayed[entity].get(each)
        ]
        found.append(Fault(11, f"the log does not replay to what the tables say: {', '.join(where[:5])}"))
    claims = {f"{event.task}.{event.data['epoch']}" for event in events if event.kind == "claimed"}
    if claims != observed["attempt"].keys():
        lone = sorted(claims ^ observed["attempt"].keys())
        found.append(Fault(11, f"claims without attempts, or attempts without claims: {lone}"))
    turns = Counter((event.task, event.data["epoch"]) for event in events if event.kind == "turn")
    for (task, epoch), count in turns.items():
        if len(await board.transcript(task or 0, int(str(epoch)))) != count:
            found.append(Fault(11, f"#{task} epoch {epoch}: the transcript does not hold the {count} turns of the log"))
    for number, state in observed["task"].items():
        if at_rest and state["state"] not in ("done", "failed", "cancelled", "skipped"):
            found.append(Fault(4, f"#{number} is {state['state']} in the tables"))
    return found
