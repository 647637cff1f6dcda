"""Why a task is not running, and why nothing moves, as sentences with what a person can do. By the board's own rules.

Pure. A clause says how a task stands, without naming it: "is ready, but ...". A sentence is made of clauses.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator
from typing import NamedTuple

from ..board import rules
from ..board.replay import Entity
from ..board.roots import budget_id, root_name
from ..text import counted, length, one_line
from ..tools import policy
from ..tools.message_tools import GONE, may_come_back
from ..types import ENDED, HUMAN
from ..view.numbers import clock
from ..view.tables import how_to_answer
from .history import BoardView
from .presence import asked_for, cooling, is_alive, living_hosts, may_begin, member_of, status_of, tasks_behind

_MORE = {"tasks": "--tasks 10", "tokens": "--tokens 100000", "dollars": "--dollars 1", "seconds": "--minutes 10"}
_START = "`dugnad run` or `dugnad work` starts one"
_NAMED_MOST = 3
_LOOKED_AT = 10  # Tasks of which it is counted how many wait for them.
_DATED_MS = 12 * 3_600_000  # A moment that is further away is said with its day.


class Clause(NamedTuple):
    says: str
    moves: bool = False  # Somebody works on it, or can take it at once.
    order: int = 9  # Of several clauses the lowest is said first: what only a person can mend.


_PERSON, _BUDGET, _NO_HOST, _LOST, _NOBODY, _BUSY, _COOLING, _DUE = range(8)


def why_not(task: int | str, view: BoardView, now: int) -> str | None:
    """Why a task is not running; None: it runs, or it has ended."""
    facts = view.tasks[str(task)]
    if facts["state"] in ENDED:
        return None
    clause = _clause(str(task), facts, view, now)
    return None if facts["state"] == "claimed" and clause.moves else sentence(f"#{task} {clause.says}")


def why_still(view: BoardView, now: int) -> str | None:
    """Why nothing moves; None: something does, or nothing is left to do."""
    stuck: list[tuple[Clause, list[str]]] = []
    for tasks in _alike(view, now):  # What is claimed comes first: mostly that is the whole answer.
        clause = _clause(tasks[0], view.tasks[tasks[0]], view, now)
        if clause.moves:
            return None
        stuck.append((clause, tasks))
    if not stuck:
        return None
    lowest = min(clause.order for clause, _ in stuck)
    same = [(clause, tasks) for clause, tasks in stuck if clause.order == lowest]
    behind = {tasks[0]: len(tasks_behind(view, tasks[0])) for _, tasks in same[:_LOOKED_AT]}
    clause, tasks = max(same[:_LOOKED_AT], key=lambda item: behind[item[1][0]])
    others, after = sum(len(each) for _, each in same) - 1, behind[tasks[0]]
    more = [f"{counted(others, 'other task')} for such a reason"] if others else []
    more += [f"{counted(after, 'task')} behind it"] if after else []
    waits = f" ({' and '.join(more)} {'waits' if others + after == 1 else 'wait'} too)" if more else ""
    return sentence(f"Nothing moves: #{tasks[0]} {_titled(view, tasks[0])} {clause.says}{waits}")


def _alike(view: BoardView, now: int) -> Iterator[list[str]]:
    """The open tasks that wait for no other task, together where the board's rules cannot tell them apart. A board may
    have ten thousand of them."""
    yield from ([each] for each in view.tasks_in("claimed"))
    ready: dict[object, list[str]] = {}
    later: list[tuple[int, str]] = []
    for each, facts in sorted(view.tasks_in("ready", "scheduled").items(), key=lambda item: int(item[0])):
        if facts["state"] == "scheduled" and (facts["due_at"] or 0) > now:
            later.append((facts["due_at"], each))
        else:
            how = facts["lane"], facts["not_for"], facts["root"], facts["continues"] is None
            ready.setdefault(how, []).append(each)
    yield from ready.values()
    yield from ([each] for each, facts in view.tasks_in("waiting").items() if not _waits_for_tasks(facts))
    if later:
        yield [each for _, each in sorted(later)]  # The first one is the next that moves.


def _waits_for_tasks(facts: Entity) -> bool:
    waits = facts["state"] == "blocked" or (facts["state"] == "waiting" and facts["waiting_for"] == "tasks")
    return waits and any(state == "open" for _, state in facts["needs"].values())


def _titled(view: BoardView, task: str) -> str:
    return repr(one_line(view.tasks[task]["title"], 60))


def sentence(says: str) -> str:
    """With a full stop, unless it has one, or was cut off."""
    return says if says.endswith((".", "!", "?", "…")) else f"{says}."


def when(at: int, now: int) -> str:
    """A moment ahead: 14:32:05 (in 5m 10s)."""
    return f"{clock(at, dated=at - now > _DATED_MS)} (in {length(max(0, at - now))})"


def how_to_raise(root: int, budget: Entity) -> str:
    """That a budget is used up, and the command that raises it."""
    held = budget["held"] or "tasks"
    command = f"`dugnad budget {budget_id(root)} --add {_MORE.get(held, _MORE['tasks'])}`"
    return f"the cap on {held} of {root_name(root)} is reached: {command} raises it"


# How one task stands.


def _clause(task: str, facts: Entity, view: BoardView, now: int) -> Clause:
    if _waits_for_tasks(facts):
        return _behind(task, facts, view, now)
    if facts["state"] == "claimed":
        return _claimed(facts, view, now)
    if facts["state"] == "waiting":
        return _waiting(task, facts, view)
    if facts["state"] == "scheduled" and (facts["due_at"] or 0) > now:
        until = when(facts["due_at"], now)
        put_off = f"is put off until {until}: {one_line(facts['reason'] or '', 100)}"
        return Clause(put_off if facts["reason"] else f"is not due before {until}", order=_DUE)
    return _ready(facts, view, now)


def _behind(task: str, facts: Entity, view: BoardView, now: int) -> Clause:
    """Follow the open needs down to the tasks that hold everything up, and say how the worst of them stands."""
    direct = [need for need, (_, state) in facts["needs"].items() if state == "open"]
    ends: dict[str, Clause] = {}
    seen, ahead = {task}, list(direct)
    while ahead:
        need = ahead.pop()
        if need in seen or (other := view.tasks.get(need)) is None:
            continue
        seen.add(need)
        if _waits_for_tasks(other):
            ahead += [each for each, (_, state) in other["needs"].items() if state == "open"]
        else:
            ends[need] = _clause(need, other, view, now)
    if not ends:  # A need whose task has ended is judged with the next event.
        return Clause(f"waits for {_named(direct, facts)}")
    worst = min(ends, key=lambda each: (ends[each].moves, ends[each].order, int(each)))
    clause = ends[worst]
    if direct == [worst]:
        review = "its review " if view.tasks[worst]["reviews"] == int(task) else ""
        as_what = f" to end as {outcome}" if (outcome := facts["needs"][worst][0]) not in (None, "ended") else ""
        return clause._replace(says=f"waits for {review}#{worst} {_titled(view, worst)}{as_what}, which {clause.says}")
    first = f"waits for {_named(direct, facts)}"
    where = "of these" if worst in direct else "behind that"
    return clause._replace(says=f"{first}; {where}, #{worst} {_titled(view, worst)} {clause.says}")


def _named(needs: Collection[str], facts: Entity) -> str:
    """#4, #5 (approved) and 3 other tasks."""
    shown = [
        f"#{each}" + (f" ({outcome})" if (outcome := facts["needs"][each][0]) not in (None, "ended") else "")
        for each in sorted(needs, key=int)[:_NAMED_MOST]
    ]
    shown += [counted(len(needs) - _NAMED_MOST, "other task")] if len(needs) > _NAMED_MOST else []
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _claimed(facts: Entity, view: BoardView, now: int) -> Clause:
    who, host = facts["teammate"], facts["host"]
    if not is_alive(view, host, now):
        label = one_line((view.hosts.get(host) or {}).get("label") or "its host", 60).partition(":")[0]
        back = "another host takes it back when the lease has run out"
        back = back if living_hosts(view, now) else f"no other host is running; {_START}"
        return Clause(f"was in the hands of {who}, whose host ({label}) was lost; {back}", order=_LOST)
    if (pause := cooling(view, now).get((view.teammates.get(who) or {}).get("key") or "")) is not None:
        key, until = view.teammates[who]["key"], when(pause["until"], now)
        why = one_line(pause["reason"], 60)
        return Clause(
            f"is in the hands of {who}, and the provider key {key} cools down until {until}: {why}", order=_COOLING
        )
    return Clause(f"is in the hands of {who}", moves=True)


def _waiting(task: str, facts: Entity, view: BoardView) -> Clause:
    if facts["waiting_for"] == "budget":
        root, budget = facts["root"], view.budgets[str(facts["root"])]
        if budget["held"] is not None:
            return Clause(f"waits for budget, and {how_to_raise(root, budget)}", order=_BUDGET)
        return Clause(
            f"waits until other tasks give back what they reserved of the budget of {root_name(root)}", order=_BUDGET
        )
    found = asked_for(view, facts)
    plan = facts["waiting_for"] == "plan"
    if found is None:
        return Clause(f"waits for {'approval of its plan' if plan else 'an answer'}: `dugnad inbox` shows what it asks")
    each, asked = found
    who = asked["recipient"]
    gone = who in view.teammates and view.teammates[who]["state"] in GONE
    whose = "your" if who == HUMAN or gone else f"{who}'s"
    call = policy.is_question(asked["text"] or "")
    what = f"{whose} approval of {'its plan' if plan else 'a tool call'}" if plan or call else f"{whose} answer"
    says = f'waits for {what}: "{one_line(asked["text"] or "", 100)}"'
    how = how_to_answer("plan" if plan or call else "question", f"m{each}")
    return Clause(f"{says}; `{how}`{'' if whose == 'your' else ' answers instead'}", order=_PERSON)


def free_for(facts: Entity, view: BoardView, now: int) -> list[str]:
    """The teammates that can claim a ready task at once: they may, they work on nothing, and their host may work on its
    goal."""
    budget = view.budgets.get(str(facts["root"]))
    if budget is not None and not may_begin(budget, facts):
        return []
    here = _hosts_for(facts, view, now)
    free = ("idle", "waiting")  # One whose task waits may take another.
    return [
        name
        for name in _who_may(facts, view)
        if status_of(view, name, now) in free and view.teammates[name]["host"] in here
    ]


def _hosts_for(facts: Entity, view: BoardView, now: int) -> set[str]:
    """The running hosts that work on the goal of a task."""
    hosts = living_hosts(view, now).items()
    return {each for each, host in hosts if host.get("scope") is None or facts["root"] in host["scope"]}


def _ready(facts: Entity, view: BoardView, now: int) -> Clause:
    """Why nobody has claimed it. The order is that of what a person would have to do first."""
    budget = view.budgets.get(str(facts["root"]))
    if budget is not None and not may_begin(budget, facts):
        return Clause(f"is ready, but {how_to_raise(facts['root'], budget)}", order=_BUDGET)
    if free := free_for(facts, view, now):
        return Clause(f"is ready, and {free[0]} can take it at once", moves=True)
    if not living_hosts(view, now):
        return Clause(f"is ready, but no host is running; {_START}", order=_NO_HOST)
    if not _hosts_for(facts, view, now):
        other = "the hosts that run work on other goals only"
        return Clause(f"is ready, but {other}; `dugnad work` or `dugnad run --all` takes it up", order=_NO_HOST)
    may = _who_may(facts, view)
    status = {name: status_of(view, name, now) for name in may}
    here = [name for name in may if status[name] not in GONE]
    if not here:
        return Clause(f"is ready, but {_nobody(facts, may, view, now)}", order=_NOBODY)
    if busy := [name for name in here if status[name] == "working"]:
        return Clause(f"is ready, but {_all_busy(busy, facts)}", order=_BUSY)
    name = here[0]
    says = {"lost": f"the host of {name} was lost", "wanted": f"{name} has not joined a host yet"}
    return Clause(f"is ready, but {says.get(status[name], f'{name} works on other goals')}", order=_LOST)


def _who_may(facts: Entity, view: BoardView) -> list[str]:
    """The teammates that may claim it, by lane and `not_for`, also those that are gone."""
    return [
        name
        for name, member in view.teammates.items()
        if facts["lane"] in rules.lanes(name, member["roles"], bool(member["lead"]))
        and name not in rules.shut_out(facts["not_for"])
    ]


def _nobody(facts: Entity, gone: Collection[str], view: BoardView, now: int) -> str:
    """That no teammate who is there may claim it, and how to get one."""
    lane = facts["lane"]
    if lane.startswith("@"):
        name = lane[1:]
        if name not in view.teammates:
            return f"it is for {name}, and the team has no teammate of that name; `dugnad spawn {name}` adds it"
        reason = one_line(view.teammates[name]["reason"] or view.teammates[name]["state"], 80)
        return f"it is for {name}, who is gone ({reason}); `dugnad spawn {name}` brings it back"
    role = f" --role {shlex.quote(lane)}" if lane else ""
    with_role = f"with the role {lane}" if lane else "who takes work for anyone"
    if any(may_come_back(member_of(view, name, now)) for name in gone):
        comes = f"a running host brings one back, or `dugnad spawn {next(iter(gone))}` does"
        return f"every teammate {with_role} rests; {comes}"
    there = {name: each for name in rules.shut_out(facts["not_for"]) if (each := view.teammates.get(name)) is not None}
    barred = [name for name, each in there.items() if each["state"] not in GONE and lane in ("", *each["roles"])]
    if barred:
        only = f"teammate{'s' * (len(barred) > 1)} {with_role}"
        return f"it is not for {' and '.join(barred)}, the only {only}; `dugnad spawn NAME{role}` adds another"
    return f"no teammate {with_role} is there; `dugnad spawn NAME{role}` adds one"


def _all_busy(busy: Collection[str], facts: Entity) -> str:
    if facts["lane"].startswith("@"):
        return f"it is for {facts['lane'][1:]}, who works on another task"
    with_role = f" with the role {facts['lane']}" if facts["lane"] else ""
    if len(busy) == 1:
        return f"{next(iter(busy))}, the only teammate{with_role}, works on another task"
    return f"all {len(busy)} teammates{with_role} work on other tasks"
