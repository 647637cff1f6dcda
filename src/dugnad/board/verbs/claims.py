"""Claiming: the only way to get hold of a task."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import BudgetSpent, DugnadError, HostLost, NotReady, StoppedTeammate
from ...types import Claim
from .. import records, rules
from ..roots import budget_id, root_name
from ..rules import Candidate
from ..store.seam import Row, Tx, as_json, event, ids_json
from .budgets import hold, hold_root
from .fence import hold_tasks
from .needs import made_ready

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


async def claim(tx: Tx, asks: Sequence[Ask]) -> list[Answer]:
    answers: dict[int, Answer] = dict(await _claimed_before(tx, asks))
    first = {ask.key: place for place, ask in reversed(list(enumerate(asks)))}
    scopes: dict[int, str | None] = {}
    lanes = await _lanes(tx, asks, scopes, answers)
    lanes = {place: own for place, own in lanes.items() if first[asks[place].key] == place}
    for row in await tx.fetch("promote_due"):
        made_ready(tx, {**row, "state": "ready"})
    grants: dict[int, Candidate] = {}
    budgets: dict[int, dict[str, Any]] = {}
    if named := [place for place in lanes if asks[place].task is not None]:
        await _named(tx, asks, named, lanes, scopes, grants, budgets, answers)
    for scope in dict.fromkeys(scopes[place] for place in lanes):
        unnamed = {place: own for place, own in lanes.items() if asks[place].task is None and scopes[place] == scope}
        while unnamed:
            unnamed = await _next(tx, asks, unnamed, scope, grants, budgets, answers)
    answers.update(await _take(tx, asks, grants, budgets))
    return [answers.get(place, answers.get(first[ask.key])) for place, ask in enumerate(asks)]


async def _claimed_before(tx: Tx, asks: Sequence[Ask]) -> dict[int, Claim]:
    """Claims that an earlier try of the same call made, whose answer was lost."""
    if not tx.repeated and not any(ask.may_repeat for ask in asks):
        return {}
    rows = await tx.fetch("attempts_by_key", keys=as_json([{"key": ask.key} for ask in asks]))
    if not rows:
        return {}
    tasks = {row["id"]: row for row in await tx.fetch("tasks_by_id", ids=ids_json(row["task_id"] for row in rows))}
    made = {row["claim_key"]: _claim(tasks[row["task_id"]], row) for row in rows}
    return {place: made[ask.key] for place, ask in enumerate(asks) if ask.key in made}


def _claim(task: Row, attempt: Mapping[str, Any]) -> Claim:
    return Claim(
        task=records.task(task),
        epoch=attempt["epoch"],
        number=attempt["number"],
        continues=attempt["continues"],
        teammate=attempt["teammate"],
        host=attempt["host_id"],
    )


async def _lanes(
    tx: Tx, asks: Sequence[Ask], scopes: dict[int, str | None], answers: dict[int, Answer]
) -> dict[int, tuple[str, ...]]:
    """The lanes of each asker and the scope of its host, or why it is refused."""
    asked = [{"teammate": ask.teammate, "host": ask.host} for ask in asks]
    rows = await tx.fetch("claimants", claimants=as_json(asked), lease_max=int(tx.limits.lease_seconds_max * 1000))
    seats = {(row["name"], row["known_host"]): row for row in rows}
    known = {row["name"] for row in rows}
    lanes: dict[int, tuple[str, ...]] = {}
    for place, ask in enumerate(asks):
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
            scopes[place] = row["scope"]
            lanes[place] = rules.lanes(ask.teammate, json.loads(row["roles"]), bool(row["lead"]))
    return lanes


async def _named(
    tx: Tx,
    asks: Sequence[Ask],
    places: Sequence[int],
    lanes: Mapping[int, tuple[str, ...]],
    scopes: Mapping[int, str | None],
    grants: dict[int, Candidate],
    budgets: dict[int, dict[str, Any]],
    answers: dict[int, Answer],
) -> None:  # fmt: skip
    """Claims of a named task, under the same rules."""
    wanted = [task for place in places if (task := asks[place].task) is not None]
    rows = await hold_tasks(tx, wanted)
    budgets.update(await hold(tx, {row["root_id"] for row in rows.values()}))
    for place in places:
        task = asks[place].task or 0
        row = rows.get(task)
        if row is None:
            answers[place] = rules.unknown_task(task)
        elif row["state"] != "ready" or any(grant.id == task for grant in grants.values()):
            holder = f" by {row['teammate']}" if row["state"] == "claimed" else ""
            answers[place] = NotReady(f"#{task} is {row['state']}{holder}; only a ready task can be claimed.")
        elif (scope := scopes[place]) is not None and {"id": row["root_id"]} not in json.loads(scope):
            answers[place] = NotReady(f"#{task} is not under the goal of this run; `dugnad work` or --all works on it.")
        elif row["lane"] not in lanes[place]:
            whose = row["lane"] or "anybody but a lead"
            answers[place] = NotReady(f"#{task} is for {whose}, and {asks[place].teammate} may not claim it.")
        elif row["not_for"] == asks[place].teammate:
            answers[place] = NotReady(f"#{task} is not for {asks[place].teammate}; another teammate must claim it.")
        elif not rules.may_begin(rules.runs_left(_counted(budgets, row["root_id"], grants)), _candidate(row)):
            kind = budgets[row["root_id"]]["held"] or "tasks"
            answers[place] = BudgetSpent(
                f"Goal {root_name(row['root_id'])} has spent its {kind}; raise the cap with "
                f"`dugnad budget {budget_id(row['root_id'])}`.",
                kind=kind, may_free_up=False,
            )  # fmt: skip
        else:
            grants[place] = _candidate(row)


def _candidate(row: Row) -> Candidate:
    place = row["id"], row["lane"], row["priority"], row["chain"], row["root_id"]
    return Candidate(*place, fresh=row["continues"] is None)


def _counted(budgets: Mapping[int, dict[str, Any]], root: int, grants: Mapping[int, Candidate]) -> dict[str, Any]:
    """The root's account, with the claims of this transaction charged."""
    own = sum(grant.root == root and grant.fresh for grant in grants.values())
    return {**budgets[root], "runs": budgets[root]["runs"] + own}


async def _next(
    tx: Tx,
    asks: Sequence[Ask],
    lanes: Mapping[int, tuple[str, ...]],
    scope: str | None,
    grants: dict[int, Candidate],
    budgets: dict[int, dict[str, Any]],
    answers: dict[int, Answer],
) -> dict[int, tuple[str, ...]]:
    """The best task for each asker in turn, by priority, chain and age, without roots that have no run left.

    An asker that meets work that is `not_for` it must look alone, with a query that leaves such work out. Returns that
    asker and those after it.
    """
    left = dict(lanes)
    later: dict[int, tuple[str, ...]] = {}
    alone = asks[next(iter(lanes))].teammate if len(lanes) == 1 else ""
    every_lane = as_json([{"lane": lane} for lane in sorted({lane for own in left.values() for lane in own})])
    for _ in range(_ROUNDS_MAX):
        ahead = max(Counter(grant.lane for grant in grants.values()).values(), default=0)
        wanted = {"lanes": every_lane, "count": len(lanes) + ahead, "asker": alone}
        if scope is None:
            rows = await tx.fetch("claim_candidates", **wanted)
        else:
            rows = await tx.fetch("claim_candidates_under", **wanted, roots=scope)
        taken = {grant.id for grant in grants.values()}
        rows = [row for row in rows if row["id"] not in taken]
        if not rows:
            return later
        if (shut_out := _first_shut_out(asks, left, rows)) is not None:
            places = list(left)
            turn = max(1, places.index(shut_out))
            later = {**{place: left.pop(place) for place in places[turn:]}, **later}
            if shut_out in left:
                await _next(tx, asks, left, scope, grants, budgets, answers)
                return later
        candidates = [_candidate(row) for row in rows]
        if unknown := {candidate.root for candidate in candidates} - budgets.keys():
            budgets.update(await hold(tx, unknown))
        runs = {root: rules.runs_left(_counted(budgets, root, grants)) for root in budgets}
        places = list(left)
        given, passed = rules.match([left[place] for place in places], candidates, runs)
        for asker, candidate in given.items():
            grants[places[asker]] = candidate
            del left[places[asker]]
        if not passed:
            return later
        await _shelve(tx, passed, budgets)
    answers.update(dict.fromkeys(left, LookAgain()))
    return later


def _first_shut_out(asks: Sequence[Ask], lanes: Mapping[int, tuple[str, ...]], rows: Sequence[Row]) -> int | None:
    """The first asker that one of these tasks is `not_for`."""
    named = {(row["not_for"], row["lane"]) for row in rows if row["not_for"] is not None}
    if not named:
        return None
    return next((at for at, own in lanes.items() if any((asks[at].teammate, lane) in named for lane in own)), None)


async def _shelve(tx: Tx, passed: Sequence[Candidate], budgets: dict[int, dict[str, Any]]) -> None:
    """Shelve the ready tasks of roots that have no run left, so that they do not block the index."""
    roots = {candidate.root for candidate in passed}
    for root in sorted(roots):
        if budgets[root]["held"] is None:
            await hold_root(tx, budgets[root], "tasks")
    await tx.fetch("shelve_tasks", tasks=ids_json(candidate.id for candidate in passed))
    for lane in sorted({candidate.lane for candidate in passed}):
        await tx.fetch("shelve_lane", lane=lane, count=_SHELVE_MAX, roots=ids_json(sorted(roots)))


async def _take(
    tx: Tx, asks: Sequence[Ask], grants: Mapping[int, Candidate], budgets: Mapping[int, Mapping[str, Any]]
) -> dict[int, Answer]:
    """Write the claims: the tasks, their attempts, the runs charged."""
    if not grants:
        return {}
    taken = [
        {"id": candidate.id, "teammate": asks[place].teammate, "host": asks[place].host}
        for place, candidate in grants.items()
    ]
    rows = {row["id"]: row for row in await tx.fetch("claim_tasks", tasks=as_json(taken))}
    attempts = [
        {
            "task": candidate.id, "epoch": rows[candidate.id]["epoch"], "key": asks[place].key,
            "teammate": asks[place].teammate, "host": asks[place].host,
            "continues": rows[candidate.id]["continues"],
        }
        for place, candidate in grants.items()
    ]  # fmt: skip
    numbers = {row["task_id"]: row["number"] for row in await tx.fetch("open_attempts", attempts=as_json(attempts))}
    charges: dict[int, int] = {}
    for candidate in grants.values():
        charges[candidate.root] = charges.get(candidate.root, 0) + candidate.fresh
    await tx.fetch("charge_runs", roots=as_json([{"root": root, "n": n} for root, n in sorted(charges.items())]))
    answers: dict[int, Answer] = {}
    for (place, candidate), attempt in zip(grants.items(), attempts, strict=True):
        row, ask = rows[candidate.id], asks[place]
        number = numbers[candidate.id]
        answers[place] = _claim(row, {**attempt, "number": number, "host_id": ask.host})
        event(
            tx, "claimed", ask.teammate, task=candidate.id, root=candidate.root, epoch=row["epoch"], host=ask.host,
            number=number, continues=row["continues"], key=ask.key, charged=None if candidate.fresh else 0,
        )  # fmt: skip
    return answers
