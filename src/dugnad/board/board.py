"""The board: every verb, one transaction each.

This file checks the arguments and passes them on; the modules in `verbs/` do the work. Writing verbs are idempotent:
each takes or makes a key, or has a natural one, and the same call twice gives the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .. import types
from ..errors import BadInput, HostLost
from ..logs import logger
from ..types import HUMAN, Amount, Budget, Claim, NewTask, Pace, Spending, Task, Teammate
from . import log, prune, records, rules
from .prune import Pruned
from .reads import Reading
from .replay import REMARKS, State, load
from .store.seam import as_json
from .verbs import budgets, claims, members, messages, needs, rate_limits, settle, tasks, turns

_LOG = logger(__name__)
_RESERVED_MAX = 10_000


class Board(Reading):
    """The durable state of one team. Open it with `open_board`; close it with `close`, or use `async with`."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._reserved: dict[str, Amount] = {}  # What this process reserved last, for the turns that settle it.

    # Tasks.

    async def put(self, title: str, *, by: str = HUMAN, **fields: Any) -> Task:
        """Put a task on the board. `fields` are those of NewTask: body, needs, role, key, parent, budget, ..."""
        return (await self.put_many([NewTask(title=title, **fields)], by=by))[0]

    async def put_many(self, new: Sequence[NewTask], *, by: str = HUMAN) -> list[Task]:
        """Put several tasks, all or none. A need or parent of -1 is the first entry of the list, -2 the second."""
        return await self._put(new, by, None)

    async def follow_up(self, claim: Claim, title: str, *, by: str = "", **fields: Any) -> Task:
        """Put a follow-up of the held task: under the same root and budget, and within the guards.

        Without a key, an equal follow-up under the same root is the same task.
        """
        return (await self.follow_ups(claim, [NewTask(title=title, **fields)], by))[0]

    async def follow_ups(
        self, claim: Claim, new: Sequence[NewTask], by: str = "", *, key: str | None = None
    ) -> list[Task]:
        """Put several follow-ups, all or none. With the same key again, the call returns the tasks that it put."""
        children = [_child(task, claim) for task in new]
        return await self._put(children, by or claim.teammate, claim, key)

    async def _put(self, new: Sequence[NewTask], by: str, claim: Claim | None, key: str | None = None) -> list[Task]:
        entries = rules.batch(new, self.limits)
        keyed = tuple(replace(task, key=task.key or self._key(), kind=rules.kind(task)) for task in entries)
        by = self._name("sender", by)
        return await self._do(tasks.put, tasks=keyed, by=by, claim=claim, key=self._key(key)) if keyed else []

    async def add_need(self, task: int, need: types.Need | int, *, by: str = HUMAN, key: str | None = None) -> None:
        """Make a task that is not claimed yet wait for another. A circle is refused, and the error names it."""
        edge = rules.edge(need)
        if edge.outcome is not None:
            self._name("outcome", edge.outcome)
        await self._do(needs.add_need, task=task, need=edge, by=by, key=self._key(key))

    async def cancel(
        self, task: int, *, by: str = HUMAN, why: str = "", dependents: bool = False, key: str | None = None
    ) -> list[int]:
        """End a task as cancelled; its holder is fenced off. Returns the cancelled tasks. With `dependents`, tasks that
        wait for it are cancelled too; otherwise those that need it done are skipped."""
        why = self._text("reason", why)
        return await self._do(tasks.cancel, task=task, by=by, why=why, dependents=dependents, key=self._key(key))

    async def release(
        self, task: int, *, by: str = HUMAN, why: str = "", delay_seconds: float = 0.0, key: str | None = None
    ) -> None:
        """Take a claimed or waiting task from its holder, who is fenced off, so that anyone may claim it."""
        delay = rules.quantity("A delay", delay_seconds, scale=1000)
        why = self._text("reason", why)
        await self._do(tasks.release, task=task, by=by, why=why, delay_ms=delay, key=self._key(key))

    async def retry(self, task: int, *, by: str = HUMAN, key: str | None = None) -> list[int]:
        """Open a failed or cancelled task again. Returns it and the tasks skipped because of it, now open too."""
        return await self._do(tasks.retry, task=task, by=by, key=self._key(key))

    async def assign(self, task: int, assignee: str | None, *, by: str = HUMAN, key: str | None = None) -> None:
        """Let only this teammate claim a task that nobody holds; None: anyone with its role."""
        await self._do(tasks.assign, task=task, assignee=assignee, by=by, key=self._key(key))

    # Claims.

    async def claim(self, teammate: str, host: str, *, task: int | None = None, key: str | None = None) -> Claim | None:
        """Claim the best task for this teammate, or the named one; None if there is none."""
        ask = claims.Ask(teammate=teammate, host=host, task=task, key=self._key(key), may_repeat=key is not None)
        while isinstance(answer := await self._do_in_set(claims.claim, ask), claims.LookAgain):
            pass  # Bounded: each round shelves up to 2,000 tasks.
        return answer

    async def settle(self, claim: Claim, outcome: types.Outcome, *, handover: str | None = None) -> str:
        """End the claim with an outcome. Tasks that wait for it change in the same transaction."""
        call = settle.Settle(
            task=claim.task.id, epoch=claim.epoch, root=claim.task.root, teammate=claim.teammate,
            outcome=settle.check_outcome(outcome, self.limits),
            handover=None if handover is None else self._text("handover", handover),
            awaited=claim.task.chain > 0, told=claim.task.asked_in is not None or claim.task.kind == "human_message",
        )  # fmt: skip
        return await self._do_in_set(settle.settle, call)

    async def take_back(
        self, count: int = 1_000, *, silent: Mapping[str, int] | None = None, key: str | None = None
    ) -> list[int]:
        """Free the tasks of hosts that stopped or whose lease ran out.

        The calling host names in `silent` the hosts that it watched without a heartbeat, with the lease it saw: only
        these can be lost. By the clock alone, a clock that jumps would end every lease at once.
        """
        seen = None if silent is None else as_json([{"id": id, "lease_until": end} for id, end in silent.items()])
        taken = await self._do(settle.take_back, count=rules.count(count), silent=seen, key=self._key(key))
        if taken:
            _LOG.warning("taken-back tasks=%s", taken)
        return taken

    # Attempts and turns.

    async def record(self, claim: Claim, turn: types.NewTurn) -> int:
        """Append a turn to the claim's transcript, settle its reservation, mark its messages as shown."""
        call = turns.Record(
            task=claim.task.id, epoch=claim.epoch, root=claim.task.root, teammate=claim.teammate,
            turn=rules.new_turn(turn, self.limits), reserved=self._reserved.get(turn.reservation or ""),
        )  # fmt: skip
        number = await self._do_in_set(turns.record, call)
        self._reserved.pop(turn.reservation or "", None)
        return number

    async def keep_traceback(self, claim: Claim, traceback: str) -> None:
        """Store the traceback of a bug that ended the attempt, as its last turn. Only people read it, never a mind."""
        body = as_json({"traceback": traceback})
        await self.record(claim, types.NewTurn(number=rules.TURNS_MAX, kind="trouble", body=body))

    async def hand_over(self, claim: Claim, handover: str) -> None:
        """Leave a handover for later attempts while the work goes on."""
        await self._do(turns.hand_over, claim=claim, handover=self._text("handover", handover))

    async def merge_into(self, claim: Claim, target: str) -> None:
        """Join those who merge into a target, so that hosts with clones of their own do not check in vain. `merging`
        says whose turn it is. Without a name, or when the claim ends, it leaves them."""
        await self._do(turns.merge_into, claim=claim, target=self._text("target", target))

    async def merging(self) -> list[records.Merging]:
        """The attempts that merge, or wait for their turn, in their order."""
        return [records.Merging(**row) for row in await self._read("merging", lease_max=self._lease_max())]

    # Budgets.

    async def reserve(self, claim: Claim, amount: Amount, *, pace: Pace | None = None, key: str | None = None) -> str:
        """Reserve the most that a call may cost. Returns the reservation's key; raises BudgetSpent if it does not fit.

        With the pace of a provider key, raises CoolingDown while the key cools down, or if the call would exceed the
        team's rate limit; the error says when to ask again.
        """
        call = budgets.Reserve(
            task=claim.task.id, epoch=claim.epoch, root=claim.task.root, teammate=claim.teammate,
            amount=rules.amount(amount), pace=rules.pace(pace, self.limits), key=self._key(key),
            may_repeat=key is not None,
        )  # fmt: skip
        made = await self._do_in_set(budgets.reserve, call)
        self._reserved[made] = call.amount
        if len(self._reserved) > _RESERVED_MAX:
            del self._reserved[next(iter(self._reserved))]
        return made

    async def spend(self, claim: Claim, reservation: str, used: Amount) -> None:
        """Settle a reservation that belongs to no turn with the amount that was used."""
        await self._do(turns.spend, claim=claim, reservation=reservation, used=rules.amount(used))

    async def forfeit(self, claim: Claim) -> None:
        """Count the claim's open reservations as spent, for a holder that goes on after its calls were cut off."""
        await self._do(turns.forfeit_own, claim=claim)

    async def open_budget(self, budget: Budget | None = None, *, by: str = HUMAN, key: str | None = None) -> int:
        """Make a budget that several tasks share: those put with its number as their `account`."""
        by = self._name("sender", by)
        return await self._do(budgets.open_budget, caps=rules.caps(budget), by=by, key=self._key(key))

    async def set_budget(self, root: int, budget: Budget, *, by: str = HUMAN, key: str | None = None) -> Spending:
        """Replace the root's caps; held work goes on."""
        caps = rules.caps(budget)
        return await self._do(budgets.set_budget, root=root, caps=caps, add=False, by=by, key=self._key(key))

    async def raise_budget(self, root: int, more: Budget, *, by: str = HUMAN, key: str | None = None) -> Spending:
        """Add to the root's caps; held work goes on."""
        caps = rules.caps(more)
        return await self._do(budgets.set_budget, root=root, caps=caps, add=True, by=by, key=self._key(key))

    # Cool-downs.

    async def cool_down(
        self, pace_key: str, *, reason: str, by: str, seconds: float | None = None, key: str | None = None
    ) -> types.Cooldown:
        """Let a provider key cool down for the whole team, after the provider refused a call for its rate.

        `seconds` is what the provider asked for, if it did; if not, each refusal in a row doubles the pause. A refusal
        while the key already cools down does not count: twenty calls that were sent together count once.
        """
        return await self._do(
            rate_limits.cool_down,
            pace=rules.provider_key(pace_key, self.limits), reason=self._text("reason", reason), by=by,
            milliseconds=None if seconds is None else rules.quantity("A cool-down", seconds, scale=1000),
            key=self._key(key),
        )  # fmt: skip

    # Messages.

    async def tell(
        self, sender: str, recipient: str, text: str, *, kind: types.MessageKind = "text", request: str | None = None,
        task: int | None = None, claim: Claim | None = None, key: str | None = None,
    ) -> types.Message:  # fmt: skip
        """Put a message into an inbox. A question, plan or shutdown is a request; `reply` answers it by its id."""
        own = self._key(key)
        rules.message_kind(kind)
        if kind in rules.REPLY_TO:
            request = request or own
        told = await self._do(
            messages.tell,
            sender=sender, recipient=recipient, text=self._text("message", text), kind=kind, request=request,
            task=task if task is not None or claim is None else claim.task.id, claim=claim, key=own,
        )  # fmt: skip
        return told[0]

    async def broadcast(
        self, sender: str, text: str, *, claim: Claim | None = None, key: str | None = None
    ) -> list[types.Message]:
        """Tell the human and every teammate that was not shut down, except the sender."""
        return await self._do(
            messages.tell,
            sender=sender, recipient=None, text=self._text("message", text), kind="text", request=None, task=None,
            claim=claim, key=self._key(key),
        )  # fmt: skip

    async def take(self, recipient: str, key: str, *, count: int = 100) -> list[types.Message]:
        """The unread messages, in the order shutdown, human, lead, teammates. The same key returns the same."""
        return await self._do(messages.take, recipient=recipient, key=key, count=rules.count(count))

    async def show(self, recipient: str, shown: Iterable[int]) -> None:
        """Mark messages as shown outside a turn; the human's inbox is read this way."""
        await self._do(messages.show, recipient=recipient, messages=tuple(shown))

    async def reply(self, request: str, sender: str, text: str = "", *, accepted: bool | None = None) -> types.Message:
        """Answer a question, or accept or refuse a plan or a shutdown. The task that waits for it becomes ready."""
        text = self._text("reply", text)
        return await self._do(messages.reply, request=request, sender=sender, text=text, accepted=accepted)

    # Notes.

    async def write_note(
        self, author: str, title: str, text: str, *, claim: Claim | None = None, everyone: bool = False,
        key: str | None = None,
    ) -> types.Note:  # fmt: skip
        """Write a note. Under a claim it belongs to that goal; without one, or for `everyone`, to all goals."""
        rules.text("title", title, characters=self.limits.title_chars_max)
        text = self._text("note", text)
        return await self._do(
            messages.write_note, author=author, title=title, text=text, claim=claim, everyone=everyone,
            key=self._key(key),
        )  # fmt: skip

    # Teammates and hosts.

    async def start_host(self, label: str, *, host: str | None = None, scope: Iterable[int] | None = None) -> str:
        """Register a process that runs teammates. Its id is new with every start. With a `scope`, its teammates can
        claim only tasks under these roots."""
        own, roots = host or self.sources.new_id(), None if scope is None else tuple(sorted(set(scope)))
        await self._do(members.start_host, id=own, label=self._text("label", label), scope=roots)
        _LOG.info("host-started host=%s label=%s", own, label)
        return own

    async def heartbeat(self, host: str) -> list[tuple[int, int]]:
        """Renew the lease of all the host's claims. Returns the claims that it still has: (task, epoch)."""
        try:
            return await self._do(members.heartbeat, host=host)
        except HostLost:
            _LOG.warning("host-lost host=%s", host)
            raise

    async def stop_host(self, host: str) -> None:
        await self._do(members.stop_host, host=host)
        _LOG.info("host-stopped host=%s", host)

    async def spawn(
        self, name: str, *, roles: Iterable[str] = (), lead: bool = False, prompt: str = "", model: str = "",
        plan: bool = False, keep_context: bool = False, host: str | None = None, by: str = HUMAN,
    ) -> Teammate:  # fmt: skip
        """Add a teammate. A host seats it later, or `host` seats it at once. A stopped or failed teammate comes back
        with these settings. With `keep_context` its conversation goes on from task to task, as a lead's does."""
        return await self._do(
            members.spawn,
            name=self._name("teammate's name", name), roles=[self._name("role", role) for role in roles],
            lead=lead, prompt=self._text("prompt", prompt), model=self._text("model", model), plan=plan,
            keep_context=keep_context, by=by, host=host,
        )  # fmt: skip

    async def seat(
        self, host: str, *, name: str | None = None, count: int = 1, key: str | None = None
    ) -> list[Teammate]:
        """Seat teammates that wait for a host, and those of dead hosts, at this host; or only the named one."""
        return await self._do(members.seat, host=host, name=name, count=rules.count(count), key=self._key(key))

    async def stop_teammate(
        self, name: str, *, by: str = HUMAN, reason: str = "", seat: int | None = None, if_quiet: bool = False
    ) -> None:
        """Shut a teammate down; with `if_quiet`, only if nothing waits in its inbox, else NotReady."""
        given: dict[str, Any] = {"name": name, "by": by, "reason": self._text("reason", reason), "seat": seat}
        await self._do(members.end_teammate, **given, failed=False, if_quiet=if_quiet)

    async def fail_teammate(self, name: str, *, by: str, reason: str, seat: int | None = None) -> None:
        """Mark a teammate as failed, after a bug ended its worker."""
        given: dict[str, Any] = {"name": name, "by": by, "reason": self._text("reason", reason), "seat": seat}
        await self._do(members.end_teammate, **given, failed=True, if_quiet=False)

    # The log.

    async def remark(self, actor: str, kind: str, *, key: str | None = None, **data: str) -> None:
        """Record an event that changes nothing else, such as that commands run without a sandbox."""
        if kind not in REMARKS:
            raise BadInput(f"{kind!r} is not a remark; use one of: {', '.join(sorted(REMARKS))}.")
        said = {name: self._text(name, text) for name, text in data.items()}
        await self._do(log.remark, actor=actor, kind=kind, data=said, key=self._key(key))

    async def replayed_state(self) -> State:
        """The state the log replays to; equal to `observed_state` while nobody writes."""
        return await log.replayed(self._read)

    async def pruned_state(self) -> tuple[int, State]:
        """Where the log begins: the last event that was pruned, 0 if none was, and the state up to it."""
        seq, rows = await self._read_together([("snapshot_seq", {}), ("read_snapshot", {})])
        return int(seq[0]["snapshot_seq"]), load(rows)

    async def observed_state(self) -> State:
        return await log.observed(self._read)

    async def prune(self, age_seconds: float, *, key: str | None = None) -> Pruned:
        """Delete what is older: events (folded into a snapshot), old transcripts, stored answers, dead hosts.

        Stored answers stay for at least a day. Each transaction is short, so that others can go on meanwhile.
        """
        age = rules.quantity("An age", age_seconds, scale=1000)
        return await prune.prune(self._read, self._do, age, self._key(key))

    async def prunable(self, age_seconds: float) -> Pruned:
        """What `prune` would delete."""
        return await prune.prunable(self._read, rules.quantity("An age", age_seconds, scale=1000))

    async def size_bytes(self) -> int:
        """The size of the board in its database."""
        return int((await self._read("board_size"))[0]["size"])

    async def shrink(self) -> bool:
        """Give free space back to the disk; False if that must wait until no host is running."""
        return await self._store.shrink(whole=not any(host.alive for host in await self.hosts()))


def _child(task: NewTask, claim: Claim) -> NewTask:
    parent = task.parent if task.parent is not None and task.parent < 0 else claim.task.id
    return replace(task, parent=parent, key=task.key or rules.content_key(task))
