"""A second mind for a moment, and work given to another, through the real loop."""

from __future__ import annotations

from dugnad.agent.agent import Agent
from dugnad.board import Board
from dugnad.models import ScriptedModel
from dugnad.models.scripted import Step
from dugnad.settings import AgentLimits
from dugnad.tools.built_in import READING
from dugnad.types import Budget, Done, Waiting
from tests.agent.stage_agent import END, TITLE, all_told, call, calls, last_results, of_task, results, set_stage


async def test_only_the_answer_of_a_consulted_mind_comes_back(board: Board) -> None:
    stage = await set_stage(
        board,
        [call("consult", prompt="Is it right?", role="reviewer"), END],
        others={"(consult) reviewer": [call("list_tasks"), Step(say="  It is.  ")]},
    )
    assert await stage.run(body="secret") == Done("built")
    assert last_results(stage.model) == ["It is."]
    asked = [request for request in stage.model.asked if request.title == "(consult) reviewer"]
    assert [len(request.messages) for request in asked] == [1, 4]
    assert asked[0].messages[0].text == "alice asks:\n> Is it right?"
    assert asked[0].system.startswith("You are a colleague of alice, as reviewer.")
    assert "secret" not in all_told(asked[1])
    assert [turn.kind for turn in await board.transcript(1, 1)] == ["reply", "tool", "reply", "tool"]


async def test_the_tools_of_a_consulted_mind_only_read(board: Board) -> None:
    wishes = calls(("note", {"title": "t", "text": "x"}), ("finish", {"result": "r"}), ("consult", {"prompt": "again"}))
    stage = await set_stage(board, [call("consult", prompt="?"), END], others={"(consult)": [wishes, Step(say="So.")]})
    assert await stage.run() == Done("built")
    first, second = [request for request in stage.model.asked if request.title == "(consult)"]
    assert {spec.name for spec in first.tools} == {tool.name for tool in READING} - {"use_skill"}
    assert all(tool.safe for tool in READING)
    texts = [message.text for message in second.messages[2:5]]
    assert all(text.startswith("Error: There is no tool") for text in texts)
    assert not await board.search_notes()


async def test_a_consulted_mind_is_paid_from_the_same_budget(board: Board) -> None:
    stage = await set_stage(board, [call("consult", prompt="?"), END], others={"(consult)": [Step(say="x" * 4_000)]})
    await stage.run(budget=Budget(tokens=1_000_000))
    spending = await board.budget(1)
    turns = sum(turn.used.tokens for turn in await board.transcript(1, 1))
    assert turns + 1_000 <= spending.spent.tokens < turns + 8_192
    assert not any(event.kind == "forfeited" for event in await board.events())


async def test_a_consulted_mind_that_never_ends_is_stopped(board: Board) -> None:
    stage = await set_stage(
        board,
        [call("consult", prompt="?"), END],
        others={"(consult)": [Step(say=f"thought {n}", calls=(("list_tasks", {}),)) for n in range(9)]},
        limits=AgentLimits(consult_turns_max=3),
    )
    await stage.run()
    assert last_results(stage.model) == ["thought 2\n(stopped after 3 turns)"]


async def test_a_consulted_mind_without_a_word_is_said_to_be_so(board: Board) -> None:
    stage = await set_stage(board, [call("consult", prompt="?"), END], others={"(consult)": [Step(odd="empty")]})
    await stage.run()
    assert last_results(stage.model) == ["(no answer)"]


async def test_a_consulted_mind_that_cannot_be_asked_is_told(board: Board) -> None:
    faults = ("overflow",) * 9
    stage = await set_stage(
        board, [call("note", title="t", text="x"), call("consult", prompt="?"), END],
        others={"(consult)": [Step(faults=faults)]},
    )  # fmt: skip
    assert await stage.run() == Done("built")
    assert last_results(stage.model)[0].startswith("Error: scripted: the prompt is too long.")


async def test_consulting_puts_the_task_down_when_the_budget_is_spent(board: Board) -> None:
    stage = await set_stage(board, [call("consult", prompt="x" * 60_000), END], others={"(consult)": [Step(say="y")]})
    outcome = await stage.run(budget=Budget(tokens=14_000))
    assert isinstance(outcome, Waiting)
    assert outcome.on == "budget"
    assert (await board.budget(1)).held == "tokens"
    await board.raise_budget(1, Budget(tokens=100_000))
    assert await stage.go_on() == Done("built")
    assert last_results(stage.model)[0] == "y"  # It was put down, not interrupted: it is asked again.


async def helper(board: Board, *steps: Step, title: str = "Help") -> Agent:
    """Another teammate, who takes the task that is given away."""
    bob = await board.spawn("bob", roles=["helper"])
    return Agent(board=board, teammate=bob, model=ScriptedModel({title: list(steps)}))


async def test_delegated_work_comes_back_into_the_same_conversation(board: Board) -> None:
    bob = await helper(board, call("finish", result="all\nhelped", outcome="good"))
    stage = await set_stage(board, [call("delegate", task="Help", body="please", role="helper"), END])
    await board.put(TITLE, assignee="alice")
    claim = await stage.claim()
    outcome = await stage.agent.work(claim)
    assert outcome == Waiting(on="tasks", tasks=(2,))
    await board.settle(claim, outcome)
    assert (await board.find(1)).state == "waiting"  # It holds no slot meanwhile.
    child = await board.find(2)
    assert (child.parent, child.role, child.body) == (1, "helper", "please")
    worked = await stage.drain(bob) + await stage.drain()
    assert [(claim.task.id, outcome) for claim, outcome in worked] == [
        (2, Done("all\nhelped", "good")),
        (1, Done("built")),
    ]
    assert last_results(stage.model) == ["#2 'Help' ended as done, good (bob):\n> all\n> helped"]
    assert len(of_task(stage.model)) == 2


async def test_delegated_work_that_fails_comes_back_with_the_reason(board: Board) -> None:
    bob = await helper(board, call("give_up", reason="I cannot\nhelp"))
    stage = await set_stage(board, [call("delegate", task="Help", role="helper"), END])
    await board.put(TITLE, assignee="alice")
    worked = await stage.drain(bob)
    assert len(worked) == 3
    assert last_results(stage.model) == ["#2 'Help' ended as failed (bob):\n> I cannot\n> help"]


async def test_delegated_work_that_is_cancelled_comes_back_too(board: Board) -> None:
    await helper(board)
    stage = await set_stage(board, [call("delegate", task="Help", role="helper"), END])
    await stage.run()
    await board.cancel(2, why="not needed")
    assert await stage.go_on() == Done("built")
    assert last_results(stage.model) == ["#2 'Help' ended as cancelled:\n> not needed"]


async def test_delegating_without_waiting_goes_on_at_once(board: Board) -> None:
    stage = await set_stage(board, [call("delegate", task="Help", role="helper", wait=False), END])
    assert await stage.run() == Done("built")
    assert last_results(stage.model)[0].startswith("#2 'Help' (ready, for helper)\n")
    assert (await board.find(2)).state == "ready"


async def test_two_tasks_given_away_in_one_reply_come_back_both(board: Board) -> None:
    bob = await helper(board, Step(say="yes"), title="*")
    both = calls(("delegate", {"task": "A", "role": "helper"}), ("delegate", {"task": "B", "role": "helper"}))
    stage = await set_stage(board, [both, END])
    await board.put(TITLE, assignee="alice")
    await stage.drain(bob)
    numbers = [task.id for task in await board.list_tasks()][1:]
    assert last_results(stage.model) == [
        f"#{number} {title!r} ended as done (bob):\n> yes" for number, title in zip(numbers, "AB", strict=True)
    ]


async def test_what_is_wrong_with_delegated_work_is_told(board: Board) -> None:
    stage = await set_stage(board, [calls(("delegate", {"task": ""}), ("delegate", {"task": "x", "role": "a b"})), END])
    assert await stage.run() == Done("built")
    assert [text.startswith("Error: ") for text in last_results(stage.model)] == [True, True]


async def test_a_task_that_is_delegated_to_itself_is_told(board: Board) -> None:
    stage = await set_stage(
        board,
        [call("delegate", task="Help"), END],
        others={"Help": [call("delegate", task="Help"), Step(say="helped")]},
    )
    await board.put(TITLE)
    await stage.drain()
    assert (await board.find(1)).state == "done"


async def test_a_circle_of_delegated_tasks_is_told(board: Board) -> None:
    stage = await set_stage(
        board,
        [call("delegate", task="A"), END],
        others={"A": [call("delegate", task="B"), Step(say="a")], "B": [call("delegate", task="A"), Step(say="b")]},
    )
    await board.put(TITLE)
    await stage.drain()
    assert (await board.find(1)).state == "done"


async def test_work_for_a_role_whose_last_teammate_left_is_not_waited_for(board: Board) -> None:
    await board.spawn("will", roles=["writer"])
    await board.stop_teammate("will", by="human", reason="enough")
    (said,) = await results(board, ("delegate", {"task": "Write it up", "role": "writer"}))
    assert "Nobody on the team has the role 'writer', so this would wait for ever" in said
    assert len(await board.list_tasks()) == 1
