"""What must hold of a board after the storm, besides what the oracle of the log says: nothing lost, nothing twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from dugnad.board import Board
from dugnad.types import HUMAN, Amount, Event, Note, Task
from tests.board import oracle
from tests.chaos.chaos_host import NAMES

_OF_THE_ORACLE = ("put", "claim", "turn", "reserve", "settled as", "stale")


async def verdict(board: Board, acknowledged: Sequence[Sequence[object]], planned: Sequence[str]) -> list[str]:
    """Everything that is wrong; nothing, if all is as promised."""
    events = await oracle.read_log(board)
    tasks = await every_task(board)
    found = await oracle.verdict(board, [each for each in acknowledged if each[0] in _OF_THE_ORACLE])
    found += unheard(events, acknowledged)
    found += ends(tasks, planned)
    found += effects(events, await every_note(board), tasks)
    found += [f"{each.name} failed: {each.reason}" for each in await board.team() if each.status == "failed"]
    for root in {task.root for task in tasks}:
        if (spending := await board.budget(root)).reserved != Amount():
            found.append(f"under #{root} there is still reserved: {spending.reserved}")
    return found


async def every_task(board: Board) -> list[Task]:
    tasks: list[Task] = []
    while page := await board.list_tasks(after=tasks[-1].id if tasks else 0, page=1_000):
        tasks += page
    return tasks


async def every_note(board: Board) -> list[Note]:
    notes: list[Note] = []
    while page := await board.search_notes(before=notes[-1].id if notes else None, page=1_000):
        notes += page
    return notes


def unheard(events: Sequence[Event], acknowledged: Sequence[Sequence[object]]) -> Iterator[str]:
    """Messages and notes that somebody was told are on the board, and are not in the log."""
    seen = {("told", event.data["message"]) for event in events if event.kind == "told"}
    seen |= {("noted", event.data["note"]) for event in events if event.kind == "noted"}
    for each in map(tuple, acknowledged):
        if each[0] in ("told", "noted") and each not in seen:
            yield f"{each} was acknowledged and is not in the log"


def ends(tasks: Sequence[Task], planned: Sequence[str]) -> Iterator[str]:
    """Every planned task and every follow-up is there once, and done."""
    for task in tasks:
        if task.state != "done":
            yield f"#{task.id} {task.title} ended {task.state}: {task.reason}"
    there = Counter(task.title for task in tasks if not task.title.startswith("Answer "))
    wanted = Counter([*planned, *filter(None, map(follow_up_of, planned))])
    if there != wanted:
        yield f"tasks too many: {dict(there - wanted)}, too few: {dict(wanted - there)}"


def follow_up_of(title: str) -> str | None:
    kind, _, number = title.partition(" ")
    return f"more {number}" if kind == "work" and int(number.partition(".")[2]) % 5 == 0 else None


def effects(events: Sequence[Event], notes: Sequence[Note], tasks: Sequence[Task]) -> Iterator[str]:
    """What the tools did they did once; each message was shown, and once."""
    written = Counter(note.title for note in notes if note.author != HUMAN)
    titles = [task.title for task in tasks if not task.title.startswith("Answer ")]
    mended = [f"mended {task.title.partition(' ')[2]}" for task in tasks if task.check is not None]
    if written != Counter(titles + mended):
        more, fewer = written - Counter(titles + mended), Counter(titles + mended) - written
        yield f"notes too many: {dict(more)}, too few: {dict(fewer)}"
    told = [event for event in events if event.kind == "told" and event.data["to"] in NAMES]
    twice = {text: count for text, count in Counter(str(event.data["text"]) for event in told).items() if count > 1}
    if twice:
        yield f"messages sent twice: {twice}"
    shown: Counter[object] = Counter()
    for event in events:
        if event.kind == "shown":
            shown.update(event.data["messages"])  # type: ignore[arg-type]
    for event in told:
        number = event.data["message"]
        if shown[number] != 1:
            yield f"message {number} to {event.data['to']} was shown {shown[number]} times"
