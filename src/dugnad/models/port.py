"""The port to a model: requests and replies as frozen records, and the protocol that every model implements.

Nothing here knows a provider. `Reply.native` is the reply in the provider's own form, unchanged, so that thinking
blocks and signatures go back as they came.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ..text import Told

Stop = Literal[
    "end",  # It has finished.
    "tools",  # It calls tools.
    "length",  # The output limit cut it off.
    "refused",  # The model, or the provider's filter, refused.
]


LIVE = "live"


@dataclass(frozen=True, slots=True, eq=False)
class Said:
    """What the runtime tells the model: the packet of the task, the inbox, a reminder."""

    text: Told


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str  # From the provider; unique only within its reply.
    name: str
    arguments: str  # JSON as the model wrote it; it may be invalid.


@dataclass(frozen=True, slots=True, eq=False)
class ToolResult:
    call: str
    name: str
    text: str
    label: str = ""  # Where the whole text is in the transcript.


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The usage that the provider reported. The input includes cached tokens."""

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
    run: str = ""  # How the run ended, if an external agent gave this reply; LIVE if it goes on.


Message = Said | Reply | ToolResult


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ToolSpec:
    """A tool as the model sees it. Two are equal only if they are the same object."""

    name: str
    description: str
    schema: Mapping[str, Any]


@dataclass(slots=True)
class Memory:
    """The part of one conversation that is already in the provider's form. Only the model reads it."""

    model: object = None  # The model whose form it is.
    covered: tuple[Message, ...] = ()
    encoded: list[bytes] = field(default_factory=list)
    kept: str = ""  # What the provider's protocol remembers of it beside that.


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to a model. `messages` only grow at the end, until they are compacted."""

    system: Told
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    output_tokens_max: int = 8_192
    seconds_max: float = 600.0
    teammate: str = ""
    task: int = 0
    title: str = ""  # Of the task; a scripted model chooses its step by this and the turn.
    turn: int = 1
    memory: Memory = field(default_factory=Memory)
    # Is told the reply's text as it comes, for people who watch; "" when a reply begins. Nothing may depend on it.
    hears: Callable[[str], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Prices in dollars per million tokens."""

    input: float
    output: float
    cache_read: float | None = None  # None: the price of other input.
    cache_write: float | None = None
    above: tuple[tuple[int, Price], ...] = ()  # Prices for input longer than this many tokens, ascending.

    def microdollars(self, usage: Usage) -> int:
        """The cost, rounded up so that it is never counted too low."""
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
    """What is known about a model. Without a price, it is counted in tokens only."""

    window_tokens: int | None = None
    price: Price | None = None


class Model(Protocol):
    """A model. `ask` raises a ModelTrouble if there is no reply."""

    @property
    def name(self) -> str:
        """provider:model, as people write it."""

    @property
    def key(self) -> str:
        """The provider key whose rate limit it uses, as a label; never the key itself."""

    @property
    def facts(self) -> Facts: ...

    async def ask(self, request: Request) -> Reply: ...

    async def close(self) -> None:
        """Close connections, if there are any."""
