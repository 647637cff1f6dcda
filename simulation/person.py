"""The person of a simulated world: puts the goals, answers late or never, raises caps, changes their mind."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from dugnad.board import Board
from dugnad.errors import DugnadError
from dugnad.team.requests import waiting_requests
from dugnad.tools import policy
from dugnad.tools.lead_tools import ask_to_stop
from dugnad.types import HUMAN, Budget, Need

from .faults import Storm
from .history import History
from .plan import WorldPlan

_MORE = {
    "tasks": Budget(tasks=10), "tokens": Budget(tokens=100_000), "dollars": Budget(dollars=2.0),
    "seconds": Budget(seconds=2_000),
}  # fmt: skip


@dataclass
class Person:
    board: Board
    plan: WorldPlan
    storm: Storm
    random: random.Random
    history: History
    note: Callable[[str, str], None]
    ids: list[int] = field(default_factory=list)  # Of the planned tasks, by place.

    async def put_goals(self) -> None:
        for name, roles, lead in self.plan.members:
            await self.board.spawn(name, roles=roles, lead=lead)
        for place, task in enumerate(self.plan.tasks):
            put = await self.board.put(
                task.title,
                body="As planned.",
                needs=tuple(Need(self.ids[need], outcome) for need, outcome in task.needs),
                role=task.role,
                check=task.check,
                plan=task.plan,
                priority=task.priority,
                delay_seconds=task.delay_seconds,
                parent=None if task.goal == place else self.ids[task.goal],
                budget=task.budget,
                key=f"planned {place}",
            )
            self.ids.append(put.id)

    async def live(self) -> None:
        """Look in now and then, and do what a person does."""
        while True:
            late = self.storm.lasts and self.storm.has("a person who is late")
            if late:
                self.storm.happened("a person who is late")
            await asyncio.sleep(self.random.uniform(600, 3_600) if late else self.random.uniform(30, 300))
            try:
                if any(task.waits and not task.ended for task in self.history.tasks.values()):
                    await self._answer()
                await self._raise_caps()
                if self.storm.lasts:
                    await self._meddle()
            except DugnadError as refused:
                self.note(HUMAN, f"was refused: {refused}")

    async def _answer(self) -> None:
        never = self.storm.has("a person who never answers")
        for asked in await waiting_requests(self.board):
            try:
                if never and asked.task is not None and asked.id % 2:
                    self.storm.happened("a person who never answers")
                    if not self.storm.lasts:  # In the end, what waits for ever is called off.
                        await self.board.cancel(asked.task, why="never mind")
                    continue
                about_a_call = policy.is_question(asked.text)
                plain = asked.kind == "question" and not about_a_call
                accepted = None if plain else self.random.random() < 0.8
                assert asked.request is not None
                await self.board.reply(asked.request, HUMAN, "Go on as you think best.", accepted=accepted)
                if about_a_call and accepted:
                    self.storm.happened("call allowed by a person")
            except DugnadError as refused:
                self.note(HUMAN, f"was refused: {refused}")

    async def _raise_caps(self) -> None:
        for root, account in list(self.history.accounts.items()):
            if (held := account.held) is not None:
                self.note(HUMAN, f"raises the {held} of #{root}")
                await self.board.raise_budget(root, _MORE[held])

    async def _meddle(self) -> None:
        which = self.random.randrange(14)
        task = self.random.choice(sorted(self.history.tasks))
        name = self.random.choice(self.plan.members)[0]
        if which in (0, 1, 2):
            await self.board.tell(HUMAN, name, f"word {self.random.randrange(10**6)} for {name}")
        elif which == 3:
            await self.board.cancel(task, why="changed my mind")
        elif which == 4:
            held = [number for number, each in self.history.tasks.items() if each.held or each.waits]
            await self.board.release(self.random.choice(held or [task]), why="let another try")
        elif which == 5:
            await self.board.retry(task)
        elif which == 6:
            await ask_to_stop(self.board, name, why="enough for today")
        elif which == 7:
            roles, lead = next((roles, lead) for each, roles, lead in self.plan.members if each == name)
            await self.board.spawn(name, roles=roles, lead=lead)
        elif which == 8:
            await self.board.broadcast(HUMAN, f"word {self.random.randrange(10**6)} for all")
        elif which == 9:
            await ask_to_stop(self.board, name, why="now", now=True)
        elif which in (10, 12):
            other = self.random.choice(sorted(self.history.tasks))
            await self.board.add_need(task, Need(other, self.random.choice((None, None, "ended", "approved"))))
