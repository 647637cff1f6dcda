"""The reading verbs of the board, and waiting for changes. They run beside the writer and change nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from .. import types
from ..clock import Sources
from ..errors import BoardClosed, BoardUnreachable, DugnadError, StaleClaim
from ..logs.steps import count
from ..settings import Limits, Patience
from ..types import HUMAN
from . import around, records, rules
from .store.batching import Gatherer
from .store.migrations import latest
from .store.seam import Asked, Row, Store, Topics, Tx, ids_json, storable
from .store.watch import Hub, Watch
from .verbs import messages
from .verbs.scripts import Scripts

C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")

_TEAM_MOST, _MOST, _IDENTITY_CHARS = 1_000_000, 100, 32  # More than a team has; ready tasks of a lane that are counted.
_TOPIC_OF = {"noted": "notes", "cooled": "cooldown"}  # Of events about no task; all others are about the team.


class Reading:
    """The part of a board that only reads."""

    def __init__(self, store: Store, *, limits: Limits, patience: Patience, sources: Sources) -> None:
        self.limits = limits
        self.sources = sources
        self._store = store
        self.get_ready = store.get_ready  # For many calls at once: begins to connect, so that the first ones need not.
        self._gatherer = Gatherer(store, Scripts(store, self._lease_max()).of)
        self._hub = Hub(self._look, patience.poll_seconds)
        store.on_push(self._hub.heard)
        self._closed = False
        self._swept_to: int | None = None  # The last event at the last sweep.

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let running calls finish, then close the database. Closing twice does no harm."""
        if self._closed:
            return
        self._closed = True
        await self._hub.close()
        await self._gatherer.close()
        await self._store.close()

    # Tasks.

    async def find(self, task: int) -> types.Task:
        """The task, or UnknownTask."""
        if (found := (await self.find_all([task])).get(task)) is None:
            raise rules.unknown_task(task)
        return found

    async def find_all(self, tasks: Iterable[int]) -> dict[int, types.Task]:
        """The tasks with these ids that exist, in one read."""
        return {each.id: each for each in await self._list(records.task, "tasks_by_id", ids=ids_json(tasks))}

    async def list_tasks(
        self, *, states: Iterable[types.TaskState] | None = None, root: int | None = None, role: str | None = None,
        teammate: str | None = None, after: int = 0, page: int = 100,
    ) -> list[types.Task]:  # fmt: skip
        """A page of tasks by id. For the next page, set `after` to the last id."""
        given = {"role": role, "teammate": teammate, "after": after, "page": self._page(page)}
        return [records.task(row) for row in await self._ask(around.listing(states, root, **given))]

    async def ended_last(self, *, root: int | None = None, page: int = 100, **filters: str | None) -> list[types.Task]:
        """The tasks that ended last, the newest first; under a root, those with the highest numbers."""
        given = {"role": None, "teammate": None, "root": root, "page": self._page(page), **filters}
        name = "newest_ended" if root is None else "newest_ended_under"
        return await self._list(records.task, name, states=around.named(types.ENDED), **given)

    async def children(self, task: int, *, after: int = 0, page: int = 100) -> list[types.Task]:
        """A page of the tasks that were put under a task."""
        return await self._list(records.task, "children_of", parent=task, after=after, page=self._page(page))

    async def count_tasks(self, *, root: int | None = None) -> dict[str, int]:
        """The number of tasks in each state, on the whole board or under one root."""
        rows = await self._read("count_tasks") if root is None else await self._read("count_tasks_of", root=root)
        return {row["state"]: row["n"] for row in rows}

    async def cost_by_teammate(self, root: int) -> dict[str, types.Amount]:
        """The cost of each teammate's turns under a root."""
        return {row["teammate"]: records.amount(row) for row in await self._read("cost_by_teammate", root=root)}

    async def needs_of(self, task: int) -> list[tuple[types.Need, str]]:
        """The needs of a task, each with open, met or broken."""
        return around.needs(await self._read("needs_of", task=task))

    async def beginning(self, claim: types.Claim) -> around.Beginning:
        task, root = claim.task.id, claim.task.root
        own = {"task": task, "epoch": claim.epoch, "page": self._page(1_000), "after": 0}
        asks: list[Asked] = [("attempts_of", {"task": task}), ("needs_behind", {"ids": ids_json([task])})]
        found = await self._read_together([*asks, ("read_turns", own), ("read_budget", {"root": root})])
        attempts, turns = [records.attempt(row) for row in found[0]], [records.turn(row) for row in found[2]]
        return around.Beginning(attempts, around.behind(found[1]), turns, around.account(root, found[3]))

    async def all_needs(self, tasks: Iterable[int]) -> list[tuple[int, types.Need, str]]:
        """The needs of these tasks, each with the task that has it, and open, met or broken."""
        found = await self._read("all_needs", ids=ids_json(tasks))
        return [(row["task_id"], *around.needs([row])[0]) for row in found]

    async def past_attempts(
        self, *, roots: Iterable[int] | None = None, since: int = 0, errands: bool = False, most: int = 20_000
    ) -> list[records.PastAttempt]:
        """Those of the newest attempts that ended, by task and epoch. `since`: only those claimed then or later."""
        given = {"roots": None if roots is None else ids_json(roots), "errands": int(errands)}
        return await self._list(records.past_attempt, "past_attempts", **given, since=since, most=most)

    async def attempts(self, task: int) -> list[types.Attempt]:
        return await self._list(records.attempt, "attempts_of", task=task)

    async def transcript(self, task: int, epoch: int, *, after: int = 0, page: int = 1_000) -> list[types.Turn]:
        """The turns of one attempt, in order, including those that a summary covers."""
        asked = {"task": task, "epoch": epoch, "page": self._page(page)}
        return await self._list(records.turn, "read_turns", **asked, after=after)

    async def tracebacks(self, task: int) -> dict[int, str]:
        """The tracebacks of bugs that ended attempts, by the number of the attempt."""
        last = rules.TURNS_MAX - 1
        kept = {each.number: await self.transcript(task, each.epoch, after=last) for each in await self.attempts(task)}
        return {number: str(json.loads(turns[0].body)["traceback"]) for number, turns in kept.items() if turns}

    async def budget(self, root: int) -> types.Spending:
        return around.account(root, await self._read("read_budget", root=root))

    async def budgets(self, *, page: int = 100) -> list[types.Spending]:
        """The accounts of the newest goals, and of the newest budgets that several tasks share."""
        return await self._list(records.spending, "newest_budgets", page=self._page(page))

    async def cooldowns(self) -> list[types.Cooldown]:
        """The provider keys that cool down now."""
        return await self._list(records.cooldown, "running_cooldowns")

    # Messages and notes.

    async def inbox(
        self, recipient: str | None = HUMAN, *, queued: bool = True, after: int = 0, page: int = 100
    ) -> list[types.Message]:
        """Read an inbox, or with None all of them, without taking anything."""
        name = "list_messages" if recipient is None else "unread_messages" if queued else "list_messages_to"
        asked = {"unshown": int(queued), "after": after, "page": self._page(page)}
        return await self._list(records.message, name, recipient=recipient, **asked)

    async def has_unread(self, recipient: str) -> bool:
        """Whether an inbox has unread messages; the cheapest way to know."""
        return bool(await self._read("first_unread", recipient=recipient))

    async def requests(self, recipient: str = HUMAN) -> list[types.Message]:
        """The requests that wait for this recipient's answer."""
        return await self._list(records.message, "open_requests", recipient=recipient)

    async def mail_and_budget(self, name: str, root: int) -> tuple[bool, types.Spending]:
        """Whether an inbox has unread messages, and the account of a root."""
        asks: list[Asked] = [("first_unread", {"recipient": name}), ("read_budget", {"root": root})]
        mail, found = await self._read_together(asks)
        return bool(mail), around.account(root, found)

    async def request(self, request: str) -> tuple[types.Message, types.Message | None]:
        """A request and its reply, if there is one."""
        found = await self._list(records.message, "request_messages", request=request)
        for asked in found:
            if asked.kind in rules.REPLY_TO:
                return asked, next((other for other in found if other.kind == rules.REPLY_TO[asked.kind]), None)
        raise rules.unknown_request(request)

    async def recent_talk(self, name: str, *, page: int = 20) -> list[types.Message]:
        """The last messages from and to a teammate, a page of each, oldest first, without unread ones."""
        return (await self._list(records.message, "recent_talk", name=name, page=self._page(page)))[::-1]

    async def words_for(self, task: types.Task, asked: types.Task) -> str:
        """The human's words that a task follows from: the message that `asked` answers, and more during the answer."""
        until = task.put_at if asked.ended_at is None else min(task.put_at, asked.ended_at)
        given = {"recipient": asked.assignee, "after": asked.put_at, "until": until, "page": self._page(20)}
        return "\n\n".join((asked.body, *(row["text"] for row in await self._read("said_by_human", **given))))

    async def plan_approved(self, task: int) -> bool:
        return bool(await self._read("approved_plan", task=task))

    async def shutdown_requests(self, host: str) -> list[types.ShutdownRequest]:
        """The shutdown requests to this host's teammates, answered or not."""
        return await self._list(records.shutdown_request, "shutdown_requests", host=host)

    async def search_notes(
        self, words: str = "", *, root: int | None = None, before: int | None = None, page: int = 100
    ) -> list[types.Note]:
        """The notes that contain every word, newest first. With a root, those of this goal and those for everybody."""
        return [records.note(row) for row in await self._ask(self._notes(words, root, before, page))]

    def _notes(self, words: str, root: int | None, before: int | None, page: int) -> Asked:
        rules.text("search", words)
        shown = {"root": root, "before": before, "page": self._page(page)}
        return "search_notes" if root is None else "search_notes_of", {"words": messages.words(words), **shown}

    # Teammates and hosts.

    async def team(self, *, here: bool = False, most: int = _TEAM_MOST) -> list[types.Teammate]:
        """The teammates, leads first. With `here`, only those that are there, and last those that rest."""
        return [records.teammate(row) for row in await self._ask(self._teammates(here=here, most=most))]

    async def teammate(self, name: str) -> types.Teammate:
        for row in await self._ask(self._teammates(name, most=1)):
            return records.teammate(row)
        raise rules.unknown_teammate(name)

    def _teammates(self, name: str | None = None, *, here: bool = False, most: int = _TEAM_MOST) -> Asked:
        given = {"name": name, "here": int(here), "most": max(0, min(most, _TEAM_MOST)), "lease_max": self._lease_max()}
        return "list_teammates", given

    async def hosts(self) -> list[types.HostInfo]:
        return await self._list(records.host, "list_hosts", lease_max=self._lease_max())

    async def next_lapse(self) -> float | None:
        """In how many seconds a lease runs out unless it is renewed; None: never."""
        milliseconds = (await self._read("next_lapse", lease_max=self._lease_max()))[0]["milliseconds"]
        return None if milliseconds is None else milliseconds / 1000

    async def ready_work(self, *, most: int = _MOST, roots: Iterable[int] | None = None) -> dict[str, int]:
        """The number of ready tasks by lane: a role, "@name", or "" for anyone. Tasks that are `not_for` a teammate are
        counted separately, as "role!name" or "!name". Up to `most` each; with `roots`, only tasks under these.

        Tasks of a lane that are due but not yet ready count as one: the next claim there makes all of them ready.
        """
        return records.by_lane(await self._ask(around.ready(most, roots)), most)

    async def moment(self, roots: Sequence[int] = (), *, scope: Iterable[int] | None = None) -> records.Moment:
        """The numbers of the board and of these roots, all from one snapshot. Two reads could miss a task that changed
        between them. With `scope`, only work under it counts as ready."""
        asks: list[Asked] = [self._teammates(), around.ready(_MOST, scope)]
        for root in roots:
            asks += [(name, {"root": root}) for name in ("count_tasks_of", "read_budget", "ready_to_go_on")]
        team, ready, *found = await self._read_together(asks)
        counts, accounts, begun = (dict(zip(roots, found[first::3], strict=True)) for first in range(3))
        return records.Moment(
            team=[records.teammate(row) for row in team], ready=records.by_lane(ready, _MOST),
            counts={root: {row["state"]: row["n"] for row in rows} for root, rows in counts.items()},
            accounts={root: records.spending(rows[0]) for root, rows in accounts.items() if rows},
            begun={root for root, rows in begun.items() if rows},
        )  # fmt: skip

    async def health(self) -> records.Health:
        """The numbers of the whole board that an operator watches, quickly on a board of any size."""
        asks: list[Asked] = [around.ready(1_000, None), *((name, {}) for name in records.HEALTH), self._teammates()]
        asks += [(name, {"lease_max": self._lease_max()}) for name in ("list_hosts", "merging")]
        return records.health(await self._read_together(asks), latest())

    async def whole(self, roots: Sequence[int]) -> tuple[list[types.Task], dict[int, types.Spending]]:
        """All tasks under these roots, and their accounts, from one snapshot."""
        every = {"role": None, "teammate": None, "after": 0, "page": 10**9}
        asks: list[Asked] = [around.listing(None, root, **every) for root in roots]
        found = await self._read_together([*asks, *(("read_budget", {"root": root}) for root in roots)])
        accounts = {root: rows[0] for root, rows in zip(roots, found[len(roots) :], strict=True) if rows}
        tasks = [records.task(row) for rows in found[: len(roots)] for row in rows]
        return tasks, {root: records.spending(row) for root, row in accounts.items()}

    async def surroundings(self, task: types.Task, teammate: str, **most: int) -> around.Surroundings:
        """What is around a task, for the teammate that begins it, with at most so many mates, notes and messages."""
        team, notes = self._teammates(here=True, most=most["mates"]), self._notes("", task.root, None, most["notes"])
        asks = around.asks(task, teammate, self._page(most["messages"]), team, notes)
        return around.found(await self._read_together(asks))

    async def now_ms(self) -> int:
        """The time by the board's clock."""
        return int((await self._read("read_cooldown", key=""))[0]["now"])

    # The log.

    async def events(self, after: int = 0, *, task: int | None = None, page: int = 1_000) -> list[types.Event]:
        """The events after a sequence number, in order; of one task, or of all."""
        name = "read_events" if task is None else "read_events_of"
        return await self._list(records.event, name, after=after, task=task, page=self._page(page))

    async def identity(self) -> str:
        """A name that no other board has. The board got it when it was made, or when it was upgraded to have one."""
        match [row["id"] for row in await self._read("read_identity")]:
            case [str(found)] if len(found) == _IDENTITY_CHARS:
                return found
        raise BoardUnreachable("The board has no identity, so it is damaged; restore a back-up or make a new board.")

    async def last_event(self) -> int:
        return int((await self._read("last_seq"))[0]["seq"])

    async def follow(self, after: int = 0, *, task: int | None = None) -> AsyncIterator[types.Event]:
        """Every event after a sequence number, then each new one as it is committed, without end."""
        while True:
            with self.watch(["log"]) as watch:
                while page := await self.events(after, task=task):
                    for event in page:
                        yield event
                    after = page[-1].seq
                await watch.wait(60)

    # Waiting.

    def watch(self, topics: Iterable[str]) -> Watch:
        """Watch topics while the `with` block lasts, so that nothing is missed between a read and a wait.

        Topics: "ready:ROLE" ("ready:@NAME", "ready:"), "inbox:NAME", "task:ID", "budget:ROOT", "cooldown", "team",
        "notes", "log".
        """
        return Watch(self._hub, topics)

    def watch_for(self, teammate: str, roles: Iterable[str], *, lead: bool = False) -> Watch:
        """Watch everything that concerns one teammate: work that it may take, and its inbox."""
        lanes = [f"ready:{lane}" for lane in rules.lanes(teammate, roles, lead)]
        return self.watch([f"inbox:{teammate}", *lanes])

    async def _look(self) -> tuple[Topics, float | None]:
        """The topics that a lost push may have been about, and how soon a task is due."""
        topics: Topics = {f"ready:{lane}": 1 for lane in await self.ready_work(most=1)}
        topics.update({f"inbox:{row['name']}": 1 for row in await self._read("unread_inboxes")})
        topics.update(await self._changed_since_last_sweep())
        due = (await self._read("next_due"))[0]["milliseconds"]
        return topics, None if due is None else due / 1000

    async def _changed_since_last_sweep(self) -> Topics:
        before, self._swept_to = self._swept_to, await self.last_event()
        if before in (None, self._swept_to):
            return {}
        topics: Topics = {"log": 1}
        for row in await self._read("changed_since", after=before):
            topics[f"task:{row['task_id']}"] = topics[f"budget:{row['root_id']}"] = 1  # Nobody waits for "None".
            if row["task_id"] is None and row["root_id"] is None:
                topics[_TOPIC_OF.get(row["kind"], "team")] = 1
        return topics

    # What the verbs share.

    async def _do(self, verb: Callable[Concatenate[Tx, P], Awaitable[T]], *given: P.args, **named: P.kwargs) -> T:
        """Run a verb in a transaction. Its arguments are given by name, so that an error can name them."""
        assert not given
        return cast(T, await self._gathered(verb, named, in_set=False))

    async def _do_in_set(self, verb: Callable[[Tx, list[C]], Awaitable[Sequence[T | DugnadError]]], call: C) -> T:
        """Run a verb that takes all its calls of a transaction at once."""
        return cast(T, await self._gathered(verb, call, in_set=True))

    async def _gathered(self, verb: Any, call: Any, *, in_set: bool) -> Any:
        self._must_be_open()
        storable("call", call)
        try:
            return await self._gatherer.do(verb, call, in_set=in_set)
        except StaleClaim:
            count("stale-write")
            raise

    async def _read(self, name: str, /, **arguments: object) -> Sequence[Row]:
        self._must_be_open()
        storable("arguments", arguments)
        return await self._store.read(name, **arguments)

    async def _ask(self, asked: Asked) -> Sequence[Row]:
        return await self._read(asked[0], **asked[1])

    async def _list(self, made: Callable[[Row], T], name: str, /, **arguments: object) -> list[T]:
        return [made(row) for row in await self._read(name, **arguments)]

    async def _read_together(self, asks: Sequence[Asked]) -> Sequence[Sequence[Row]]:
        self._must_be_open()
        storable("arguments", asks)
        return await self._store.snapshot(asks)

    def _must_be_open(self) -> None:
        if self._closed:
            raise BoardClosed

    def _key(self, given: str | None = None) -> str:
        most = self.limits.key_chars_max
        return self.sources.new_id() if given is None else rules.text("key", given, characters=most)

    def _name(self, what: str, value: str) -> str:
        return rules.name(what, value, self.limits)

    def _text(self, what: str, value: str) -> str:
        return rules.text(what, value, bytes_max=self.limits.body_bytes_max)

    def _page(self, asked: int) -> int:
        return max(1, min(asked, self.limits.page_max))

    def _lease_max(self) -> int:
        return int(self.limits.lease_seconds_max * 1000)
