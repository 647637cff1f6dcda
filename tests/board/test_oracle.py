"""The oracle is only worth what it catches: hand-broken histories, one broken promise each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dugnad.board import Board
from dugnad.types import Amount, Budget, Done, Event, Failed, NewTurn
from tests.board import oracle
from tests.board.crew import crew
from tests.board.story import Story


def sound(story: Story) -> None:
    """A retry, a taken-back claim whose late holder finishes, a skipped nothing: all of it allowed."""
    story.claim(1, 1)
    story.reserve("r1", 60)
    story.turn(1)
    story.spend("r1", 40)
    story.settle(1, 1, kind="retrying", due_at=90)
    story.tell("ready", 1, state="ready")
    story.claim(1, 3)
    story.take_back(1, 3)
    story.settle(1, 3)
    story.tell("ready", 2, state="ready")
    story.claim(2, 1, "bob", host="h2")
    story.settle(2, 1, "bob")


def test_a_sound_history_has_no_faults() -> None:
    story = Story()
    sound(story)
    assert oracle.faults(story.events) == []


def ended_twice(story: Story) -> None:
    sound(story)
    story.claim(1, 5)
    story.settle(1, 5)


def ended_twice_by_the_board(story: Story) -> None:
    story.claim(1, 1)
    story.settle(1, 1, kind="failed")
    story.tell("skipped", 2, reason="needs #1")
    story.tell("skipped", 2, reason="needs #1")


def stale_settle(story: Story) -> None:
    story.claim(1, 1)
    story.take_back(1, 1)
    story.claim(1, 2, "bob", host="h2")
    story.settle(1, 1)


def settled_twice(story: Story) -> None:
    story.claim(1, 1)
    story.settle(1, 1, kind="released")
    story.settle(1, 1)


def stale_turn(story: Story) -> None:
    story.claim(1, 1)
    story.take_back(1, 1)
    story.claim(1, 2, "bob", host="h2")
    story.turn(1)


def turn_after_the_end(story: Story) -> None:
    story.claim(1, 1)
    story.settle(1, 1)
    story.turn(1)


def stale_reservation(story: Story) -> None:
    story.claim(1, 1)
    story.take_back(1, 1)
    story.claim(1, 2, "bob", host="h2")
    story.reserve("late", 1)


def stale_follow_up(story: Story) -> None:
    story.claim(1, 1)
    story.take_back(1, 1)
    story.claim(1, 2, "bob", host="h2")
    story.put(3, followup_of=1, actor="ann")


def under_anothers_claim(story: Story) -> None:
    story.claim(1, 1)
    story.turn(1, actor="bob")


def claimed_before_its_need(story: Story) -> None:
    story.claim(2, 1)


def claimed_though_its_need_failed(story: Story) -> None:
    story.claim(1, 1)
    story.settle(1, 1, kind="failed")
    story.claim(2, 1)


def claimed_for_another_outcome(story: Story) -> None:
    story.put(3, [1, "approved", "open"])
    story.claim(1, 1)
    story.settle(1, 1, outcome="rejected")
    story.claim(3, 1)


def ready_before_its_need(story: Story) -> None:
    story.tell("ready", 2, state="ready")


def two_owners(story: Story) -> None:
    story.claim(1, 1)
    story.claim(1, 2, "bob", host="h2")


def epoch_that_does_not_grow(story: Story) -> None:
    story.claim(1, 4)
    story.settle(1, 4, kind="released")
    story.claim(1, 3)


def claimed_before_it_is_due(story: Story) -> None:
    story.claim(1, 1)
    story.settle(1, 1, kind="retrying", due_at=10_000)
    story.claim(1, 3)


def one_key_for_two_claims(story: Story) -> None:
    story.claim(1, 1, key="once")
    story.settle(1, 1)
    story.claim(2, 1, key="once")


def tokens_over_the_cap(story: Story) -> None:
    story.claim(1, 1)
    story.reserve("r1", 60)
    story.reserve("r2", 41)


def spent_over_the_cap(story: Story) -> None:
    story.claim(1, 1)
    story.reserve("r1", 60)
    story.spend("r1", 101)


def runs_over_the_cap(story: Story) -> None:
    for number in range(4):
        story.claim(1, 2 * number + 1)
        story.settle(1, 2 * number + 1, kind="released")


def spent_twice(story: Story) -> None:
    story.claim(1, 1)
    story.reserve("r1", 10)
    story.spend("r1", 10)
    story.spend("r1", 10)


def forfeited_for_less(story: Story) -> None:
    story.claim(1, 1)
    story.reserve("r1", 10)
    story.spend("r1", 3, kind="forfeited")


def reservation_left_open(story: Story) -> None:
    story.claim(1, 1)
    story.reserve("r1", 10)
    story.take_back(1, 1)


def one_key_for_two_tasks(story: Story) -> None:
    story.put(3, key="k2")


def skipped_for_nothing(story: Story) -> None:
    story.tell("skipped", 2, reason="needs #1")


def taken_back_from_nobody(story: Story) -> None:
    story.claim(1, 1)
    story.settle(1, 1, kind="released")
    story.take_back(1, 1)


def skipped_without_a_word(story: Story) -> None:
    story.claim(1, 1)
    story.settle(1, 1, kind="failed")
    story.tell("skipped", 2)


def behind_a_need_that_was_added(story: Story) -> None:
    story.put(3)
    story.tell("need_added", 1, "human", needs=3, state="open")
    story.claim(1, 1)


def late_behind_a_need_that_was_added(story: Story) -> None:
    story.put(3)
    story.claim(1, 1)
    story.take_back(1, 1)
    story.tell("need_added", 1, "human", needs=3, state="open")
    story.turn(1)


def retried_as_ready(story: Story) -> None:
    story.tell("cancelled", 2, "human", reason="", epoch=0)
    story.tell("retried", 2, "human", state="ready", epoch=2)


def charged_to_nobody(story: Story) -> None:
    story.claim(1, 1)
    story.put(3, followup_of=1, actor="ann")
    story.events[-1] = replace(story.events[-1], root=3)


def decided_on_by_another(story: Story) -> None:
    story.claim(1, 1)
    story.reserve("r1", 10)
    story.take_back(1, 1)
    story.claim(1, 2, "bob", host="h2")
    story.reserve("r2", 10, epoch=2, actor="bob")
    story.spend("r2", 10, kind="forfeited")


def revived(story: Story) -> None:
    story.tell("spawned", None, "human", name="cleo", roles=[], lead=False)
    story.tell("stopped_teammate", None, "human", name="cleo", reason="enough")
    story.tell("spawned", None, "board", name="cleo", roles=[], lead=False)


def made_room_with_mail(story: Story) -> None:
    story.tell("spawned", None, "human", name="cleo", roles=[], lead=False)
    story.tell("told", None, "human", message=1, to="cleo", message_kind="text", text="hello", key="m1")
    story.tell("stopped_teammate", None, "board", name="cleo", reason="made room for dan")


def shut_down_by_an_old_word(story: Story) -> None:
    story.tell("spawned", None, "human", name="cleo", roles=[], lead=False)
    story.tell("told", None, "human", message=1, to="cleo", message_kind="shutdown", text="go", key="m1")
    story.tell("stopped_teammate", None, "human", name="cleo", reason="shut down as asked")
    story.tell("spawned", None, "human", name="cleo", roles=[], lead=False)
    story.tell("stopped_teammate", None, "human", name="cleo", reason="shut down as asked")


def a_gap_in_the_log(story: Story) -> None:
    sound(story)
    del story.events[6]


@pytest.mark.parametrize(
    ("tell", "said"),
    [
        (ended_twice, "ended a second time"),
        (ended_twice_by_the_board, "ended a second time"),
        (stale_settle, "stale epoch 1"),
        (settled_twice, "which was over"),
        (stale_turn, "stale epoch 1"),
        (turn_after_the_end, "which was over"),
        (stale_reservation, "stale epoch 1"),
        (stale_follow_up, "does not hold"),
        (under_anothers_claim, "under the claim of ann"),
        (claimed_before_its_need, "before its need #1"),
        (claimed_though_its_need_failed, "before its need #1"),
        (claimed_for_another_outcome, "before its need #1"),
        (ready_before_its_need, "made ready before"),
        (two_owners, "while ann holds it"),
        (epoch_that_does_not_grow, "does not grow"),
        (claimed_before_it_is_due, "before it is due"),
        (one_key_for_two_claims, "a second time"),
        (tokens_over_the_cap, "the cap is 100"),
        (spent_over_the_cap, "the cap is 100"),
        (runs_over_the_cap, "3 is the cap"),
        (spent_twice, "was closed before"),
        (forfeited_for_less, "wholly spent"),
        (reservation_left_open, "not counted as spent"),
        (one_key_for_two_tasks, "a second time"),
        (skipped_for_nothing, "may still be met"),
        (taken_back_from_nobody, "does not hold it"),
        (skipped_without_a_word, "does not say why"),
        (behind_a_need_that_was_added, "claimed before its need #3"),
        (late_behind_a_need_that_was_added, "which was over"),
        (retried_as_ready, "made ready before its need #1"),
        (charged_to_nobody, "is not charged to #1"),
        (decided_on_by_another, "decides on what bob has reserved"),
        (revived, "without anybody's word"),
        (made_room_with_mail, "with message 1 unread"),
        (shut_down_by_an_old_word, "nobody asked it since"),
        (a_gap_in_the_log, "a gap"),
    ],
)
def test_a_broken_promise_is_caught(tell: Callable[[Story], None], said: str) -> None:
    story = Story()
    tell(story)
    found = oracle.faults(story.events, at_rest=False)
    assert any(said in fault for fault in found), found


def test_a_task_that_never_ends_is_caught() -> None:
    story = Story()
    sound(story)
    story.put(3)
    assert oracle.faults(story.events) == ["#3 never ended"]


def test_a_guard_of_which_no_person_was_told_is_caught() -> None:
    story = Story()
    story.claim(1, 1)
    story.take_back(1, 1, state="failed")
    story.tell("skipped", 2, reason="needs #1")
    assert oracle.faults(story.events) == ["a guard ended #1, and no person was told"]
    story.tell("told", 1, message=1, to="human", message_kind="notice", text="#1 was given up", key="guard-1-1")
    assert oracle.faults(story.events) == []


def test_a_reservation_that_is_never_closed_is_caught() -> None:
    story = Story()
    story.claim(1, 1)
    story.reserve("r1", 10)
    story.settle(1, 1)
    story.claim(2, 1)
    story.settle(2, 1)
    assert oracle.faults(story.events) == ["reservation r1 was never closed"]


def test_a_claim_taken_back_from_a_host_that_lives_is_counted() -> None:
    story = Story()
    story.claim(1, 1)
    story.take_back(1, 1)
    assert oracle.groundless(story.events) == 1
    told = [
        *story.events[:-1],
        Event(seq=0, at=0, kind="host_lost", task=None, root=None, actor="", data={"host": "h1"}),
    ]
    assert oracle.groundless([*told, story.events[-1]]) == 0


def test_acknowledgements_the_log_does_not_bear_out_are_caught() -> None:
    story = Story()
    sound(story)
    true = [
        ["put", 2],
        ["claim", 1, 3],
        ["turn", 1, 1, 1],
        ["reserve", "r1"],
        ["settled as", 1, 1, "retry"],
        ["settled as", 2, 1, "done"],
    ]
    assert oracle.unheard(story.events, true) == []
    for false in (
        ["put", 9],
        ["claim", 1, 2],
        ["turn", 1, 1, 2],
        ["reserve", "r2"],
        ["settled as", 1, 1, "done"],
        ["settled as", 2, 3, "done"],
    ):
        assert len(oracle.unheard(story.events, [*true, false])) == 1


def test_a_refusal_without_a_reason_is_caught() -> None:
    story = Story()
    story.claim(1, 1)
    assert oracle.unheard(story.events, [["stale", 1, 1]], at_rest=False)  # Nobody took it.
    story.take_back(1, 1)
    story.claim(1, 2, "bob", host="h2")
    assert not oracle.unheard(story.events, [["stale", 1, 1]], at_rest=False)
    story.settle(1, 2, "bob")
    assert oracle.unheard(story.events, [["stale", 1, 2]], at_rest=False)  # It was settled after all.


async def test_the_oracle_has_nothing_against_a_board_that_did_its_work(board: Board) -> None:
    team = await crew(board, "ann", "bob")
    root = await board.put("root", budget=Budget(tasks=10, tokens=100))
    await board.put("behind", parent=root.id, needs=[root.id])
    claim = await team.must_claim("ann")
    await board.settle(claim, Failed("once more", retry=True))
    while (claims := await board.count_tasks()) and claims.keys() - {"done", "failed"}:
        again = await team.claim("bob")
        if again is not None:
            key = await board.reserve(again, Amount(tokens=5))
            await board.record(again, NewTurn(number=1, kind="reply", body="1", reservation=key))
            await board.settle(again, Done())
    assert await oracle.verdict(board, [["put", root.id], ["claim", root.id, claim.epoch]]) == []
    assert await oracle.verdict(board, [["claim", root.id, 99]]) != []
