"""A task is stopped for good at every step it takes, and goes on in a new process as if nothing had been."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
import pytest

from tests.crash.crash_picture import Picture, look
from tests.crash.crash_stage import DIED, Workers, complaint, errand_board, workers
from tests.crash.crash_verdict import verdict
from tests.crash.ten_turns import ERRAND, REPLIES

MOMENTS = ("before", "after", "answered", "begun", "acted")
PARTS = 8  # So that several can run side by side.
PROOF = pytest.mark.proof


@dataclass
class Places:
    """New boards, each with a folder beside it, as often as asked."""

    folder: Path
    server: str | None
    made: list[str] = field(default_factory=list)

    def __call__(self) -> tuple[str, Path]:
        self.made.append(f"crash_{os.getpid()}_{len(self.made)}")
        own = self.folder / self.made[-1]
        own.mkdir()
        return (f"{self.server}?board={self.made[-1]}" if self.server else f"sqlite:///{own}/board.db"), own


@pytest.fixture(params=["sqlite", "postgres"])
async def places(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Places]:
    """On each database in turn."""
    server = request.getfixturevalue("postgres") if request.param == "postgres" else None
    made = Places(folder, server)
    yield made
    if server:
        connection = await asyncpg.connect(server)
        for name in made.made:
            await connection.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')
        await connection.close()


@pytest.fixture
def chaos(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--chaos"))


async def undisturbed(crew: Workers, places: Places) -> Picture:
    url, own = places()
    async with errand_board(url) as (board, root):
        assert await crew.run(board=url, folder=str(own), script="ten_turns") == 0, complaint(own)
        return await look(board, root, own)


async def cut_and_resumed(crew: Workers, places: Places, calm: Picture, *stops: str) -> list[str]:
    """What is wrong after a worker died at each of these steps in turn, and another went on to the end."""
    url, own = places()
    cuts = []
    async with errand_board(url) as (board, root):
        for stop in stops:
            how = await crew.run(board=url, folder=str(own), script="ten_turns", stop=stop)
            if how not in ((DIED, 0) if stop.isdigit() else (DIED,)):
                return [f"never came to this step, ended with {how}: {complaint(own)}"]
            cuts.append(await look(board, root, own))
        how = await crew.run(board=url, folder=str(own), script="ten_turns")
        if how != 0:
            return [f"the last process ended with {how}: {complaint(own)}"]
        return verdict(calm, cuts, await look(board, root, own))


def steps_of(calm: Picture, *moments: str) -> list[str]:
    """The steps at which to stop, each once: those that begin with one of these words. In the same order each time:
    what runs side by side may be the first in one run and the second in another."""
    steps = [step.rpartition(" ")[0] if step.startswith(("begun", "acted")) else step for step in calm.steps]
    return sorted({step for step in steps if step.startswith(moments)})


def report(trouble: dict[str, list[str]]) -> str:
    lines = [f"{step}: {'; '.join(wrong)}" for step, wrong in trouble.items() if wrong]
    return "\n".join([f"{len(lines)} of {len(trouble)} stops went wrong.", *lines])


async def test_the_undisturbed_task_takes_every_turn_once(places: Places) -> None:
    async with workers() as crew:
        calm = await undisturbed(crew, places)
    assert calm.replies(ERRAND) == REPLIES
    assert verdict(calm, [], calm) == []
    assert calm.told_interrupted == []
    assert calm.count("forfeited") == 0
    assert len(steps_of(calm, *MOMENTS)) > 150


async def test_every_answer_and_every_effect_is_recorded_before_anything_else_happens(places: Places) -> None:
    async with workers() as crew:
        steps = (await undisturbed(crew, places)).steps
    unsafe = [place for place, step in enumerate(steps) if step.startswith(("answered", "acted"))]
    assert len(unsafe) > REPLIES
    for place in unsafe:
        verb = "spend" if "(consult)" in steps[place] else "record"
        begun, finished = steps[place + 1 : place + 3]
        assert begun.startswith("before"), steps[place : place + 3]
        assert f": {verb} " in begun, steps[place : place + 3]
        assert finished == begun.replace("before", "after", 1), steps[place : place + 3]


@pytest.mark.parametrize(
    "part", [slice(5, None, 29), *(pytest.param(slice(n, None, PARTS), marks=PROOF) for n in range(PARTS))]
)
async def test_a_task_stopped_at_any_step_goes_on_and_ends_the_same(places: Places, part: slice) -> None:
    async with workers() as crew:
        calm = await undisturbed(crew, places)
        trouble = {step: await cut_and_resumed(crew, places, calm, step) for step in steps_of(calm, *MOMENTS)[part]}
    assert not any(trouble.values()), report(trouble)


@pytest.mark.parametrize("part", [slice(3, None, 61), pytest.param(slice(0, None, 5), marks=PROOF)])
async def test_a_task_that_is_stopped_again_soon_after_goes_on_and_ends_the_same(
    places: Places, part: slice, chaos: bool
) -> None:
    async with workers() as crew:
        calm = await undisturbed(crew, places)
        trouble = {}
        # The second worker dies at one of its first steps: the first, the second, and so on in turn.
        for number, step in enumerate(steps_of(calm, *MOMENTS)[slice(None) if chaos else part]):
            again = str(1 + number % 9)
            trouble[f"{step}, then {again}"] = await cut_and_resumed(crew, places, calm, step, again)
    assert not any(trouble.values()), report(trouble)
