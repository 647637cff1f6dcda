"""Numbers that no database can hold, in every call of a board: refused with a sentence, and nothing is changed."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dugnad.board import Board
from dugnad.errors import DugnadError
from dugnad.types import Amount, Budget, Claim, Need, NewTask, NewTurn, Pace, Waiting
from tests.board.crew import crew

WRONG = (10**30, 10**5000, -(10**30), 2**63, -(2**63) - 1, 2**64, 2**40, math.nan, math.inf, -math.inf, 1e300)
Act = Callable[[Board, Claim, Any], Awaitable[Any]]
CALLS: dict[str, Act] = {
    "find": lambda board, claim, n: board.find(n),
    "find_all": lambda board, claim, n: board.find_all([1, n]),
    "list_tasks root": lambda board, claim, n: board.list_tasks(root=n),
    "list_tasks after": lambda board, claim, n: board.list_tasks(after=n),
    "list_tasks page": lambda board, claim, n: board.list_tasks(page=n),
    "count_tasks": lambda board, claim, n: board.count_tasks(root=n),
    "cost_by_teammate": lambda board, claim, n: board.cost_by_teammate(n),
    "needs_of": lambda board, claim, n: board.needs_of(n),
    "children": lambda board, claim, n: board.children(n),
    "children after": lambda board, claim, n: board.children(1, after=n),
    "ended_last": lambda board, claim, n: board.ended_last(root=n),
    "all_needs": lambda board, claim, n: board.all_needs([n]),
    "budgets": lambda board, claim, n: board.budgets(page=n),
    "past_attempts": lambda board, claim, n: board.past_attempts(most=n),
    "attempts": lambda board, claim, n: board.attempts(n),
    "tracebacks": lambda board, claim, n: board.tracebacks(n),
    "transcript task": lambda board, claim, n: board.transcript(n, 1),
    "transcript epoch": lambda board, claim, n: board.transcript(1, n),
    "transcript after": lambda board, claim, n: board.transcript(1, 1, after=n),
    "budget": lambda board, claim, n: board.budget(n),
    "events after": lambda board, claim, n: board.events(n),
    "events task": lambda board, claim, n: board.events(task=n),
    "inbox": lambda board, claim, n: board.inbox("alice", after=n),
    "mail_and_budget": lambda board, claim, n: board.mail_and_budget("alice", n),
    "search_notes": lambda board, claim, n: board.search_notes("x", before=n),
    "ready_work": lambda board, claim, n: board.ready_work(most=n),
    "put priority": lambda board, claim, n: board.put("t", priority=n),
    "put parent": lambda board, claim, n: board.put("t", parent=n),
    "put needs": lambda board, claim, n: board.put("t", needs=[n]),
    "put delay": lambda board, claim, n: board.put("t", delay_seconds=n),
    "put not_before": lambda board, claim, n: board.put("t", not_before=n),
    "put tasks": lambda board, claim, n: board.put("t", budget=Budget(tasks=n)),
    "put tokens": lambda board, claim, n: board.put("t", budget=Budget(tokens=n)),
    "put dollars": lambda board, claim, n: board.put("t", budget=Budget(dollars=n)),
    "put seconds": lambda board, claim, n: board.put("t", budget=Budget(seconds=n)),
    "follow_ups": lambda board, claim, n: board.follow_ups(claim, [NewTask(title="t", needs=(Need(n),))]),
    "add_need task": lambda board, claim, n: board.add_need(n, 1),
    "add_need need": lambda board, claim, n: board.add_need(1, n),
    "cancel": lambda board, claim, n: board.cancel(n),
    "release task": lambda board, claim, n: board.release(n),
    "release delay": lambda board, claim, n: board.release(1, delay_seconds=n),
    "retry": lambda board, claim, n: board.retry(n),
    "assign": lambda board, claim, n: board.assign(n, "alice"),
    "claim": lambda board, claim, n: board.claim("alice", claim.host, task=n),
    "settle": lambda board, claim, n: board.settle(claim, Waiting(on="tasks", tasks=(n,))),
    "settle amount": lambda board, claim, n: board.settle(claim, Waiting(on="budget", amount=Amount(tokens=n))),
    "take_back": lambda board, claim, n: board.take_back(n),
    "record number": lambda board, claim, n: board.record(claim, NewTurn(number=n, kind="reply", body="{}")),
    "record used": lambda board, claim, n: board.record(
        claim, NewTurn(number=1, kind="reply", body="{}", used=Amount(microdollars=n))
    ),
    "record shown": lambda board, claim, n: board.record(
        claim, NewTurn(number=1, kind="reply", body="{}", shown=(n,))
    ),
    "record covers": lambda board, claim, n: board.record(
        claim, NewTurn(number=3, kind="summary", body="{}", covers=(n, n))
    ),
    "reserve": lambda board, claim, n: board.reserve(claim, Amount(milliseconds=n)),
    "reserve pace": lambda board, claim, n: board.reserve(
        claim, Amount(tokens=1), pace=Pace(key="k", requests_per_minute=n, tokens_per_minute=n)
    ),
    "cool_down": lambda board, claim, n: board.cool_down("k", reason="429", by="alice", seconds=n),
    "set_budget root": lambda board, claim, n: board.set_budget(n, Budget(tasks=1)),
    "set_budget": lambda board, claim, n: board.set_budget(1, Budget(tasks=n)),
    "raise_budget": lambda board, claim, n: board.raise_budget(1, Budget(dollars=n)),
    "show": lambda board, claim, n: board.show("alice", [n]),
    "seat": lambda board, claim, n: board.seat(claim.host, count=n),
    "stop_teammate": lambda board, claim, n: board.stop_teammate("nobody", seat=n),
    "moment": lambda board, claim, n: board.moment([n]),
    "moment scope": lambda board, claim, n: board.moment(scope=[n]),
    "surroundings": lambda board, claim, n: board.surroundings(claim.task, "alice", mates=n, notes=n, messages=n),
    "whole": lambda board, claim, n: board.whole([n]),
    "start_host": lambda board, claim, n: board.start_host("scoped", scope=[n]),
    "fail_teammate": lambda board, claim, n: board.fail_teammate("nobody", by="x", reason="y", seat=n),
    "plan_approved": lambda board, claim, n: board.plan_approved(n),
    "team": lambda board, claim, n: board.team(most=n),
    "recent_talk": lambda board, claim, n: board.recent_talk("alice", page=n),
    "take": lambda board, claim, n: board.take("alice", f"turn {id(n)}", count=n),
    "tell": lambda board, claim, n: board.tell("human", "alice", "x", task=n),
    "prune": lambda board, claim, n: board.prune(n),
    "prunable": lambda board, claim, n: board.prunable(n),
}  # fmt: skip


async def said_no(call: Awaitable[Any]) -> str:
    try:
        await call
    except DugnadError as refusal:
        return str(refusal)
    return ""


@pytest.mark.parametrize("act", CALLS.values(), ids=CALLS)
async def test_a_number_no_board_can_hold_is_refused_or_finds_nothing(board: Board, act: Act) -> None:
    team = await crew(board)
    await board.put("one", budget=Budget(tasks=1_000))
    claim = await team.must_claim()
    for number in WRONG:
        before = await board.last_event()
        refusal = await said_no(act(board, claim, number))
        assert len(refusal) < 400
        assert not refusal or await board.last_event() == before


def test_every_call_that_takes_a_number_is_tried() -> None:
    takers = {
        name
        for name, verb in inspect.getmembers(Board, inspect.isfunction)
        if not name.startswith("_")
        and any("int" in str(each.annotation) or "float" in str(each.annotation)
                for each in inspect.signature(verb).parameters.values())
    }  # fmt: skip
    tried = {name.split(" ")[0] for name in CALLS}
    assert takers - tried <= {"follow", "put_many", "follow_up"}
