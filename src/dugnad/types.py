"""The vocabulary: what a board holds, as frozen records.

Times are integer milliseconds since 1970 on the database's clock; money is integer micro-dollars.
Nothing here does I/O or knows how a record is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Literal

# blocked: it waits for its needs.
# scheduled: its needs are met, but it is not due yet (a delay, or the back-off of a retry).
# ready: it may be claimed now.
# claimed: one teammate holds it, under one epoch.
# waiting: it goes on after an answer of a human, an approved plan, the end of other tasks, or a raised budget.
# skipped: it ended because a need of it can never be met.
TaskState = Literal["blocked", "scheduled", "ready", "claimed", "waiting", "done", "failed", "cancelled", "skipped"]
ENDED: frozenset[str] = frozenset({"done", "failed", "cancelled", "skipped"})
OPEN: frozenset[str] = frozenset({"blocked", "scheduled", "ready", "claimed", "waiting"})

# A need may name one of these instead of an outcome: the state in which the needed task ended.
ENDINGS: frozenset[str] = frozenset({"failed", "cancelled", "skipped", "ended"})

# A goal is what a person wants, and has no parent; work is a part of one. A review looks at the work of the task it
# `reviews`. A message is answered: to teammates, or to a person, who is sent the result. A budget is no work and
# holds the budget of the tasks under it; only boards of earlier versions have such tasks.
TaskKind = Literal["goal", "work", "review", "message", "human_message", "budget"]
MESSAGES: frozenset[str] = frozenset({"message", "human_message"})
WORDED_BY_RUNTIME: frozenset[str] = MESSAGES | {"review"}  # Except those that the human put, in the human's words.

WaitingFor = Literal["human", "plan", "tasks", "budget"]
MessageKind = Literal["text", "shutdown", "shutdown_reply", "plan", "plan_reply", "question", "answer", "notice"]
TeammateStatus = Literal["wanted", "idle", "working", "waiting", "stopped", "failed", "lost"]
TurnKind = Literal["request", "live", "reply", "tool", "summary", "trouble"]

HUMAN = "human"  # The recipient every board has; never stopped, never seated.
BOARD = "board"  # The sender of what the board itself says.


@dataclass(frozen=True, slots=True)
class Need:
    """An edge: wait until `task` ends done, or, with `outcome`, until it ends with just that one.

    In `put_many`, a negative `task` refers to the batch itself: -1 is its first entry.
    """

    task: int
    outcome: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a root may spend in all. None means no cap of that kind."""

    tasks: int | None = None
    tokens: int | None = None
    dollars: float | None = None
    seconds: float | None = None

    def over(self, below: Budget) -> Budget:
        """These caps, and for each kind without one the cap below."""
        caps = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(below, **{name: cap for name, cap in caps.items() if cap is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A quantity of what model and tool calls use up."""

    tokens: int = 0
    microdollars: int = 0
    milliseconds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """The account of one root: caps, what was spent, what is reserved, and whether work is held."""

    root: int
    tasks_max: int | None
    tokens_max: int | None
    microdollars_max: int | None
    milliseconds_max: int | None
    runs: int
    spent: Amount
    reserved: Amount
    tasks: int  # Tasks under this root, itself included.
    held: str | None  # Why nothing under this root can be claimed now, or None.

    def left(self, kind: str) -> int | None:
        """What is neither spent nor reserved of tokens, microdollars or milliseconds; None: there is no cap."""
        cap = getattr(self, f"{kind}_max")
        return None if cap is None else int(cap - getattr(self.spent, kind) - getattr(self.reserved, kind))

    @property
    def caps(self) -> Budget:
        dollars, milliseconds = self.microdollars_max, self.milliseconds_max
        return Budget(
            tasks=self.tasks_max,
            tokens=self.tokens_max,
            dollars=None if dollars is None else dollars / 1_000_000,
            seconds=None if milliseconds is None else milliseconds / 1_000,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """A provider key a call goes through, and how fast the whole team may use it."""

    key: str  # A label such as "anthropic:3f9a1c02"; never the secret itself.
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooldown:
    """A pause of one provider key, for the whole team."""

    key: str
    until: int
    seconds: float  # How long it was asked for last.
    strikes: int  # Cool-downs that came one after another; each makes the next longer.
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """A task to be put on the board. `key` makes a repeated put return the first task."""

    title: str
    body: str = ""
    needs: tuple[Need | int, ...] = ()
    role: str | None = None
    assignee: str | None = None
    priority: int = 0
    check: str | None = None
    plan: bool = False  # Its teammate may only read until its plan is approved.
    review: str | None = None  # The role whose approval it asks for before it counts as done.
    network: bool = False  # Its commands may reach the hosts that a person allowed; else none.
    not_for: str | None = None  # These teammates may not claim it: names with commas between.
    delay_seconds: float = 0.0
    not_before: int | None = None  # Milliseconds since 1970; the later of this and the delay counts.
    key: str | None = None
    parent: int | None = None
    budget: Budget | None = None  # Of a root only; a child draws on its root's.
    account: int | None = None  # The shared budget that it draws on instead; its number is below zero.
    kind: TaskKind | None = None  # None: a goal, or with a parent, work.
    reviews: int | None = None  # Of a review: the task whose work it looks at,
    reviews_commit: str | None = None  # and the commit, or another name for just that work.


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One piece of work, as it stands."""

    id: int
    root: int
    parent: int | None
    depth: int
    asked_in: int | None  # The task that answers the message of a person that this one follows from.
    key: str
    kind: TaskKind
    reviews: int | None
    reviews_commit: str | None
    title: str
    body: str
    role: str | None
    assignee: str | None
    priority: int
    chain: int  # The longest chain of dependents that was put behind it.
    check: str | None
    plan: bool
    review: str | None
    network: bool
    not_for: str | None
    state: TaskState
    open_needs: int
    due_at: int | None
    epoch: int  # Grows with every claim and every way out of one, except that a lost host's task keeps its own.
    claims: int  # Times it was claimed since it was put or retried.
    tries: int  # Of those, the ones that were lost or failed.
    teammate: str | None  # Who holds it, or held it last.
    host: str | None
    waiting_for: WaitingFor | None
    request: str | None  # The request whose answer it waits for.
    outcome: str | None
    result: str | None
    merged_into: str | None  # As `Done` says it, and the three below.
    merged_as: str | None
    files_in: str | None
    triggers: str | None
    reason: str | None  # Why it failed, was skipped, cancelled, released, or waits.
    put_by: str
    put_at: int
    ended_at: int | None

    @property
    def ended(self) -> bool:
        return self.state in ENDED


# A new field of a task stands in five places: in a migration; here, in `Task`, and in `NewTask` or, if it is known only
# at the end, in `Done`; in the statement `insert_tasks` or `settle_tasks`; where it is checked, `rules.new_task` or
# `settle.check_outcome`; and where people see it, `view/tables.py` or `whole_result`. The rest reads the fields here.
GIVEN = tuple(each.name for each in fields(NewTask) if each.name in Task.__slots__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A teammate's hold on a task. Every write of the holder carries it."""

    task: Task
    epoch: int
    number: int  # Which attempt at the task this is, from 1.
    continues: int | None  # The epoch of the interrupted or waiting attempt this one goes on from.
    teammate: str
    host: str
    context: str | None = None  # The conversation it is a part of, if other tasks have the same,
    follows: int | None = None  # and the task whose conversation it goes on from.


@dataclass(frozen=True, slots=True)
class Done:
    """The work is finished. `outcome` is what dependents may ask for, for example "approved"."""

    result: str = ""
    outcome: str | None = None
    merged_into: str | None = None  # The branch that its work was merged into,
    merged_as: str | None = None  # and the commit there; None: the branch had all of it before.
    files_in: str | None = None  # The folder with its files, where nothing is merged.
    triggers: str | None = None  # The files it changes that make other programs run something.
    by: str | None = None  # Who did the work, if the holder only brought it in.


DELIVERY = tuple(name for name in Done.__slots__ if name != "by")  # What the task of a `Done` says of it, by column.


@dataclass(frozen=True, slots=True)
class Failed:
    """The work cannot be done. With `retry`, another attempt is made while attempts remain."""

    reason: str
    retry: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The task waits until something happens; the next claim goes on in the same transcript.

    human, plan: `question` is sent to `ask` and the answer lets the task go on.
    tasks: goes on when all of `tasks` have ended.
    budget: goes on when the cap is raised, or others give back what they reserved; `amount` is what did not fit.
    """

    on: WaitingFor
    question: str = ""
    ask: str = HUMAN
    tasks: tuple[int, ...] = ()
    amount: Amount = Amount()


@dataclass(frozen=True, slots=True)
class Released:
    """Given back for anyone, now or after a delay. With `resume`, the next claim goes on in the same transcript."""

    why: str
    delay_seconds: float = 0.0
    resume: bool = False


Outcome = Done | Failed | Waiting | Released


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of a task: who, when, how it ended, and what it handed over."""

    task: int
    epoch: int
    number: int
    teammate: str
    host: str
    continues: int | None
    follows: int | None = None  # The task whose conversation it goes on from.
    claimed_at: int
    ended_at: int | None
    ended_as: str | None  # done, failed, retry, waiting, released, lost, cancelled, or None while it runs.
    handover: str | None  # Opaque JSON that later attempts are shown.
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTurn:
    """A step to be recorded. `number` counts from 1 within the attempt and makes it idempotent."""

    number: int
    kind: TurnKind
    body: str  # Opaque JSON.
    used: Amount = field(default_factory=Amount)
    reservation: str | None = None  # Settled with `used`, in the same transaction.
    shown: tuple[int, ...] = ()  # Messages this turn shows to the model.
    covers: tuple[int, int] | None = None  # A summary: the range of turns it stands for.


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    task: int
    epoch: int
    number: int
    kind: TurnKind
    body: str
    used: Amount
    covers: tuple[int, int] | None
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    id: int
    key: str
    sender: str
    recipient: str
    kind: MessageKind
    text: str
    request: str | None  # Of a request, its own id; of a reply, the id of what it replies to.
    accepted: bool | None  # Of a reply to a shutdown or plan request.
    task: int | None
    sent_at: int
    shown_at: int | None  # None: queued.


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownRequest:
    """A teammate was asked to shut down. `accepted` is None until it answers."""

    teammate: str
    sender: str
    request: str
    why: str
    accepted: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """An entry of the team's scratchpad."""

    id: int
    author: str
    title: str
    text: str
    task: int | None
    root: int | None
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Teammate:
    """A named agent, as the board knows it. `status` is derived when it is read, so it is true."""

    name: str
    roles: tuple[str, ...]
    lead: bool
    prompt: str
    model: str
    plan: bool  # It may only read until the plan of its task is approved.
    keep_context: bool = False  # Its conversation goes on from task to task.
    status: TeammateStatus
    task: int | None = None  # What it works on,
    task_title: str | None = None  # and its title.
    host: str | None
    seat: int  # Grows whenever a host takes the teammate; an old host's seat is void.
    reason: str | None
    spawned_at: int
    named: bool = False  # Somebody asked for it by name. Otherwise it joined because the team grew.


@dataclass(frozen=True, slots=True, kw_only=True)
class HostInfo:
    id: str
    label: str
    alive: bool
    started_at: int
    lease_until: int = 0  # By the board's clock.


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One change of the board."""

    seq: int
    at: int
    kind: str
    task: int | None
    root: int | None
    actor: str
    data: dict[str, object]
