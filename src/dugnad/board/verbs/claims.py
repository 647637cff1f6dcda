"""Claiming: the only way to get hold of a task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import BudgetSpent, DugnadError, HostLost, NotReady, StoppedTeammate
from ...types import Claim
from .. import records, rules
from ..roots import budget_id, root_name
from ..rules import Candidate
from ..store.seam import Noting, Row, Tx, as_json, event, ids_json, made_ready
from .budgets import hold, hold_root
from .fence import hold_tasks

_ROUNDS_MAX = 8
_SHELVE_MAX = 2_000  # Tasks of held roots that are shelved in one transaction.


class LookAgain:
    """The answer of a claim that has only shelved tasks so far: ask again, in a new transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    teammate: str
    host: str
    task: int | None
    key: str
    may_repeat: bool  # The caller chose the key, so this may be a repeated call.
    root: None = None  # A claim knows its budget only after it has found its task.


Answer = Claim | LookAgain | DugnadError | None
Lanes = Mapping[int, tuple[str, ...]]  # By the place of the asker in the batch.


@dataclass(slots=True)
class _Round:
    """The claims of one transaction: who asks, and who gets what. Askers are named by their place in `asks`."""

    tx: Tx
    asks: Sequence[Ask]
    scopes: dict[int, str | None] = field(default_factory=dict)
    keeping: set[int] = field(default_factory=set)  # Askers that keep one conversation for all their tasks.
    grants: dict[int, Candidate] = field(default_factory=dict)
    budgets: dict[int, dict[str, Any]] = field(default_factory=dict)
    answers: dict[int, Answer] = field(default_factory=dict)

    def runs_left(self, root: int) -> int | None:
        """Of the root's account, with the claims of this transaction charged."""
        own = sum(grant.root == root and grant.fresh for grant in self.grants.values())
        return rules.runs_left({**self.budgets[root], "runs": self.budgets[root]["runs"] + own})


async def claim(tx: Tx, asks: Sequence[Ask]) -> list[Answer]:
    this = _Round(tx, asks)
    this.answers.update(await _claimed_before(tx, asks))
    first = {ask.key: place for place, ask in reversed(list(enumerate(asks)))}
    lanes = {place: own for place, own in (await _lanes(this)).items() if first[asks[place].key] == place}
    for row in await tx.fetch("promote_due"):
        made_ready(tx, {**row, "state": "ready"})
    if named := {place: own for place, own in lanes.items() if asks[place].task is not None}:
        await _named(this, named)
    for scope in dict.fromkeys(this.scopes[place] for place in lanes):
        unnamed = {at: own for at, own in lanes.items() if at not in named and this.scopes[at] == scope}
        while unnamed:
            unnamed = await _next(this, unnamed, scope)
    await _take(this)
    return [this.answers.get(place, this.answers.get(first[ask.key])) for place, ask in enumerate(asks)]


async def _claimed_before(tx: Tx, asks: Sequence[Ask]) -> dict[int, Claim]:
    """Claims that an earlier try of the same call made, whose answer was lost."""
    if not tx.repeated and not any(ask.may_repeat for ask in asks):
        return {}
    rows = await tx.fetch("attempts_by_key", keys=[{"key": ask.key} for ask in asks])
    if not rows:
        return {}
    tasks = {row["id"]: row for row in await tx.fetch("tasks_by_id", ids=ids_json(row["task_id"] for row in rows))}
    made = {row["claim_key"]: _claim(tasks[row["task_id"]], row, row["host_id"]) for row in rows}
    return {place: made[ask.key] for place, ask in enumerate(asks) if ask.key in made}


def _claim(task: Row, attempt: Row, host: str) -> Claim:
    facts = {name: attempt[name] for name in ("epoch", "number", "continues", "teammate", "context", "follows")}
    return Claim(task=records.task(task), host=host, **facts)


async def _lanes(this: _Round) -> dict[int, tuple[str, ...]]:
    """The lanes of each asker and the scope of its host, or why it is refused."""
    tx, answers = this.tx, this.answers
    asked = [{"teammate": ask.teammate, "host": ask.host} for ask in this.asks]
    rows = await tx.fetch("claimants", claimants=asked, lease_max=int(tx.limits.lease_seconds_max * 1000))
    seats = {(row["name"], row["known_host"]): row for row in rows}
    known = {row["name"] for row in rows}
    lanes: dict[int, tuple[str, ...]] = {}
    for place, ask in enumerate(this.asks):
        if place in answers:
            continue
        row = seats.get((ask.teammate, ask.host))
        if ask.teammate not in known:
            answers[place] = rules.unknown_teammate(ask.teammate)
        elif row is None or not row["alive"]:
            answers[place] = HostLost(f"The lease of host {ask.host} has run out; send a heartbeat first.")
        elif row["state"] in ("stopped", "failed"):
            answers[place] = StoppedTeammate(f"{ask.teammate} was shut down and cannot claim; spawn it again.")
        elif row["state"] != "seated" or row["host_id"] != ask.host:
            answers[place] = HostLost(f"{ask.teammate} has no seat at host {ask.host}; seat it there first.")
        else:
            this.scopes[place] = row["scope"]
            this.keeping |= {place} if row["lead"] or row["keep_context"] else set()
            lanes[place] = rules.lanes(ask.teammate, records.kept_json(row["roles"]), bool(row["lead"]))
    return lanes


async def _named(this: _Round, lanes: Lanes) -> None:
    """Claims of a named task, under the same rules."""
    rows = await hold_tasks(this.tx, [this.asks[place].task or 0 for place in lanes])
    this.budgets.update(await hold(this.tx, {row["root_id"] for row in rows.values()}))
    for place, own in lanes.items():
        row = rows.get(this.asks[place].task or 0)
        if refusal := _refused(this, place, own, row):
            this.answers[place] = refusal
        elif row is not None:
            this.grants[place] = candidate(row)


def _refused(this: _Round, place: int, lanes: tuple[str, ...], row: Row | None) -> DugnadError | None:
    """Why this asker cannot claim the task that it named."""
    task, teammate = this.asks[place].task or 0, this.asks[place].teammate
    if row is None:
        return rules.unknown_task(task)
    if row["state"] != "ready" or any(grant.id == task for grant in this.grants.values()):
        holder = f" by {row['teammate']}" if row["state"] == "claimed" else ""
        return NotReady(f"#{task} is {row['state']}{holder}; only a ready task can be claimed.")
    if (scope := this.scopes[place]) is not None and {"id": row["root_id"]} not in records.kept_json(scope):
        return NotReady(f"#{task} is not under the goal of this run; `dugnad work` or --all works on it.")
    if row["lane"] not in lanes:
        return NotReady(f"#{task} is for {row['lane'] or 'anybody but a lead'}, and {teammate} may not claim it.")
    if teammate in rules.shut_out(row["not_for"]):
        return NotReady(f"#{task} is not for {teammate}; another teammate must claim it.")
    root = row["root_id"]
    if rules.may_begin(this.runs_left(root), candidate(row)):
        return None
    kind = this.budgets[root]["held"] or "tasks"
    told = f"Goal {root_name(root)} has spent its {kind}; raise the cap with `dugnad budget {budget_id(root)}`."
    return BudgetSpent(told, kind=kind, may_free_up=False)


def candidate(row: Row) -> Candidate:
    place = row["id"], row["lane"], row["priority"], row["chain"], row["root_id"]
    return Candidate(*place, fresh=row["continues"] is None)


async def _next(this: _Round, lanes: Lanes, scope: str | None) -> dict[int, tuple[str, ...]]:
    """The best task for each asker in turn, by priority, chain and age, without roots that have no run left.

    An asker that meets work that is `not_for` it must look alone, with a query that leaves such work out. Returns that
    asker and those after it.
    """
    asks, grants, budgets = this.asks, this.grants, this.budgets
    left = dict(lanes)
    later: dict[int, tuple[str, ...]] = {}
    alone = asks[next(iter(lanes))].teammate if len(lanes) == 1 else ""
    every_lane = as_json([{"lane": lane} for lane in sorted({lane for own in left.values() for lane in own})])
    for _ in range(_ROUNDS_MAX):
        ahead = max(Counter(grant.lane for grant in grants.values()).values(), default=0)
        wanted = {"lanes": every_lane, "count": len(lanes) + ahead, "asker": alone}
        if scope is None:
            rows = await this.tx.fetch("claim_candidates", **wanted)
        else:
            rows = await this.tx.fetch("claim_candidates_under", **wanted, roots=scope)
        taken = {grant.id for grant in grants.values()}
        rows = [row for row in rows if row["id"] not in taken]
        if not rows:
            return later
        if (shut_out := first_shut_out(asks, left, rows)) is not None:
            places = list(left)
            turn = max(1, places.index(shut_out))
            later = {**{place: left.pop(place) for place in places[turn:]}, **later}
            if shut_out in left:
                await _next(this, left, scope)
                return later
        candidates = [candidate(row) for row in rows]
        if unknown := {each.root for each in candidates} - budgets.keys():
            budgets.update(await hold(this.tx, unknown))
        runs = {root: this.runs_left(root) for root in budgets}
        places = list(left)
        given, passed = rules.match([left[place] for place in places], candidates, runs)
        for asker, best in given.items():
            grants[places[asker]] = best
            del left[places[asker]]
        if not passed:
            return later
        await _shelve(this, passed)
    this.answers.update(dict.fromkeys(left, LookAgain()))
    return later


def first_shut_out(asks: Sequence[Ask], lanes: Lanes, rows: Sequence[Row]) -> int | None:
    """The first asker that one of these tasks is `not_for`."""
    named = {(each, row["lane"]) for row in rows for each in rules.shut_out(row["not_for"])}
    return next((at for at, own in lanes.items() if any((asks[at].teammate, lane) in named for lane in own)), None)


async def _shelve(this: _Round, passed: Sequence[Candidate]) -> None:
    """Shelve the ready tasks of roots that have no run left, so that they do not block the index."""
    roots = sorted({each.root for each in passed})
    for root in roots:
        if this.budgets[root]["held"] is None:
            await hold_root(this.tx, this.budgets[root], "tasks")
    await this.tx.fetch("shelve_tasks", tasks=ids_json(each.id for each in passed))
    for lane in sorted({each.lane for each in passed}):
        await this.tx.fetch("shelve_lane", lane=lane, count=_SHELVE_MAX, roots=ids_json(roots))


async def _take(this: _Round) -> None:
    """Write the claims: the tasks, their attempts, the runs charged."""
    if not this.grants:
        return
    tx, asks, grants = this.tx, this.asks, this.grants
    taken = [{"id": each.id, "teammate": asks[at].teammate, "host": asks[at].host} for at, each in grants.items()]
    rows = {row["id"]: row for row in await tx.fetch("claim_tasks", tasks=taken)}
    attempts = [opened_attempt(asks[at], rows[each.id], keeps=at in this.keeping) for at, each in grants.items()]
    opened = {row["task_id"]: row for row in await tx.fetch("open_attempts", attempts=attempts)}
    await tx.fetch("charge_runs", roots=charged(grants.values()))
    for (place, granted), attempt in zip(grants.items(), attempts, strict=True):
        attempt.update({name: opened[granted.id][name] for name in ("number", "follows")})
        this.answers[place] = _claim(rows[granted.id], attempt, attempt["host"])
        note_claim(tx, granted, attempt, attempt["number"])


def opened_attempt(ask: Ask, row: Row, *, keeps: bool) -> dict[str, Any]:
    """`row`: the task as it is claimed."""
    return {
        "task": row["id"], "key": ask.key, "teammate": ask.teammate, "host": ask.host, "epoch": row["epoch"],
        "continues": row["continues"], "context": rules.context(ask.teammate, row, keeps=keeps),
    }  # fmt: skip


def charged(granted: Iterable[Candidate]) -> list[dict[str, int]]:
    """The runs that each root pays for."""
    charges: dict[int, int] = {}
    for candidate in granted:
        charges[candidate.root] = charges.get(candidate.root, 0) + candidate.fresh
    return [{"root": root, "n": n} for root, n in sorted(charges.items())]


def note_claim(tx: Noting, granted: Candidate, attempt: Mapping[str, Any], number: int) -> None:
    facts = {name: attempt[name] for name in ("task", "epoch", "host", "continues", "key")}
    event(
        tx, "claimed", attempt["teammate"], root=granted.root, charged=None if granted.fresh else 0, number=number,
        **facts,
    )  # fmt: skip
