"""One attempt's conversation, folded from its recorded turns.

The loop records a turn and then applies it here. After a crash the same turns are applied again, so a resumed teammate
sees what it saw before. No I/O. Nothing is ever removed from the transcript: a summary only changes the view.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import orjson

from ..models.port import LIVE, Memory, Message, Reply, Request, Said, Stop, ToolCall, ToolResult, ToolSpec, Usage
from ..prompts import tell
from ..text import NOTHING, Told, joined
from ..tools.context import Desk
from ..tools.task_tools import labels_in
from ..types import Done, Failed, NewTurn, Outcome, Released, Spending, Turn, TurnKind, Waiting

_ENDS = {"Done": Done, "Failed": Failed, "Released": Released}
# How the result of a call begins that was not granted. Recorded transcripts have these words, so they must not change.
GUARD = "A guard stopped this:"
NOT_GRANTED = ("Error:", GUARD, "A person refused:")
BYTES_PER_TOKEN = 3  # A safe estimate of what was added, used only until the provider has counted,
_BYTES_PER_TOKEN_CUT = 4  # and one of what was taken away.


@dataclass(slots=True)
class Untold:
    """What a mind must be told and no recorded turn has yet. The mind keeps it from one look at the board to the next,
    so a board in trouble cannot lose it."""

    news: Told = NOTHING  # Something new to go on with, like a red check.
    workspace: Told = NOTHING  # What it must know about its workspace.


@dataclass(slots=True)
class Conversation:
    """What was said, what is still open, and how far the attempt has come."""

    entries: list[Message] = field(default_factory=list)
    who: Told = NOTHING  # Who the model was told it is.
    opening: Told = NOTHING  # The first message behind that; no compaction changes it.
    outside: bool = False  # Its mind is an external agent, which has no tools of ours,
    client: bool = False  # or a client, which has those of the MCP server.
    part: str = ""  # Begins the labels of this task's results, if other tasks have the same conversation.
    tasks: list[int] = field(default_factory=list)  # The tasks in front of this one, whose conversation goes on.
    to_say: list[Told] = field(default_factory=list)  # What the next request tells the model.
    untold: Untold = field(default_factory=Untold)  # What of that is said again if it is not recorded.
    shown: list[int] = field(default_factory=list)  # The new messages in `to_say`,
    retold: list[int] = field(default_factory=list)  # and those that were shown before.
    heard: set[int] = field(default_factory=set)  # All messages that the conversation tells of.
    epoch: int = 0
    number: int = 0  # Of the last recorded turn of this epoch.
    turns: int = 0  # Replies in this attempt.
    replies: int = 0  # Replies in this attempt and those that it continues.
    reply_at: tuple[int, int] = (0, 0)  # Epoch and number of the last reply.
    open_calls: dict[int, ToolCall] = field(default_factory=dict)  # By place in the last reply, not answered yet.
    begun: bool = False  # A run of an external agent began, and has no reply yet.
    cut_off: bool = False  # The last reply ran into its length limit.
    ended: Outcome | None = None
    finished: tuple[int, int] | None = None  # The `finish` that ended it: its place in the reply, and of its result.
    authors: dict[int, str] = field(default_factory=dict)  # The teammates of the attempts before this one, by epoch.
    since: int | None = None  # The attempt that began the wait whose answer is due now.
    waits: list[int] = field(default_factory=list)  # Attempts since the last reply that ended with a wait.
    allowed: set[str] = field(default_factory=set)  # Tools that a person allowed for the rest of the task.
    recorded: int = 0  # The attempt that recorded the last turn.
    plan_missing: bool = False  # The plan of the task is not approved yet, so only reading is allowed.
    may_end: bool = True  # With plain text. Not while a plan is missing, unless the task is a message.
    plain: int = 0  # Replies in a row that were plain text and could be a result.
    odd: int = 0  # Empty, cut off or malformed replies in a row.
    all_bad: bool | None = None  # Of the last reply's calls answered so far.
    failed: list[str] = field(default_factory=list)  # The calls of the last reply that were not done, by tool.
    tokens: int = 0  # Of all entries, as the provider counted them last.
    uncounted: int = 0  # Bytes that were added since.
    spending: Spending | None = None  # The root's account, as last looked at.
    room: float = 0.0  # The share of the window that the last request used.
    memory: Memory = field(default_factory=Memory)
    desk: Desk = field(default_factory=Desk)

    @property
    def last(self) -> Message | None:
        return self.entries[-1] if self.entries else None

    @property
    def size_tokens(self) -> int:
        """How long the next request is, without what is still to be said."""
        return self.tokens + self.uncounted // BYTES_PER_TOKEN

    def attempt(self, epoch: int) -> None:
        """From here on a new attempt continues the conversation."""
        self.epoch, self.number, self.turns = epoch, 0, 0

    def go_on_after(self, task: int) -> None:
        """This task is over, and another one continues the conversation. Calls that were never run get an answer."""
        self.tasks.append(task)
        for call in self.open_calls.values():
            self.entries.append(ToolResult(call.id, call.name, tell("results.not_run")))
        self.open_calls, self.ended, self.finished, self.allowed = {}, None, None, set()
        self.replies = self.recorded = self.plain = self.odd = 0
        self.reply_at, self.all_bad, self.cut_off = (0, 0), None, False
        self.desk = Desk(follows=self.desk.follows, joins=self.desk.joins)

    def label(self, number: int) -> str:
        """Names a result, for `read_output`."""
        return f"{self.part}{self.epoch}.{number}"

    def holds(self, words: str) -> bool:
        """Whether something that the model was told has these words."""
        return any(isinstance(entry, Said) and words in entry.text for entry in self.entries)

    def say(self, text: Told) -> None:
        self.to_say.append(text)

    # What is recorded, each with how it is applied.

    def reply_turn(self, said: Said | None, reply: Reply, who: Told = NOTHING) -> dict[str, Any]:
        """`who` begins what was said, if the model was told who it is."""
        messages = [*self.shown, *self.retold]
        told = {**({"who": who} if who else {}), **({"messages": messages} if messages else {})}
        return {**told, "said": said.text if said else "", "reply": reply_body(reply)}

    def apply_reply(self, said: Said | None, reply: Reply, who: Told = NOTHING) -> None:
        if said and not self.replies:
            self.opening = Told(said.text.removeprefix(who).lstrip("\n"))
        self.who = who or self.who
        self.entries += [said, reply] if said else [reply]
        self.heard.update(self.shown, self.retold)
        goes_on = reply.run == LIVE  # An external agent called a tool of ours in the middle of its run.
        self.to_say, self.shown, self.retold, self.begun = [], [], [], self.begun and goes_on
        self.untold.news = self.untold.workspace = NOTHING
        self.turns += not goes_on
        self.replies += 1
        self.desk.compaction_wanted = False
        self.reply_at, self.waits = (self.epoch, self.number), []
        self.open_calls = dict(enumerate(reply.calls))
        self.cut_off = reply.stop == "length"
        # If the provider counts nothing, we estimate.
        self.tokens = reply.usage.tokens
        self.uncounted = 0 if self.tokens else sum(map(size_bytes, self.entries))
        self.ended = self.finished = None  # The work went on after an earlier end.
        is_odd = not reply.calls and (not reply.text.strip() or reply.stop == "length" or not self.may_end)
        self.odd = self.odd + 1 if is_odd else (self.odd if reply.calls else 0)
        is_plain = not reply.calls and bool(reply.text.strip()) and reply.stop != "length"
        self.plain = self.plain + 1 if is_plain else 0
        self.all_bad, self.failed = None, []

    def apply_result(
        self, place: int, text: str, *, ends: Outcome | None = None, bad: bool = False, always: bool = False
    ) -> None:  # fmt: skip
        call = self.open_calls.pop(place)
        if always:
            self.allowed.add(call.name)
        self.entries.append(ToolResult(call.id, call.name, text, self.label(self.number)))
        self.uncounted += len(text.encode())
        self.ended = ends or self.ended
        self.failed += [call.name] if text.startswith(NOT_GRANTED) else []
        if isinstance(ends, Done) and call.name == "finish":
            self.finished = (place, len(self.entries) - 1)
        # A reply is odd, once, if none of its calls made sense.
        if bad and self.all_bad is None:
            self.odd += 1
        elif not bad:
            self.odd = 0
        self.all_bad = bad and self.all_bad is not False
        if call.name == "todo" and not bad:
            self._touch_todo(call)
        if call.name == "compact" and not bad:
            self.desk.compaction_wanted = True
        if call.name == "add_tasks" and not bad:
            self.desk.labels.update(labels_in(text))

    def apply_verdict(self, text: str, *, last: bool = False) -> None:
        """What the work came to takes the place of the first answer of `finish`, which no model was shown. `last`: the
        work is done, so the end stays."""
        assert self.finished is not None
        _, at = self.finished
        entry = self.entries[at]
        assert isinstance(entry, ToolResult)
        self.entries[at] = replace(entry, text=text, label=self.label(self.number))
        self.uncounted += len(text.encode()) - len(entry.text.encode())
        self.ended, self.finished = self.ended if last else None, None
        self.untold.news = NOTHING

    def _touch_todo(self, call: ToolCall) -> None:
        try:
            self.desk.todo = [str(item) for item in orjson.loads(call.arguments).get("items", ())]
        except (orjson.JSONDecodeError, AttributeError):
            return
        self.desk.todo_turn = self.replies

    def apply_shortened(self, shortened: Sequence[tuple[int, str]]) -> None:
        """Of old results only the beginning and the end are left, with where the whole is."""
        entries = list(self.entries)
        for place, text in shortened:
            old = entries[place] if place < len(entries) else None
            if isinstance(old, ToolResult):  # Not if the tasks in front of this one were pruned.
                entries[place] = replace(old, text=text)
        self._replace_entries(entries)

    def apply_summary(self, text: Told, kept_from: int, who: Told | None) -> None:
        """A summary replaces everything between the first message and `kept_from`. Earlier versions recorded no `who`,
        and put the packet and the summary into one message."""
        self.who = self.who if who is None else who
        kept = [joined((self.opening, text))] if who is None else [joined((who, self.opening)), text]
        self._replace_entries([*map(Said, kept), *self.entries[kept_from:]])
        self.desk.compaction_wanted = False

    def apply_carried(self, text: Told) -> None:
        """A summary replaces all tasks in front of this one. Nothing of them is needed any more."""
        self._replace_entries([Said(text)])
        self.who, self.opening, self.tokens, self.tasks, self.heard = NOTHING, NOTHING, 0, [], set()

    def _replace_entries(self, entries: list[Message]) -> None:
        """Change the view. What the provider counted besides the entries (system text, tools) still counts."""
        before, after = sum(map(size_bytes, self.entries)), sum(map(size_bytes, entries))
        counted = size_without(self, before - after) if self.tokens else 0
        self.tokens, self.uncounted = counted, 0 if counted else after
        self.entries = entries
        self.memory = Memory()

    def apply(self, turn: Turn) -> None:
        """Apply a recorded turn. Its `said` was told by us, so it is `Told` again."""
        if turn.kind == "trouble":  # The traceback of a bug, for people.
            return
        body = orjson.loads(turn.body)
        self.number, self.recorded = turn.number, self.epoch
        if turn.kind == "live":  # What an external agent did on its own, for people.
            return
        if turn.kind == "request":
            self.begun = True
        elif turn.kind == "reply":
            said = Said(Told(body["said"])) if body["said"] else None
            self.retold = body.get("messages", [])
            self.apply_reply(said, reply_from(body["reply"]), Told(body.get("who", "")))
            self.opening = Told(body.get("packet", self.opening))  # Only earlier versions recorded the packet.
        elif turn.kind == "tool" and body.get("verdict"):
            self.apply_verdict(body["text"], last=body.get("last", False))
        elif turn.kind == "tool":
            self.apply_result(
                body["place"], body["text"], ends=outcome_from(body.get("ends")), bad=body.get("bad", False),
                always=body.get("always", False),
            )  # fmt: skip
        elif turn.kind == "summary" and "carried" in body:
            self.apply_carried(Told(body["carried"]))
        elif turn.kind == "summary" and "summary" in body:
            who = Told(body["who"]) if "who" in body else None
            self.apply_summary(Told(body["summary"]), body["kept_from"], who)
        elif turn.kind == "summary":
            self.apply_shortened(body["shortened"])

    def next_turn(self, kind: TurnKind, body: dict[str, Any], **fields: Any) -> NewTurn:
        return NewTurn(number=self.number + 1, kind=kind, body=orjson.dumps(body).decode(), **fields)


def size_without(talk: Conversation, cut_bytes: int) -> int:
    """How many tokens the conversation has without so many bytes of it."""
    return max(1, talk.size_tokens - cut_bytes // _BYTES_PER_TOKEN_CUT)


def reply_body(reply: Reply) -> dict[str, Any]:
    used = reply.usage
    return {
        "text": reply.text, "calls": [[call.id, call.name, call.arguments] for call in reply.calls],
        "usage": [used.input_tokens, used.output_tokens, used.cache_read_tokens, used.cache_write_tokens],
        "stop": reply.stop, "model": reply.model, "native": reply.native, **({"run": reply.run} if reply.run else {}),
    }  # fmt: skip


def reply_from(body: dict[str, Any]) -> Reply:
    fresh, output, read, write = body["usage"]
    stop: Stop = body["stop"]
    return Reply(
        text=body["text"], calls=tuple(ToolCall(*call) for call in body["calls"]),
        usage=Usage(input_tokens=fresh, output_tokens=output, cache_read_tokens=read, cache_write_tokens=write),
        stop=stop, model=body["model"], native=body["native"], run=body.get("run", ""),
    )  # fmt: skip


def outcome_body(outcome: Outcome) -> dict[str, Any] | None:
    """How an end is recorded. A wait is not recorded: the call runs again when the task continues."""
    if isinstance(outcome, Waiting):
        return None
    fields = {name: getattr(outcome, name) for name in outcome.__dataclass_fields__}
    return {"as": type(outcome).__name__, **fields}


def outcome_from(body: dict[str, Any] | None) -> Outcome | None:
    if body is None:
        return None
    return _ENDS[body["as"]](**{name: value for name, value in body.items() if name != "as"})  # type: ignore[no-any-return]


def size_bytes(message: Message) -> int:
    if isinstance(message, Reply):
        native = len(message.native) // 2 if message.native else 0  # Thinking is only in there.
        return max(
            native, len(message.text.encode()) + sum(len(call.arguments.encode()) + 20 for call in message.calls)
        )
    return len(message.text.encode()) + 10


@lru_cache(maxsize=1_024)
def told_of(spec: ToolSpec) -> int:
    """How many characters a request has for a tool."""
    return len(spec.description) + len(str(spec.schema))


def estimate_tokens(request: Request, known: int) -> int:
    """How long a request is: what the provider counted, and a guess for the rest."""
    if known:
        return known
    tools = sum(map(told_of, request.tools))
    said = len(request.system.encode()) + sum(map(size_bytes, request.messages))
    return (tools + said) // BYTES_PER_TOKEN
