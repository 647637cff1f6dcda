"""A board on which a teammate wrote the worst it could, in every text that it can write."""

from __future__ import annotations

import json
from pathlib import Path

from dugnad.tools.policy import question
from dugnad.types import Budget, Done, Failed, Released, Waiting
from tests.web.boards import Story, commit
from tests.web.telling import Teller, teller
from tests.workspace.repository import git, new_repository

OWNED = "owned"  # What a text that runs would set on the window.
ELSEWHERE = "evil.example"
MARKUP = (
    f"<script>window.{OWNED}=1</script><img src=x onerror='window.{OWNED}=2'><svg onload='window.{OWNED}=3'>"
    f"<iframe src='javascript:parent.{OWNED}=4'></iframe></script></style></textarea>"
)
LINKS = (
    f"[click](javascript:window.{OWNED}=5) ![p](http://{ELSEWHERE}/p.png) <a href='http://{ELSEWHERE}'>x</a> "
    f"<link rel=stylesheet href=//{ELSEWHERE}/s.css> url(http://{ELSEWHERE}/u)"
)
ANSI = "\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b[2J\x9b1m\x08\x08\x7f\r over"
BIDI = "invoice\u202egpj.exe \u2066left\u2069 \u200fright\u200e \u061c"
UNSEEN = "pay\u200bpal \ufeff\u00ad\u2060\u180e\U000e0041 \u2028\u2029 nothing"
TEMPLATE = "${7*7} {{7*7}} <%= 7*7 %> __proto__ constructor hasOwnProperty"
SHORT = (MARKUP[:120], LINKS[:150], ANSI, BIDI, UNSEEN, TEMPLATE)
WORST = "\n".join((MARKUP, LINKS, ANSI, BIDI, UNSEEN, TEMPLATE))
LONG_LINE = "W" * 1_000_000
LONG_WORD = "w" * 200_000  # What fits into a text of the board.


async def hostile_board(project: Path) -> Story:
    new_repository(project)
    git(project, "branch", "dugnad/main")
    url = f"sqlite:///{project}/.dugnad/board.db"
    story, told = Story(url, project), await teller(url, minutes_ago=2)
    async with told.board:
        host = await told.host(f"h<b>{MARKUP}{BIDI}")
        story.hosts = [host]
        await told.join("constructor", host, "hasOwnProperty", model=WORST)
        await told.join("proto", host, "coder")
        await _tasks(story, told)
        await _words(story, told)
        await _transcript(story, told)
        await _ends(story, told)
        await told.board.cool_down("<script>:1", reason=WORST, by="constructor", seconds=600)
        await told.board.fail_teammate("proto", by="proto", reason=WORST)
    return story


async def _tasks(story: Story, told: Teller) -> None:
    board = told.board
    for number, text in enumerate(SHORT):
        task = await board.put(
            f"{number} {text}"[:200], body=WORST, role="hasOwnProperty", check=WORST, budget=Budget(dollars=1)
        )
        story.tasks[f"{number}"] = task.id
    long = await board.put("x" * 200, body=LONG_WORD, needs=(story["0"],))
    story.tasks["long"] = long.id
    letters = await board.put("Ü\u0301" * 60, body="\u0489" * 5_000 + " z" + "\u0300" * 5_000, needs=(story["1"],))
    story.tasks["letters"] = letters.id


async def _words(story: Story, told: Teller) -> None:
    """Messages, notes, a question, a plan, and a call that a policy asks about."""
    board = told.board
    await board.tell("constructor", "human", WORST, task=story["1"])
    await board.tell("constructor", "human", LONG_WORD)
    await board.write_note("constructor", ANSI + BIDI + MARKUP[:60], WORST + LONG_WORD)
    for name, on in (("1", "human"), ("2", "plan")):
        claim = await told.claim("constructor", story[name])
        await board.settle(claim, Waiting(on=on, question=WORST + LONG_WORD))  # type: ignore[arg-type]
    claim = await told.claim("constructor", story["3"])
    asks = question("constructor", claim.task, "bash", {"command": WORST}, f"t{claim.task.id}.e{claim.epoch}.1.0")
    await board.settle(claim, Waiting(on="human", question=asks))


async def _transcript(story: Story, told: Teller) -> None:
    """What it said, called and got back; a line of a million characters; a traceback; turns of a strange shape."""
    claim = await told.claim("constructor", story["0"])
    story.tasks["transcript"] = story["0"]
    await told.turn(
        claim, WORST, ("bash", {"command": WORST, MARKUP: BIDI}, WORST), (MARKUP, {}, LONG_LINE), said=WORST
    )
    await told.turn(claim, LONG_LINE, said=LONG_LINE)
    await told.summary(claim, WORST + LONG_LINE)
    for kind, body in (
        ("reply", {"said": {"a": [1]}, "reply": {"text": None, "calls": "no"}}),
        ("tool", {"place": 99, "text": WORST}),
        ("request", {"command": WORST}),
        ("trouble", {"traceback": WORST}),
        ("summary", {"carried": WORST}),
        ("reply", [WORST, None, {}]),
    ):
        await told.record(claim, kind, json.dumps(body))
    await told.board.keep_traceback(claim, WORST + LONG_WORD)
    await told.board.hand_over(claim, json.dumps({"__proto__": WORST, "did": LONG_WORD}))


async def _ends(story: Story, told: Teller) -> None:
    """Results, reasons, and a merged commit whose message, paths and lines are hostile."""
    board = told.board
    claim = await told.claim("constructor", story["4"])
    await board.settle(
        claim, Failed(f"the check {WORST!r} stayed red:\n{WORST}{LONG_WORD}"), handover=json.dumps(WORST)
    )
    name = "a<img src=x onerror=owned=1>\u202etxt.js"
    files = {name: f"{WORST}\n", "long.txt": LONG_LINE + "\n", "bytes.bin": "\x01\x02\x1b[31m\n", "a b&c#d?.txt": "x\n"}
    made = commit(story.project, files, f"{MARKUP}\n\n{WORST}", "constructor")
    story.commits["merged"] = made
    claim = await told.claim("constructor", story["5"])
    await board.settle(
        claim,
        Done(WORST + LONG_WORD, merged_into="dugnad/main", merged_as=made, triggers=f"{name}, {MARKUP}"),
    )
    given_back = await board.put(BIDI, role="hasOwnProperty")
    claim = await told.claim("constructor", given_back.id)
    await board.settle(claim, Released(WORST, delay_seconds=600))
    cancelled = await board.put(UNSEEN)
    await board.cancel(cancelled.id, why=WORST)
