"""What must hold after a task was cut off at some step, or at several, and resumed each time in another process.

Each function looks at pictures: of the run that nobody disturbed, of the board as each crash left it, and of the end.
It names what is wrong.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from dugnad.types import BOARD, HUMAN, Amount
from tests.crash import ten_turns
from tests.crash.crash_picture import Call, Picture
from tests.crash.ten_turns import CHILD, ERRAND, FOLLOW_UP, HINT, LINE, QUESTION, TOKENS


def verdict(calm: Picture, cuts: Sequence[Picture], end: Picture) -> list[str]:
    """Everything that is wrong with the end; nothing, if all is as promised."""
    found = [*ends_once(calm, end), *effects_once(end), *calls_once(cuts, end), *transcripts(end), *account(end)]
    return [*found, *forfeited_at_once(end), *losses(calm, cuts, end), *tokens(calm, cuts, end)]


def ends_once(calm: Picture, end: Picture) -> Iterator[str]:
    if {title: len(tasks) for title, tasks in end.tasks.items()} != {ERRAND: 1, CHILD: 1, FOLLOW_UP: 1}:
        yield f"the tasks are {sorted(end.tasks)}, {sum(map(len, end.tasks.values()))} in all"
        return
    for title in (ERRAND, CHILD, FOLLOW_UP):
        before, after = calm.only(title), end.only(title)
        if (after.state, after.result) != (before.state, before.result):
            yield f"{title} ended as {after.state}: {after.result or after.reason}"
        ends = [event.kind for event in end.events if event.task == after.id and event.kind in ("done", "failed")]
        if ends != ["done"]:
            yield f"{title} ended {len(ends)} times: {ends}"
    if not end.consistent:
        yield "the log does not replay to what the tables say"


def effects_once(end: Picture) -> Iterator[str]:
    if end.file != [LINE]:
        yield f"the file has {end.file}"
    if len(end.stamps) != 1:
        yield f"the stamps are {end.stamps}"
    if len(end.notes) != 1:
        yield f"there are {len(end.notes)} notes"
    sent = Counter((message.sender, message.recipient, message.text) for message in end.messages)
    expected = {
        (HUMAN, "alice", HINT): 1,
        ("alice", "bob", "hello"): 1,
        ("alice", HUMAN, QUESTION): 1,
        (HUMAN, "alice", ten_turns.ANSWER): 1,
    }
    # Told while the errand is not over, which depends on where it was stopped.
    told_of_end = sent.pop((BOARD, "alice", "#2 'Check it', which you added, is done (alice): checked"), 0)
    if sent != expected or told_of_end > 1:
        yield f"the messages are {dict(sent)}"
    # The packets of later tasks may remember it; the inbox brings it once.
    said = "".join(json.loads(turn.body).get("said", "") for turn in end.turns)
    shown = sum(HINT in inbox for inbox in re.findall("<inbox>.*?</inbox>", said, re.DOTALL))
    if shown != 1:
        yield f"the hint was shown {shown} times"


def calls_once(cuts: Sequence[Picture], end: Picture) -> Iterator[str]:
    """A finished call is never begun again; the model hears of an interruption exactly when there was one."""
    for cut in cuts:
        begun = [step.split()[2] for step in end.steps[len(cut.steps) :] if step.startswith("begun ")]
        for call in cut.calls:
            if call.result is not None and call.key in begun:
                yield f"{call.name} had finished and was run again"
        for call in cut.cut:
            if call.key in begun:
                yield f"{call.name} is not keyed and was run again"
    told = [call.key for call in end.told_interrupted]
    if told != (expected := list(_mended(cuts))):
        yield f"told of interruptions: {told}, but cut were: {expected}"
    for call in end.calls:
        if call.result is None:
            yield f"{call.name} never had a result"


def _mended(cuts: Sequence[Picture]) -> dict[str, tuple[Call, Picture]]:
    """The calls that were cut off, each with how things stood then. One may be cut off again before it is told."""
    return {call.key: (call, cut) for cut in cuts for call in cut.cut}


def transcripts(end: Picture) -> Iterator[str]:
    """Readable: turns numbered without a gap in each attempt, one summary, none of it said twice."""
    for (task, epoch), turns in groupby(end.turns, key=lambda turn: (turn.task, turn.epoch)):
        numbers = [turn.number for turn in turns]
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"attempt {epoch} of #{task} has the turns {numbers}"
    summaries = [turn for turn in end.turns if turn.kind == "summary"]
    if len(summaries) != 1:
        yield f"there are {len(summaries)} summaries, but one was asked for"


def account(end: Picture) -> Iterator[str]:
    """The books: what was spent is the sum of what the log says, and nothing is left reserved."""
    spending = end.spending
    if spending.reserved != Amount():
        yield f"still reserved: {spending.reserved}"
    parts = end.closed("spent", "forfeited")
    parts += [
        Amount(**{column: event.data[column] for column in Amount.__dataclass_fields__})  # type: ignore[arg-type]
        for event in end.events
        if event.kind == "turn" and event.data["unreserved"]
    ]
    for column in Amount.__dataclass_fields__:
        if getattr(spending.spent, column) != (total := sum(getattr(part, column) for part in parts)):
            yield f"{column} spent: {getattr(spending.spent, column)}, but by the log {total}"
    begun = sum(event.kind == "claimed" and event.data.get("continues") is None for event in end.events)
    if spending.runs != begun:
        yield f"{spending.runs} runs are counted, and {begun} were begun"
    reserved = Counter(event.data["key"] for event in end.events if event.kind == "reserved")
    closed = Counter(event.data["key"] for event in end.events if event.kind in ("spent", "forfeited"))
    if reserved != closed:
        yield "not every reservation was settled exactly once"


def forfeited_at_once(end: Picture) -> Iterator[str]:
    """What a crash left open counts as spent before anybody goes on with the task."""
    opened = {event.data["key"]: event.seq for event in end.events if event.kind == "reserved"}
    for lost in end.events:
        if lost.kind == "forfeited":
            since = range(opened[lost.data["key"]], lost.seq)
            if any(event.kind == "claimed" and event.task == lost.task and event.seq in since for event in end.events):
                yield f"the task was claimed again before {lost.data['tokens']} tokens counted as spent"


def losses(calm: Picture, cuts: Sequence[Picture], end: Picture) -> Iterator[str]:
    """What crashes cost: the reservations they left open, and the turns it takes to look again."""
    unknown = _total([cut.spending.reserved for cut in cuts])
    if (forfeited := _total(end.closed("forfeited"))) != unknown:
        yield f"{unknown} was open and unknown, but {forfeited} counts as spent"
    if end.spending.runs != calm.spending.runs:  # What a lost host had begun is gone on with.
        yield f"{end.spending.runs} runs, and {calm.spending.runs} without a crash"
    expected = {title: calm.replies(title) for title in (ERRAND, CHILD, FOLLOW_UP)}
    expected[ERRAND] += sum(_turns_to_mend(call.name, cut) for call, cut in _mended(cuts).values())
    replies = {title: end.replies(title) for title in expected}
    if replies != expected:
        yield f"the replies are {replies}, not {expected}"


def _turns_to_mend(name: str, cut: Picture) -> int:
    """A line may be there or not: one turn to look, one more to write it. What only reads is just asked for again."""
    return 2 if name == "append" and not cut.file else 1


def tokens(calm: Picture, cuts: Sequence[Picture], end: Picture) -> Iterator[str]:
    """Every model call is in the account: with what it cost, or with all it could have cost."""
    consulted = _consulted(end)
    wasted = max([_consulted(cut) for cut in cuts if any(call.name == "consult" for call in cut.cut)], default=0)
    if consulted != _consulted(calm) + wasted:
        yield f"the consulted mind was asked {consulted} times"
    unheard = sum(_unheard(end))
    before = max([len(_unheard(cut)) for cut in cuts if all(call.name != "todo" for call in cut.calls)], default=0)
    if len(_unheard(end)) != len(_unheard(calm)) + before:
        yield f"{len(_unheard(end))} answers were lost on the way"
    forfeited = _total(end.closed("forfeited"))
    total = sum(TOKENS[title] * end.replies(title) for title in (ERRAND, CHILD, FOLLOW_UP))
    total += TOKENS["(consult)"] * consulted + TOKENS["(summary)"] + unheard + forfeited.tokens
    if end.spending.spent.tokens != total:
        yield f"{end.spending.spent.tokens} tokens are spent, not {total}"
    if end.spending.spent.milliseconds != forfeited.milliseconds:
        yield f"{end.spending.spent.milliseconds} ms are spent, but the clock stood still"


def _consulted(picture: Picture) -> int:
    return sum(each.tokens == TOKENS["(consult)"] for each in picture.closed("spent"))


def _unheard(picture: Picture) -> list[int]:
    """What was counted for calls whose answer was lost: all that was reserved."""
    return [each.tokens for each in picture.closed("spent") if each.tokens > max(TOKENS.values())]


def _total(amounts: Sequence[Amount]) -> Amount:
    return Amount(**{c: sum(getattr(each, c) for each in amounts) for c in Amount.__dataclass_fields__})
