"""What changed between two events: a few sentences first, then the list. Pure."""

from __future__ import annotations

from collections import Counter

from ..board.replay import Entity
from ..board.roots import root_name
from ..text import counted, one_line
from ..types import ENDED
from ..view.json import Shape
from ..view.numbers import money
from .history import BoardHistory, BoardView
from .presence import open_requests
from .summaries import merge_of, title_of
from .why import sentence

_NAMED_MOST = 5
_TASKS_MOST = 1_000
_WAITS_FOR = {"human": "an answer", "plan": "approval of its plan", "tasks": "other tasks", "budget": "budget"}
_TOLD = ("done", "failed", "cancelled", "skipped")


def changes_shape(history: BoardHistory, after: int, until: int | None = None) -> Shape:
    """What the events after `after`, up to `until`, did."""
    was, now = history.at(after), history.at(until)
    changed = history.changed(was.seq, now.seq)
    moved = [each for each in sorted(changed["task"], key=int) if _state(was, each) != _state(now, each)]
    merged = [each for each in moved if _state(now, each) == "done" and merge_of(now.tasks[each])[1]]
    paid = now.payments()[len(was.payments()) :]
    tokens, microdollars = sum(each.tokens for each in paid), sum(each.microdollars for each in paid)
    return {
        "from": {"seq": was.seq, "at": was.at},
        "to": {"seq": now.seq, "at": now.at},
        "says": _says(was, now, moved, changed["teammate"], (tokens, microdollars)),
        "tasks": [_task(was, now, each) for each in moved[:_TASKS_MOST]],
        "more": len(moved) > _TASKS_MOST,
        "spent": {"tokens": tokens, "dollars": microdollars / 1_000_000, "turns": sum(each.turns for each in paid)},
        "merged": [
            {"task": int(each), "title": title_of(now, each), "commit": merge_of(now.tasks[each])[1]} for each in merged
        ],
        "events": now.seq - was.seq,
    }


def _state(view: BoardView, task: str) -> str | None:
    facts = view.tasks.get(task)
    return None if facts is None else str(facts["state"])


def _task(was: BoardView, now: BoardView, task: str) -> Shape:
    before, facts = _state(was, task), now.tasks[task]
    return {
        "id": int(task), "title": title_of(now, task), "was": before, "is": facts["state"],
        "says": _what_happened(before, facts),
    }  # fmt: skip


def _what_happened(before: str | None, facts: Entity) -> str:
    """How a task stands now, and since when: "was added, and is done by alice"."""
    state, who = facts["state"], facts["teammate"]
    says = {
        "claimed": f"is in the hands of {who}",
        "waiting": f"waits for {_WAITS_FOR.get(facts['waiting_for'], 'its turn')}",
        "done": f"is done{f' by {who}' if who else ''}" + (f" as {facts['outcome']}" if facts["outcome"] else ""),
        "failed": "failed",
    }.get(state, f"is {state}")
    why = f": {one_line(facts['reason'], 100)}" if facts["reason"] and state in ("failed", "skipped", "waiting") else ""
    again = "was opened again, and " if before in ENDED and state not in ENDED else ""
    return f"{'was added, and ' if before is None else again}{says}{why}"


def _says(was: BoardView, now: BoardView, moved: list[str], team: set[str], spent: tuple[int, int]) -> list[str]:
    """A handful of sentences, the shortest account first."""
    if was.seq == now.seq:
        return ["Nothing changed."]
    added = sum(_state(was, each) is None for each in moved)
    return [
        *_in_short(now, moved, spent),
        *([f"{counted(added, 'task')} {'was' if added == 1 else 'were'} added."] if added else []),
        *_failures(now, moved),
        *_held(was, now),
        *_left(was, now, team),
    ] or ["No task changed its state."]


def _in_short(now: BoardView, moved: list[str], spent: tuple[int, int]) -> list[str]:
    """4 tasks done, 1 failed, 2 wait for you; $0.41 spent."""
    ends = Counter(now.tasks[each]["state"] for each in moved)
    parts: list[str] = []
    for state in _TOLD:
        if ends[state]:
            parts.append(f"{ends[state]:,} {state}" if parts else f"{counted(ends[state], 'task')} {state}")
    if asked := sum(1 for _ in open_requests(now, now.at)):
        many = f"{asked:,}" if parts else counted(asked, "request")
        parts.append(f"{many} {'waits' if asked == 1 else 'wait'} for you")
    tokens, microdollars = spent
    cost = [f"{money(microdollars)} spent"] if microdollars else [f"{counted(tokens, 'token')} used"] if tokens else []
    said = [", ".join(parts)] if parts else []
    return [f"{'; '.join([*said, *cost])}."] if said or cost else []


def _failures(now: BoardView, moved: list[str]) -> list[str]:
    failed = [each for each in moved if now.tasks[each]["state"] == "failed"]
    said = [
        sentence(
            f"#{each} {one_line(title_of(now, each), 60)!r} failed: "
            f"{one_line(now.tasks[each]['reason'] or 'no reason was given', 120)}"
        )
        for each in failed[:_NAMED_MOST]
    ]
    rest = len(failed) - _NAMED_MOST
    return [*said, f"{counted(rest, 'other task')} failed too."] if rest > 0 else said


def _held(was: BoardView, now: BoardView) -> list[str]:
    held = [
        each for each, facts in now.budgets.items() if facts["held"] and not (was.budgets.get(each) or {}).get("held")
    ]
    return [
        f"The cap on {now.budgets[each]['held']} of {root_name(int(each))} was reached." for each in held[:_NAMED_MOST]
    ]


def _left(was: BoardView, now: BoardView, team: set[str]) -> list[str]:
    """Teammates that failed, and hosts that were lost."""
    said = []
    for name in sorted(team):
        facts = now.teammates[name]
        if facts["state"] == "failed" and (was.teammates.get(name) or {}).get("state") != "failed":
            said.append(sentence(f"{name} failed: {one_line(facts['reason'] or 'no reason was given', 120)}"))
    lost = [each for each, facts in now.hosts.items() if facts["state"] == "lost" and was.hosts.get(each) != facts]
    said += [f"{counted(len(lost), 'host')} {'was' if len(lost) == 1 else 'were'} lost."] if lost else []
    return said[:_NAMED_MOST]
