"""A board's log in memory: every entity as it was after any event. Pure: no I/O, no clock.

`replay.apply` says what an event does. This adds what the replayed state does not have: times, what was spent on each
task, what each teammate is doing, and which lane a task is in.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, cast

from ..board import rules
from ..board.replay import COLUMNS, Entity, State, apply
from ..types import HUMAN, OPEN, Event
from ..view.live import Doing, note_doing
from .added import ADDED, added, lane_of
from .tracks import AMOUNTS, AccountTrack, SpendingTrack, Spent, TaskTrack, Track

T = TypeVar("T")
_KEPT_MORE = 1_000
TRACKED = ("task", "attempt", "budget", "message", "note", "teammate", "host", "cooldown")
_TRACKS: Mapping[str, type[Track]] = {"task": TaskTrack, "attempt": SpendingTrack, "budget": AccountTrack}
_APART = {"task": frozenset({"needs"}), "budget": frozenset(AMOUNTS)}  # Facts that a track keeps in another way.


class Payment(NamedTuple):
    """What one event added to what was spent, and to the replies of models."""

    seq: int
    at: int
    root: int
    task: int
    teammate: str
    model: str  # The teammate's own, or else the provider key's label; empty: neither is known.
    tokens: int
    microdollars: int
    turns: int


class BoardHistory:
    """A board from event `first` on. `state`: what the log replays to up to `first`; both from `Board.pruned_state`."""

    def __init__(self, first: int = 0, state: State | None = None) -> None:
        self.first = self.last = first
        self.tracks: dict[str, dict[str, Track]] = {kind: {} for kind in TRACKED}
        # By task: what belongs to it, at any time. A view leaves out what was not there yet.
        self.children: dict[str, list[str]] = {}
        self.attempts_of: dict[str, list[str]] = {}
        self.messages_of: dict[str, list[str]] = {}
        self.reviews_of: dict[str, list[str]] = {}
        self.asked: dict[str, str] = {}  # By request, the message that wants a reply,
        self.replies: dict[str, str] = {}  # and the reply.
        self.payments: list[Payment] = []
        self.kept: dict[int, tuple[Entity, Any]] = {}  # What was made of facts, by their identity.
        # Of the last event only, so that a live page need not look at every task and message.
        self.in_state: dict[str, dict[str, None]] = {}  # Tasks.
        self.unread: dict[str, None] = {}  # Messages to the human.
        self.held: dict[str, None] = {}  # Budgets.
        self._state = state or State()
        self._times = array("q")  # Of each event after `first`.
        self._doing: dict[str, Doing] = {}
        self._moved = array("q")  # The events of `_moves`.
        self._moves: list[tuple[str, str]] = []  # Each change: the kind and the id of the entity.
        for kind in TRACKED:
            for each, facts in self._state[kind].items():
                self._begin(kind, each, facts, {"lane": lane_of(facts)} if kind == "task" else {})
            self._state[kind].touched.clear()
        del self._moved[:], self._moves[:]

    @property
    def behind(self) -> Mapping[str, set[str]]:
        """Which tasks may wait for a task."""
        return self._state.behind

    def add(self, event: Event) -> None:
        """The next event. One that is known already changes nothing."""
        if event.seq <= self.last:
            return
        if event.seq != self.last + 1:
            raise LookupError(f"Event {event.seq} does not follow {self.last}: the log was pruned; begin again.")
        apply(self._state, event)
        self.last = event.seq
        self._times.append(event.at)
        for kind in TRACKED:
            if touched := self._state[kind].touched:
                for each in touched:
                    self._look(kind, each, event)
                touched.clear()
        self._state["reservation"].touched.clear()
        if event.kind in ("turn", "spent", "forfeited"):
            self._pay(event)
        self._see(event)

    # Reading.

    def made_of(self, kind: str, each: str, facts: Entity, make: Callable[[str, Entity], T]) -> T:
        """What `make` makes of these facts, made once for the first and the last version of an entity: of most entities
        a past view has one of the two."""
        kept = self.kept.get(id(facts))
        if kept is not None and kept[0] is facts:
            return cast(T, kept[1])
        made = make(each, facts)
        if type(facts) is not dict or facts is self.tracks[kind][each].now:
            if len(self.kept) > 2 * len(self.tracks[kind]) + _KEPT_MORE:
                self.kept.clear()
            self.kept[id(facts)] = (facts, made)
        return made

    def at(self, seq: int | None = None, *, leases: Mapping[str, int] | None = None) -> BoardView:
        """The board after this event, or now. `leases`: until when each host has its own, where that is known."""
        found = self.last if seq is None else max(self.first, min(seq, self.last))
        return BoardView(self, found, leases or {})

    def changed(self, after: int, until: int | None = None) -> dict[str, set[str]]:
        """By kind, the ids of the entities that these events changed: all after `after`, up to `until`."""
        end = len(self._moved) if until is None else bisect_right(self._moved, until)
        found: dict[str, set[str]] = {kind: set() for kind in TRACKED}
        for kind, each in self._moves[bisect_right(self._moved, after) : end]:
            found[kind].add(each)
        return found

    def time_of(self, seq: int) -> int:
        """When this event was written; for one that was pruned, the first time that is known. 0: none is."""
        return self._times[max(0, min(seq, self.last) - self.first - 1)] if self._times else 0

    def ticks(self, most: int = 200) -> list[tuple[int, int]]:
        """Event numbers with their times, evenly over the log, the first and the last included."""
        count = self.last - self.first
        steps = min(max(1, most - 1), max(1, count))
        numbers = sorted({self.first + count * step // steps for step in range(steps + 1)})
        return [(seq, self.time_of(seq)) for seq in numbers]

    # What an event changed.

    def _look(self, kind: str, each: str, event: Event) -> None:
        """Compare what an event may have changed with what is known."""
        track = self.tracks[kind].get(each)
        facts = dict.get(self._state[kind], each)
        if facts is None:
            if track is not None and track.now is not None:
                track.end(event.seq)
                self._move(event.seq, kind, each)
            return
        if track is None or track.now is None:
            self._begin(kind, each, facts, added(kind, each, None, facts, event))
            return
        now, seq = track.now, event.seq
        apart = _APART.get(kind, frozenset())
        changed = {name: value for name, value in facts.items() if now.get(name, now) != value and name not in apart}
        moved = False
        if isinstance(track, AccountTrack) and (amounts := {n: facts[n] for n in AMOUNTS if facts[n] != now[n]}):
            track.move(seq, amounts)
            moved = True
        if isinstance(track, TaskTrack) and facts["needs"]:
            moved = track.judge(seq, facts["needs"])
        changed |= added(kind, each, now, facts, event)
        gone = now.keys() - facts.keys() - ADDED[kind].keys() if len(now) != len(facts) + len(ADDED[kind]) else ()
        if changed or gone:
            track.change(seq, changed, frozenset(gone))
        if changed or gone or moved:
            self._count(kind, each, now)
            self._move(seq, kind, each)

    def _begin(self, kind: str, each: str, facts: Entity, more: Entity) -> None:
        track = self.tracks[kind].setdefault(each, _TRACKS.get(kind, Track)())
        track.begin(self.last, {**facts, **ADDED[kind], **more})
        self._link(kind, each, facts)
        self._count(kind, each, None)
        self._move(self.last, kind, each)

    def _count(self, kind: str, each: str, was: Entity | None) -> None:
        now = self.tracks[kind][each].now
        assert now is not None
        if kind == "task" and (was is None or was["state"] != now["state"]):
            if was is not None:
                del self.in_state[was["state"]][each]
            self.in_state.setdefault(now["state"], {})[each] = None
        elif kind == "message" and is_unread(now):
            self.unread[each] = None
        elif kind == "message":
            self.unread.pop(each, None)
        elif kind == "budget" and now["held"] is not None:
            self.held[each] = None
        elif kind == "budget":
            self.held.pop(each, None)

    def _link(self, kind: str, each: str, facts: Entity) -> None:
        if kind == "task":
            if facts["parent"] is not None:
                self.children.setdefault(str(facts["parent"]), []).append(each)
            if facts["reviews"] is not None:
                self.reviews_of.setdefault(str(facts["reviews"]), []).append(each)
        elif kind == "attempt":
            self.attempts_of.setdefault(each.partition(".")[0], []).append(each)
        elif kind == "message":
            if facts["task"] is not None:
                self.messages_of.setdefault(str(facts["task"]), []).append(each)
            if facts["request"] is not None:
                (self.asked if facts["kind"] in rules.REPLY_TO else self.replies).setdefault(facts["request"], each)

    def _move(self, seq: int, kind: str, each: str) -> None:
        self._moved.append(seq)
        self._moves.append((kind, each))

    def _pay(self, event: Event) -> None:
        data: dict[str, Any] = event.data
        reply = event.kind == "turn" and data.get("turn_kind") == "reply"
        reservation: Entity = {} if event.kind == "turn" else dict.get(self._state["reservation"], data["key"], {})
        counts = event.kind != "turn" or data["unreserved"]  # A reservation is settled by an event of its own.
        tokens, microdollars, milliseconds = (data[column] if counts else 0 for column in COLUMNS)
        number = data["number"] if event.kind == "turn" and data.get("turn_kind") != "trouble" else 0
        more = Spent(tokens, microdollars, milliseconds, int(reply), data["tokens"] if reply else 0, number)
        if not any(more):
            return
        attempt = f"{event.task}.{data.get('epoch', reservation.get('epoch'))}"
        for kind, each in (("task", str(event.task)), ("attempt", attempt)):
            track = self.tracks[kind].get(each)
            if isinstance(track, SpendingTrack):
                track.spend(event.seq, more)
                self._move(event.seq, kind, each)
        if tokens or microdollars or reply:
            found = self.tracks["attempt"].get(attempt)
            teammate = found.now["teammate"] if found is not None and found.now is not None else event.actor
            member = self.tracks["teammate"].get(teammate)
            known: Entity = member.now if member is not None and member.now is not None else {}
            model = known.get("model") or reservation.get("pace") or known.get("key") or ""
            self.payments.append(
                Payment(
                    event.seq, event.at, event.root or 0, event.task or 0, teammate, model, tokens, microdollars,
                    int(reply),
                )
            )  # fmt: skip

    def _see(self, event: Event) -> None:
        """What the actor is doing, and through which provider key."""
        note_doing(self._doing, event)
        track = self.tracks["teammate"].get(event.actor)
        if track is None or track.now is None:
            return
        seen: Entity = {"doing": self._doing.get(event.actor)}
        if event.kind == "reserved" and event.data.get("pace"):
            seen["key"] = event.data["pace"]
        if changed := {name: value for name, value in seen.items() if track.now[name] != value}:
            track.change(event.seq, changed)
            self._move(event.seq, "teammate", event.actor)


class EntitiesThen(Mapping[str, Entity]):
    """The entities of one kind as they were after an event, in the order in which they came. Not to be changed."""

    def __init__(self, tracks: Mapping[str, Track], seq: int) -> None:
        self._tracks = tracks
        self._seq = seq
        self._found: dict[str, Entity | None] = {}

    @cached_property
    def _all(self) -> dict[str, Entity]:
        seq, found = self._seq, self._found
        every = [(each, found[each] if each in found else track.at(seq)) for each, track in self._tracks.items()]
        return {each: facts for each, facts in every if facts is not None}

    def get(self, key: str, default: Any = None) -> Any:
        if "_all" in self.__dict__:
            return self._all.get(key, default)
        if key not in self._found:
            track = self._tracks.get(key)
            self._found[key] = None if track is None else track.at(self._seq)
        facts = self._found[key]
        return default if facts is None else facts

    def __getitem__(self, key: str) -> Entity:
        facts: Entity | None = self.get(key)
        if facts is None:
            raise KeyError(key)
        return facts

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def items(self) -> Any:
        return self._all.items()

    def values(self) -> Any:
        return self._all.values()


class BoardView:
    """A board as it was after one event. What is asked for is put together then."""

    def __init__(self, history: BoardHistory, seq: int, leases: Mapping[str, int]) -> None:
        self.history = history
        self.seq = seq
        self.first, self.last = history.first, history.last
        self.live = seq == history.last
        self.at = history.time_of(seq)
        self.leases = leases
        kinds = {kind: EntitiesThen(history.tracks[kind], seq) for kind in TRACKED}
        self.kinds: Mapping[str, EntitiesThen] = kinds
        self.tasks, self.attempts, self.budgets = kinds["task"], kinds["attempt"], kinds["budget"]
        self.messages, self.notes, self.teammates = kinds["message"], kinds["note"], kinds["teammate"]
        self.hosts, self.cooldowns = kinds["host"], kinds["cooldown"]

    @property
    def is_last(self) -> bool:
        """Whether the history has no later event by now."""
        return self.seq == self.history.last

    @cached_property
    def open_tasks(self) -> dict[str, Entity]:
        return self.tasks_in(*sorted(OPEN))

    def tasks_in(self, *states: str) -> dict[str, Entity]:
        """The tasks in these states."""
        if self.is_last:
            return {each: self.tasks[each] for state in states for each in self.history.in_state.get(state, ())}
        return {each: facts for state in states for each, facts in self._by_state.get(state, {}).items()}

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many tasks are in each state."""
        found = self.history.in_state if self.is_last else self._by_state
        return {state: len(tasks) for state, tasks in found.items() if tasks}

    @cached_property
    def _by_state(self) -> dict[str, dict[str, Entity]]:
        found: dict[str, dict[str, Entity]] = {}
        for each, facts in self.tasks.items():
            found.setdefault(facts["state"], {})[each] = facts
        return found

    @cached_property
    def unread(self) -> int:
        """How many messages the human has not read, without those that want a reply."""
        return len(self.history.unread) if self.is_last else sum(map(is_unread, self.messages.values()))

    @cached_property
    def held_budgets(self) -> list[str]:
        """The roots whose cap is reached."""
        if self.is_last:
            return list(self.history.held)
        return [root for root, facts in self.budgets.items() if facts["held"] is not None]

    @cached_property
    def held_by(self) -> dict[str, dict[str, Entity]]:
        """The tasks that each teammate holds or put down, by its name and by their ids, in order."""
        found: dict[str, dict[str, Entity]] = {}
        for each, facts in sorted(self.tasks_in("claimed", "waiting").items(), key=lambda item: int(item[0])):
            if facts["teammate"] is not None:
                found.setdefault(facts["teammate"], {})[each] = facts
        return found

    def of_task(self, index: Mapping[str, Sequence[str]], task: str, kind: str) -> list[tuple[str, Entity]]:
        """What belongs to a task by an index of the history, and was there."""
        entities = self.kinds[kind]
        return [(each, entities[each]) for each in index.get(task, ()) if each in entities]

    def waits_for(self, task: str) -> list[str]:
        """The open tasks that have an open need for this one, in order."""
        found = ((each, self.tasks.get(each)) for each in self.history.behind.get(task, ()))
        return sorted((each for each, facts in found if facts and _needs(facts, task)), key=int)

    def payments(self) -> list[Payment]:
        paid = self.history.payments
        return paid[: bisect_right(paid, self.seq, key=lambda each: each.seq)]


def _needs(facts: Entity, task: str) -> bool:
    return facts["state"] in OPEN and task in facts["needs"] and facts["needs"][task][1] == "open"


def is_unread(message: Entity) -> bool:
    """Whether the human has not read it. A request is not read but answered."""
    return message["recipient"] == HUMAN and not message["shown"] and message["kind"] not in rules.REPLY_TO
