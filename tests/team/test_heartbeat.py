"""What a host finds out without being told: pushes may be lost, so the beat and the lease have to do alone."""

from __future__ import annotations

from dugnad.clock import Sources
from dugnad.models import ScriptedModel
from dugnad.settings import Patience
from tests.agent.stage_agent import END, TITLE
from tests.board.raw import run
from tests.conftest import Opener
from tests.team.stage_team import AnswerLost, Paused, hosting, short_lease, until, until_ended, within


async def test_the_beat_drops_work_whose_loss_nobody_told(opener: Opener, url: str) -> None:
    """Another machine took the task; the push about it never came, and the slow sweep is far away."""
    board = await opener(**short_lease(0.9), patience=Patience(poll_seconds=600))
    await board.spawn("alice")
    model = Paused({TITLE: [END]})
    async with hosting(board, model) as host:
        task = await board.put(TITLE)
        await within(model.reached.wait())
        (life,) = host.workers.values()
        elsewhere = await board.start_host("another machine")
        await run(url, "UPDATE tasks SET host_id = $1, epoch = epoch + 1 WHERE id = $2", elsewhere, task.id)

        async def dropped() -> bool:
            await board.heartbeat(elsewhere)  # Alive, or the upkeep takes back what was never put there by a verb.
            return life.claim is None

        await until(board, dropped)
        await run(url, "UPDATE tasks SET host_id = $1, epoch = epoch - 1 WHERE id = $2", host.id, task.id)
        await board.cancel(task.id)


async def test_a_lease_that_runs_out_in_silence_is_seen(opener: Opener) -> None:
    """A host nobody on this machine can see dies; nothing happens on the board, and its task is still taken over."""
    board = await opener(**short_lease(1.0))
    gone = await board.start_host("another machine")
    await board.spawn("bob", roles=["elsewhere"], host=gone)
    await board.spawn("alice")
    async with hosting(board, ScriptedModel({TITLE: [END]}), limits={"sweep_seconds": 600}):
        (first,) = await until_ended(board, await board.put(TITLE))
        task = await board.put(TITLE, role="elsewhere")
        assert await board.claim("bob", gone, task=task.id) is not None
        (done,) = await until_ended(board, task)
    assert (first.state, done.state, done.tries) == ("done", "done", 1)


async def test_a_lease_is_counted_from_before_it_was_asked_for(opener: Opener) -> None:
    """The board counts from when it heard of the beat. Its answer takes nearly as long as the lease."""
    clock = [1_000.0]

    async def takes_long() -> None:
        clock[0] += 50

    for verb in ("start_host", "heartbeat"):
        board = await opener(**short_lease(60), sources=Sources(uptime=lambda: clock[0]))
        slow = AnswerLost(board, verb, takes_long, where=lambda answer: True)
        began = clock[0]
        async with hosting(slow, ScriptedModel({})) as host:
            await host._renew() if verb == "heartbeat" else None
            assert (slow.happened, clock[0], host.lease_runs()) == (1, began + 50, True)
            clock[0] = began + 60
            assert not host.lease_runs()
