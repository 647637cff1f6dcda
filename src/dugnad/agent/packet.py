"""What a mind is told about itself and its task: who it is, where it stands, and the packet that a task starts with.

The system text is the same for all teammates of one role, so that providers can cache it. Who the teammate is begins
the first message of a conversation, which stays whatever is compacted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from ..board import Board
from ..board.around import Surroundings
from ..board.verbs.followed import ADDED
from ..errors import ToolError
from ..prompts import tell
from ..settings import AgentLimits
from ..text import NOTHING, Told, joined, one_line, persons, quote, recorded, shorten
from ..tools.message_tools import answer_since, by_runtime, message_text
from ..tools.note_tools import note_text
from ..tools.skills import Skill, skills_text
from ..tools.task_tools import budget_line, result_text, waits_for
from ..tools.teammates import described, roles_of
from ..types import ENDINGS, HUMAN, OPEN, WORDED_BY_RUNTIME, Attempt, Budget, Claim, Message, Spending, Task, Teammate
from ..workspace.files.paths import read_within
from .conversation import Conversation
from .handoff import Handoff, handoff

_ANY = (None, *ENDINGS)  # Needs that do not ask for a certain outcome.
_AGENTS_BYTES_MAX = 32 * 1024
_MATES_MAX = 30
_WORDS_COMPARED = 10_000  # Characters of a text that may have been shortened.
_HANDOFFS_SEEN = 100  # The newest attempts, from which the cost of a hand-off is learned.
_MARKS = (0.5, 0.75, 0.9)  # Of a cap: a teammate that passes one is told where it stands.
_STANDING_TURNS = 10  # So often a teammate is told where it stands.


def role_text(teammate: Teammate, team: str) -> Told:
    """The role and the team, in one paragraph."""
    role = tell("teammate.role", team=team, roles=roles_of(teammate))
    return joined((role, tell("teammate.lead") if teammate.lead else None), " ")


def name_text(teammate: Teammate) -> Told:
    """Begins the first message: the name, and what was said of just this teammate when it was spawned."""
    return joined((tell("teammate.name", name=teammate.name), persons(teammate.prompt)))


def identity(teammate: Teammate, team: str) -> Told:
    """Name, role and team, where they are not in the system text."""
    return joined((tell("teammate.name", name=teammate.name), role_text(teammate, team)), " ")


def who_text(teammate: Teammate, team: str, role_prompt: str) -> tuple[Told, Told, Told]:
    """Who a mind is that has no system text of ours, and what a person says to it."""
    return identity(teammate, team), persons(role_prompt), persons(teammate.prompt)


def system_text(teammate: Teammate, team: str, skills: tuple[Skill, ...] = (), role_prompt: str = "") -> Told:
    """The same for all teammates of one role, whatever they work on."""
    listed = tell("teammate.skills", skills=skills_text(skills)) if skills else None
    return joined((role_text(teammate, team), tell("teammate.rules"), persons(role_prompt), listed))


def standing(turn: int, turns_max: int, spending: Spending, tokens: int = 0, window: int = 1) -> Told:
    """Where the teammate stands: its turn, the budget of its goal, and from half of the window on its conversation."""
    here = tell("teammate.turn", turn=turn, most=turns_max)
    if spending.caps != Budget():
        here = tell("teammate.standing", turn=turn, most=turns_max, budget=budget_line(spending))
    return joined((here, tell("teammate.room", tokens=tokens, window=window) if 2 * tokens >= window else None), " ")


def standing_is_due(
    turn: int, turns_max: int, before: Spending | None, now: Spending, room: tuple[float, float] = (0, 0)
) -> bool:
    """At the first turn of an attempt, every tenth turn, and when a mark of a cap is passed, or of the window. `room`:
    the share of the window that was used at the turn before, and that is used now."""
    if turn == 1 or turn % _STANDING_TURNS == 0:
        return True
    was, now_used = min(room), room[1]
    return before is None or _passed(now, turn / turns_max, now_used) != _passed(before, (turn - 1) / turns_max, was)


def _passed(spending: Spending, *others: float) -> list[int]:
    """How many marks of each cap are passed, and of these other shares."""
    spent = spending.spent
    used = (
        (spending.runs, spending.tasks_max), (spent.tokens, spending.tokens_max),
        (spent.microdollars, spending.microdollars_max), (spent.milliseconds, spending.milliseconds_max),
    )  # fmt: skip
    shares = (*others, *(part / most if most else 0.0 for part, most in used))
    return [sum(share >= mark for mark in _MARKS) for share in shares]


async def packet(
    board: Board, claim: Claim, attempts: Sequence[Attempt], limits: AgentLimits, project: Path | None,
    talk: Conversation, *, check_told: bool = False,
) -> Told:  # fmt: skip
    """What a task starts with, from the board. Each part names its author. With `check_told` the check is left out,
    because the text about the workspace has it. What the conversation `talk` holds already is not told again."""
    task = claim.task
    parts = [
        tell("packet.task_number", id=task.id) if _is_beginning(task)
        else tell("packet.task", id=task.id, title=task.title)
    ]  # fmt: skip
    if _has_persons_words(task):
        parts.append(_errand(talk))
    elif task.body:
        by_runtime = task.kind in WORDED_BY_RUNTIME
        parts.append(recorded(task.body) if by_runtime else tell("packet.body", by=_by(task), body=task.body))
    if task.check and not check_told:
        parts.append(tell("packet.check", check=task.check))
    around = await board.surroundings(
        task, claim.teammate, mates=_MATES_MAX + 1, notes=limits.notes_max, messages=limits.recent_messages_max
    )
    (needed, root, asked), recent = _others(around, task), around.talk
    if behind := _waiting(around, task):
        parts.append(tell("packet.waiting", tasks=joined(behind, "; ")))
    if results := [result_text(found) for found in needed if found.ended]:
        parts.append(tell("packet.builds_on", results=joined(results)))
    if asked is not None:
        parts.append(tell("packet.asked", words=await board.words_for(task, asked)))
    if root is not None and root != asked and root.id != task.reviews:  # The order of a review has that one's words.
        of_it = tell("packet.goal_number", id=root.id) if _is_beginning(root) else None
        goal = of_it or tell("packet.goal", id=root.id, title=root.title)
        worded = root.body and root.kind not in WORDED_BY_RUNTIME
        parts.append(joined((goal, quote(root.body) if worded else None), "\n"))
    parts.append(await _team(board, around, claim.teammate))
    if task.kind in WORDED_BY_RUNTIME and task.reviews is None:  # It answers a message.
        parts += await _own_that_wait(board, claim.teammate)
    if task.kind == "goal" or _has_persons_words(task):  # Its mind may be about to split it.
        cost = handoff_text(handoff(await board.past_attempts(most=_HANDOFFS_SEEN)), talk.outside or talk.client)
        parts += [] if talk.holds(cost.rpartition(". ")[2]) else [cost]  # The last sentence has no numbers.
    if earlier := [each for each in attempts if each.epoch < claim.epoch and each.ended_as]:
        told_before = [await _attempt_text(board, each) for each in earlier]
        parts.append(joined((tell("packet.attempts"), *told_before), "\n"))
    if around.notes:
        parts.append(joined((tell("packet.notes"), *map(note_text, reversed(around.notes))), "\n"))
    # New messages are shown by themselves. Older ones were shown in another conversation, and must not be lost.
    owed = [each for each in around.requests if each.shown_at is not None and each.kind != "shutdown"]
    if _has_persons_words(task):
        unread = await board.inbox(claim.teammate)
        answered = _answered(task, [*recent, *unread])
        if not any(each in unread for each in answered):  # Another attempt was shown them; they do not come again.
            parts.append(tell("packet.asked", words=task.body))
        recent = [each for each in recent if each not in answered]
    if said := [each for each in recent if each not in owed and not _is_held(talk, claim, each)]:
        parts.append(joined((tell("packet.talk"), *_said(said)), "\n"))
        talk.retold += [each.id for each in said]
    if owed:
        told = (message_text(each, frozenset(), outside=talk.outside, client=talk.client) for each in owed)
        parts.append(joined((tell("packet.owed"), *told), "\n"))
    guide, most = await guide_text(project, limits), limits.packet_chars_max
    where = NOTHING if talk.outside or talk.client else tell("packet.shortened")
    fitting = [shorten(part, most // 2, where) for part in parts]
    return shorten(joined((*fitting, None if guide and talk.holds(guide) else guide)), most)


def _errand(talk: Conversation) -> Told:
    if talk.client:
        return tell("mcp.errand")
    return tell("external.errand") if talk.outside else tell("delivery.errand_for_human")


def handoff_text(cost: Handoff, outside: bool = False) -> Told:
    basis = tell("packet.handoff_seen", tasks=cost.tasks) if cost.tasks else tell("packet.handoff_assumed")
    if outside:
        return tell("external.handoff", tokens=round(cost.tokens, -2), seconds=cost.seconds, basis=basis)
    return tell("packet.handoff", tokens=round(cost.tokens, -2), seconds=cost.seconds, basis=basis)


def _by(task: Task) -> str:
    return "the human" if task.put_by == HUMAN else task.put_by


def _is_beginning(task: Task) -> bool:
    """Whether the title only repeats how the text begins, as that of a long goal does."""
    title = task.title.removesuffix("…").rstrip()
    return task.kind not in WORDED_BY_RUNTIME and one_line(task.body, len(title) + 10).startswith(title)


def _has_persons_words(task: Task) -> bool:
    return task.kind == "human_message" and task.put_by == HUMAN


def _is_held(talk: Conversation, claim: Claim, message: Message) -> bool:
    """Whether the conversation has the message, or needs none: it was told there, sent or asked for there, or it is
    about what was started beside another task."""
    there = message.sender == claim.teammate or message.kind in ("answer", "plan_reply")
    beside = message.key.startswith(ADDED) or (message.sender == message.recipient and message.task is not None)
    others = beside and message.task != claim.task.id
    return others or message.id in talk.heard or (there and message.task in talk.tasks)


def _answered(task: Task, messages: Sequence[Message]) -> list[Message]:
    """Those of these messages that the person's words in the task are from. Its key names the first that was unread."""
    first, found = task.key.rpartition(":")[2] if task.key.startswith("errand:") else "", list[Message]()
    for each in sorted(messages, key=lambda each: each.id):
        if each.sender == HUMAN and first.isdecimal() and each.id >= int(first):
            words = "\n\n".join(one.text for one in (*found, each))
            found += [each] if task.body.startswith(words[:_WORDS_COMPARED]) else []
    return found


async def _own_that_wait(board: Board, name: str) -> list[Told]:
    """The tasks of this teammate that wait, for one who answers a message meanwhile."""
    told = []
    for task in await board.list_tasks(states=["waiting"], teammate=name):
        needed = await board.find_all(need.task for need, state in await board.needs_of(task.id) if state == "open")
        found = [
            tell("packet.worked_on", id=each.id, who=each.teammate) if each.state == "claimed"
            else tell("packet.in_state", id=each.id, state=each.state)
            for each in sorted(needed.values(), key=lambda each: each.id)
        ]  # fmt: skip
        what = joined(found, " and ") if found else await waits_for(board, task)
        told.append(tell("packet.own_waits", id=task.id, title=task.title, what=what))
    return told


def _others(around: Surroundings, task: Task) -> tuple[list[Task], Task | None, Task | None]:
    """The tasks that this one needs; the goal, if that is another task; and the message of a person it follows from."""
    found = {each: other for each, other in around.tasks.items() if each != task.id}
    asked = found.get(task.asked_in or 0)
    asked = asked if asked is not None and _has_persons_words(asked) else None
    return [found[need.task] for need, _ in around.needs], found.get(task.root), asked


def _waiting(around: Surroundings, task: Task) -> list[Told]:
    """The open tasks that need this one, each with the outcome that it asks for; not the one that it reviews."""
    asked = {each: outcome for each, outcome in around.behind if each != task.reviews}
    found = [around.tasks[each] for each in sorted(asked) if around.tasks[each].state in OPEN]
    return [
        tell("packet.waits", id=each.id, title=each.title) if asked[each.id] in _ANY
        else tell("packet.waits_for", id=each.id, title=each.title, outcome=asked[each.id])
        for each in found
    ]  # fmt: skip


async def _team(board: Board, around: Surroundings, name: str) -> Told:
    """Who else is on the team and what each of them is doing; and who leads."""
    there = [each for each in around.team if each.name != name]
    if not there:
        return tell("packet.alone")
    mates = await described(board, there[:_MATES_MAX])
    lead = next((each.name for each in there if each.lead), None)
    return joined(
        (
            tell("packet.team", team=joined(mates, "; ")),
            tell("packet.the_lead", name=lead) if lead else None,
        ),
        " ",
    )


def _said(talk: Sequence[Message]) -> Iterator[Told]:
    """A message to several teammates is told once."""
    for (sender, text), same in groupby(talk, key=lambda each: (each.sender, each.text)):
        messages = list(same)
        who = "the runtime" if by_runtime(messages[0]) else sender
        to = ", ".join(each.recipient for each in messages)
        yield tell("packet.said", sender=who, to=to, text=shorten(text, 500))


async def _attempt_text(board: Board, attempt: Attempt) -> Told:
    head = tell("packet.attempt", number=attempt.number, by=attempt.teammate, how=attempt.ended_as)
    words = (attempt.reason, attempt.handover)
    answer = await answer_since(board, attempt.task, attempt.epoch) if attempt.ended_as == "waiting" else None
    return joined((head, *(quote(shorten(each, 4_000)) for each in words if each), answer), "\n")


async def guide_text(project: Path | None, limits: AgentLimits) -> Told:
    """What the project's AGENTS.md says, as far as it fits into a packet; empty: there is none."""
    guide = "" if project is None else await asyncio.to_thread(project_guide, project)
    told = tell("packet.guide", guide=guide) if guide else NOTHING
    return shorten(told, limits.packet_chars_max // 2, tell("packet.guide_goes_on"))


def project_guide(project: Path) -> str:
    """The project's AGENTS.md, if there is one inside the project."""
    try:
        return read_within(project, "AGENTS.md", _AGENTS_BYTES_MAX).decode(errors="replace").strip()
    except (OSError, ToolError):
        return ""
