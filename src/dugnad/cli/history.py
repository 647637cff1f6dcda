"""The commands `log` and `notes`."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Group
from rich.text import Text

from ..errors import BadInput
from ..types import HUMAN, Event
from ..view.json import shape_of
from ..view.numbers import day
from .command import CommandContext, console, show, show_json, verb
from .parameters import TaskId
from .tasks import all_pages

_LAST = 100  # Events that `dugnad log` shows.
_LOOKED_AT = 2_000  # Events read to find them; most are internal steps.


@verb("log", only_reads=True, example="""
    dugnad log --follow
    dugnad log 12 --all
    dugnad log --after 0 --json
    """)  # fmt: skip
@click.argument("task_id", metavar="[ID]", required=False, type=TaskId())
@click.option("--follow", is_flag=True, help="Show new events as they happen, until Ctrl-C.")
@click.option("--after", type=click.IntRange(min=0), metavar="N", help="Show events after number N; 0 shows all.")
@click.option("--all", "everything", is_flag=True, help="Also show turns, reservations and the like, as --json does.")
async def log(call: CommandContext, *, task_id: int | None, follow: bool, after: int | None, everything: bool) -> None:
    """Show what happened, one line per event: the last events, those of one task, or those after a number."""
    if task_id is not None:
        await call.board.find(task_id)
    lines = _EventPrinter(everything=everything, as_json=call.as_json)
    if after is None and task_id is None:
        last = await call.board.last_event()
        recent = await all_pages(call.board.events, "seq", max(0, last - _LOOKED_AT))
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


class _EventPrinter:
    """Prints one event a line. On a terminal the date is printed once, above the events of that day."""

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

        if not self.wants(event):
            return
        if self._as_json:
            show_json(shape_of(event))
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
@click.option("--write", nargs=2, metavar="TITLE TEXT", help="Write a note in your name.")
@click.option("--full", is_flag=True, help="Show whole texts.")
@click.option("--before", type=click.IntRange(min=1), metavar="N", help="Show notes older than note N.")
@click.option("--limit", type=click.IntRange(min=1, max=1_000), default=20, show_default=True, help="Notes to show.")
async def notes(
    call: CommandContext, *, words: tuple[str, ...], write: tuple[str, str] | None, full: bool, before: int | None,
    limit: int,
) -> None:  # fmt: skip
    """Show the team's notes, newest first. With words, show the notes that contain all of them."""
    if write is not None:
        if words:
            raise BadInput("Search for words or use --write, not both.")
        if not write[0].strip():
            raise BadInput("A note needs a title of a few words.")
        note = await call.board.write_note(HUMAN, *write)
        call.answer({"note": shape_of(note)}, f"Note {note.id} is written.")
        return
    found = await call.board.search_notes(" ".join(words), before=before, page=limit)

    def picture() -> Any:
        from ..view.tables import notes_table

        if not found:
            return Text("There are no notes." if not words else "No note contains all of these words.")
        table = notes_table(found, most=10**9) if full else notes_table(found)
        if len(found) < limit:
            return table
        return Group(table, Text(f"\nThere may be more notes: dugnad notes --before {found[-1].id}", style="dim"))

    call.answer({"notes": [*map(shape_of, found)]}, picture)
