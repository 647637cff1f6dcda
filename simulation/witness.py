"""Sees what the log cannot show: what models were told and billed, what commands were run with, what was done outside.

Each method is called at the moment something happens in the simulated world, and notes what should not have.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dugnad.models.port import Request, Said, ToolResult
from dugnad.types import HUMAN, MESSAGES, Claim, Event, NewTask, Released, Task

from .history import History, TaskHistory
from .oracle import KINDS
from .promises import Fault

_INBOX = re.compile(r"<inbox>\n(.*?)\n</inbox>", re.DOTALL)
_WORD = re.compile(r"^> (word .*)$", re.MULTILINE)
_SENDER = re.compile(r"^From (the human|\S+)( \(lead\))?( \[shutdown\])?", re.MULTILINE)
# What can be said of a button that was pressed; the last is what is left of an old result.
_OF_PRESSING = ("is pressed.", "Interrupted:", "took longer", "left out")
TEAM = "sim"
SECRET = "sk-simulated-secret"


@dataclass
class Witness:
    """One world's."""

    history: History
    now: Callable[[], float]
    lease_seconds: float
    members: Mapping[str, tuple[str, ...]]  # Names and roles.
    found: list[Fault] = field(default_factory=list)
    billed: dict[int, Counter[str]] = field(default_factory=dict)  # By root, in the kinds of a budget.
    asks: Counter[int] = field(default_factory=Counter)  # Of models, by task;
    reserved: Counter[int] = field(default_factory=Counter)  # and reservations made for them.
    # Follow-ups, with the keys of the calls whose answer one was. A call that is run again has the same key.
    answered: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    pressed: Counter[str] = field(default_factory=Counter)
    buttons: set[tuple[int, int, str]] = field(default_factory=set)  # Pressed: task, line of attempts, which.
    beats: dict[str, float] = field(default_factory=dict)  # A host: when its last answered heartbeat was asked for.
    told: set[tuple[str, str]] = field(default_factory=set)  # Who was sent which words by a teammate,
    seen: set[tuple[str, str]] = field(default_factory=set)  # and who was shown which.
    taken: set[int] = field(default_factory=set)  # Messages that were given to be shown with a request.
    read_otherwise: set[int] = field(default_factory=set)  # Messages that were not shown with a request.
    counts: Counter[str] = field(default_factory=Counter)
    naps: list[list[float]] = field(default_factory=list)  # From when until when everybody slept,
    jumps: list[float] = field(default_factory=list)  # and when the database's clock was set.
    lease_left: Callable[[str], int] = lambda host: 0  # By the database's clock, in milliseconds.

    def fault(self, promise: int, text: str) -> None:
        self.found.append(Fault(promise, f"at {self.now():.0f} s: {text}"))

    # Models.

    def asked(self, request: Request) -> None:
        """A model is asked: by one who is somebody, for a task, with its cost set aside."""
        who, task = request.teammate, self.history.tasks.get(request.task)
        if task is None:
            self.fault(9, f"{who} asks for #{request.task}, which is not there")
            return
        self.asks[request.task] += 1
        if self.asks[request.task] > self.reserved[request.task]:
            self.fault(5, f"{who} asks a model for #{request.task}, and nothing was reserved for it")
        roles = ", ".join(self.members.get(who, ()))
        told = "\n".join([request.system, *(each.text for each in request.messages if isinstance(each, Said))])
        for what in (f"You are {who}.", TEAM, roles, f"#{request.task}"):
            if what not in told:
                self.fault(9, f"the request of {who} for #{request.task} does not say {what!r}")
        if not request.title.startswith("("):
            if "[turn " not in told:
                self.fault(9, f"the request of {who} for #{request.task} does not say where it stands")
            last = request.messages[-1]
            text = last.text if isinstance(last, Said) else ""
            # Also in the packet: what cannot be an errand of its own is read there.
            self.seen.update((who, word) for word in _WORD.findall(text))
            if "<inbox>" in text:
                self._inbox(request, text)
            if task.live and task.holder == who:
                self._results(request, task)

    def _inbox(self, request: Request, text: str) -> None:
        shown = "\n".join(_INBOX.findall(text))
        ranks = [
            0 if stop else 1 if who == "the human" else 2 if lead else 3 for who, lead, stop in _SENDER.findall(shown)
        ]
        if ranks != sorted(ranks):
            self.fault(7, f"the inbox of {request.teammate} is out of order: {_SENDER.findall(shown)}")
        self.counts["inbox shown"] += 1
        whole = "\n".join(
            part for each in request.messages if isinstance(each, Said) for part in _INBOX.findall(each.text)
        )
        # What was said to all is several messages: who goes on with another's work may have read its own.
        twice = [word for word, n in Counter(_WORD.findall(whole)).items() if n > 1 and not word.endswith(" for all")]
        if twice:
            self.fault(7, f"{request.teammate} is shown {twice[0]!r} twice in one conversation")

    def _results(self, request: Request, task: TaskHistory) -> None:
        """Of a button that was pressed the model is told so, or that it may have been: never nothing."""
        if request.turn == 1:
            return  # What stands there are results of an earlier task, whose conversation goes on.
        told, line = 0, task.lines[task.epoch]
        until = -1 if isinstance(request.messages[-1], Said) else None
        for each in reversed(request.messages[:until]):
            if not isinstance(each, ToolResult):
                break
            told += 1
            pressed = (request.task, line, f"{request.task}.{request.turn - 1}") in self.buttons
            if each.name == "press" and pressed and not any(word in each.text for word in _OF_PRESSING):
                self.fault(8, f"{request.teammate} pressed a button for #{request.task}, and is told {each.text!r}")
        # Of any line: whoever was frozen and comes back asks with what it knew, and may bear the new holder's name.
        recorded = max(task.results[each, request.turn - 1] for each in task.lines.values())
        if told > recorded:
            self.fault(8, f"{request.teammate} is told {told} results for #{request.task}, {recorded} are recorded")

    def bill(self, task: int, **used: int) -> None:
        """What was really used of a root's budget has to be in its account, as spent or as reserved."""
        root = self.history.tasks[task].root
        self.billed.setdefault(root, Counter()).update(used)
        self._counted(root)

    def _counted(self, root: int) -> None:
        account, billed = self.history.accounts[root], self.billed[root]
        for kind in KINDS:
            if billed[kind] > account.used[kind]:
                self.fault(5, f"{billed[kind]} {kind} of #{root} were used, {account.used[kind]} counted")
            cap = account.caps[f"{kind}_max"]
            if cap is not None and billed[kind] > cap:
                self.fault(5, f"{billed[kind]} {kind} of #{root} were used, and {cap} is the cap")

    # What is done outside the board.

    def press(self, key: str, claim: Claim, button: str) -> None:
        """A button was pressed by a tool that must not run twice."""
        host, who, task = claim.host, claim.teammate, self.history.tasks[claim.task.id]
        place = (claim.task.id, task.lines[claim.epoch], button)
        if place in self.buttons:
            self.fault(8, f"{who} presses {button} again, going on from where it was pressed")
        self.buttons.add(place)
        self.pressed[key] += 1
        if self.pressed[key] > 1:
            self.fault(8, f"the call {key} of {who} was run {self.pressed[key]} times")
        if self.now() > self.beats.get(host, self.now()) + self.lease_seconds:
            self.fault(
                2, f"{who} acts outside the board, {self.now() - self.beats[host]:.0f} s after its last heartbeat"
            )

    def worked(self, task: int, seconds: float) -> None:
        """A tool took so long. Where time is capped, that was set aside before; elsewhere a crash may lose it."""
        if self.history.accounts[self.history.tasks[task].root].caps["milliseconds_max"] is not None:
            self.bill(task, milliseconds=max(0, int(seconds * 1000) - 1))

    def command(self, request: Mapping[str, Any], tree: str, sandboxed: bool) -> None:
        """A command is started: sealed, or not at all."""
        self.counts["command run"] += 1
        words = request.get("options", ())
        if not sandboxed or request["bare"]:
            self.fault(12, "a command is run, and there is no sandbox")
            return
        for needed in ("--unshare-net", "--unshare-pid", "--clearenv", "--die-with-parent"):
            if needed not in words:
                self.fault(12, f"a command is run without {needed}")
        writable = [words[place + 1] for place, word in enumerate(words) if word == "--bind"]
        if writable != [tree]:
            self.fault(12, f"a command may write to {writable}, not to {tree} alone")
        if SECRET in str(request):
            self.fault(12, "a command can see a secret")

    def checked(self, task: Task, sandboxed: bool) -> None:
        if not sandboxed:
            self.fault(12, f"the check of #{task.id} is green, and there is no sandbox to run it in")

    # The board.

    def called(self, verb: str, call: Any, answer: Any, began: float) -> None:
        if verb == "heartbeat":
            self.beats[call.host] = began
        elif verb == "start_host":
            self.beats[call.id] = began
        elif verb == "show":
            self.read_otherwise.update(set(call.messages) - self.taken)
        elif verb == "take":
            # A tool's take is shown with the tool's result, whoever reads that.
            into = self.read_otherwise if call.key.count(".") > 2 else self.taken
            into.update(message.id for message in answer)
        elif verb == "tell" and call.recipient is not None and not answer:
            self.fault(7, f"a message to {call.recipient} reaches nobody, and is no error")
        elif verb == "put":
            self._asked_for(call.tasks, answer)
            if call.claim is not None:
                self._asked_again(answer, call.key)
        elif verb == "settle" and isinstance(call.outcome, Released) and call.outcome.resume and answer == "released":
            if ("goes on", call.task, call.epoch) not in self.history.seen:
                self.fault(8, f"#{call.task} was put down to be gone on with, and begins anew")
        elif verb == "claim" and answer is None:
            self.counts["claim without work"] += 1

    def _asked_for(self, asked: Sequence[NewTask], put: Sequence[Task]) -> None:
        for one, other in zip(asked, put, strict=True):
            words = [(each.title, each.body, each.role, each.review) for each in (one, other)]
            if str(one.key).startswith("same:") and words[0] != words[1]:
                self.fault(6, f"{words[0]} was asked for, and {words[1]} was there already: they are not equal")

    def _asked_again(self, put: Sequence[Task], key: str) -> None:
        limits = self.history.limits
        for task in put:
            self.answered[task.id].add(key)
            if limits is not None and (times := len(self.answered[task.id])) > 1 + limits.repeats_max:
                self.fault(6, f"the follow-up #{task.id} was asked for {times} times")

    def event(self, event: Event) -> None:
        """A change was committed; the history is as it was before."""
        if event.kind == "seated":
            name, host = str(event.data["name"]), self.history.seats.get(str(event.data["name"]), "")
            left = self._lease_runs(host)
            seated = self.history.teammates.get(name) == "seated" and self.history.hosts.get(host) == "started"
            if seated and left > 0.1:
                self.fault(1, f"{name} is taken from {host}, and its lease runs {left:.0f} s more")
        if event.kind == "claimed" and (left_ms := self.lease_left(str(event.data["host"]))) <= 0:
            self.fault(1, f"{event.actor} claims #{event.task} at a host whose lease ran out {-left_ms} ms ago")
        if event.kind == "told" and event.actor != HUMAN and str(event.data["text"]).startswith("word "):
            words = str(event.data["to"]), str(event.data["text"])
            if words in self.told:
                self.fault(7, f"{event.actor} tells {words[0]} {words[1]!r} a second time")
            self.told.add(words)
        if event.kind == "reserved":
            self.reserved[event.task or 0] += 1
        if event.kind == "host_lost":  # Wherever the clocks are: it goes by the time that really passed.
            host = str(event.data["host"])
            left = self._lease_runs(host)
            if left > 0.1:
                self.fault(1, f"{host} is declared lost with all it holds, and its lease runs {left:.0f} s more")

    def _lease_runs(self, host: str) -> float:
        """By the time that really passed, of which half a beat counts where everybody slept. If the clock is not to be
        believed, it has to be two beats without one of the host's."""
        beat = self.beats.get(host, -1e9)
        naps = [(max(fell, beat), woke) for fell, woke in self.naps if woke > beat]
        lease = self.lease_seconds * (2 / 3 if naps or any(at >= beat for at in self.jumps) else 1)
        return beat + lease + sum(max(0.0, woke - fell - self.lease_seconds / 6) for fell, woke in naps) - self.now()

    def at_rest(self) -> list[Fault]:
        """What can be judged only at the end."""
        for root in self.billed:  # Nothing is reserved any more, so what was used is in what was spent.
            self._counted(root)
        # Of what was to be answered in a task that was given up, a person was told.
        tasks = self.history.tasks.values()
        given_up = {task.key for task in tasks if task.kind in MESSAGES and task.ended != "done"}
        for number, message in self.history.messages.items():
            to, text = message["to"], message["text"]
            if to == HUMAN or not text.startswith("word "):
                continue
            if number in self.history.shown:
                errands = {f"errand:{sender}:{to}:{number}" for sender in ("human", "team")}
                if (to, text) not in self.seen and number not in self.read_otherwise and not errands & given_up:
                    self.fault(7, f"message {number} to {to} counts as shown, and {to} never saw it")
            elif self.history.teammates.get(to) == "seated":
                self.fault(7, f"message {number} to {to} was never shown")
        return self.found
