"""Whether a board is well: pure, from its numbers. Not well means that work waits for a person."""

from __future__ import annotations

from dataclasses import dataclass

from ..board.records import Health
from ..board.roots import budget_id, root_name
from ..text import counted

_NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that does not go on by itself."""

    kind: str  # no_host, person, budget or teammate.
    says: str
    mend: str  # The command that helps.


def ready_seconds(now: Health) -> float:
    """For how long the oldest ready task has been ready."""
    return 0.0 if now.ready_since is None else max(0, now.now - now.ready_since) / 1000


def troubles(now: Health) -> list[Trouble]:
    """What only a person can mend, the most pressing first."""
    found = []
    if (now.ready or now.tasks["claimed"]) and not now.hosts["alive"]:
        found.append(Trouble("no_host", "No host runs, and tasks are ready or claimed.", "dugnad work"))
    if now.requests:
        found.append(Trouble("person", f"{counted(now.requests, 'request')} waiting for an answer.", "dugnad inbox"))
    if now.held:
        few = ", ".join(map(root_name, now.held[:_NAMED_MAX])) + (" and others" if now.held[_NAMED_MAX:] else "")
        mend = f"dugnad budget {budget_id(now.held[0])}"
        found.append(Trouble("budget", f"Held at a cap, with open tasks: {few}.", mend))
    if failed := now.team.get("failed"):
        found.append(Trouble("teammate", f"{counted(failed, 'teammate')} failed.", "dugnad team"))
    return found
