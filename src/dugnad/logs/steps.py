"""The steps of an attempt, for a listener outside of the core. Without a listener a step costs nothing.

The core says here what it does and knows nothing of who listens. A listener is set for an asyncio task and for those
that it starts from then on.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any, Literal, Protocol

Kind = Literal[
    "attempt",  # From the claim to the outcome.
    "chat",  # One call of a model.
    "run",  # One run of an external agent.
    "tool",  # One call of a tool.
    "check",  # The commands that must succeed.
    "merge",  # Waiting for the turn, and merging.
]
Facts = dict[str, Any]  # What is known of a step. Its caller adds what came of it.


class Listener(Protocol):
    """Is told what happens. It must not raise, and must not wait."""

    def step(self, kind: Kind, name: str, facts: Facts) -> AbstractContextManager[Facts]: ...

    def count(self, what: str) -> None: ...


LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


def step(kind: Kind, name: str, **facts: Any) -> AbstractContextManager[Facts]:
    """A step that begins and ends with the `with` block."""
    listener = LISTENER.get()
    return nullcontext(facts) if listener is None else listener.step(kind, name, facts)


def count(what: str) -> None:
    """Something happened that has no length."""
    if (listener := LISTENER.get()) is not None:
        listener.count(what)
