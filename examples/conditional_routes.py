"""Routes that an agent's own decision selects: a review ends as approved or as changes-requested.

Publishing needs the one outcome, reworking the other; the way that was not taken is skipped, and says why. A rework
puts the next review on the board, with the same two ways behind it, so the work can go in circles: the first goal is
approved in round 2. The reviewer of the second goal is never content, and the budget ends that.

Run it as it is for the scripted model, or with `--model anthropic:claude-sonnet-5-5` for a real one.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile

from dugnad import Agent, Budget, DugnadError, Need, ScriptedModel, drain, open_board, open_model
from dugnad.models.scripted import Step

REVIEW = "Finish with the outcome approved or changes-requested."
REWORK = (
    "Improve the text. Then add_tasks: 'Review, round N' (N is the next number) with the body of round 1's review and "
    "the label review, 'Publish, round N' (needs review:approved) and 'Rework, round N' (needs "
    "review:changes-requested)."
)


def play(request):
    """What the scripted model says: reviewers judge, reworkers put the next round on the board."""
    kind, _, number = request.title.partition(", round ")
    if kind == "Review":
        content = number == "2" and "Never content" not in request.messages[0].text
        outcome = "approved" if content else "changes-requested"
        return Step(calls=(("finish", {"result": f"Round {number}: {outcome}.", "outcome": outcome}),))
    if kind == "Publish":
        return Step(say="It is on the wall of the town hall.")
    following = int(number) + 1
    tasks = [
        {"title": f"Review, round {following}", "body": REVIEW, "label": "review"},
        {"title": f"Publish, round {following}", "needs": ["review:approved"]},
        {"title": f"Rework, round {following}", "needs": ["review:changes-requested"], "body": REWORK},
    ]
    return Step(calls=(("add_tasks", {"tasks": tasks}), ("finish", {"result": "Reworked."})))


async def run(board, agent, *, goal: str, runs: int) -> None:
    review = await board.put("Review, round 1", body=f"{goal}. {REVIEW}", budget=Budget(tasks=runs))
    await board.put("Publish, round 1", parent=review.id, needs=[Need(review.id, "approved")])
    await board.put("Rework, round 1", parent=review.id, needs=[Need(review.id, "changes-requested")], body=REWORK)

    await drain(board, [agent])

    print(f"\n{goal}, with at most {runs} task runs:")
    for task in await board.list_tasks(root=review.id):
        why = f", as it {task.reason}" if task.state == "skipped" else ""
        print(f"  {task.title}: {task.outcome or task.state}{why}")
    account = await board.budget(review.id)
    print(f"  Budget: {account.runs} of {runs} used{'; the rest is parked' if account.held else ''}.")


async def main(model, url: str) -> None:
    print(f"Asked: {model.name}." if "scripted" not in model.name else "A scripted model plays reviewer and author.")
    async with await open_board(url) as board:
        agent = Agent(board=board, teammate=await board.spawn("rita"), model=model)
        await run(board, agent, goal="Content with the second text", runs=12)
        await run(board, agent, goal="Never content", runs=5)


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
