"""The log as people read it: one sentence for each event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.text import Text

from ..text import counted, length, one_line
from ..tools.task_tools import whole_result
from ..types import Event
from .numbers import clock, money, span

_TEXT_MOST = 120
_STYLES = {
    "put": "green", "ready": "green", "claimed": "cyan", "done": "bold green", "failed": "bold red",
    "retrying": "yellow", "waiting": "yellow", "released": "yellow", "cancelled": "yellow", "skipped": "yellow",
    "taken_back": "yellow", "budget_reached": "bold yellow", "cooled": "yellow", "failed_teammate": "bold red",
    "host_lost": "bold red", "unsandboxed": "bold red", "forfeited": "yellow",
    "turn": "dim", "reserved": "dim", "spent": "dim", "shown": "dim", "handover": "dim", "repeated": "dim",
}  # fmt: skip

# Internal steps, which only `dugnad log --all` shows.
QUIET = frozenset({"reserved", "spent", "turn", "shown", "ready", "handover", "merging", "repeated", "hosts_forgotten"})

Data = Mapping[str, Any]


def event_line(event: Event, *, dated: bool = False) -> Text:
    """One event as one line: time, task, actor, and what happened."""
    said = Text(clock(event.at, dated=dated), style="dim")
    said.append(f"  {f'#{event.task}' if event.task is not None else '':<6}", style="bold")
    said.append(sentence(event), style=_STYLES.get(event.kind, ""))
    return said


def sentence(event: Event) -> str:
    """What happened, as a sentence."""
    say = _SENTENCES.get(event.kind)
    actor = one_line(event.actor, 40)
    if say is None:  # A newer dugnad wrote this kind.
        return f"{actor}: {one_line(event.kind.replace('_', ' '), 40)}"
    if event.kind.startswith("host_"):
        return say(event.data)
    if event.kind.endswith("_teammate") and event.data.get("name") == event.actor:
        return f"{actor} {'left' if event.kind == 'stopped_teammate' else 'failed'}{_why(event.data)}"
    return f"{actor} {say(event.data)}"


def _quoted(data: Data, name: str = "text") -> str:
    return f'"{one_line(data.get(name) or "", _TEXT_MOST)}"'


def _why(data: Data) -> str:
    return f": {one_line(data['reason'], _TEXT_MOST)}" if data.get("reason") else ""


def _amount(data: Data) -> str:
    parts = [counted(data.get("tokens", 0), "token")]
    if data.get("microdollars"):
        parts.append(money(data["microdollars"]))
    if data.get("milliseconds"):
        parts.append(f"{data['milliseconds'] / 1000:,.1f} s")
    return ", ".join(parts)


def _host(data: Data) -> str:
    """A host's label as people read it: the machine and the process."""
    machine, _, rest = str(data.get("label") or "?").partition(":")
    pid = rest.partition(":")[0]
    return one_line(f"{machine}, process {pid}" if pid.isdigit() else machine, 60)


def _put(data: Data) -> str:
    whom = f" for {one_line(data['assignee'], 40)}" if data.get("assignee") else ""
    role = f" for a {one_line(data['role'], 40)}" if data.get("role") and not whom else ""
    return f"added {_quoted(data, 'title')}{whom or role}"


def _need_added(data: Data) -> str:
    outcome = f" to end as {one_line(data['outcome'], 40)}" if data.get("outcome") else ""
    return f"made it wait for #{data.get('needs')}{outcome}"


def _claimed(data: Data) -> str:
    if data.get("continues") is not None:
        return f"claimed it and continues, attempt {data.get('number', 1)}"
    return f"claimed it, attempt {data.get('number', 1)}"


def _done(data: Data) -> str:
    outcome = f" as {one_line(data['outcome'], 40)}" if data.get("outcome") else ""
    result = whole_result(data)
    return f"finished it{outcome}{f': {one_line(result, _TEXT_MOST)}' if result else ''}"


def _waiting(data: Data) -> str:
    if data.get("tasks"):
        return f"waits for {', '.join(f'#{task}' for task in data['tasks'])}"
    what = {"human": "the human", "plan": "approval of its plan", "budget": "budget", "tasks": "other tasks"}
    if data.get("waiting_for") not in what:
        return f"put it down, and it can go on at once{_why(data)}"
    return f"waits for {what[str(data['waiting_for'])]}{_why(data)}"


def _taken_back(data: Data) -> str:
    holder = one_line(data.get("teammate") or "a host", 40)
    back = f"failed it when {holder} was lost" if data.get("state") == "failed" else f"took it back from {holder}"
    return f"{back}{_why(data)}"


def _told(data: Data) -> str:
    to, kind = one_line(data.get("to") or "", 40), str(data.get("message_kind", "text"))
    if data.get("accepted") is not None:
        verdict = "agreed" if data["accepted"] else "refused"
        said = f": {_quoted(data)}" if data.get("text") else ""
        return f"answered {to} and {verdict}{said}"
    if kind == "shutdown":
        return f"asked {to} to shut down: {_quoted(data)}"
    verbs = {"question": "asked", "plan": "showed a plan to", "answer": "answered"}
    return f"{verbs.get(kind, 'told')} {to}: {_quoted(data)}"


def _pause(data: Data) -> str:
    milliseconds = data.get("milliseconds") or 0
    return f" for {length(milliseconds)}" if milliseconds >= 60_000 else ""


def _spawned(data: Data) -> str:
    roles = ", ".join(one_line(role, 40) for role in data.get("roles", ())) or "any role"
    return f"spawned {one_line(data.get('name') or '', 40)} ({roles}{', lead' if data.get('lead') else ''})"


def _caps(data: Data) -> str:
    caps = data.get("caps", {})
    parts = [counted(caps["tasks_max"], "task")] if caps.get("tasks_max") is not None else []
    parts += [counted(caps["tokens_max"], "token")] if caps.get("tokens_max") is not None else []
    parts += [money(caps["microdollars_max"])] if caps.get("microdollars_max") is not None else []
    parts += [span(caps["milliseconds_max"])] if caps.get("milliseconds_max") is not None else []
    return f"set the budget to {', '.join(parts) or 'no cap'}"


_SENTENCES: Mapping[str, Callable[[Data], str]] = {
    "put": _put,
    "repeated": lambda data: f"asked for the same task again ({data.get('repeats')} times so far)",
    "need_added": _need_added,
    "ready": lambda data: "made it ready" if data.get("state") == "ready" else "scheduled it: its needs are met",
    "assigned": lambda data: f"assigned it to {one_line(data.get('assignee') or 'anyone', 40)}",
    "claimed": _claimed,
    "done": _done,
    "failed": lambda data: f"failed the task{_why(data)}",
    "retrying": lambda data: f"failed, and the task will be tried again{_why(data)}",
    "waiting": _waiting,
    "released": lambda data: f"released it{_why(data)}",
    "cancelled": lambda data: f"cancelled it{_why(data)}",
    "skipped": lambda data: f"skipped it{_why(data)}",
    "retried": lambda data: "opened it again",
    "taken_back": _taken_back,
    "turn": lambda data: f"recorded turn {data.get('number')} ({data.get('turn_kind')}, {_amount(data)})",
    "handover": lambda data: "left a handover for later attempts",
    "merging": lambda data: "waits for its turn to merge" if data.get("merges_into") else "gave its turn to merge back",
    "reserved": lambda data: f"reserved {_amount(data)}",
    "spent": lambda data: f"spent {_amount(data)}",
    "forfeited": lambda data: (
        f"counted {_amount(data)} as spent: the reply was lost, and the provider may have billed it"
    ),
    "budget_reached": lambda data: f"held the goal: its cap on {one_line(data.get('held') or '', 40)} is reached",
    "budget_opened": lambda data: f"opened a budget for several tasks and {_caps(data)}",
    "budget_set": _caps,
    "cooled": lambda data: f"paused {one_line(data.get('pace') or '', 60)}{_pause(data)}{_why(data)}",
    "host_started": lambda data: f"a host started ({_host(data)})",
    "host_back": lambda data: "a host is back",
    "host_stopped": lambda data: f"a host stopped{f' ({_host(data)})' if data.get('label') else ''}",
    "host_lost": lambda data: f"a host was lost ({_host(data)})",
    "hosts_forgotten": lambda data: f"removed {counted(len(data.get('hosts', ())), 'old host')} from the list",
    "spawned": _spawned,
    "seated": lambda data: "joined a host",
    "stopped_teammate": lambda data: f"stopped {one_line(data.get('name') or '', 40)}{_why(data)}",
    "failed_teammate": lambda data: f"marked {one_line(data.get('name') or '', 40)} as failed{_why(data)}",
    "told": _told,
    "shown": lambda data: f"read {counted(len(data.get('messages', ())), 'message')}",
    "noted": lambda data: f"wrote the note {_quoted(data, 'title')}",
    "steered": lambda data: (
        f"({one_line(data.get('who') or 'somebody', 40)}, in a browser) {one_line(data.get('what') or '', _TEXT_MOST)}"
    ),
    "unsandboxed": lambda data: (
        f"allowed commands without a sandbox on {one_line(data.get('machine') or 'a machine', 60)}"
    ),
}
