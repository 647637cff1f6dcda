"""The board's rules, as pure functions: no database, no clock, no random numbers."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal, get_args

from ..errors import BadInput, BadText, Cycle, UnknownRequest, UnknownTask, UnknownTeammate
from ..settings import Limits
from ..types import ENDINGS, Amount, Budget, MessageKind, Need, NewTask, NewTurn, Pace, TaskKind, TurnKind
from .roots import root_name

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
# Names of others who speak on a board. No teammate may have such a name, or one that looks like it.
_LIKE = str.maketrans("013457i", "oleastl", "-_.")  # Characters that look alike, and those that hardly show.
_OURS = "human|dugnad|runtime".translate(_LIKE)  # Not even as a part of a name; the others occur in many good names.
_TAKEN = re.compile(
    f"(?:the|my|your|our)?(?:(?:{_OURS}|{'person|people|user|you|operator|board|system'.translate(_LIKE)})s?)+"
)
_NO_ROLE = re.compile("(?:the|my|your|our)?(?:human|board|lead)s?")
_PRIORITY_MAX = 1_000_000
TURNS_MAX = 1_000_000  # Of one attempt. The last number is that of a bug's traceback, the turn of kind "trouble".
_QUANTITY_MAX = 2**53  # Exact as a JSON number everywhere.


# Texts and numbers.


def text(what: str, value: str, *, characters: int | None = None, bytes_max: int | None = None) -> str:
    """The text itself, or BadText. Both databases must be able to store it and return it unchanged."""
    if "\0" in value:
        raise BadText(f"The {what} contains a NUL character, which a database cannot store; remove it.")
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise BadText(f"The {what} contains half of a surrogate pair, which is not text; remove it.") from None
    if characters is not None and len(value) > characters:
        raise BadText(f"The {what} has {len(value)} characters; shorten it to at most {characters}.")
    if bytes_max is not None and size > bytes_max:
        raise BadText(f"The {what} has {size} bytes, and at most {bytes_max} are allowed; keep the rest in a file.")
    return value


def name(what: str, value: str, limits: Limits) -> str:
    if not _NAME.fullmatch(value) or len(value) > limits.name_chars_max:
        raise BadText(
            f"{value!r} cannot be a{'n' * what.startswith('o')} {what}: use up to {limits.name_chars_max} letters, "
            "digits, '.', '_' and '-', beginning with a letter or digit."
        )
    if what == "role" and any(map(_NO_ROLE.fullmatch, _seen(value))):
        raise BadText(f"{value!r} cannot be a role: it is somebody's name on every board, or looks like one.")
    return value


def is_taken(value: str, *, lead: bool) -> bool:
    """Whether a name looks like one that a teammate may not have. Only a lead may be named `lead`."""
    whole, *parts = (_seen(each) for each in (value, *re.split("[-_.]", value)))
    ours = any(re.fullmatch(f"(?:{_OURS})s?", each) for part in parts for each in part)
    return ours or any(map(_TAKEN.fullmatch, whole)) or (not lead and "lead" in whole)


def _seen(word: str) -> set[str]:
    both = (word.casefold(), word.casefold().rstrip("0123456789-_."))
    return {each.translate(_LIKE).replace("rn", "m").replace("vv", "w") for each in both}


def context(teammate: str, task: Mapping[str, Any], *, keeps: bool) -> str | None:
    """The conversation that an attempt is a part of, if other tasks have the same: all tasks of a teammate that keeps
    its context, or one teammate's reviews under one root."""
    if keeps:
        return teammate
    return f"{teammate}, reviews of {task['root_id']}" if task["kind"] == "review" else None


def unknown_task(task: int) -> UnknownTask:
    return UnknownTask(f"There is no task #{task}; `dugnad tasks` lists them.")


def unknown_teammate(name: str) -> UnknownTeammate:
    return UnknownTeammate(f"There is no teammate {name!r}; `dugnad team` lists them.")


def unknown_request(request: str) -> UnknownRequest:
    return UnknownRequest(f"There is no request {request!r}; `dugnad inbox` lists the open ones.")


def quantity(what: str, value: float, *, scale: int = 1) -> int:
    """A number of whole units, none below zero."""
    if not 0 <= value * scale <= _QUANTITY_MAX:  # Also refuses nan.
        raise BadInput(f"{what} cannot be {said(value)}; give 0 or more.")
    return round(value * scale)


def count(value: int) -> int:
    if value < 1:
        raise BadInput(f"A count must be at least 1, not {said(value)}.")
    return value


def said(number: float) -> str:
    """A number for a sentence. Python refuses to print numbers of thousands of digits."""
    return str(number) if isinstance(number, float) or abs(number) < 10**30 else "so large a number"


def message_kind(kind: str) -> None:
    if kind not in get_args(MessageKind):
        raise BadInput(f"{kind!r} is not a kind of message; use one of: {', '.join(get_args(MessageKind))}.")
    if kind in REPLY_TO.values():
        raise BadInput(f"A message of kind {kind!r} answers a request; send it with `reply`.")


def new_turn(turn: NewTurn, limits: Limits) -> NewTurn:
    """The turn itself, if it is well formed."""
    text("turn", turn.body, bytes_max=limits.turn_bytes_max)
    amount(turn.used)
    if turn.kind not in get_args(TurnKind):
        raise BadInput(f"{turn.kind!r} is not a kind of turn; use one of: {', '.join(get_args(TurnKind))}.")
    if not 1 <= turn.number <= TURNS_MAX:
        raise BadInput(f"Turns are numbered from 1 to {TURNS_MAX}, not {said(turn.number)}.")
    if turn.covers is not None and not 1 <= turn.covers[0] <= turn.covers[1] < turn.number:
        raise BadInput(f"Turn {turn.number} can only cover a range of earlier turns.")
    return turn


def caps(budget: Budget | None) -> dict[str, int | None]:
    """The caps of a budget, by the columns of an account."""
    found: dict[str, int | None] = {}
    for column, kind, scale in (("tasks", "tasks", 1), *KINDS):
        cap = getattr(budget, kind, None)
        found[f"{column}_max"] = None if cap is None else quantity(f"A budget of {kind}", cap, scale=scale)
    return found


def new_task(task: NewTask, limits: Limits) -> NewTask:
    """The task itself, if it is well formed."""
    if not task.title.strip():
        raise BadText("A task needs a title; say in a few words what to do.")
    text("title", task.title, characters=limits.title_chars_max)
    text("body", task.body, bytes_max=limits.body_bytes_max)
    text("check", task.check or "", bytes_max=limits.body_bytes_max)
    text("key", task.key or "", characters=limits.key_chars_max)
    names = (("role", task.role), ("role", task.review))
    for what, value in (*names, *(("teammate's name", each) for each in (task.assignee, *shut_out(task.not_for)))):
        if value is not None:
            name(what, value, limits)
    text("commit", task.reviews_commit or "", characters=limits.key_chars_max)
    if kind(task) not in get_args(TaskKind) or (kind(task) == "review") != (task.reviews is not None):
        raise BadInput(f"A task is one of {', '.join(get_args(TaskKind))}; only a review names a task that it reviews.")
    if task.assignee in shut_out(task.not_for):
        raise BadInput(f"{task.title!r} is both for {task.assignee} and not for {task.assignee}; leave one out.")
    if not abs(task.priority) <= _PRIORITY_MAX:
        raise BadInput(f"A priority must be between -{_PRIORITY_MAX} and {_PRIORITY_MAX}, not {said(task.priority)}.")
    if len(task.needs) > limits.needs_max:
        raise BadInput(f"A task can have at most {limits.needs_max} needs, not {len(task.needs)}; combine some.")
    if sum(each is not None for each in (task.budget, task.parent, task.account)) > 1 or (task.account or -1) >= 0:
        raise BadInput("Only a goal has a budget; a task with a parent uses the budget of its goal, or its account.")
    quantity("A delay", task.delay_seconds, scale=1000)
    quantity("A not-before time", task.not_before or 0)
    caps(task.budget)
    seen = set()
    for need in needs(task):
        if need.task in seen:
            raise BadInput(f"The need for {said(need.task)} is given twice; give it once.")
        seen.add(need.task)
        if need.outcome is not None:
            name("outcome", need.outcome, limits)
    return task


def kind(task: NewTask) -> TaskKind:
    return task.kind or ("goal" if task.parent is None else "work")


def batch(tasks: Sequence[NewTask], limits: Limits) -> Sequence[NewTask]:
    """The tasks themselves, if each is well formed and refers only to entries that are there."""
    if len(tasks) > limits.batch_max:
        raise BadInput(f"One call can put at most {limits.batch_max} tasks, not {len(tasks)}; split them.")
    for place, task in enumerate(tasks):
        new_task(task, limits)
        if task.parent is not None and not -place <= task.parent != 0:
            raise BadInput(f"The parent of {task.title!r} must be a task on the board or an earlier entry.")
        for need in needs(task):
            if need.task == 0 or need.task < -len(tasks):
                raise BadInput(f"{task.title!r} needs entry {said(-need.task)}, and there are only {len(tasks)}.")
    return tasks


def shut_out(not_for: str | None) -> list[str]:  # Teammates that may not claim a task.
    return [] if not_for is None else not_for.split(",")


def needs(task: NewTask) -> list[Need]:
    return [edge(need) for need in task.needs]


def edge(need: Need | int) -> Need:
    """A plain number means: needs that task done."""
    given = need if isinstance(need, Need) else Need(need)
    return Need(given.task) if given.outcome == "done" else given


def outcome_word(outcome: str | None, limits: Limits) -> str | None:
    """The outcome itself, unless it is one of the words for how a task ended."""
    if outcome is None:
        return None
    if outcome in ENDINGS or outcome == "done":
        raise BadInput(f"{outcome!r} is a word for how a task ended and cannot be its outcome; choose another word.")
    return name("outcome", outcome, limits)


def content_key(task: NewTask) -> str:
    """Equal follow-ups have equal keys."""
    parts = [task.title, task.body, task.role or "", task.assignee or ""]
    if task.review is not None or task.not_for is not None:  # Other keys are as in earlier versions.
        parts += [task.review or "", task.not_for or ""]
    if task.network:
        parts.append("network")
    return "same:" + hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:32]


# Lanes: who may claim what.


def lane(role: str | None, assignee: str | None) -> str:
    return f"@{assignee}" if assignee is not None else role or ""


def lanes(teammate: str, roles: Iterable[str], lead: bool = False) -> tuple[str, ...]:
    """The lanes of a teammate: its own, those of its roles, and the one for anyone, which a lead does not have."""
    return (f"@{teammate}", *roles) if lead else (f"@{teammate}", *roles, "")


# Needs.


def judge(wanted: str | None, state: str, outcome: str | None) -> Literal["open", "met", "broken"]:
    """Whether a need for `wanted` is open, met or broken by a task in this state."""
    if state not in ("done", "failed", "cancelled", "skipped"):
        return "open"
    if wanted == "ended":
        return "met"
    if wanted in ENDINGS:
        return "met" if state == wanted else "broken"
    return "met" if state == "done" and wanted in (None, outcome) else "broken"


def broken_reason(needs_id: int, wanted: str | None, state: str, outcome: str | None) -> str:
    ended = state + (f" as {outcome}" if outcome else "")
    return f"needs #{needs_id}{f' to end as {wanted}' if wanted else ''}, which ended {ended}"


def circle(edges: Mapping[int, Iterable[int]]) -> list[int] | None:
    """A circle in the graph (task -> its needs), first task repeated at the end, or None."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as found:
        return list(reversed(found.args[1]))  # It goes from a need to the tasks that wait for it.
    return None


def refuse_circle(way: Sequence[object]) -> None:
    raise Cycle(
        "These tasks would wait for one another forever: " + " needs ".join(map(str, way)) + ". Leave one need out."
    )


def chains(edges: Mapping[int, Iterable[int]], longest: int) -> dict[int, int]:
    """The longest chain of dependents behind each task, in a graph without circles (task -> its needs)."""
    length: dict[int, int] = {}
    for task in reversed(list(TopologicalSorter(edges).static_order())):
        own = length.setdefault(task, 0)
        for needed in edges.get(task, ()):
            length[needed] = min(longest, max(length.get(needed, 0), own + 1))
    return length


# Claiming.


@dataclass(frozen=True, slots=True)
class Candidate:
    id: int
    lane: str
    priority: int
    chain: int
    root: int
    fresh: bool = True  # False: it continues a run that was charged before.

    @property
    def order(self) -> tuple[int, int, int]:
        return (-self.priority, -self.chain, self.id)


def match(
    askers: Sequence[tuple[str, ...]], candidates: Iterable[Candidate], runs_left: dict[int, int | None]
) -> tuple[dict[int, Candidate], list[Candidate]]:
    """Give each asker in turn the best candidate of its lanes. `runs_left` is counted down.

    Returns who got what, and the candidates that were passed over because their root has no run left. If there are
    any, askers that got nothing must ask again.
    """
    queues: dict[str, list[Candidate]] = {}
    for candidate in sorted(candidates, key=lambda each: each.order, reverse=True):
        queues.setdefault(candidate.lane, []).append(candidate)
    given: dict[int, Candidate] = {}
    passed: list[Candidate] = []
    for asker, own_lanes in enumerate(askers):
        while fronts := [queues[each] for each in own_lanes if queues.get(each)]:
            front = min(fronts, key=lambda queue: queue[-1].order)
            best = front.pop()
            left = runs_left[best.root]
            if may_begin(left, best):
                runs_left[best.root] = None if left is None else left - best.fresh
                given[asker] = best
            else:
                passed.append(best)
            if not front and any(each.lane == best.lane for each in passed):
                return given, passed  # The lane may have more tasks than were fetched, so the others must ask again.
            if asker in given:
                break
    return given, passed


def backoff_ms(tries: int, limits: Limits, chance: float) -> int:
    """The delay before the next attempt: doubled with each try, bounded, and with jitter."""
    seconds = min(limits.backoff_seconds * 2 ** min(tries, 30), limits.backoff_seconds_max)
    return max(1, int(seconds * 1000 * (0.5 + chance / 2)))


# Budgets.

KINDS = (("tokens", "tokens", 1), ("microdollars", "dollars", 1_000_000), ("milliseconds", "seconds", 1_000))


def too_much(budget: Mapping[str, Any], ask: Amount) -> tuple[str, str, bool] | None:
    """Why this cannot be reserved: the kind, a sentence, and whether other reservations may be given back."""
    for column, kind, scale in KINDS:
        cap, asked = budget[f"{column}_max"], getattr(ask, column)
        spent, reserved = budget[column], budget[f"{column}_reserved"]
        if cap is not None and spent + reserved + asked > cap:
            sentence = (
                f"Goal {root_name(budget['root_id'])} may spend {cap / scale:g} {kind}; {spent / scale:g} are spent, "
                f"{reserved / scale:g} are reserved, and {asked / scale:g} more do not fit."
            )
            return kind, sentence, spent + asked <= cap
    return None


def runs_left(budget: Mapping[str, Any]) -> int | None:
    """How many runs are left; None: any number; -1: not even begun work may go on."""
    if budget["held"] is not None:
        return 0 if budget["held"] == "tasks" else -1
    return None if budget["tasks_max"] is None else max(0, budget["tasks_max"] - budget["runs"])


def may_begin(left: int | None, candidate: Candidate) -> bool:
    """Whether a root with this many runs left can pay for this task."""
    return left is None or left >= candidate.fresh


def amount(given: Amount) -> Amount:
    for what in Amount.__slots__:
        quantity(f"An amount of {what}", getattr(given, what))
    return given


def provider_key(value: str, limits: Limits) -> str:
    if not value:
        raise BadText("A provider key needs a label, so that all its calls are counted together.")
    return text("provider key's label", value, characters=limits.key_chars_max)


def pace(given: Pace | None, limits: Limits) -> Pace | None:
    if given is not None:
        provider_key(given.key, limits)
        for most in (given.requests_per_minute, given.tokens_per_minute):
            if most is not None:
                count(most)
    return given


# Messages.

REPLY_TO: dict[str, MessageKind] = {"question": "answer", "plan": "plan_reply", "shutdown": "shutdown_reply"}


def rank(kind: str, sender: str, from_lead: bool) -> int:
    """The order of an inbox: shutdown, human, lead, teammates."""
    if kind == "shutdown":
        return 0
    if sender == "human":
        return 1
    return 2 if from_lead else 3
