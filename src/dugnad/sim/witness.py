"""Sees what the log cannot show: what models were told and billed, what commands were run with, what was done outside.

Each method is called at the moment something happens in the simulated world, and notes what should not have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..models.talk import Request, Said
from ..types import ERRAND, HUMAN, Event, Task
from .oracle import History
from .promises import Fault

_INBOX = re.compile(r"<inbox>\n(.*?)\n</inbox>", re.DOTALL)
_WORD = re.compile(r"^> (word .*)$", re.MULTILINE)
_SENDER = re.compile(r"^From (the human|\S+)( \(lead\))?( \[shutdown\])?", re.MULTILINE)
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
    billed: Counter[int] = field(default_factory=Counter)  # Tokens, by root.
    asks: Counter[int] = field(default_factory=Counter)  # Of models, by task;
    reserved: Counter[int] = field(default_factory=Counter)  # and reservations made for them.
    pressed: Counter[str] = field(default_factory=Counter)
    beats: dict[str, float] = field(default_factory=dict)  # A host: when its last answered heartbeat was asked for.
    seen: set[tuple[str, str]] = field(default_factory=set)  # Who was shown which words.
    taken: set[int] = field(default_factory=set)  # Messages that were given to be shown with a request.
    read_otherwise: set[int] = field(default_factory=set)  # Messages that were not shown with a request.
    counts: Counter[str] = field(default_factory=Counter)
    clock_jumps: bool = False

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
        for what in (f"You are {who},", TEAM, roles, f"#{request.task} "):
            if what not in request.system:
                self.fault(9, f"the request of {who} for #{request.task} does not say {what!r}")
        last = request.messages[-1] if request.messages else None
        if isinstance(last, Said) and not request.title.startswith("("):
            if f"[{who}, task #{request.task}, " not in last.text:
                self.fault(9, f"the request of {who} for #{request.task} does not say where it stands")
            # Also in the packet: what cannot be an errand of its own is read there.
            self.seen.update((who, word) for word in _WORD.findall(last.text))
            if "<inbox>" in last.text:
                self._inbox(request, last.text)

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

    def bill(self, request: Request, tokens: int) -> None:
        """What the provider really charges has to be in the account, as spent or as reserved."""
        task = self.history.tasks[request.task]
        self.billed[task.root] += tokens
        account = self.history.accounts[task.root]
        if self.billed[task.root] > account.used["tokens"]:
            self.fault(
                5, f"{self.billed[task.root]} tokens of #{task.root} were billed, {account.used['tokens']} counted"
            )
        cap = account.caps["tokens_max"]
        if cap is not None and self.billed[task.root] > cap:
            self.fault(5, f"{self.billed[task.root]} tokens of #{task.root} were billed, and {cap} is the cap")

    # What is done outside the board.

    def press(self, key: str, host: str, who: str) -> None:
        """A button was pressed by a tool that must not run twice."""
        self.pressed[key] += 1
        if self.pressed[key] > 1:
            self.fault(8, f"the call {key} of {who} was run {self.pressed[key]} times")
        if self.now() > self.beats.get(host, self.now()) + self.lease_seconds:
            self.fault(
                2, f"{who} acts outside the board, {self.now() - self.beats[host]:.0f} s after its last heartbeat"
            )

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
        elif verb == "claim" and answer is None:
            self.counts["claim without work"] += 1

    def event(self, event: Event) -> None:
        """A change was committed."""
        if event.kind == "reserved":
            self.reserved[event.task or 0] += 1
        if event.kind == "host_lost" and not self.clock_jumps:
            host = str(event.data["host"])
            left = self.beats.get(host, -1e9) + self.lease_seconds - self.now()
            if left > 0.1:
                self.fault(1, f"{host} is declared lost with all it holds, and its lease runs {left:.0f} s more")

    def at_rest(self) -> list[Fault]:
        """What can be judged only at the end."""
        # Of what was to be answered in a task that was given up, a person was told.
        errands = [
            task.key for task in self.history.tasks.values() if task.key.startswith(ERRAND) and task.ended != "done"
        ]
        given_up = {int(key.rpartition(":")[2]) for key in errands}
        for number, message in self.history.messages.items():
            to, text = message["to"], message["text"]
            if to == HUMAN or not text.startswith("word "):
                continue
            if number in self.history.shown:
                if (to, text) not in self.seen and number not in self.read_otherwise | given_up:
                    self.fault(7, f"message {number} to {to} counts as shown, and {to} never saw it")
            elif self.history.teammates.get(to) == "seated":
                self.fault(7, f"message {number} to {to} was never shown")
        return self.found
