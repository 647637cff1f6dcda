"""Records as tables, pages and lines: readable without colour and in eighty columns, and not wrapped in a pipe.

Texts of people and agents are `Text` objects without control characters: rich reads no markup in them, and a terminal
obeys nothing in them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from ..board.roots import budget_id, root_name
from ..text import counted, length, one_line, plain
from ..tools.task_tools import whole_result
from ..types import HUMAN, Attempt, Cooldown, Message, Need, Note, Spending, Task, Teammate
from .numbers import clock, money, span

STATE_STYLES = {
    "ready": "green", "claimed": "bold cyan", "waiting": "bold yellow", "blocked": "dim", "scheduled": "blue",
    "done": "dim green", "failed": "bold red", "cancelled": "dim", "skipped": "yellow",
}  # fmt: skip
STATUS_STYLES = {
    "working": "bold cyan", "idle": "green", "waiting": "yellow", "wanted": "blue", "stopped": "dim",
    "failed": "bold red", "lost": "bold red",
}  # fmt: skip
_WAITS_FOR = {"human": "for a human", "plan": "for a plan's approval", "tasks": "for tasks", "budget": "for budget"}
_LONG_PAUSE_MS = 60_000  # A pause of a provider key that people are told of.
_ASKING = ("question", "plan", "shutdown")


def tasks_table(tasks: Iterable[Task], *, now_ms: int) -> RenderableType:
    """One line for each task: number, state, teammate, age, title and reason."""
    table = _table("#", "state", "who", "when")
    table.columns[0].justify = "right"
    table.add_column("title", overflow="ellipsis")
    for task in tasks:
        table.add_row(
            str(task.id),
            Text(task.state, style=STATE_STYLES.get(task.state, "")),
            _who(task),
            _when(task, now_ms),
            _title(task),
        )
    return table


def task_page(
    task: Task, needs: Sequence[tuple[Need, str]], attempts: Sequence[Attempt], children: Sequence[Task], *,
    titles: Mapping[int, str] | None = None,
) -> RenderableType:  # fmt: skip
    """Everything about one task. `titles` are the known titles of the tasks that it needs."""
    parts: list[RenderableType] = [_heading(task), _facts(task)]
    parts += _section("body", task.body) if task.body else []
    if needs:
        parts.append(_head("needs"))
        parts += [_need(need, state, (titles or {}).get(need.task, "")) for need, state in needs]
    if attempts:
        parts.append(_head("attempts"))
        parts += [_attempt(attempt) for attempt in attempts]
    if children:
        parts.append(_head("follow-ups"))
        parts += [
            Text(f"  #{child.id} {child.state}: {one_line(child.title, 80)}", no_wrap=True, overflow="ellipsis")
            for child in children
        ]
    parts += _section("reason", task.reason) if task.reason else []
    parts += _section("result", result) if (result := whole_result(task)) else []
    if task.state == "waiting" and task.waiting_for in ("human", "plan"):
        verb = 'answer {} "..."' if task.waiting_for == "human" else "approve {}"
        parts.append(Text(f"\nIt waits for you: dugnad {verb.format(task.id)}", style="bold"))
    return Group(*parts)


def team_table(team: Iterable[Teammate], tasks: Iterable[Task]) -> RenderableType:
    """One line for each teammate, with its tasks. `tasks` are those that are claimed or waiting."""
    held: dict[str, list[Task]] = {}
    for task in tasks:
        if task.teammate and task.state in ("claimed", "waiting"):
            held.setdefault(task.teammate, []).append(task)
    table = _table("name", "roles", "status")
    table.add_column("doing", overflow="ellipsis")
    for member in team:
        roles = ", ".join(member.roles) or "any"
        table.add_row(
            Text(one_line(member.name, 40) + (" (lead)" if member.lead else ""), style="bold"),
            Text(one_line(roles + (", plans first" if member.plan else ""), 30)),
            Text(status_word(member.status), style=STATUS_STYLES.get(member.status, "")),
            _doing(member, held.get(member.name, [])),
        )
    return table


def messages_table(messages: Iterable[Message], *, waiting: Collection[int] | None = None) -> RenderableType:
    """Each message in full. Below a request that waits is the command that answers it.

    `waiting` are the ids of such requests. Without it, every request to the human counts as waiting.
    """
    parts: list[RenderableType] = []
    for message in messages:
        kind = "" if message.kind == "text" else f"  {message.kind.replace('_', ' ')}"
        about = f"  about #{message.task}" if message.task is not None else ""
        head = Text(f"m{message.id}", style="bold")
        head.append(f"  {one_line(message.sender, 40)} to {one_line(message.recipient, 40)}{kind}{about}")
        head.append(f"  {clock(message.sent_at, dated=True)}", style="dim")
        if message.accepted is not None:
            head.append("  agreed" if message.accepted else "  refused")
        parts.append(head)
        if message.text:
            parts.append(Indented(message.text))
        waits = message.recipient == HUMAN if waiting is None else message.id in waiting
        if waits and message.kind in _ASKING:
            # Texts of others are indented and this is not, so that they cannot imitate it.
            how = how_to_answer(message.kind, f"m{message.id}")
            reject = "" if message.kind == "question" else f'    or    dugnad reject m{message.id} --why "..."'
            parts.append(Text(how + reject, style="green"))
    return Group(*parts)


def how_to_answer(kind: str, message: str) -> str:
    """The command that answers a request of this kind."""
    return f'dugnad answer {message} "..."' if kind == "question" else f"dugnad approve {message}"


def notes_table(notes: Iterable[Note], *, most: int = 400) -> RenderableType:
    """Each note, with its text shortened to `most` characters."""
    parts: list[RenderableType] = []
    for note in notes:
        head = Text(one_line(note.title, 200), style="bold")
        about = f", #{note.task}" if note.task is not None else ""
        head.append(f"  {one_line(note.author, 40)}{about}, {clock(note.at, dated=True)}", style="not bold dim")
        parts.append(head)
        if note.text:
            parts.append(Indented(begin(plain(note.text), most)))
    return Group(*parts)


def begin(text: str, most: int) -> str:
    """The beginning of a long text, and how long the whole is."""
    return text if len(text) <= most else f"{text[:most].rstrip()} … ({len(text):,} characters in all)"


def budget_text(spending: Spending, task: Task | None) -> Text:
    """What a goal, or without one the tasks of a shared budget, spent of it, and how to go on when it is held."""
    title = one_line(task.title, 80) if task else "shared by the tasks that were put on it"
    said = Text(f"{root_name(spending.root)} {title}", style="bold")
    said.append(f"\n  {used(spending)}", style="not bold")
    kept = spending.reserved
    if kept.tokens or kept.microdollars or kept.milliseconds:
        said.append(f"\n  reserved for calls under way: {_amount(kept.tokens, kept.microdollars, kept.milliseconds)}")
    said.append(f"\n  {counted(spending.tasks, 'task')} in all", style="not bold dim")
    if spending.held is not None:
        more = {"tasks": "--tasks 10", "tokens": "--tokens 100000", "dollars": "--dollars 1", "seconds": "--minutes 10"}
        said.append(f"\n  Held: the cap on {spending.held} is reached. To go on, raise it: ", "yellow")
        said.append(
            f"dugnad budget {budget_id(spending.root)} --add {more.get(spending.held, '--tasks 10')}", "bold yellow"
        )
    return said


def paused_line(cooldowns: Iterable[Cooldown], now_ms: int) -> str:
    """How long the longest pause of a provider key lasts still, if it is a long one."""
    longest = max(cooldowns, key=lambda each: each.until, default=None)
    if longest is None or longest.until - now_ms < _LONG_PAUSE_MS:
        return ""
    return f"{plain(longest.key)} goes on in {length(longest.until - now_ms)}: {plain(longest.reason)}"


def used(spending: Spending) -> str:
    """12 of 20 tasks, $0.41 of $2.00, 81,200 tokens. Time only where it is capped, since a lost call counts its whole
    reservation, which is not the time it took. Dollars only where there are any."""
    spent = spending.spent
    tasks = f"{spending.runs:,} of {counted(spending.tasks_max, 'task')}" if spending.tasks_max is not None else (
        counted(spending.runs, "task run")
    )  # fmt: skip
    dollars = money(spent.microdollars) + _of(spending.microdollars_max, money)
    tokens = f"{spent.tokens:,}" + _of(spending.tokens_max, "{:,}".format) + " tokens"
    seconds = (
        f"{spent.milliseconds / 1000:,.0f}" + _of(spending.milliseconds_max, lambda ms: f"{ms / 1000:,.0f}") + " s"
    )
    priced = spending.microdollars_max is not None or spent.microdollars
    timed = spending.milliseconds_max is not None
    return ", ".join([tasks, *([dollars] if priced else []), tokens, *([seconds] if timed else [])])


def status_word(status: str) -> str:
    """A teammate's status as people read it."""
    return "will join" if status == "wanted" else status


def is_status(status: str) -> str:
    return "will join" if status == "wanted" else f"is {status}"


def _of(cap: int | None, show: Callable[[int], str]) -> str:
    return "" if cap is None else f" of {show(cap)}"


def _amount(tokens: int, microdollars: int, milliseconds: int) -> str:
    return f"{counted(tokens, 'token')}, {money(microdollars)}, {milliseconds / 1000:,.0f} s"


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column, no_wrap=True)
    return table


def _who(task: Task) -> Text:
    if task.teammate is not None and task.state not in ("ready", "blocked", "scheduled"):
        return Text(one_line(task.teammate, 20))
    if task.assignee is not None:
        return Text(f"for {one_line(task.assignee, 20)}", style="dim")
    return Text(f"any {one_line(task.role, 20)}" if task.role is not None else "", style="dim")


def _when(task: Task, now_ms: int) -> Text:
    if task.ended_at is not None:
        return Text(f"{span(now_ms - task.ended_at)} ago", style="dim")
    if task.due_at is not None and task.due_at > now_ms:
        return Text(f"in {span(task.due_at - now_ms)}", style="blue")
    return Text(span(now_ms - task.put_at), style="dim")


def _title(task: Task) -> Text:
    title = Text(one_line(task.title, 200), no_wrap=True, overflow="ellipsis")
    if task.state == "blocked":
        title.append(f"  (needs {counted(task.open_needs, 'more task')})", style="dim")
    elif task.state == "waiting":
        why = f": {one_line(task.reason, 80)}" if task.reason else ""
        title.append(f"  (waits {_WAITS_FOR.get(task.waiting_for or '', '')}{why})", style="yellow")
    elif task.state in ("failed", "skipped") and task.reason:
        title.append(f"  ({one_line(task.reason, 120)})", style="dim")
    elif task.outcome:
        title.append(f"  ({one_line(task.outcome, 40)})", style="dim")
    return title


def _heading(task: Task) -> Text:
    head = Text(f"#{task.id} ", style="bold")
    head.append(one_line(task.title, 200))
    head.append(f"  {task.state}", style=STATE_STYLES.get(task.state, ""))
    if task.waiting_for:
        head.append(f" {_WAITS_FOR[task.waiting_for]}", style=STATE_STYLES["waiting"])
    if task.outcome:
        head.append(f" as {one_line(task.outcome, 40)}", style="not bold")
    return head


def _facts(task: Task) -> RenderableType:
    rows = [
        ("held by" if task.state in ("claimed", "waiting") else "last held by", task.teammate),
        ("for", task.assignee or (f"any {task.role}" if task.role else None)),
        ("not for", (task.not_for or "").replace(",", ", ")),
        ("priority", task.priority or None),
        ("check", task.check),
        ("plan", "must be approved first" if task.plan else None),
        ("network", "the allowed hosts" if task.network else None),
        ("review", f"by another {task.review}" if task.review else None),
        ("parent", f"#{task.parent}" if task.parent is not None else None),
        ("goal" if task.root > 0 else "budget", root_name(task.root) if task.root != task.id else None),
        ("due", clock(task.due_at, dated=True) if task.due_at is not None else None),
        ("added", f"{clock(task.put_at, dated=True)} by {task.put_by}"),
        ("ended", clock(task.ended_at, dated=True) if task.ended_at is not None else None),
        ("tries", f"{task.tries} lost or failed, {task.claims} claims in all" if task.tries else None),
    ]
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, value in rows:
        if value is not None:
            table.add_row(f"  {name}", Text(plain(value)))
    return table


def _need(need: Need, state: str, title: str) -> Text:
    outcome = one_line(need.outcome or "done", 40)
    return Text(f"  #{need.task} {outcome} ({state}) {one_line(title, 80)}".rstrip(), no_wrap=True, overflow="ellipsis")


def _attempt(attempt: Attempt) -> Text:
    ended = f"{attempt.ended_as}" if attempt.ended_as else "under way"
    took = f" after {span(attempt.ended_at - attempt.claimed_at)}" if attempt.ended_at is not None else ""
    goes_on = " (continued)" if attempt.continues is not None else ""
    why = f": {one_line(attempt.reason, 200)}" if attempt.reason else ""
    return Text(
        f"  {attempt.number}. {one_line(attempt.teammate, 40)}{goes_on}, {clock(attempt.claimed_at, dated=True)}, "
        f"{ended}{took}{why}"
    )


def _doing(member: Teammate, tasks: Sequence[Task]) -> Text:
    said = "; ".join(
        f"#{task.id} {one_line(task.title, 60)}"
        + (f" (waits {_WAITS_FOR.get(task.waiting_for or '', '')})" if task.state == "waiting" else "")
        for task in tasks
    )
    if not said and member.reason and member.status in ("stopped", "failed", "lost"):
        said = one_line(member.reason, 120)
    return Text(said, no_wrap=True, overflow="ellipsis")


def _head(name: str) -> Text:
    return Text(f"\n{name}", style="dim")


def _section(name: str, text: str) -> list[RenderableType]:
    return [_head(name), Indented(text)]


class Indented:
    """Indented text, wrapped to the terminal. It is not padded: one very long line must not widen the others."""

    def __init__(self, text: str, style: str = "", *, columns: int = 2) -> None:
        self._lines = plain(text).split("\n")
        self._style = style
        self._columns = columns

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for each in self._lines:
            for piece in Text(each, style=self._style).wrap(console, max(10, options.max_width - self._columns)):
                yield Text(" " * self._columns).append_text(piece)
