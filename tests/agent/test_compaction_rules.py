"""The rules of making room, on conversations made at random: nothing torn, everything fits, replay is equal."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dugnad.agent import compaction
from dugnad.agent.conversation import Conversation, estimate_tokens, size_bytes
from dugnad.models.port import Reply, Said, ToolCall, ToolResult, Usage
from dugnad.settings import AgentLimits
from dugnad.text import NOTHING, Told
from dugnad.types import Amount, NewTurn, Turn
from tests.agent.stage_agent import state_of, value

LIMITS = AgentLimits()
WHO = Told("You are alice.")
TEXTS = st.one_of(
    st.text(max_size=40), st.integers(0, 3_000).map(lambda n: "x" * n), st.integers(0, 900).map(lambda n: "é\n" * n)
)
TURNS = st.lists(
    st.tuples(
        st.sampled_from(["reply", "reply", "reply", "shorten", "summary", "harder"]), TEXTS, st.lists(TEXTS, max_size=4)
    ),
    max_size=12,
)


def as_read(turn: NewTurn, epoch: int) -> Turn:
    """A turn as the board would give it back."""
    return Turn(
        task=1, epoch=epoch, number=turn.number, kind=turn.kind, body=turn.body, used=Amount(), covers=None, at=0
    )


class Play:
    """A conversation as the loop leads it, with all that is recorded on the way."""

    def __init__(self, packet: str = "The packet.") -> None:
        self.packet = packet
        self.talk = Conversation(epoch=1)
        self.turns: list[Turn] = []

    def take(self, kind: str, text: str, results: list[str]) -> None:
        talk = self.talk
        if kind == "reply":
            self.reply(text, results)
        elif kind == "shorten" and (shortened := compaction.shortened_results(talk, 0)[0]):
            self.record(talk.next_turn("summary", {"shortened": shortened}))
            talk.apply_shortened(shortened)
        elif kind in ("summary", "harder") and (kept := compaction.cut(talk, 0 if kind == "harder" else 100)):
            self.record(talk.next_turn("summary", {"summary": text, "kept_from": kept, "who": WHO}))
            talk.apply_summary(text, kept, WHO)

    def reply(self, text: str, results: list[str]) -> None:
        talk = self.talk
        made = tuple(ToolCall(f"c{place}", ("todo", "look")[place % 2], "{}") for place in range(len(results)))
        reply = Reply(text=text, calls=made, usage=Usage(input_tokens=len(text)))
        who = WHO if not talk.replies else NOTHING
        said = Said(f"{WHO}\n\n{self.packet}") if who else Said(f"turn {talk.replies}") if talk.replies % 3 else None
        self.record(talk.next_turn("reply", talk.reply_turn(said, reply, who)))
        talk.apply_reply(said, reply, who)
        for place in reversed(range(len(results))):
            self.record(talk.next_turn("tool", {"place": place, "text": results[place]}))
            talk.apply_result(place, results[place])

    def record(self, turn: NewTurn) -> None:
        self.turns.append(as_read(turn, self.talk.epoch))
        self.talk.number = turn.number


def play(steps: list[tuple[str, str, list[str]]], packet: str = "The packet.") -> Play:
    made = Play(packet)
    for step in steps:
        made.take(*step)
    return made


def must_be_whole(entries: list[object]) -> None:
    """Each result answers a call of the reply right before it, each call is answered, and the runtime speaks first."""
    waiting: list[str] = []
    for place, entry in enumerate(entries):
        if isinstance(entry, ToolResult):
            waiting.remove(entry.call)
            continue
        assert not waiting, "a call without a result"
        assert isinstance(entry, Said) if place == 0 else True
        if isinstance(entry, Reply):
            assert place > 0
            waiting = [call.id for call in entry.calls]
    assert not waiting


@settings(max_examples=150)
@given(TURNS)
def test_calls_and_results_are_never_torn_apart(steps: list[tuple[str, str, list[str]]]) -> None:
    made = Play()
    for step in steps:
        made.take(*step)
        must_be_whole(list(made.talk.entries))


@settings(max_examples=150)
@given(TURNS)
def test_the_recorded_turns_fold_to_the_same_conversation(steps: list[tuple[str, str, list[str]]]) -> None:
    made = play(steps)
    again = Conversation()
    again.attempt(1)
    for turn in made.turns:
        again.apply(turn)
    assert state_of(again) == state_of(made.talk)


@settings(max_examples=150)
@given(TURNS, st.integers(0, 2_000))
def test_a_cut_stands_in_front_of_a_reply_and_keeps_the_last_one(
    steps: list[tuple[str, str, list[str]]], keep: int
) -> None:
    talk = play(steps).talk
    kept = compaction.cut(talk, keep)
    replies = [place for place, entry in enumerate(talk.entries) if isinstance(entry, Reply)]
    assert kept == 0 or (kept in replies and kept > replies[0])
    if len(replies) > 1 and keep == 0 and kept:
        assert kept == replies[-1]


@settings(max_examples=150)
@given(TURNS)
def test_shortening_only_ever_touches_old_long_results_and_is_done_once(
    steps: list[tuple[str, str, list[str]]],
) -> None:
    talk = play(steps).talk
    before = list(talk.entries)
    replies = [place for place, entry in enumerate(before) if isinstance(entry, Reply)]
    shortened, _ = compaction.shortened_results(talk, 0)
    talk.apply_shortened(shortened)
    touched = {place for place, _ in shortened}
    for place, (old, new) in enumerate(zip(before, talk.entries, strict=True)):
        if place not in touched:
            assert old is new
            continue
        assert isinstance(old, ToolResult)
        assert isinstance(new, ToolResult)
        assert place < replies[-4]
        assert (new.call, new.name) == (old.call, old.name)
        assert len(new.text) < len(old.text)
    assert compaction.shortened_results(talk, 0)[0] == []


def full(text: str, turns: int, packet: str) -> Conversation:
    return play([("reply", "thinking", [text])] * turns, packet).talk


def fits(talk: Conversation, window: int) -> bool:
    request = compaction.summary_request(talk, len(talk.entries), "alice", window, LIMITS)
    return estimate_tokens(request, 0) + request.output_tokens_max <= window


@pytest.mark.parametrize("window", [8_000, 24_000, 200_000])
@pytest.mark.parametrize("turns", [1, 40, 400])
def test_the_summary_asked_for_fits_the_window_however_full_it_is(window: int, turns: int) -> None:
    assert fits(full("word " * 3_000, turns, "word " * 12_000), window)


@pytest.mark.parametrize("text", ["\n" * 15_000, "字" * 15_000], ids=["short lines", "three bytes a letter"])
def test_the_summary_asked_for_fits_the_window_in_any_script(text: str) -> None:
    assert fits(play([("reply", text, [text])] * 9).talk, 24_000)


@settings(max_examples=100)
@given(TURNS)
def test_a_plain_summary_is_bounded(steps: list[tuple[str, str, list[str]]]) -> None:
    talk = play(steps).talk
    text = compaction.plain_summary(talk, len(talk.entries)) if talk.entries else ""
    assert len(text) < 8_200


# Room is made rarely, and in one go.

WINDOW = 20_000
FIXED = 3_000  # Tokens of the system text and the tools.
OUTPUT = "".join(f"line {number}: {'x' * 40}\n" for number in range(60))


class LongPlay(Play):
    """A conversation whose provider counts four bytes a token, and whose room is made as the loop makes it."""

    def __init__(self) -> None:
        super().__init__()
        self.views: list[list[str]] = []
        self.summaries = 0

    def turn(self, output: str) -> None:
        talk = self.talk
        if talk.size_tokens > WINDOW * LIMITS.micro_share:
            low = int(WINDOW * LIMITS.low_share)
            shortened, enough = compaction.shortened_results(talk, low)
            if enough:
                talk.apply_shortened(shortened)
            else:
                self.summaries += 1
                talk.apply_summary(Told("Summary."), compaction.cut(talk, int(WINDOW * LIMITS.keep_share)), WHO)
            assert talk.size_tokens <= low
        self.reply(f"Step {talk.replies}.", [output])
        self.views.append([str(value(entry)) for entry in talk.entries])
        talk.tokens, talk.uncounted = FIXED + sum(map(size_bytes, talk.entries)) // 4, 0

    def changes(self) -> int:
        """How often a view does not begin with the one before it."""
        pairs = itertools.pairwise(self.views)
        return sum(after[: len(before)] != before for before, after in pairs)


def test_over_two_hundred_turns_the_prefix_changes_rarely() -> None:
    made = LongPlay()
    for _ in range(200):
        made.turn(OUTPUT)
    added = 200 * size_bytes(ToolResult("c", "look", OUTPUT)) // 4
    assert made.changes() <= added // int(WINDOW * (LIMITS.micro_share - LIMITS.low_share)) + 1
    assert 0 < made.summaries < made.changes()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 15_000), min_size=30, max_size=60))
def test_nothing_changes_between_two_times_of_making_room(lengths: list[int]) -> None:
    made = LongPlay()
    for length in lengths:
        made.turn("word\n" * (length // 5))
    assert made.changes() <= sum(lengths) // 4 // int(WINDOW * (LIMITS.micro_share - LIMITS.low_share)) + 1


def test_a_shortened_result_keeps_its_lines_and_says_where_the_rest_is() -> None:
    talk = play([("reply", "look", [OUTPUT])] * 6).talk
    ((place, text), *_), _ = compaction.shortened_results(talk, 0)
    assert place == 2
    assert text.startswith("line 0: ")
    assert OUTPUT.startswith(text.partition("\n[… ")[0])
    assert text.endswith(OUTPUT[-150:])
    assert "characters left out; read_output(output='1.2') shows them …]\n" in text


def test_the_largest_and_oldest_results_are_shortened_first_and_no_more_than_needed() -> None:
    talk = play([("reply", "look", ["x" * size]) for size in (2_000, 9_000, 2_000, 2_000, 2_000, 2_000, 2_000)]).talk
    talk.tokens, talk.uncounted = 10_000, 0
    shortened, enough = compaction.shortened_results(talk, 8_000)
    assert enough
    assert [len(talk.entries[place].text) for place, _ in shortened] == [9_000]
    assert not compaction.shortened_results(talk, 1_000)[1]


FILES = {"read": "read_file", "edit": "edit_file", "write": "write_file"}


def worked_on(*steps: str) -> Conversation:
    """A conversation of calls such as "read a" with results of 2,000 characters, and four short replies behind them."""
    talk = Conversation(epoch=1)
    for number, step in enumerate((*steps, *["list ."] * compaction.RECENT_REPLIES)):
        what, _, path = step.partition(" ")
        arguments = path if path.startswith("{") else f'{{"path": "{path}"}}'
        made = ToolCall("c", FILES.get(what, "bash"), arguments)  # An id is unique only within its reply.
        talk.apply_reply(Said(f"turn {number}"), Reply(calls=(made,), usage=Usage(input_tokens=10_000)))
        talk.apply_result(0, "x" * 2_000)
    return talk


def cut_order(talk: Conversation) -> list[int]:
    """The numbers of the steps whose results are shortened, first those that are shortened for the least room."""
    order: list[int] = []
    for size in range(talk.size_tokens, 0, -10):
        shortened, _ = compaction.shortened_results(talk, size)
        order += [place // 3 for place, _ in shortened if place // 3 not in order]
    return order


def test_the_source_that_is_being_edited_is_shortened_last() -> None:
    assert cut_order(worked_on("read a", "read b", "edit a", "run", "run")) == [1, 2, 3, 4, 0]
    assert cut_order(worked_on("read a", "run", "write a", "run")) == [1, 2, 3, 0]


def test_of_several_looks_at_a_file_the_last_one_is_kept_longest() -> None:
    assert cut_order(worked_on("read a", "read a", "edit a", "run")) == [0, 2, 3, 1]
    assert cut_order(worked_on("read a", "edit a", "read a", "run")) == [0, 1, 3, 2]


@pytest.mark.parametrize("steps", [("edit a", "read a", "run"), ("read a", "edit b", "run"), ("read {", "edit {")])
def test_other_results_are_shortened_by_their_age_alone(steps: tuple[str, ...]) -> None:
    assert cut_order(worked_on(*steps)) == list(range(len(steps)))
