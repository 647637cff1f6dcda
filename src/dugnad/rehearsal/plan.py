"""What is rehearsed, as frozen records: tasks with what is expected of them, budgets, and who is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..board import rules
from ..settings import Limits
from ..types import Amount, Budget, Need, Spending

WITHIN = 0.4  # If the spread is not known, a duration differs from the expected one by at most this share.
AGENTS_MAX = 10_000
ANYONE = "any"  # In a plan: the role of work and of teammates without a role.


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What one attempt at a task takes. Its cost grows with its duration."""

    seconds: float  # The median.
    spread: float | None = None  # Of the logarithm of the duration; None: within 40 % either way.
    turns: float = 1.0
    tokens: float = 0.0  # Of an attempt of `seconds`.
    dollars: float | None = None  # Of the same. None: not known.
    retried: float = 0.0  # The share of attempts that fail and are tried again,
    failed: float = 0.0  # and of those that fail for good.
    attempts: int = 0  # How many it was learned from; 0: it is assumed.


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTask:
    """A task as the rehearsal knows it: of a plan, or of a board as it stands."""

    id: int
    name: str
    role: str | None = None
    assignee: str | None = None
    priority: int = 0
    chain: int = 0
    root: int = 0
    needs: tuple[Need, ...] = ()
    due_ms: int = 0  # From the beginning of the rehearsal.
    claims: int = 0
    tries: int = 0
    estimate: Estimate
    outcomes: tuple[tuple[str | None, float], ...] = ((None, 1.0),)  # How it is done, and how likely; they add up to 1.

    @property
    def lane(self) -> str:
        return rules.lane(self.role, self.assignee)


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalPlan:
    name: str
    tasks: tuple[PlannedTask, ...]
    accounts: Mapping[int, Mapping[str, Any]]  # By root, as the board's rules read them.
    agents: Mapping[str, int] | None = None  # By role; None: each takes work of any role.
    size: int | None = None  # How many teammates the plan is made for.
    names: tuple[str, ...] = ()  # Teammates that tasks are assigned to, and who are there.
    limits: Limits = field(default_factory=Limits)
    basis: tuple[str, ...] = ()  # What was learned, and what is assumed, in sentences.
    warnings: tuple[str, ...] = ()
    board: str = ""  # The identity of the board that it was made from,
    seq: int = 0  # and the last event there.


def account(root: int, budget: Budget) -> dict[str, Any]:
    """A fresh account, as a row of the board."""
    return _row(root, rules.caps(budget), runs=0, spent=Amount(), held=None)


def account_of(spending: Spending) -> dict[str, Any]:
    """The account as it stands. What is reserved is for calls under way, and those are rehearsed anew."""
    return _row(spending.root, rules.caps(spending.caps), runs=spending.runs, spent=spending.spent, held=spending.held)


def _row(root: int, caps: Mapping[str, int | None], *, runs: int, spent: Amount, held: str | None) -> dict[str, Any]:
    row: dict[str, Any] = {"root_id": root, "runs": runs, "held": held, **caps}
    for column, _, _ in rules.KINDS:
        row[column], row[f"{column}_reserved"] = getattr(spent, column), 0
    return row
