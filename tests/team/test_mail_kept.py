"""Messages that wait while the errand for an older one has come to nothing."""

from __future__ import annotations

from dugnad.models import ScriptedModel
from dugnad.models.port import Request, Said
from dugnad.models.scripted import Step
from dugnad.types import HUMAN
from tests.conftest import Opener
from tests.team.stage_team import errands, hosting, until, until_ended


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
    key = f"errand:human:alice:{first.id}"
    lost = await board.put("Answer human", assignee="alice", key=key, kind="human_message", by="alice")
    await board.cancel(lost.id, why="lost three times")
    await board.tell(HUMAN, "alice", "the second word")
    async with hosting(board, ScriptedModel(script)):

        async def answered() -> bool:
            return any("the second word" in each.partition("</inbox>")[0] for each in seen)

        await until(board, answered)
        made = [each for each in await errands(board) if each.id != lost.id]
        await until_ended(board, *made)
