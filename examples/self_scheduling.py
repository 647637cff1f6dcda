"""An agent that schedules its own follow-ups, under a cap of five task runs.

Each task puts the next one on the board. The outer loop claims, works and settles until the queue is empty or the
budget is spent. What is left is parked, not lost: it goes on when a person raises the cap.

Run it as it is for the scripted model, or with `--model anthropic:claude-sonnet-5-5` for a real one.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile

from dugnad import Agent, Budget, DugnadError, ScriptedModel, open_board, open_model
from dugnad.models.scripted import Step

CHAPTERS = 7
BODY = f"Say in a sentence what it may be about; then schedule the next chapter, until there have been {CHAPTERS}."


def play(request):
    """What the scripted model says: it reads a chapter, and schedules the next one until there is none."""
    chapter = int(request.title.removeprefix("Read chapter "))
    if request.turn == 1 and chapter < CHAPTERS:
        following = {"title": f"Read chapter {chapter + 1}", "body": BODY}
        return Step(calls=(("add_tasks", {"tasks": [following]}),))
    return Step(say=f"Chapter {chapter} is read.")


async def drain_queue(board, agent, host: str, root: int) -> None:
    """The outer loop, in full. `dugnad.drain` is the same for many agents at once."""
    while claim := await board.claim(agent.teammate.name, host):
        outcome = await agent.work(claim)
        await board.settle(claim, outcome)
        account = await board.budget(root)
        ended = type(outcome).__name__.lower()
        print(f"{claim.task.title}: {ended}. Budget: {account.runs} of {account.tasks_max} used.")


async def main(model, url: str) -> None:
    print(f"Asked: {model.name}.\n" if "scripted" not in model.name else "A scripted model plays the reader.\n")
    async with await open_board(url) as board:
        agent = Agent(board=board, teammate=await board.spawn("ada"), model=model)
        host = await board.start_host("example")
        await board.seat(host, name="ada")
        root = await board.put("Read chapter 1", body=BODY, budget=Budget(tasks=5))

        await drain_queue(board, agent, host, root.id)
        account = await board.budget(root.id)
        if account.held:
            for task in await board.list_tasks(root=root.id, states=["ready", "waiting"]):
                print(f"{task.title}: parked. Held by the cap on {account.held}.")
            print(f"To go on: await board.raise_budget({root.id}, Budget(tasks=5))\n")

            await board.raise_budget(root.id, Budget(tasks=5))
            await drain_queue(board, agent, host, root.id)
        left = await board.list_tasks(root=root.id, states=["ready", "waiting"])
        print("The queue is empty." if not left else f"{len(left)} tasks are left.")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--model", help="provider:model, instead of the scripted model")
    name = arguments.parse_args().model
    try:
        model = open_model(name) if name else ScriptedModel(play)
    except DugnadError as error:
        raise SystemExit(str(error)) from None
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(model, f"sqlite:///{folder}/board.db"))
