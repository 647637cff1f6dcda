"""The live view of a run: the team, the tasks by state, the budget and the last events.

The caller gathers a `Snapshot`, and `picture` draws it; `picture` is pure. The view is for a terminal only: a pipe gets
lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..text import counted, one_line
from ..types import OPEN, Amount, Event, Message, Spending, Task, Teammate
from .events import event_line
from .numbers import span
from .tables import STATE_STYLES, STATUS_STYLES, how_to_answer, status_word, used

_ORDER = ("claimed", "waiting", "ready", "scheduled", "blocked", "failed", "skipped", "cancelled", "done")


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """What a teammate is doing now."""

    what: str  # A tool's name, or "asks MODEL". A second line is the last output of the tool.
    since: int
    turn: int


def note_doing(doing: dict[str, Doing], event: Event) -> None:
    """Learn from an event what its actor is doing. For teammates of other processes there is no other source."""
    before = doing.get(event.actor, Doing(what="", since=event.at, turn=1))
    if event.kind == "claimed":
        doing[event.actor] = Doing(what="begins", since=event.at, turn=1)
    elif event.kind == "reserved":
        doing[event.actor] = replace(before, what="asks its model", since=event.at)
    elif event.kind == "turn" and event.data.get("turn_kind") == "reply":
        doing[event.actor] = Doing(what="uses its tools", since=event.at, turn=before.turn + 1)
    elif event.kind in ("done", "failed", "released", "waiting", "retrying"):
        doing.pop(event.actor, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    now_ms: int
    title: str
    tasks: Sequence[Task]  # Of many tasks those that are open and those that ended last,
    counts: Mapping[str, int]  # and how many there are in each state.
    team: Sequence[Teammate]
    accounts: Sequence[Spending]
    doing: Mapping[str, Doing] = field(default_factory=dict)
    events: Sequence[Event] = ()
    requests: Sequence[Message] = ()  # Requests that wait for the person who watches.
    says: str = ""  # A message of the runtime: it stops, the board is in trouble, a larger team would not help.


def picture(seen: Snapshot, *, width: int, height: int) -> RenderableType:
    """As much of the snapshot as fits."""
    team = [member for member in seen.team if member.status != "stopped"]
    team.sort(key=lambda member: member.status != "working")  # Not all may fit, so those that work come first.
    accounts, requests = seen.accounts[:3], seen.requests[:2]
    # For the headline, the last line and a free one: a full screen would scroll.
    room = max(3, height - 3 - len(accounts) - 2 * len(requests))
    team_shown = min(len(team), 8, max(1, room // 3))
    events_shown = min(6, max(0, (room - team_shown) // 3))
    parts: list[RenderableType] = [
        _headline(seen, width),
        _team(seen, team[:team_shown], width),
        _tasks(seen, room - team_shown - events_shown, width),
    ]
    parts += [_budget(account, width) for account in accounts]
    parts += [_request(asked, width) for asked in requests]
    parts += [_cut(event_line(event), width) for event in seen.events[max(0, len(seen.events) - events_shown) :]]
    parts.append(
        _cut(Text(seen.says or "Ctrl-C stops the team in order; `dugnad run` continues later.", style="dim"), width - 2)
    )
    return Group(*parts)


def _cut(text: Text, width: int) -> Text:
    text.truncate(max(10, width - 1), overflow="ellipsis")
    return text


def _headline(seen: Snapshot, width: int) -> Text:
    """The title, and behind it "3 claimed · 2 ready · 5 done"."""
    said, between = Text(one_line(seen.title, 60), style="bold"), "   "
    for state in _ORDER:
        if number := seen.counts.get(state):
            said.append(between).append(f"{number} {state}", style=STATE_STYLES.get(state, ""))
            between = " · "
    return _cut(said, width)


def _team(seen: Snapshot, team: Sequence[Teammate], width: int) -> RenderableType:
    held = {task.teammate: task for task in seen.tasks if task.state == "claimed"}
    table = Table.grid(padding=(0, 2))
    for _ in range(3):
        table.add_column(no_wrap=True)
    room = max(10, width - 34)
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=room)
    for member in team:
        name = one_line(member.name, 14) + (" (lead)" if member.lead else "")
        table.add_row(
            Text(name, style="bold"),
            Text(", ".join(member.roles)[:12], style="dim"),
            Text(status_word(member.status), style=STATUS_STYLES.get(member.status, "")),
            _at_work(member, held.get(member.name), seen.doing.get(member.name), seen.now_ms, room),
        )
    return table


def _at_work(member: Teammate, task: Task | None, doing: Doing | None, now_ms: int, room: int) -> Text:
    if member.status == "failed":
        return Text(one_line(member.reason or "", 100), style="red")
    if task is None:
        return Text("")
    said = Text(f"#{task.id}")
    if doing is not None and doing.what:
        what, _, says = doing.what.partition("\n")
        # The last line of a command matters more than the title, which is in the list of tasks; its end matters most.
        most = max(12, room // 3) if says else 40
        said.append(f" turn {doing.turn}, {one_line(what, most)} {span(now_ms - doing.since)}", style="cyan")
        if says and (left := room - said.cell_len - 2) > 5:
            return said.append(f"  {_last_cells(one_line(says, 500), left)}")
    return said.append(f"  {one_line(task.title, 60)}", style="dim")


def _last_cells(text: str, most: int) -> str:
    """The end of a long line, measured in terminal columns."""
    if cell_len(text) <= most:
        return text
    end = ""
    for character in reversed(text):
        if cell_len(character + end) > most - 1:
            break
        end = character + end
    return f"…{end}"


def _tasks(seen: Snapshot, most: int, width: int) -> RenderableType:
    """First the tasks in work, then those still to do, then those that ended last."""
    if (every := sum(seen.counts.values())) > most:
        most -= 1  # For the line that says how many more there are.
    rank = {state: place for place, state in enumerate(_ORDER)}
    ahead = sorted((task for task in seen.tasks if task.state in OPEN), key=lambda task: (rank[task.state], task.id))
    ended = sorted((task for task in seen.tasks if task.ended), key=lambda task: -(task.ended_at or 0))
    shown = [*ahead[: max(1, most - min(3, len(ended)))], *ended]
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, justify="right")
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=max(10, width - 30))
    for task in shown[:most]:
        who = task.teammate or "" if task.state not in ("ready", "blocked", "scheduled") else (task.role or "")
        title = Text(one_line(task.title, 100))
        if task.state == "scheduled" and task.due_at is not None:
            title.append(f"  in {span(task.due_at - seen.now_ms)}", style="blue")
        if task.state in ("failed", "skipped", "waiting", "scheduled") and task.reason:
            title.append(f"  {one_line(task.reason, 80)}", style="yellow")
        state = Text(task.state, style=STATE_STYLES.get(task.state, ""))
        table.add_row(f"#{task.id}", state, Text(one_line(who, 14), style="dim"), title)
    if every > most:
        table.add_row("", "", "", Text(f"and {counted(every - len(shown[:most]), 'task')} more", style="dim"))
    return table


def _budget(account: Spending, width: int) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    bar = max(4, min(20, width // 6))
    grid.add_column(width=7)
    grid.add_column(width=bar)
    grid.add_column(no_wrap=True, overflow="ellipsis", max_width=max(10, width - 12 - bar))
    said = Text(used(account))
    if account.held is not None:
        said.append(f"  held: the cap on {account.held} is reached", style="bold yellow")
    grid.add_row(Text("budget", style="dim"), ProgressBar(total=1.0, completed=share_used(account), width=bar), said)
    return grid


def share_used(account: Spending) -> float:
    """The used share of the cap that is nearest, from 0 to 1."""
    amounts = ((getattr(account, f"{name}_max"), getattr(account.spent, name)) for name in Amount.__slots__)
    pairs = ((account.tasks_max, account.runs), *amounts)
    shares = [spent / cap if cap else 1.0 for cap, spent in pairs if cap is not None]
    return min(1.0, max(shares, default=0.0))


def _request(asked: Message, width: int) -> RenderableType:
    verb = how_to_answer(asked.kind, f"m{asked.id}")
    said = Text(f"{one_line(asked.sender, 20)} waits for you: {one_line(asked.text, 200)}", style="bold yellow")
    return Group(_cut(said, width), _cut(Text(f"    {verb}   (in another terminal)", style="green"), width))
