"""Messages that wait while the errand for them cannot go on, and lives that another host runs by now."""

from __future__ import annotations

from stage_team import errands, hosting, until, until_ended

from conftest import Opener
from dugnad.models import ScriptedModel
from dugnad.models.scripted import Step
from dugnad.models.talk import Request, Said
from dugnad.types import HUMAN


async def test_a_later_message_is_read_although_the_errand_of_an_older_one_failed(opener: Opener) -> None:
    """The first stays unread until its errand is over; the second came meanwhile, and has nothing to do with it."""
    board = await opener()
    seen: list[str] = []

    def script(request: Request) -> Step:
        last = request.messages[-1]
        assert isinstance(last, Said)
        seen.append(last.text)
        return Step(say="Noted.")

    await board.spawn("alice")
    first = await board.tell(HUMAN, "alice", "the first word")
    # Its errand was made and given up before anybody could show it: lost too often, say.
    lost = await board.put("Answer human", assignee="alice", key=f"errand:human:alice:{first.id}", by="alice")
    await board.cancel(lost.id, why="lost three times")
    await board.tell(HUMAN, "alice", "the second word")
    async with hosting(board, ScriptedModel(script)):

        async def answered() -> bool:
            return any("the second word" in each.partition("</inbox>")[0] for each in seen)

        await until(board, answered)
        made = [each for each in await errands(board) if each.id != lost.id]
        await until_ended(board, *made)


async def test_a_life_that_another_host_runs_by_now_ends_here(opener: Opener) -> None:
    board, elsewhere = await opener(), await opener()
    await board.spawn("alice")
    async with hosting(board, ScriptedModel({})) as host:

        async def lives() -> bool:
            return "alice" in host.lives

        await until(board, lives)
        other = await elsewhere.start_host("another")
        # As after a freeze: its lease ran out, another host took the teammate, then it came back.
        await elsewhere.stop_teammate("alice", by=HUMAN, reason="moved")
        await elsewhere.spawn("alice", host=other)

        async def gone() -> bool:
            return "alice" not in host.lives

        await until(board, gone)
    assert (await board.teammate("alice")).host == other
