"""Bugs planted on purpose, each one line of the real code, to show that the oracle catches them.

A mutant is a copy of the package in a folder of its own with one text replaced; a child process imports that copy and
runs seeds until a promise is broken. The oracle is worth what it catches.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from dugnad.errors import DugnadError


class MutantOutdated(DugnadError):
    """The text a planted bug replaces is not there exactly once; follow the code."""


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    promise: int
    file: str
    old: str
    new: str
    seed: int = 0  # Where to begin: the first seed that was seen to catch it.


MUTANTS: tuple[Mutant, ...] = (
    # 1. One owner.
    Mutant("heartbeat renews for a tenth of the lease", 1, "board/verbs/members.py",
           '(task, epoch)."""\n    lease = int(tx.limits.lease_seconds * 1000)',
           '(task, epoch)."""\n    lease = int(tx.limits.lease_seconds * 100)'),
    Mutant("take-back believes no lease", 1, "board/verbs/settle.py",
           "lease_max = int(tx.limits.lease_seconds_max * 1000)\n    for host", "lease_max = 0\n    for host", seed=66),
    Mutant("a raised cap frees what is held", 1, "board/store/sql/budgets.sql",
           "WHERE root_id = :root AND state = 'waiting' AND waiting_for = 'budget'",
           "WHERE root_id = :root AND state IN ('waiting', 'claimed')", seed=61),
    Mutant("a host whose lease ran out may claim", 1, "board/store/sql/claims.sql",
           "AND hosts.lost_at IS NULL AND hosts.lease_until > now_ms()\n    AND hosts.lease_until <=",
           "AND hosts.lost_at IS NULL\n    AND hosts.lease_until <=", seed=56),
    Mutant("a host is lost when its lease is out, however the clock came to say so", 1, "team/lost_hosts.py",
           " if silent >= 2 * self._beat}", "}"),
    Mutant("sleep counts as watching", 1, "team/lost_hosts.py", "min(now - self._looked_at, self._beat / 2)",
           "now - self._looked_at", seed=142),
    Mutant("a seat is free when its host's lease is out", 1, "board/store/sql/members.sql",
           "hosts.lost_at IS NOT NULL)))\nORDER BY teammates.lead DESC, teammates.spawned_at, teammates.name "
           "LIMIT :count\n",
           "hosts.lost_at IS NOT NULL OR hosts.lease_until <= now_ms())))\nORDER BY teammates.lead DESC, "
           "teammates.spawned_at, teammates.name LIMIT :count\n", seed=94),
    # 2. Fencing.
    Mutant("no fence on settle", 2, "board/verbs/settle.py",
           "stale = refused(call.task, call.epoch, rows) or (StaleClaim() if call.task in seen else None)",
           "stale = StaleClaim() if call.task in seen else None"),
    Mutant("no fence on a turn", 2, "board/verbs/turns.py",
           "if stale := refused(call.task, call.epoch, rows):", "if stale := None:"),
    Mutant("no fence on a follow-up", 2, "board/verbs/tasks.py",
           "holder = await fence(tx, plan.claim) if plan.claim else None",
           "holder = await hold_task(tx, plan.claim.task.id) if plan.claim else None",
           seed=186),
    Mutant("no fence on a message", 2, "board/verbs/messages.py",
           "    if claim:\n        await fence(tx, claim)\n    from_lead", "    from_lead", seed=186),
    Mutant("a release by hand leaves the epoch", 2, "board/store/sql/tasks.sql",
           "'scheduled' ELSE 'ready' END, epoch = epoch + 1,\n  due_at", "'scheduled' ELSE 'ready' END,\n  due_at",
           seed=9),
    Mutant("tools go on when the lease is over", 2, "team/host.py",
           "self.mind(member, self.lease_runs)", "self.mind(member, lambda: True)", seed=96),
    Mutant("no fence on a script", 2, "board/store/sql/scripts.sql",
           " AND tasks.epoch = CAST(held.value ->> 'epoch' AS bigint)", ""),
    # 3. Order.
    Mutant("any end meets a need", 3, "board/rules.py",
           'return "met" if state == "done" and wanted in (None, outcome) else "broken"', 'return "met"', seed=10),
    Mutant("ready with one need left", 3, "board/store/sql/tasks.sql",
           "WHEN open_needs > met.n OR state NOT IN", "WHEN open_needs > met.n + 1 OR state NOT IN", seed=4),
    Mutant("put as ready with one open need", 3, "board/store/sql/tasks.sql",
           "CASE WHEN open_needs > 0 THEN 'blocked'", "CASE WHEN open_needs > 1 THEN 'blocked'"),
    Mutant("due a minute early", 3, "board/store/sql/claims.sql",
           "due_at <= now_ms() ORDER BY due_at LIMIT 1000", "due_at <= now_ms() + 60000 ORDER BY due_at LIMIT 1000"),
    Mutant("nothing is skipped", 3, "board/verbs/needs.py", "    if not broken:\n", "    if True:\n"),
    Mutant("skipped without a reason", 3, "board/store/sql/tasks.sql",
           "reason = broken.why, due_at = NULL, ended_at", "reason = NULL, due_at = NULL, ended_at"),
    Mutant("retried as ready with open needs", 3, "board/verbs/tasks.py",
           '    state = "blocked" if still_open else "ready"\n', '    state = "ready"\n', seed=534),
    # 4. Exactly one end.
    Mutant("a repeated settle is stale", 4, "board/verbs/settle.py",
           'if row and row["settled_as"] == calls[place].fingerprint:', "if False:", seed=9),
    Mutant("an ended task is counted down to ready", 4, "board/store/sql/tasks.sql",
           "OR state NOT IN ('blocked', 'waiting') THEN state", "THEN state", seed=352),
    Mutant("a claim forgets its key", 4, "board/verbs/claims.py",
           "if not tx.repeated and not any(ask.may_repeat for ask in asks):", "if True:", seed=36),
    Mutant("what has ended is skipped again", 4, "board/store/sql/tasks.sql",
           "WHERE tasks.id = broken.broken_id AND state = 'blocked'", "WHERE tasks.id = broken.broken_id", seed=4),
    Mutant("kept answers are not looked for", 4, "board/verbs/idempotency.py",
           'if kept := await tx.fetch("call_answer", key=key):', "if kept := []:", seed=218),
    # 5. Budget.
    Mutant("what is reserved does not count", 5, "board/rules.py",
           "spent + reserved + asked > cap", "spent + asked > cap", seed=2),
    Mutant("a script reserves beyond the cap", 5, "board/store/sql/scripts.sql",
           "tokens + more_tokens + tokens_reserved + more_tokens_reserved <= tokens_max",
           "tokens + more_tokens <= tokens_max"),
    Mutant("an unknown call is refunded", 5, "agent/model_calls.py",
           "lost = amount if isinstance(trouble, AnswerLost) else Amount()", "lost = Amount()", seed=13),
    Mutant("a lost holder's reservation is refunded", 5, "board/verbs/budgets.py",
           '[(row, records.amount(row), "forfeited", actor) for row in rows]',
           '[(row, Amount(), "forfeited", actor) for row in rows]'),
    Mutant("runs are not charged", 5, "board/verbs/claims.py",
           "charges.get(candidate.root, 0) + candidate.fresh", "0", seed=6),
    Mutant("dollars are not charged", 5, "agent/model_calls.py",
           "microdollars = price.microdollars(usage) if price else 0", "microdollars = 0"),
    Mutant("a failed call takes no time", 5, "agent/model_calls.py",
           "replace(lost, milliseconds=spent)", "lost", seed=15),
    Mutant("a summary costs nothing", 5, "agent/agent.py",
           '{"used": answer.used, "reservation": answer.reservation} if answer',
           '{"reservation": answer.reservation} if answer', seed=1),
    Mutant("a turn is charged what was reserved", 5, "board/verbs/scripts.py",
           "        spent = turn.used\n", "        spent = held\n"),
    # 6. Loop guards.
    Mutant("retry without bound", 6, "board/verbs/settle.py",
           "if outcome.retry and tries < limits.attempts_max and not worn_out:", "if outcome.retry:", seed=5),
    Mutant("lost without bound", 6, "board/verbs/settle.py",
           'if row["tries"] + 1 >= limits.attempts_max or row["claims"] >= limits.claims_max:', "if False:", seed=3),
    Mutant("follow-up key ignored", 6, "board/board.py",
           "key=task.key or rules.content_key(task))", "key=task.key)"),
    Mutant("depth without bound", 6, "board/verbs/tasks.py",
           "if depth > tx.limits.depth_max:", "if depth > 10 * tx.limits.depth_max:"),
    Mutant("turns without bound", 6, "agent/decide.py", "if talk.turns >= limits.turns_max:", "if False:", seed=15),
    Mutant("a failed try is not counted", 6, "board/verbs/settle.py",
           'tried = int(row["state"] == "claimed")', "tried = 0", seed=14),
    Mutant("depth does not grow", 6, "board/verbs/tasks.py",
           'root, depth = row["root_id"], row["depth"] + 1', 'root, depth = row["root_id"], row["depth"]', seed=8),
    Mutant("a guard asks nobody", 6, "board/verbs/settle.py",
           "        if move.guard:\n", "        if False:\n", seed=2),
    Mutant("repeats are not counted", 6, "board/verbs/tasks.py",
           "    if plan.claim and existing:\n", "    if False:\n", seed=12),
    # 7. Messages.
    Mutant("a message is marked before it is shown", 7, "agent/resume.py",
           "talk.shown += [message.id for message in messages]",
           "await board.show(claim.teammate, [message.id for message in messages])", seed=29),
    Mutant("a message is never marked", 7, "agent/agent.py",
           "reservation=answer.reservation, shown=tuple(talk.shown))", "reservation=answer.reservation)"),
    Mutant("peers before people", 7, "board/rules.py",
           'if sender == "human":\n        return 1', 'if sender == "human":\n        return 4', seed=11),
    Mutant("a message for one who was shut down", 7, "board/verbs/messages.py",
           'if (await member(tx, name))["state"] in ("stopped", "failed"):', "if False:"),
    Mutant("who was shut down comes back by itself", 7, "tools/message_tools.py",
           'return member.status == "stopped" and (reason == RESTED or reason.startswith(MADE_ROOM))',
           'return member.status == "stopped"', seed=5),
    Mutant("compaction drops what was to be said", 7, "agent/conversation.py",
           "*self.entries[kept_from:]])\n        self.desk.compaction_wanted = False",
           "*self.entries[kept_from:]])\n        self.to_say = []", seed=611),
    # 8. Durable.
    Mutant("an interrupted call is run again", 8, "agent/tool_calls.py",
           "if resumed and not found.keyed and not asked_again:", "if False:", seed=112),
    Mutant("acknowledged, and rolled back", 8, "board/store/sqlite.py",
           '                self.writer.execute("COMMIT")',
           '                self.writer.execute("ROLLBACK" if len(tx.events) == 4 else "COMMIT")', seed=1205),
    Mutant("a lost attempt is begun from nothing", 8, "board/store/sql/claims.sql",
           "tries = tries + 1, continues = tasks.epoch,", "tries = tries + 1, continues = NULL,"),
    Mutant("a call that waited is run again when its result is not recorded", 8, "agent/tool_calls.py",
           "self.begun.add((self.claim.epoch, context.key))", "pass", seed=8275),
    Mutant("a task released by hand goes on from an old attempt", 8, "board/store/sql/tasks.sql",
           "SET continues = CASE WHEN state = 'claimed' THEN NULL ELSE continues END,\n", "SET\n", seed=600),
    Mutant("what was put down in order is begun from nothing", 8, "board/verbs/settle.py",
           'continues=row["epoch"] if outcome.resume else None,', "continues=None,"),
    Mutant("a tool's result is not recorded", 8, "agent/tool_calls.py",
           "talk.number = await self.board.record(self.claim, turn)\n        talk.apply_result",
           "talk.number += 1\n        talk.apply_result"),
    # 9. Identity.
    Mutant("a request without the name", 9, "prompts/teammate.md", "You are {name}.", "You are here."),
    Mutant("a request without the task", 9, "prompts/packet.md", "Your task is #{id}: ", "Your task is "),
    Mutant("a request that does not say where it stands", 9, "agent/packet.py",
           "if turn == 1 or turn % _STANDING_TURNS == 0:", "if False:"),
    Mutant("a summary that does not say whose work it is", 9, "agent/compaction.py",
           "within_bytes(joined((who, talk.opening)), room // 4)", "within_bytes(talk.opening, room // 4)", seed=85),
    Mutant("a teammate that forgets who it is", 9, "agent/conversation.py",
           "else [joined((who, self.opening)), text]", "else [text]", seed=1),
    # 10. Idle costs nothing.
    Mutant("polling at rest", 10, "team/worker.py",
           "await watch.wait(max(0.0, min(left, 3_600.0)))", "await watch.wait(0.5)"),
    Mutant("nobody is woken by a push", 10, "board/store/watch.py",
           "            self._wake(topic, count)\n",
           '            _ = topic.startswith("ready:") or self._wake(topic, count)\n'),
    Mutant("the sweep never sleeps", 10, "board/store/watch.py",
           "nap = self._poll_seconds if due_seconds is None", "nap = 0.1 if due_seconds is None"),
    Mutant("nobody is woken for what was given back", 10, "board/verbs/settle.py",
           'if state in ("ready", "scheduled"):', 'if state == "scheduled":'),
    Mutant("nobody hears of what will be due", 10, "board/verbs/tasks.py",
           '            wake(tx, "due")', "            pass"),
    # 11. The log is the history.
    Mutant("a hand-over is not logged", 11, "board/verbs/turns.py",
           'event(tx, "handover", claim.teammate', '(lambda *a, **k: 0)(tx, "handover", claim.teammate',
           seed=5),
    Mutant("what was shown is not logged", 11, "board/verbs/messages.py",
           'event(tx, "shown", recipient', '(lambda *a, **k: 0)(tx, "shown", recipient'),
    Mutant("a lone event is not logged", 11, "board/store/sqlite.py",
           "                if tx.events:\n", "                if len(tx.events) > 1:\n"),
    # 12. Contained.
    Mutant("bare where there is no sandbox", 12, "workspace/sandbox/sandbox.py",
           'if self.found.level == "none" and not self.bare:', "if False:", seed=2),
    Mutant("commands see the network", 12, "workspace/sandbox/profile.py", '("--unshare-net",), ', ""),
    Mutant("a check that could not be run is green", 12, "team/workspaces/workspace.py",
           "return RedCheck(command, str(refused))", "continue", seed=12),
)  # fmt: skip


def plant(mutant: Mutant, package: Path, folder: Path) -> None:
    """Copy the package beneath a folder, with the bug in it."""
    copy = folder / package.name
    shutil.copytree(package, copy)
    path = copy / mutant.file
    text = path.read_text("utf-8")
    if text.count(mutant.old) != 1:
        raise MutantOutdated(
            f"{mutant.name!r} replaces a text that is {text.count(mutant.old)} times in {mutant.file}; follow the code."
        )
    path.write_text(text.replace(mutant.old, mutant.new), "utf-8")
