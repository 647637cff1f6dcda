"""What happened and what was found out: the log and the notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..errors import BadInput
from ..types import HUMAN
from .command import CommandContext, console, show, show_json, verb
from .parameters import TaskId

if TYPE_CHECKING:
    from ..types import Event

_LAST = 100  # Events shown when no beginning is given.
_LOOKED_AT = 2_000  # Events looked through for them; many are steps of the machinery.


@verb("log", only_reads=True, example="""
    dugnad log --follow
    dugnad log 12 --all
    dugnad log --after 0 --json
    """)  # fmt: skip
@click.argument("task_id", metavar="[ID]", required=False, type=TaskId())
@click.option("--follow", is_flag=True, help="Go on as things happen, until Ctrl-C.")
@click.option("--after", type=click.IntRange(min=0), metavar="N", help="Events after number N; 0 is the beginning.")
@click.option("--all", "everything", is_flag=True, help="Also each turn, reservation and the like; --json has them.")
async def log(call: CommandContext, *, task_id: int | None, follow: bool, after: int | None, everything: bool) -> None:
    """What happened, one line per event: the last of them, all of one task, or from a number on."""
    if task_id is not None:
        await call.board.find(task_id)
    lines = _EventPrinter(everything=everything, as_json=call.as_json)
    if after is None and task_id is None:
        last = await call.board.last_event()
        recent = await _page(call, max(0, last - _LOOKED_AT), None)
        for event in [event for event in recent if lines.wants(event)][-_LAST:]:
            lines.show(event)
        after = recent[-1].seq if recent else last
        if not follow:
            return
    after = after or 0
    if follow:
        async for event in call.board.follow(after, task=task_id):
            lines.show(event)
    while page := await call.board.events(after, task=task_id):
        for event in page:
            lines.show(event)
        after = page[-1].seq


async def _page(call: CommandContext, after: int, task: int | None) -> list[Event]:
    found: list[Event] = []
    while page := await call.board.events(after, task=task):
        found += page
        after = page[-1].seq
    return found


class _EventPrinter:
    """Prints events, each on its line; on a terminal the day stands above its events."""

    def __init__(self, *, everything: bool, as_json: bool) -> None:
        self._everything = everything
        self._as_json = as_json
        self._terminal = not as_json and console().is_terminal
        self._day = ""

    def wants(self, event: Event) -> bool:
        from ..view.events import QUIET

        return self._everything or self._as_json or event.kind not in QUIET

    def show(self, event: Event) -> None:
        from ..view.events import event_line
        from ..view.json import event_shape
        from ..view.numbers import day

        if not self.wants(event):
            return
        if self._as_json:
            show_json(event_shape(event))
            return
        if self._terminal and (today := day(event.at)) != self._day:
            self._day = today
            show(today)
        show(event_line(event, dated=not self._terminal))


@verb("notes", only_reads=lambda given: not given["write"], example="""
    dugnad notes login timeout
    dugnad notes --write "API limits" "At most 50 requests a minute."
    """)  # fmt: skip
@click.argument("words", nargs=-1)
@click.option("--write", nargs=2, metavar="TITLE TEXT", help="Write one, as the human.")
@click.option("--full", is_flag=True, help="Show each text as a whole.")
@click.option("--before", type=click.IntRange(min=1), metavar="N", help="Older than note N.")
@click.option("--limit", type=click.IntRange(min=1, max=1_000), default=20, show_default=True, help="How many.")
async def notes(
    call: CommandContext,
    *,
    words: tuple[str, ...],
    write: tuple[str, str] | None,
    full: bool,
    before: int | None,
    limit: int,
) -> None:
    """What the team found out, newest first; with words, the notes in which all of them occur."""
    from ..view.json import note_shape

    if write is not None:
        if words:
            raise BadInput("Either search for words, or --write a note.")
        if not write[0].strip():
            raise BadInput("A note needs a title; say in a few words what it is about.")
        note = await call.board.write_note(HUMAN, *write)
        call.answer({"note": note_shape(note)}, f"Noted, as number {note.id}.")
        return
    found = await call.board.search_notes(" ".join(words), before=before, page=limit)

    def picture() -> Any:
        from rich.console import Group
        from rich.text import Text

        from ..view.tables import notes_table

        if not found:
            return Text("No notes." if not words else "No note holds all of these words.")
        table = notes_table(found, most=10**9) if full else notes_table(found)
        if len(found) < limit:
            return table
        return Group(table, Text(f"\nThere may be more: dugnad notes --before {found[-1].id}", style="dim"))

    call.answer({"notes": [note_shape(note) for note in found]}, picture)
