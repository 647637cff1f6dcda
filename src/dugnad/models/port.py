"""What is said between a teammate and a model, as frozen records, and the port every model is behind.

Nothing here knows a provider. `Reply.native` is the provider's own form of what it said, kept word for word, so that
thinking blocks and signatures go back just as they came.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ..text import Told

Stop = Literal[
    "end",  # It said what it wanted to say.
    "tools",  # It wants tools to be called.
    "length",  # The output limit cut it off.
    "refused",  # The model, or the provider's filter, would not.
]


@dataclass(frozen=True, slots=True, eq=False)
class Said:
    """What the runtime tells the model: the packet of the task, the inbox, a reminder."""

    text: Told


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str  # The provider's; only unique within its reply.
    name: str
    arguments: str  # JSON as the model wrote it, which may be broken.


@dataclass(frozen=True, slots=True, eq=False)
class ToolResult:
    call: str
    name: str
    text: str
    label: str = ""  # Where the whole of it is in the transcript.


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What the provider counted. Input is all of it, cached or not."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reply:
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    stop: Stop = "end"
    model: str = ""
    native: str | None = None
    run: str = ""  # How the run behind it ended, where it is the reply of somebody else's agent.


Message = Said | Reply | ToolResult


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ToolSpec:
    """A tool as a model is told of it. Two are the same only if they are one object."""

    name: str
    description: str
    schema: Mapping[str, Any]


@dataclass(slots=True)
class Memory:
    """What a model already put into its provider's form, of one conversation. Only the model looks inside."""

    model: object = None  # Whose form it is.
    covered: list[Message] = field(default_factory=list)
    encoded: list[Any] = field(default_factory=list)
    latest: tuple[Reply, Any] | None = None  # The last reply, with the provider's own object for it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Everything a model is asked with. `messages` only ever grow at the end, until they are compacted."""

    system: Told
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    output_tokens_max: int = 8_192
    seconds_max: float = 600.0
    teammate: str = ""
    task: int = 0
    title: str = ""  # Of the task; with the turn, what a scripted model goes by.
    turn: int = 1
    memory: Memory = field(default_factory=Memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """In dollars per million tokens."""

    input: float
    output: float
    cache_read: float | None = None  # None: as other input.
    cache_write: float | None = None
    above: tuple[tuple[int, Price], ...] = ()  # What holds when the input is longer than so many tokens, rising.

    def microdollars(self, usage: Usage) -> int:
        """Rounded up: what is paid is never counted too low."""
        for start, dearer in reversed(self.above):
            if usage.input_tokens > start:
                return dearer.microdollars(usage)
        read, write = usage.cache_read_tokens, usage.cache_write_tokens
        fresh = max(0, usage.input_tokens - read - write)
        cost = fresh * self.input + usage.output_tokens * self.output
        cost += read * (self.input if self.cache_read is None else self.cache_read)
        cost += write * (self.input if self.cache_write is None else self.cache_write)
        return math.ceil(round(cost, 6))


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a model. None: nobody knows, so it is counted in tokens only."""

    window_tokens: int | None = None
    price: Price | None = None


class Model(Protocol):
    """Something that can be asked. Raises a ModelTrouble when there is no reply."""

    @property
    def name(self) -> str:
        """provider:model, as a person would write it."""

    @property
    def key(self) -> str:
        """Whose rate limit it shares: a label for the provider's key, never the key."""

    @property
    def facts(self) -> Facts: ...

    async def ask(self, request: Request) -> Reply: ...

    async def close(self) -> None:
        """Let go of connections, if there are any."""
