"""What pays for a task: a goal, or a budget that several tasks share, whose number is below zero."""

from __future__ import annotations

from typing import Any


def root_name(root: int) -> str:
    """The name that people see: #7 is a goal, and b1 a budget that several tasks share."""
    return f"#{root}" if root > 0 else f"b{-root}"


def drawing_on(root: int) -> dict[str, Any]:
    """The arguments of `put` for a task that this root pays for: under the goal, or on the shared budget."""
    return {"parent": root} if root > 0 else {"account": root}


def budget_id(root: int) -> str:
    """The name that `dugnad budget` takes."""
    return root_name(root).lstrip("#")
