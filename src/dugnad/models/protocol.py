"""What a model over our own wire has to know of a provider's protocol, and what the three protocols share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .native import Part
from .port import Message, Request, Stop, ToolSpec, Usage
from .streaming import Fold, Json

_STRICT_KEYS = frozenset({"type", "description", "properties", "required", "additionalProperties", "items", "enum"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What an answer says."""

    parts: list[Part]
    usage: Usage
    stop: Stop | None = None  # None: it follows from the parts.
    refusal: str = ""
    model: str = ""


class WireProtocol(ABC):
    provider: str  # Whose thoughts go back.
    path: str
    messages: str  # The name of the field that has the messages.
    fold: Fold
    url: str
    headers: dict[str, str]

    @abstractmethod
    def head(self, request: Request) -> Json:
        """The request without its messages and tools."""

    @abstractmethod
    def tools(self, tools: Sequence[ToolSpec]) -> Json: ...

    @abstractmethod
    def encode(self, messages: Sequence[Message], kept: str, *, thoughts: bool) -> tuple[list[Json], str]:
        """The messages in the provider's form. `kept` is what the protocol remembers of those in front of them. What
        it makes of a message depends only on the messages in front of it, so what was sent never changes."""

    @abstractmethod
    def read(self, answer: Json, turn: int) -> Heard:
        """Raises any error if it is no answer."""

    def lead(self, request: Request) -> list[Json]:
        """The messages in front of the conversation."""
        return []

    def marked(self, sent: list[bytes]) -> list[bytes]:
        """The messages with the marks that depend on where the conversation ends."""
        return sent


def strict(schema: Any) -> Json | None:
    """The schema in the form in which a model of OpenAI is held to it, or None: all of it has to be required."""
    if not isinstance(schema, dict) or "type" not in schema or schema.keys() - _STRICT_KEYS:
        return None
    if schema["type"] == "array":
        items = strict(schema.get("items"))
        return items and {**schema, "items": items}
    if schema["type"] != "object":
        return schema
    fields = {name: strict(each) for name, each in (schema.get("properties") or {}).items()}
    optional = set(fields) - set(schema.get("required", ()))
    if not fields or optional or None in fields.values() or schema.get("additionalProperties"):
        return None
    return {**schema, "properties": fields, "additionalProperties": False}


def count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def text(value: Any) -> str:
    """A text of an answer; None is the empty one."""
    if value is not None and not isinstance(value, str):
        raise ValueError(f"a text is of the type {type(value).__name__}")
    return value or ""
