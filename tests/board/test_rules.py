"""The rules that need no database, asked directly."""

from __future__ import annotations

from typing import Any

import pytest

from dugnad.board import rules
from dugnad.board.rules import Candidate
from dugnad.errors import BadInput, Cycle
from dugnad.settings import Limits
from dugnad.types import Amount


@pytest.mark.parametrize(
    ("wanted", "state", "outcome", "verdict"),
    [
        (None, "ready", None, "open"),
        (None, "claimed", None, "open"),
        (None, "done", "approved", "met"),
        (None, "failed", None, "broken"),
        (None, "cancelled", None, "broken"),
        ("approved", "done", "approved", "met"),
        ("approved", "done", "rejected", "broken"),
        ("approved", "failed", None, "broken"),
        ("ended", "waiting", None, "open"),
        ("ended", "failed", None, "met"),
        ("ended", "skipped", None, "met"),
    ],
)
def test_a_need_is_open_until_its_task_ends_and_then_met_or_broken(
    wanted: str | None, state: str, outcome: str | None, verdict: str
) -> None:
    assert rules.judge(wanted, state, outcome) == verdict


def test_a_circle_is_found_and_named_from_its_first_task_to_the_same() -> None:
    assert rules.circle({1: [2], 2: [3], 3: []}) is None
    assert rules.circle({1: [2, 3], 2: [3], 3: []}) is None  # Two ways to one task are no circle.
    assert rules.circle({1: [1]}) == [1, 1]
    assert rules.circle({9: [1], 1: [2], 2: [3], 3: [1]}) == [1, 2, 3, 1]
    with pytest.raises(Cycle, match="1 needs 2 needs 1"):
        rules.refuse_circle([1, 2, 1])


def test_a_chain_is_the_longest_way_of_dependents_up_to_a_bound() -> None:
    edges: dict[int, list[int]] = {4: [3, 1], 3: [2], 2: [1], 1: []}
    assert rules.chains(edges, 100) == {4: 0, 3: 1, 2: 2, 1: 3}
    assert rules.chains(edges, 2) == {4: 0, 3: 1, 2: 2, 1: 2}


def candidate(number: int, **fields: Any) -> Candidate:
    return Candidate(**{"id": number, "lane": "", "priority": 0, "chain": 0, "root": 1, **fields})


def given(askers: list[tuple[str, ...]], *candidates: Candidate, left: int | None = None) -> dict[int, int]:
    found, _ = rules.match(askers, candidates, {1: left})
    return {asker: each.id for asker, each in found.items()}


def test_priority_comes_first_then_the_longer_chain_then_the_older_task() -> None:
    everybody = [("",)] * 4
    tasks = [candidate(1), candidate(2, chain=1), candidate(3, priority=1), candidate(4)]
    assert given(everybody, *tasks) == {0: 3, 1: 2, 2: 1, 3: 4}


def test_each_asker_gets_the_best_task_of_its_own_lanes() -> None:
    tasks = [candidate(1, lane="coder"), candidate(2, lane="@alice"), candidate(3, lane="tester", priority=9)]
    assert given([("@alice", "coder", ""), ("@bob", "coder", ""), ("@carol", "")], *tasks) == {0: 1}
    assert given([("@alice", ""), ("@bob", "coder", "")], *tasks) == {0: 2, 1: 1}


def test_a_root_without_a_run_left_is_passed_over_and_what_was_begun_goes_on() -> None:
    found, passed = rules.match([("",), ("",)], [candidate(1), candidate(2)], {1: 1})
    assert ([each.id for each in found.values()], [each.id for each in passed]) == ([1], [2])
    assert given([("",)], candidate(1, fresh=False), left=0) == {0: 1}
    assert given([("",)], candidate(1, fresh=False), left=-1) == {}


def test_the_pause_before_a_retry_doubles_up_to_a_bound_and_is_spread() -> None:
    limits = Limits(backoff_seconds=2, backoff_seconds_max=10)
    assert [rules.backoff_ms(tries, limits, 1.0) for tries in range(4)] == [2_000, 4_000, 8_000, 10_000]
    assert rules.backoff_ms(0, limits, 0.0) == 1_000
    assert rules.backoff_ms(10**6, limits, 1.0) == 10_000
    assert rules.backoff_ms(0, Limits(backoff_seconds=0.0), 0.0) == 1


def account(**fields: Any) -> dict[str, Any]:
    kinds = ("tokens", "microdollars", "milliseconds")
    empty = {f"{kind}{part}": None if part == "_max" else 0 for kind in kinds for part in ("", "_max", "_reserved")}
    return {**empty, "root_id": 1, "held": None, "tasks_max": None, "runs": 0, **fields}


def test_what_is_spent_reserved_and_asked_fits_the_cap_up_to_the_last_unit() -> None:
    full = account(tokens_max=100, tokens=50, tokens_reserved=30)
    assert rules.too_much(full, Amount(tokens=20)) is None
    refused = rules.too_much(full, Amount(tokens=21))
    assert refused is not None
    assert (refused[0], refused[2]) == ("tokens", True)  # It fits when others' reservations come back.
    never = rules.too_much(full, Amount(tokens=51))
    assert never is not None
    assert never[2] is False
    assert rules.too_much(account(), Amount(tokens=10**12)) is None


def test_a_root_counts_the_runs_it_has_left() -> None:
    assert rules.runs_left(account()) is None
    assert rules.runs_left(account(tasks_max=3, runs=1)) == 2
    assert rules.runs_left(account(tasks_max=3, runs=5)) == 0
    assert rules.runs_left(account(held="tasks")) == 0
    assert rules.runs_left(account(held="tokens")) == -1


def test_an_inbox_is_read_in_the_order_shutdown_human_lead_peers() -> None:
    letters = [("note", "bob", False), ("note", "lena", True), ("note", "human", False), ("shutdown", "bob", False)]
    assert [rules.rank(*letter) for letter in letters] == [3, 2, 1, 0]


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_an_amount_is_a_number_of_at_least_zero(value: float) -> None:
    with pytest.raises(BadInput):
        rules.quantity("An amount of tokens", value)
