"""A board with everything that a board can have: every state, every kind of wait, reviews, losses, merges, money.

The story is of a small team that builds a tide table. `every_state` tells it through the board's own verbs and in a
real git project, so that a page that shows it shows what a team leaves behind.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from dugnad.clock import wall_ms
from dugnad.errors import BudgetSpent
from dugnad.prompts import tell
from dugnad.safe_open import user_state
from dugnad.text import joined
from dugnad.tools.policy import question
from dugnad.types import Amount, Budget, Done, Failed, Need, Released, Waiting
from dugnad.web.rehearsed import KeptBar, KeptRehearsal
from tests.web.telling import Teller, teller
from tests.workspace.repository import git, new_repository

SOURCE = '''"""Reads stations and their tides."""

import json


def stations(text):
    return json.loads(text)["stations"]
'''
CHANGED = '''"""Reads stations and their tides."""

import json
from pathlib import Path


def stations(text: str) -> list[str]:
    """The names of all stations, in order."""
    return sorted(json.loads(text)["stations"])


def cached(folder: Path) -> list[str]:
    return stations((folder / "stations.json").read_text())
'''
RED = "FAIL: test_high_water (Curve)\nAssertionError: 2.31 != 2.13\n\nRan 14 tests in 0.2s\nFAILED (failures=1)"
GREEN = "..............\n" + "-" * 60 + "\nRan 14 tests in 0.198s\n\nOK\n"
TRACEBACK = "Traceback (most recent call last):\n  File \"worker.py\", line 12, in work\nKeyError: 'station'"


@dataclass
class Story:
    """Where the story lies, and the numbers of its tasks by what they are there for."""

    url: str
    project: Path
    tasks: dict[str, int] = field(default_factory=dict)
    hosts: list[str] = field(default_factory=list)  # Those that live.
    commits: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> int:
        return self.tasks[name]


async def every_state(project: Path) -> Story:
    """Tell the whole story on a new board in a new git project."""
    new_repository(project, {"README.md": "# Tides\n", "tides/stations.py": SOURCE})
    git(project, "branch", "dugnad/main")
    url = f"sqlite:///{project}/.dugnad/board.db"
    story, told = Story(url, project), await teller(url)
    async with told.board:
        await _gather(story, told)
        await _plan(story, told)
        await _rehearse(story, told)
        await _merge(story, told)
        await _lose_a_host(story, told)
        await _review(story, told)
        await _break_a_need(story, told)
        await _ask(story, told)
        await _hold(story, told)
        await _talk(story, told)
        told.clock.now = max(told.clock.now, wall_ms() - 150_000)  # Nobody worked for a while.
        await _work_now(story, told)
        assert told.clock.now <= wall_ms(), "the story has overtaken the clock"
        told.clock.now = wall_ms()
        await told.beat()
    return story


async def _gather(story: Story, told: Teller) -> None:
    """Two hosts that live; later a third is lost, and a fourth is stopped."""
    board = told.board
    one, two = await told.host("harbour:4711:a1"), await told.host("lighthouse:815:b2")
    story.hosts = [one, two]
    await told.join("alice", one, "planner", lead=True)
    await told.join("bob", one, "coder")
    await told.join("carol", two, "coder")
    await told.join("dora", two, "reviewer", model="scripted:critic")
    await told.join("emil", two, "coder")
    await board.fail_teammate("emil", by="emil", reason="a bug ended its worker: KeyError: 'station'")
    await told.join("gerd", one, "coder")
    await board.stop_teammate("gerd", reason="nothing is left to do")
    await board.spawn("hana", roles=["tester"], model="scripted:tides")  # No host has a seat for her yet.
    for name in ("emil", "gerd"):
        del told.hosts[name]
    quiet = await told.host("pier:99:c3")
    await board.stop_host(quiet)
    told.clock.later(1)


async def _plan(story: Story, told: Teller) -> None:
    """A goal, split into tasks by the lead; the goal itself then waits for them."""
    board, tasks = told.board, story.tasks
    goal = await board.put(
        "Publish tide tables for every harbour", role="planner",
        body="Tides of all stations, as a page and as a file. Correct to the minute.",
        budget=Budget(tasks=60, dollars=5.0, tokens=900_000),
    )  # fmt: skip
    tasks["goal"] = goal.id
    claim = await told.claim("alice", goal.id)
    add = board.follow_up
    tasks["read"] = (await add(claim, "Read the stations from the service", role="coder", review="reviewer")).id
    tasks["cache"] = (await add(claim, "Keep the stations on disk", role="coder", needs=(tasks["read"],))).id
    tasks["curve"] = (await add(claim, "Draw the curve of a day", role="coder", check="python -m unittest")).id
    tasks["licence"] = (await add(claim, "Choose a licence for the map", role="coder")).id
    tasks["storage"] = (await add(claim, "Move the tables into one file", role="coder", plan=True)).id
    tasks["publish"] = (await add(claim, "Publish the nightly build", role="coder", network=True)).id
    tasks["translate"] = (await add(claim, "Translate the page into Norwegian", priority=5)).id
    tasks["links"] = (await add(claim, "Check all links", role="coder", delay_seconds=86_400)).id
    behind = (tasks["curve"], tasks["licence"])
    tasks["notes"] = (await add(claim, "Write the release notes", role="coder", needs=behind)).id
    tasks["announce"] = (await add(claim, "Announce the release", role="coder", needs=(tasks["notes"],))).id
    tasks["old"] = (await add(claim, "Read the old service as well", role="coder")).id
    tasks["old page"] = (await add(claim, "Show the old service on the page", needs=(tasks["old"],))).id
    tasks["old news"] = (await add(claim, "Tell users of the old service", needs=(tasks["old page"],))).id
    tasks["globe"] = (await add(claim, "Show the tides on a globe")).id
    tasks["logo"] = (await add(claim, "Draw a logo", role="designer")).id
    tasks["rewrite"] = (await add(claim, "Correct the datum of the heights", role="coder", review="reviewer")).id
    await told.turn(
        claim, "I split the goal. The curve and the licence come first; the notes need both.",
        ("add_tasks", {"tasks": ["Read the stations", "Draw the curve of a day"]}, "Added 16 tasks."),
        said="Your task is #1 \"Publish tide tables for every harbour\".",
    )  # fmt: skip
    waits = tuple(tasks[name] for name in ("notes", "translate"))
    await board.settle(claim, Waiting(on="tasks", tasks=waits))
    await board.cancel(tasks["globe"], why="nobody asked for it")
    told.clock.later(2)


async def _rehearse(story: Story, told: Teller) -> None:
    """What `dugnad rehearse` keeps for the timeline: three teammates, and when each would do what, in minutes."""
    expected = {
        "read": (0, 0, 6), "curve": (1, 0, 9), "licence": (2, 0, 4), "cache": (0, 6, 12), "storage": (2, 4, 11),
        "publish": (1, 9, 13), "rewrite": (2, 11, 17), "translate": (0, 12, 16), "notes": (1, 13, 18),
        "announce": (1, 18, 20),
    }  # fmt: skip
    bars = [
        KeptBar(task=story[name], title=(await told.board.find(story[name])).title, row=row, start=begin * 60_000,
                end=end * 60_000)
        for name, (row, begin, end) in expected.items()
    ]  # fmt: skip
    kept = KeptRehearsal(seq=await told.board.last_event(), agents=3, milliseconds=20 * 60_000, bars=tuple(bars))
    folder = user_state(os.environ, "rehearsals")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{await told.board.identity()}.json").write_text(json.dumps(asdict(kept)))


async def _merge(story: Story, told: Teller) -> None:
    """Work that was reviewed, approved and merged, with a real commit."""
    board, task = told.board, story["read"]
    claim = await told.claim("bob", task)
    await told.turn(
        claim, "First I look at what is there.",
        ("read_file", {"path": "tides/stations.py"}, SOURCE), ("list_dir", {"path": "."}, "README.md\ntides/"),
        said="Your task is \"Read the stations from the service\".", minutes=2,
    )  # fmt: skip
    await told.turn(
        claim, "Now the names are sorted, and a file keeps them.",
        ("write_file", {"path": "tides/stations.py", "text": CHANGED}, "Wrote tides/stations.py, 14 lines."),
        ("bash", {"command": "python -m unittest"}, GREEN), minutes=3,
    )  # fmt: skip
    await told.turn(claim, "", ("finish", {"result": "The stations are read and sorted."}, "It goes to review."))
    review = await board.follow_up(
        claim, 'Review "Read the stations from the service"', role="reviewer", kind="review", reviews=task,
        reviews_commit="0" * 40, not_for="bob", body="Look at the commit, and approve it or ask for changes.",
    )  # fmt: skip
    story.tasks["review"] = review.id
    fallback = await board.put(
        "Ask the service for another format", parent=story["goal"], role="coder", needs=(Need(review.id, "rejected"),)
    )
    story.tasks["fallback"] = fallback.id
    await board.settle(claim, Waiting(on="tasks", tasks=(review.id,)))
    looked = await told.claim("dora", review.id)
    await told.turn(looked, "Sorted, typed, and a test. Good.", ("bash", {"command": "git diff HEAD^ HEAD"}, "+14 -4"))
    await board.settle(looked, Done("Clear and tested.", outcome="approved"))
    claim = await told.claim("bob", task)
    story.commits["read"] = commit(story.project, {"tides/stations.py": CHANGED}, "Read the stations", "bob")
    done = Done("The stations are read and sorted.", merged_into="dugnad/main", merged_as=story.commits["read"])
    await board.settle(claim, done)
    told.clock.later(4)


def commit(project: Path, files: dict[str, str], message: str, author: str) -> str:
    """A commit on the target, as the merge queue leaves one."""
    git(project, "checkout", "--quiet", "dugnad/main")
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--message", message, "--author", f"{author} <{author}@dugnad.invalid>")
    made = git(project, "rev-parse", "HEAD")
    git(project, "checkout", "--quiet", "main")
    return made


async def _lose_a_host(story: Story, told: Teller) -> None:
    """Frank's host is lost in the middle of a task. The task goes on elsewhere, with a hand-over."""
    board, task = told.board, story["cache"]
    lost = await told.host("trawler:2024:d4")
    await told.join("frank", lost, "coder")
    claim = await told.claim("frank", task)
    await told.turn(claim, "I begin with the file.", ("write_file", {"path": "cache.py", "text": "..."}, "Wrote it."))
    await board.hand_over(claim, '{"did": "cache.py has the reader; the writer is missing."}')
    del told.hosts["frank"]
    seen = {host.id: host.lease_until for host in await board.hosts() if host.id == lost}
    told.clock.later(3)
    await told.beat()
    assert await board.take_back(silent=seen) == [task]
    told.clock.later(2)
    goes_on = await told.claim("carol", task)
    assert goes_on.continues == claim.epoch
    await told.turn(goes_on, "The reader is there. I add the writer.", ("bash", {"command": "ls"}, "cache.py"))
    await told.summary(goes_on, "Frank wrote the reader. Carol adds the writer.")
    await told.turn(goes_on, "", ("finish", {"result": "Stations stay on disk for a day."}, "Done."), minutes=2)
    story.commits["cache"] = commit(
        story.project, {"tides/cache.py": "def keep(names):\n    return list(names)\n", ".envrc": "use flake\n"},
        "Keep the stations on disk", "carol",
    )  # fmt: skip
    done = Done(
        "Stations stay on disk for a day.", merged_into="dugnad/main", merged_as=story.commits["cache"],
        triggers=".envrc",
    )  # fmt: skip
    await board.settle(goes_on, done)


async def _review(story: Story, told: Teller) -> None:
    """A review that asked for changes. The second review is ready, and not for the author."""
    board, task = told.board, story["rewrite"]
    for rounds, outcome in enumerate(("changes-requested", None)):
        claim = await told.claim("carol", task)
        await told.turn(claim, "The heights count from chart datum now.", ("bash", {"command": "make"}, "ok"))
        review = await board.follow_up(
            claim, 'Review "Correct the datum of the heights"', role="reviewer", kind="review", reviews=task,
            reviews_commit=f"{rounds}" * 40, not_for="carol", key=f"review:{task}:{rounds}",
        )  # fmt: skip
        story.tasks[f"review {rounds + 1} of rewrite"] = review.id
        await board.settle(claim, Waiting(on="tasks", tasks=(review.id,)))
        if outcome:
            looked = await told.claim("dora", review.id)
            await told.turn(looked, "One height is still wrong.")
            await board.settle(looked, Done("Bergen is 4 cm too high.", outcome=outcome))


async def _break_a_need(story: Story, told: Teller) -> None:
    """A task that fails for good after retries, and what can never be done because of it."""
    board, task = told.board, story["old"]
    for number in range(3):
        told.clock.later(10)
        claim = await told.claim("carol", task)
        await told.turn(claim, f"Attempt {number + 1} at the old service.", ("bash", {"command": "curl"}, "exit 6"))
        if number == 1:
            await board.keep_traceback(claim, TRACEBACK)
        why = f"the check 'python -m unittest' stayed red:\n{RED}" if number == 2 else "the old service hangs up"
        await board.settle(claim, Failed(why, retry=True), handover='{"did": "The old service does not answer."}')
    ends = {(await board.find(story[name])).state for name in ("old page", "old news", "fallback")}
    assert ends == {"skipped"}, ends


async def _ask(story: Story, told: Teller) -> None:
    """A question, a plan, and a call that a policy asks about: each waits for the human."""
    board = told.board
    claim = await told.claim("carol", story["licence"])
    await told.turn(claim, "Two licences are possible.", ("ask_human", {"question": "Which?"}, "Asked."))
    await board.settle(claim, Waiting(on="human", question="CC BY 4.0 or ODbL for the map? The notes wait for it."))
    told.clock.later(1)
    claim = await told.claim("carol", story["storage"])
    plan = "1. Write all tables into tides.db.\n2. Read them back in one query.\n3. Remove the old files."
    await board.settle(claim, Waiting(on="plan", question=plan))
    told.clock.later(1)
    claim = await told.claim("carol", story["publish"])
    asks = question("carol", claim.task, "bash", {"command": "make publish"}, f"t{claim.task.id}.e{claim.epoch}.1.0")
    await board.settle(claim, Waiting(on="human", question=asks))


async def _hold(story: Story, told: Teller) -> None:
    """A goal whose cap is reached, and a provider key that cools down."""
    board = told.board
    goal = await board.put("Measure how fast the page is", role="coder", budget=Budget(dollars=0.05, tasks=5))
    story.tasks["held"] = goal.id
    claim = await told.claim("carol", goal.id)
    await told.turn(claim, "It takes 80 ms.", dollars=0.024)
    too_much = Amount(tokens=9_000, microdollars=30_000)
    try:
        await board.reserve(claim, too_much)
    except BudgetSpent:
        await board.settle(claim, Waiting(on="budget", amount=too_much))
    released = await board.put("Sketch the winter page", role="coder")
    story.tasks["released"] = released.id
    claim = await told.claim("carol", released.id)
    await board.settle(claim, Released("the drawings are not there yet", delay_seconds=86_400))


async def _talk(story: Story, told: Teller) -> None:
    board = told.board
    await board.tell("carol", "bob", "The cache has a writer now; use keep().", task=story["cache"])
    await board.tell("bob", "human", "The stations are merged. Shall the curve be blue?", task=story["read"])
    await board.tell("human", "bob", "Blue is fine.")
    await board.tell("alice", "dora", "Please be done with this release.", kind="shutdown")
    await board.write_note("alice", "Heights", "All heights count from chart datum, in metres.")
    await board.write_note("bob", "Tests", "`python -m unittest` runs them all; they need no network.")
    message = await board.put("Answer the human", kind="human_message", assignee="alice", body="When is it ready?")
    story.tasks["message"] = message.id
    errand = await board.put("Answer bob", kind="message", assignee="dora", body="Is the datum right now?", by="bob")
    story.tasks["errand"] = errand.id


async def _work_now(story: Story, told: Teller) -> None:
    """What runs just now: work with a red check, work that conflicts, and an answer. A provider key cools down."""
    board, target = told.board, "dugnad/main"
    claim = await told.claim("bob", story["curve"])
    await told.turn(
        claim, "I draw with plain SVG.", ("write_file", {"path": "curve.py", "text": "..."}, "Wrote curve.py."),
        said='Your task is "Draw the curve of a day".', minutes=0.3,
    )  # fmt: skip
    await told.verdict(claim, "It draws.", tell("delivery.red", command="python -m unittest", output=RED))
    await board.reserve(claim, Amount(tokens=9_000, microdollars=40_000))
    moon = await board.put("Mark the phases of the moon", role="coder", parent=story["goal"])
    story.tasks["conflict"] = moon.id
    claim = await told.claim("carol", moon.id)
    others = f"7c28fd2c Read the stations (#{story['read']}, by bob)"
    brought = tell("delivery.target_brought_in", target=target, head="7c28fd2c", others=others)
    marked = tell("delivery.marked", files="tides/stations.py", target=target, said="CONFLICT (content)")
    conflict = joined((tell("delivery.conflict", target=target), brought, marked), "\n")
    await told.verdict(claim, "The moon is there.", conflict)
    answer = await told.claim("alice", story["message"])
    await told.turn(answer, "I look at what is left.", minutes=0.3)
    await board.cool_down("anthropic:3f9a1c02", reason="429: too many requests", by="carol", seconds=1_500)
