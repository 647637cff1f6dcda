"""Claims as a script: look for a task with nothing locked, then take it if it is as it was seen."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...types import Claim
from .. import records, rules
from ..rules import Candidate
from ..store.seam import Row, Script, Store, as_json
from .claims import Ask, candidate, charged, first_shut_out, note_claim, opened_attempt

_CAREFUL_CLAIMS = 16  # After a script was not enough: other hosts look for the same work, and only the verb passes by
# what another has locked.


class ClaimScript(Script):
    """Knows its answers when it has run: they are made of the tasks as they were seen, and of the attempts it wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.tells = ("open_attempts",)
        self._taken: list[tuple[Row, dict[str, Any]]] = []

    def take(self, seen: Row, attempt: dict[str, Any]) -> None:
        place = {"teammate": attempt["teammate"], "host": attempt["host"]}
        self.step("take_tasks", id=seen["id"], epoch=seen["epoch"], lane=seen["lane"], **place)
        self.step("open_attempts", **attempt)
        changes = {"state": "claimed", "epoch": attempt["epoch"], "claims": seen["claims"] + 1, "due_at": None}
        place = {"teammate": attempt["teammate"], "host_id": attempt["host"], "reason": None}
        self._taken.append(({**seen, **changes, **place}, attempt))

    def told(self, found: Mapping[str, Sequence[Row]]) -> None:
        opened = {row["task_id"]: row for row in found["open_attempts"]}
        for row, attempt in self._taken:
            facts = {name: attempt[name] for name in ("epoch", "continues", "teammate", "context", "host")}
            facts |= {name: opened[row["id"]][name] for name in ("number", "follows")}
            self.answers.append(Claim(task=records.task(row), **facts))


class ClaimScripts:
    """Remembers the lanes of teammates, which the script compares when it takes the tasks."""

    def __init__(self, store: Store, lease_max: int) -> None:
        self._store, self._lease_max = store, lease_max
        self._seats: dict[tuple[str, str], Row] = {}
        self._careful = 0
        self._last: Script | None = None

    async def of(self, asks: Sequence[Ask]) -> Script | None:
        if not self._store.over_a_wire or self._is_careful() or any(ask.task is not None for ask in asks):
            return None
        seats = await self._known(asks)
        scopes = {row["scope"] for row in seats}
        if len(seats) < len(asks) or len(scopes) > 1 or len({ask.key for ask in asks}) < len(asks):
            return None
        lanes = [rules.lanes(row["name"], json.loads(row["roles"]), bool(row["lead"])) for row in seats]
        rows = await self._look({lane for own in lanes for lane in own}, len(asks), scopes.pop())
        if first_shut_out(asks, dict(enumerate(lanes)), rows) is not None:
            return None
        left = {row["root_id"]: rules.runs_left(row) for row in rows}
        given, passed = rules.match(lanes, map(candidate, rows), left)
        if passed or len(given) < len(asks):
            return None
        self._last = self._script(asks, seats, given, {row["id"]: row for row in rows})
        return self._last

    def _is_careful(self) -> bool:
        """For a while after a script that was not enough."""
        if self._last is not None and not self._last.answers:
            self._careful = _CAREFUL_CLAIMS
            self._seats.clear()
        self._last = None
        self._careful = max(0, self._careful - 1)
        return self._careful > 0

    async def _known(self, asks: Sequence[Ask]) -> list[Row]:
        unknown = [ask for ask in asks if (ask.teammate, ask.host) not in self._seats]
        if unknown:
            asked = as_json([{"teammate": ask.teammate, "host": ask.host} for ask in unknown])
            for row in await self._store.read("claimants", claimants=asked, lease_max=self._lease_max):
                if row["host_id"] is not None and row["host_id"] == row["known_host"]:
                    self._seats[row["name"], row["host_id"]] = row
        found = [self._seats.get((ask.teammate, ask.host)) for ask in asks]
        return [row for row in found if row is not None]

    async def _look(self, lanes: set[str], count: int, scope: str | None) -> Sequence[Row]:
        wanted = {"lanes": as_json([{"lane": lane} for lane in sorted(lanes)]), "count": count}
        if scope is None:
            return await self._store.read("view_candidates", **wanted)
        return await self._store.read("view_candidates_under", **wanted, roots=scope)

    def _script(
        self, asks: Sequence[Ask], seats: Sequence[Row], given: Mapping[int, Candidate], rows: Mapping[int, Row]
    ) -> Script:
        script = ClaimScript()
        script.step("no_task_due", state="scheduled")
        for place, (ask, seat) in enumerate(zip(asks, seats, strict=True)):
            names = ("name", "roles", "lead", "keep_context", "scope")
            script.step("seated", host=ask.host, lease_max=self._lease_max, **{name: seat[name] for name in names})
            row, keeps = rows[given[place].id], bool(seat["lead"] or seat["keep_context"])
            attempt = opened_attempt(ask, {**row, "epoch": row["epoch"] + 1}, keeps=keeps)
            script.take(row, attempt)
            note_claim(script, given[place], attempt, row["attempts"] + 1)
        # All processes lock rows in one order; or two could wait for each other.
        script.given["take_tasks"].sort(key=lambda taken: taken["id"])
        script.given["charge_accounts"] = charged(given.values())
        return script
