"""What `make test` leaves to `make proof`: the rest of a long list, of which it runs a sample."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest

# Outside the board's own tests the database changes little but the time they take, so there `make test` runs on SQLite
# and `make proof` on PostgreSQL. These are about several processes and one board, and run on both in `make test`.
ON_BOTH = (
    "tests/board/", "tests/chaos/", "tests/crash/", "tests/cli/test_policy_commands.py", "tests/team/test_host.py",
    "tests/team/test_worker.py", "tests/team/test_many_hosts.py", "tests/team/test_partition.py",
    "tests/team/test_team.py", "tests/agent/test_agent_budget.py", "tests/agent/test_asked_calls.py",
)  # fmt: skip


def sample(values: Iterable[Any], keep: Callable[[Any], bool]) -> list[Any]:
    """Parameters for a test: `make test` runs those to keep, `make proof` the others."""
    return [value if keep(value) else pytest.param(value, marks=pytest.mark.proof) for value in values]


def every(step: int, values: Iterable[Any]) -> list[Any]:
    """Parameters for a test: `make test` runs each `step`-th of them, `make proof` the others."""
    kept = (place % step == 0 for place in itertools.count())
    return sample(values, lambda value: next(kept))


def leave_to_proof(items: Iterable[pytest.Item]) -> None:
    for item in items:
        call = getattr(item, "callspec", None)
        if call is not None and call.params.get("url") == "postgres" and not item.nodeid.startswith(ON_BOTH):
            item.add_marker(pytest.mark.proof)
