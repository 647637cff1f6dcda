"""The health of a board, for people and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from ..board.records import Health
from ..telemetry.health import Trouble, ready_seconds
from .json import Shape, amount_shape, shape_of
from .numbers import money, span


def status_shape(now: Health, wrong: Sequence[Trouble]) -> Shape:
    amounts = {"spent": amount_shape(now.spent), "reserved": amount_shape(now.reserved)}
    cooling = [shape_of(each) for each in now.cooldowns]
    status = {**shape_of(now), **amounts, "cooldowns": cooling, "ready_seconds": ready_seconds(now)}
    return {"healthy": not wrong, "troubles": [shape_of(each) for each in wrong], "status": status}


def status_table(now: Health, wrong: Sequence[Trouble]) -> Table:
    table = Table.grid(padding=(0, 2))
    for each in wrong:
        table.add_row(Text("needs you", "yellow"), Text(f"{each.says} To go on: {each.mend}"))
    oldest = f"; the oldest has been ready for {span(ready_seconds(now) * 1000)}" if now.ready_since else ""
    cooling = "".join(f"; {each.key} cools down" for each in now.cooldowns)
    table.add_row("tasks", Text(_listed(now.tasks) + oldest))
    merging = "".join(f"; {number:,} to merge into {target}" for target, number in now.merging.items())
    table.add_row("hosts", Text(_listed(now.hosts) + merging))
    table.add_row("team", Text((_listed(now.team) or "nobody") + cooling))
    table.add_row("spent", Text(f"{money(now.spent.microdollars)}, {now.spent.tokens:,} tokens"))
    table.add_row("board", Text(f"schema {now.schema}, event {now.last_event:,}; it answers"))
    return table


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counts.items() if number or name in ("ready", "alive"))
