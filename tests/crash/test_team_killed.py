"""A process with five teammates is killed while they work; others take over, and everything ends once."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from dugnad.board import open_board
from dugnad.types import Amount, Budget
from tests.crash.crash_stage import DIED, complaint, workers
from tests.crash.ten_turns import LIMITS, PATIENCE, WORKER, lines_of


async def test_five_teammates_killed_together_lose_nothing_and_do_nothing_twice(
    url: str, folder: Path, request: pytest.FixtureRequest
) -> None:
    chaos = request.config.getoption("--chaos")
    tasks, kills = (200, 25) if chaos else (20, 4)
    chance = random.Random(11)
    order = {"board": url, "folder": str(folder), "script": "many_errands", "attempts_max": "50"}
    async with await open_board(url, limits=LIMITS, patience=PATIENCE) as board:
        for number in range(5):
            await board.spawn(f"{WORKER}.{number}")
        root = await board.put("errand 0", budget=Budget(tokens=10**8, seconds=10**7))
        for number in range(1, tasks):
            await board.put(f"errand {number}", parent=root.id)
        async with workers() as crew:
            for _ in range(kills):
                stop = str(chance.randint(10, 20 * tasks // kills))
                assert await crew.run(**order, stop=stop) == DIED, complaint(folder)
            assert await crew.run(**order) == 0, complaint(folder)
        ended = await board.list_tasks(page=1_000)
        expected = {f"errand {n}" for n in range(tasks)}
        expected |= {f"{title} and more" for title in expected if title.endswith("0")}
        assert Counter(task.title for task in ended) == Counter(expected)
        assert {task.state for task in ended} == {"done"}
        assert all(task.result == f"{task.title} is done" for task in ended)
        assert Counter(lines_of(folder / "file")) == Counter(expected)
        assert Counter(note.title for note in await board.search_notes(page=1_000)) == Counter(expected)
        events, after = [], 0
        while page := await board.events(after):
            events += page
            after = page[-1].seq
        assert Counter(event.task for event in events if event.kind == "done") == Counter(task.id for task in ended)
        spending = await board.budget(root.id)
        assert spending.reserved == Amount()
        assert spending.runs == sum(event.data.get("charged", 1) for event in events if event.kind == "claimed")
        spent = sum(int(str(event.data["tokens"])) for event in events if event.kind in ("spent", "forfeited"))
        assert spending.spent.tokens == spent
        assert sum(event.kind == "taken_back" for event in events) >= kills
        assert await board.replayed_state() == await board.observed_state()
