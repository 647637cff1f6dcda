"""What one rehearsal, and many together, make of a plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from dugnad.board.records import PastAttempt
from dugnad.errors import BadInput
from dugnad.rehearsal.draws import Draws
from dugnad.rehearsal.findings import find, mates_of
from dugnad.rehearsal.learn import Assumed, learn, shares, with_reviews
from dugnad.rehearsal.plan import Estimate, RehearsalPlan
from dugnad.rehearsal.play import Loss, PlayedRun, PreparedPlan, rehearse
from dugnad.types import Amount, Budget, Need
from tests.rehearsal.stage_rehearsal import EXACT, MINUTE, planned, task, team_of


def play(plan: RehearsalPlan, *roles: str, loss: Loss | None = None, seed: int = 0) -> PlayedRun:
    return rehearse(PreparedPlan(plan), team_of(*roles), Draws(plan.tasks, seed), loss=loss, traced=True)


def begins(plan: RehearsalPlan, ran: PlayedRun) -> dict[str, int]:
    return {plan.tasks[bar.task].name: bar.start // 1000 for bar in ran.bars}


def test_no_task_begins_before_its_needs_are_met() -> None:
    plan = planned(task(1), task(2, 1), task(3, 1), task(4, 2, 3))
    ran = play(plan, "", "", "")
    assert begins(plan, ran) == {"t1": 0, "t2": 60, "t3": 60, "t4": 120}
    assert (ran.makespan, ran.left) == (180_000, 0)


def test_work_goes_to_those_whose_lane_it_is_in() -> None:
    plan = planned(task(1, role="coder"), task(2, role="coder"), task(3, assignee="m1"), task(4))
    ran = play(plan, "coder", "")
    took = {plan.tasks[bar.task].name: bar.mate for bar in ran.bars}
    assert took == {"t1": 0, "t2": 0, "t3": 1, "t4": 1}


def test_a_task_whose_need_ends_otherwise_is_skipped_and_so_is_what_waits_for_it() -> None:
    plan = planned(task(1, outcomes=(("bad", 1.0),)), task(2, Need(1, "good")), task(3, 2), task(4, Need(2, "skipped")))
    ran = play(plan, "")
    assert (ran.skipped, ran.left) == (2, 0)
    assert set(begins(plan, ran)) == {"t1", "t4"}


def test_a_task_that_always_fails_is_tried_as_often_as_the_board_allows() -> None:
    plan = planned(task(1, estimate=Estimate(seconds=60, spread=0.0, retried=1.0)))
    ran = play(plan, "")
    assert [bar.ended_as for bar in ran.bars] == ["retry", "retry", "failed"]
    assert ran.failed == 1
    assert ran.makespan > 3 * 60_000  # With the back-off between.


def test_a_delay_is_waited_for() -> None:
    plan = planned(task(1, due_ms=90_000), task(2, 1, due_ms=10_000))
    assert begins(plan, play(plan, "")) == {"t1": 90, "t2": 150}


@pytest.mark.parametrize(
    ("budget", "kind"),
    [(Budget(tasks=2), "tasks"), (Budget(dollars=1.3), "dollars"), (Budget(tokens=1_300), "tokens"),
     (Budget(seconds=130), "seconds")],
)  # fmt: skip
def test_at_the_cap_nothing_more_is_begun(budget: Budget, kind: str) -> None:
    plan = planned(*(task(number) for number in range(1, 6)), budget=budget)
    ran = play(plan, "")
    assert (len(ran.bars), ran.left) == (2, 3)
    assert ran.stops == [(120_000, 0, kind)]


def test_a_lost_host_costs_its_lease_and_the_turn_it_was_in() -> None:
    """Six turns of ten seconds; lost after 25, two of them are kept, and the third is paid twice."""
    plan = planned(task(1))
    ran = play(plan, "", loss=Loss(at=25_000, mates=frozenset({0}), lease_ms=30_000))
    assert ran.makespan == 25_000 + 30_000 + 40_000
    assert ran.again == pytest.approx(0.1 * 1_000_000)
    assert ran.microdollars == pytest.approx(0.7 * 1_000_000)
    assert ran.busy == 65_000


def test_who_is_left_goes_on_while_a_host_is_lost() -> None:
    plan = planned(*(task(number) for number in range(1, 7)))
    ran = play(plan, "", "", loss=Loss(at=30_000, mates=frozenset({0}), lease_ms=600_000))
    assert ran.left == 0
    before = [bar for bar in ran.bars if bar.end <= 600_000]
    assert {bar.mate for bar in before} == {1}
    assert len(before) == 5


def test_the_same_seed_gives_the_same_run_and_another_gives_another() -> None:
    plan = planned(*(task(number, estimate=MINUTE) for number in range(1, 20)))
    first, again, other = (play(plan, "", "", seed=seed) for seed in (1, 1, 2))
    assert first.bars == again.bars
    assert first.makespan != other.makespan


def test_what_needs_a_reviewed_task_waits_for_the_review_and_a_failure_of_the_work_needs_none() -> None:
    alone = planned(task(1, role="coder"), task(2, 1), task(3, Need(1, "failed")))
    plan = replace(alone, tasks=with_reviews(alone.tasks, {1: "reviewer"}, lambda role: EXACT))
    ran = play(plan, "coder", "reviewer")
    assert begins(plan, ran) == {"t1": 0, "Review t1": 60, "t1, after its review": 120, "t2": 120}
    assert (ran.skipped, ran.left) == (1, 0)
    failing = replace(plan.tasks[0], estimate=replace(EXACT, failed=1.0))
    ran = play(replace(plan, tasks=(failing, *plan.tasks[1:])), "coder", "reviewer")
    assert begins(plan, ran) == {"t1": 0, "t3": 60}


def test_approved_work_is_taken_up_again_before_younger_work() -> None:
    alone = planned(*(task(number) for number in range(1, 6)))
    plan = replace(alone, tasks=with_reviews(alone.tasks, {1: "reviewer"}, lambda role: EXACT))
    assert begins(plan, play(plan, ""))["t5"] == 240
    assert begins(plan, play(plan, "", "reviewer"))["t1, after its review"] == 120


# Many runs.


def test_beyond_the_width_of_a_plan_nothing_gets_faster() -> None:
    plan = planned(task(1), *(task(number, 1) for number in range(2, 6)), task(6, 2, 3, 4, 5))
    found = find(plan, [1, 2, 4, 8], seeds=5)
    assert [size.makespan.middle / 60_000 for size in found.sizes] == [6, 4, 3, 3]
    assert (found.enough, found.shortest, found.shown.agents) == (4, 180_000, 4)
    assert [step.task for step in found.shown.path] == ["t1", "t5", "t6"]
    assert [step.why for step in found.shown.path] == ["", "its need", "its need"]


def test_wide_work_is_faster_with_a_team_of_thousands() -> None:
    plan = planned(*(task(number) for number in range(1, 2_001)))
    assert find(plan, [1], seeds=1).enough == 2_000


def test_no_team_beats_the_longest_chain_of_what_is_not_skipped() -> None:
    """The second never runs, so it is no part of what everything waits for."""
    plan = planned(task(1, outcomes=(("good", 1.0),)), task(2, Need(1, "bad")), task(3, due_ms=10_000))
    found = find(plan, [1, 4], seeds=3)
    assert (found.shortest, found.sizes[1].makespan.middle) == (70_000, 70_000)
    capped = planned(task(1), task(2, 1), budget=Budget(tasks=1))
    assert find(capped, [1], seeds=3).shortest == 120_000


def test_what_is_enough_agrees_with_the_teams_that_are_shown() -> None:
    plan = planned(task(1, estimate=MINUTE), *(task(number, 1, estimate=MINUTE) for number in range(2, 7)))
    found = find(plan, range(1, 9), seeds=60)
    takes = {size.agents: size.makespan.middle for size in found.sizes}
    assert takes[found.enough] * 0.95 <= takes[8] < takes[found.enough - 1] * 0.95


def test_the_critical_path_leads_over_whoever_had_no_time() -> None:
    plan = planned(task(1), task(2), task(3))
    (size,) = find(plan, [1], seeds=3).sizes
    assert [(step.task, step.why) for step in size.path] == [
        ("t1", ""), ("t2", "a free teammate"), ("t3", "a free teammate"),
    ]  # fmt: skip
    assert sum(step.end - step.start for step in size.path) == size.makespan.middle


def test_idle_time_says_who_waits_for_whom() -> None:
    plan = planned(task(1, role="designer"), task(2, 1, role="coder"), agents={"designer": 1, "coder": 1})
    (size,) = find(plan, [2], seeds=3).sizes
    told = {(each.who, each.waits_for): each.milliseconds for each in size.idle}
    assert told["coder", "designer"] == 60_000
    assert sum(told.values()) == 120_000
    assert size.busy == 0.5


def test_a_chain_is_called_one() -> None:
    plan = planned(task(1), task(2, 1), task(3, 2))
    assert "one chain" in find(plan, [1, 4], seeds=2).warnings[0]
    wide = planned(task(1), task(2), task(3))
    assert not find(wide, [1, 4], seeds=2).warnings
    late = planned(task(1), task(2), task(3, due_ms=3_600_000))  # One is late, and still none waits for another.
    assert not find(late, [1, 4], seeds=2).warnings


def test_work_that_nobody_can_take_is_named() -> None:
    plan = planned(task(1, role="poet"), task(2, assignee="zoe"), task(3, role="coder"), agents={"coder": 2})
    found = find(plan, [2], seeds=2)
    assert found.warnings[0] == "Nobody would take 1 task for zoe, who is not there; `dugnad spawn zoe` changes that."
    assert "the role poet, which nobody has; give it somebody under [agents]" in found.warnings[1]
    assert found.sizes[0].finished == 0


def test_a_large_team_has_nobody_by_chance_whom_a_task_waits_for() -> None:
    plan = planned(task(1), task(2, 1, assignee="zoe"))
    assert all("@zoe" not in mate.lanes for mate in mates_of(plan, 60))
    assert sum("@zoe" in mate.lanes for mate in mates_of(replace(plan, names=("zoe",)), 60)) == 1


def test_a_budget_that_runs_out_is_said_with_what_is_left() -> None:
    plan = planned(*(task(number) for number in range(1, 11)), budget=Budget(tasks=4))
    warning = find(plan, [1, 2], seeds=4).warnings[0]
    assert "budget of tasks runs out in 100% of the runs, typically after 2m" in warning
    assert "with 6 of 10 tasks left" in warning


def test_a_budget_of_dollars_without_a_price_is_said_to_hold_nothing_back() -> None:
    unknown = Estimate(seconds=60)
    plan = planned(task(1, estimate=unknown), task(2), budget=Budget(dollars=9))
    (warning,) = find(plan, [1], seeds=2).warnings
    assert warning.startswith("What 1 of 2 tasks cost is not known, so the budget of dollars is not rehearsed")
    assert not find(planned(task(1, estimate=unknown), budget=Budget(tasks=9)), [1], seeds=2).warnings


def test_a_team_keeps_the_plans_shares_whatever_its_size() -> None:
    plan = planned(task(1, role="coder"), agents={"coder": 3, "tester": 1, "any": 2})
    assert Counter(mate.label for mate in mates_of(plan, 12)) == {"coder": 6, "tester": 2, "anyone": 4}
    (alone,) = mates_of(plan, 1)
    assert {"coder", "tester", ""} <= set(alone.lanes)
    assert len(mates_of(plan, 7)) == 7


def test_too_much_is_refused_with_what_would_do() -> None:
    plan = planned(*(task(number) for number in range(1, 1_001)))
    with pytest.raises(BadInput, match="use --seeds 5000 or fewer"):
        find(plan, [1, 2], seeds=6_000)


# What is learned.


def past(
    task_id: int, seconds: float, *, role: str | None = "coder", ended_as: str = "done", **more: object
) -> PastAttempt:
    fields: dict[str, object] = {"outcome": None, "replies": 4, "used": Amount(tokens=1_000, microdollars=20_000)}
    return PastAttempt(task=task_id, role=role, ended_as=ended_as, seconds=seconds, **{**fields, **more})  # type: ignore[arg-type]


def test_durations_costs_and_failures_are_learned_by_role() -> None:
    found = learn([past(1, 100), past(2, 100), past(3, 100, ended_as="retry"), past(3, 100)])
    coder = found.roles["coder"]
    assert (coder.seconds, coder.turns, coder.tokens, coder.dollars) == pytest.approx((100, 4, 1_000, 0.02))
    assert (coder.retried, coder.attempts) == (0.25, 4)
    assert found.estimate("tester", Assumed()) == found.all  # Of a role nobody had, what holds for all.


def test_too_little_is_not_learned_from() -> None:
    found = learn([past(1, 100), past(2, 100)])
    assert found.estimate("coder", Assumed()) == Assumed().estimate()
    assert "This is assumed" in found.basis(["coder"], Assumed())[0]


def test_what_was_put_down_and_taken_up_again_is_one_attempt() -> None:
    found = learn(
        [past(each, 30, ended_as="waiting") if part else past(each, 70) for each in range(3) for part in (1, 0)]
    )
    assert found.roles["coder"].attempts == 3
    assert round(found.roles["coder"].seconds) == 100


def test_outcomes_are_as_likely_as_they_were() -> None:
    assert shares([], None) == ((None, 1.0),)
    assert shares(["no", "yes"], None) == (("no", 0.5), ("yes", 0.5))
    assert dict(shares(["no"], Counter({"yes": 3, "no": 1}))) == {"yes": 0.75, "no": 0.25}


def test_drawn_durations_have_the_spread_that_was_learned() -> None:
    wide = Estimate(seconds=60, spread=0.5)
    seconds = sorted(Draws([task(1, estimate=wide)], seed).attempt(0, 1)[0] / 1000 for seed in range(999))
    assert 54 < seconds[499] < 66
    assert 88 < seconds[839] < 112  # One spread above: 60 times e to the power of a half is 99.
    assert all(Draws([task(1, estimate=EXACT)], seed).attempt(0, 1)[0] == 60_000 for seed in range(5))
