"""Delegation through a queue: a planner gives three tasks to three roles, and goes on with their results.

Nobody is called directly. The planner puts tasks on the board; whoever has the role claims them. While it waits, the
planner's own task is put down, and it goes on in the same conversation when the results are there.

Run it as it is for the scripted model, or with `--model anthropic:claude-sonnet-5-5` for a real one.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile

from dugnad import Agent, Budget, DugnadError, ScriptedModel, drain, open_board, open_model
from dugnad.models.scripted import Step

GOAL = "Plan the summer fair"
PIECES = {"researcher": "Find a date", "designer": "Sketch the poster", "accountant": "Add up the costs"}
WORK = {
    "Find a date": "Saturday the 14th: nothing else is on in town.",
    "Sketch the poster": "A green field, three tents, large letters.",
    "Add up the costs": "Tents 300, music 200, printing 50: 550 in all.",
}


def play(request):
    """What the scripted model says. The planner's last step repeats what it was told, to show that it was told."""
    if request.title != GOAL:
        return Step(say=WORK[request.title], seconds=0.2)
    if request.turn == 1:  # All three are put on the board, and it waits for them.
        tasks = [{"title": task, "role": role, "label": role} for role, task in PIECES.items()]
        return Step(calls=(("add_tasks", {"tasks": tasks}), ("wait_for", {"tasks": list(PIECES)})))
    ended = next(message.text for message in request.messages[::-1] if "ended as done" in message.text)
    told = [line.removeprefix("> ") for line in ended.splitlines() if line.startswith("> ")]
    return Step(calls=(("finish", {"result": "\n".join(["The fair is planned.", *told])}),))


async def main(model, url: str) -> None:
    print(f"Asked: {model.name}." if "scripted" not in model.name else "A scripted model plays everybody.")
    async with await open_board(url) as board:
        team = [await board.spawn("paula", roles=["planner"], prompt="You delegate everything and wait for it.")]
        for name, role in zip(("rosa", "dan", "ali"), PIECES, strict=True):
            team.append(await board.spawn(name, roles=[role]))
        body = f"Delegate one piece to each of the roles {', '.join(PIECES)}; then sum up what they say."
        goal = await board.put(GOAL, body=body, role="planner", budget=Budget(tasks=12))

        await drain(board, [Agent(board=board, teammate=each, model=model) for each in team])

        for task in await board.list_tasks(root=goal.id):
            print(f"#{task.id} {task.title}: {task.state}, put by {task.put_by}, worked by {task.teammate}")
        waited = any(attempt.ended_as == "waiting" for attempt in await board.attempts(goal.id))
        print(f"The planner put its task down while they worked: {'yes' if waited else 'no'}. Its result:")
        print((await board.find(goal.id)).result)


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
