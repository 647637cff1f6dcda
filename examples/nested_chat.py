"""A nested chat whose answer feeds its parent: a writer consults an editor in the middle of a task.

The editor is a fresh mind with a conversation of its own. It may look at the board and the notes. Only its answer comes
back to the writer, and both are paid from the same budget.

Run it as it is for the scripted model, or with `--model anthropic:claude-sonnet-5-5` for a real one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile

from dugnad import Agent, Budget, DugnadError, ScriptedModel, drain, open_board, open_model
from dugnad.models.scripted import read_script

SCRIPT = """
Write one sentence about the fair:
  - say: I have a draft. Let an editor look at it.
    calls:
      - consult:
          role: editor
          prompt: "Is this right: 'The fair is on Sunday the 15th'? Search the notes for the date."
  - calls:
      - finish: {result: The fair is on Saturday the 14th.}
(consult) editor:
  - say: I look it up.
    calls: [{search_notes: {words: fair}}]
  - say: "No: the notes say Saturday the 14th. The rest is fine."
"""


async def main(model, url: str) -> None:
    print(f"Asked: {model.name}." if "scripted" not in model.name else "A scripted model plays writer and editor.")
    async with await open_board(url) as board:
        writer = await board.spawn("will", roles=["writer"])
        task = await board.put(
            "Write one sentence about the fair",
            body="Say when it is. Consult an editor about your draft before you finish.",
            budget=Budget(tasks=3, tokens=20_000),
        )
        await board.write_note("human", "The date", "The fair is on Saturday the 14th.")

        [(claim, _)] = await drain(board, [Agent(board=board, teammate=writer, model=model)])

        print("\nThe writer's conversation:")
        own = 0
        for turn in await board.transcript(task.id, claim.epoch):
            body = json.loads(turn.body)
            own += turn.used.tokens
            if turn.kind == "reply":
                words = [body["reply"]["text"], *(f"[calls {name}]" for _, name, _ in body["reply"]["calls"])]
                print(f"  will: {' '.join(filter(None, words))}")
            elif "ends" not in body:
                print(f"  came back: {body['text']}")
        print("What the editor looked up on the way is not in it.\n")

        account = await board.budget(task.id)
        nested = account.spent.tokens - own
        print(f"The result: {(await board.find(task.id)).result}")
        print(f"The nested chat was paid from the same budget: {'yes' if nested > 0 else 'no'}.")
        print(f"Tokens: {own:,} by the writer + {nested:,} by the editor = {account.spent.tokens:,} of 20,000.")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--model", help="provider:model, instead of the scripted model")
    name = arguments.parse_args().model
    try:
        model = open_model(name) if name else ScriptedModel(read_script(SCRIPT))
    except DugnadError as error:
        raise SystemExit(str(error)) from None
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(model, f"sqlite:///{folder}/board.db"))
