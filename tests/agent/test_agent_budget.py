"""What thinking costs: reserved before, settled after, never beyond the cap, and all of it in the account."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from dugnad.board import Board
from dugnad.clock import Sources
from dugnad.errors import ModelMisconfigured
from dugnad.models import ScriptedModel
from dugnad.models.port import Price, Reply, Request, Usage
from dugnad.models.scripted import Step
from dugnad.settings import AgentLimits
from dugnad.tools.context import Context, Ends
from dugnad.tools.tool import Tool, tool
from dugnad.types import Amount, Budget, Done, Released, Waiting
from tests.agent.stage_agent import END, FAST, TITLE, Listening, Stage, Wrapped, call, set_stage, told, used
from tests.conftest import Opener

PRICE = Price(input=1.0, output=5.0)
CALM = Sources(chance=lambda: 0.0)


class Watcher:
    """Wraps a model so that each of its calls first looks at the account."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.reserved: list[Amount] = []
        stage.agent.model = Wrapped(stage.model, self._ask)

    async def _ask(self, inner: ScriptedModel, request: Request) -> Reply:
        self.reserved.append((await self.stage.board.budget(1)).reserved)
        return await inner.ask(request)


async def test_the_reservation_is_there_during_the_call_and_settled_after(board: Board) -> None:
    stage = await set_stage(board, [used(3_000, call("list_tasks")), used(4_000, END)], model=None)
    stage.model.facts = replace(stage.model.facts, price=PRICE)
    watcher = Watcher(stage)
    await stage.run(budget=Budget(tokens=1_000_000, dollars=10))
    assert all(amount.tokens > 8_192 for amount in watcher.reserved)
    assert all(amount.microdollars > 5 * 8_192 for amount in watcher.reserved)
    assert all(amount.milliseconds == 600_000 for amount in watcher.reserved)
    spending = await board.budget(1)
    assert spending.reserved == Amount()
    assert spending.spent.tokens == 3_010 + 4_010
    assert spending.spent.microdollars == 7_000 + 5 * 20


async def test_the_output_is_fitted_to_the_tokens_that_are_left(board: Board) -> None:
    stage = await set_stage(board, [used(3_000, call("list_tasks")), END])
    watcher = Watcher(stage)
    assert await stage.run(budget=Budget(tokens=10_000)) == Done("built")
    first, second = stage.model.asked
    assert 256 < first.output_tokens_max < 8_192
    assert watcher.reserved[0].tokens == 10_000
    assert 256 < second.output_tokens_max < 10_000 - 2 * 3_000
    assert watcher.reserved[1].tokens == 10_000 - 3_010


async def test_what_is_said_for_the_first_time_is_reserved_too(board: Board) -> None:
    stage = await set_stage(board, [used(3_000, call("list_tasks")), END])
    watcher = Watcher(stage)
    claim = await stage.begin(budget=Budget(tokens=1_000_000))

    async def ask(inner: ScriptedModel, request: Request) -> Reply:
        if request.turn == 1:  # Shown with the second request, and so counted by nobody yet.
            await board.tell("human", "alice", "word " * 6_000)
        return await watcher._ask(inner, request)

    stage.agent.model = Wrapped(stage.model, ask)
    assert await stage.go_on(claim) == Done("built")
    second = watcher.reserved[1].tokens - stage.model.asked[1].output_tokens_max
    assert second >= 3_010 + 30_000 // 4  # However many letters make a token.


async def test_the_output_is_fitted_to_the_dollars_that_are_left(board: Board) -> None:
    stage = await set_stage(board, [END])
    stage.model.facts = replace(stage.model.facts, price=PRICE)
    watcher = Watcher(stage)
    assert await stage.run(budget=Budget(dollars=0.02)) == Done("built")
    assert 256 < stage.model.asked[0].output_tokens_max < 4_000
    assert 19_990 <= watcher.reserved[0].microdollars <= 20_000


async def test_the_wait_for_an_answer_is_fitted_to_the_seconds_that_are_left(board: Board) -> None:
    stage = await set_stage(board, [END])
    watcher = Watcher(stage)
    assert await stage.run(budget=Budget(seconds=7)) == Done("built")
    assert stage.model.asked[0].seconds_max == 7
    assert watcher.reserved[0].milliseconds == 7_000


@pytest.mark.parametrize(
    ("cap", "more"),
    [
        (Budget(tokens=2_000), Budget(tokens=100_000)),
        (Budget(dollars=0.001), Budget(dollars=1)),
        (Budget(seconds=0.5), Budget(seconds=100)),
    ],
    ids=["tokens", "dollars", "seconds"],
)
async def test_at_the_cap_the_task_waits_and_goes_on_when_the_cap_is_raised(
    board: Board, cap: Budget, more: Budget
) -> None:
    stage = await set_stage(board, [END])
    stage.model.facts = replace(stage.model.facts, price=PRICE)
    outcome = await stage.run(budget=cap)
    assert isinstance(outcome, Waiting)
    assert outcome.on == "budget"
    assert "dugnad budget 1" in outcome.question
    assert not stage.model.asked
    assert (await board.find(1)).state == "waiting"
    assert (await board.budget(1)).held is not None
    await board.raise_budget(1, more)
    assert await stage.go_on() == Done("built")
    spending = await board.budget(1)
    assert spending.reserved == Amount()


async def test_at_the_cap_in_the_middle_the_same_conversation_goes_on(board: Board) -> None:
    stage = await set_stage(board, [used(9_000, call("note", title="t", text="x")), END])
    outcome = await stage.run(budget=Budget(tokens=10_000))
    assert isinstance(outcome, Waiting)
    spending = await board.budget(1)
    assert spending.spent.tokens <= 10_000
    await board.raise_budget(1, Budget(tokens=100_000))
    assert await stage.go_on() == Done("built")
    assert [request.turn for request in stage.model.asked] == [1, 2]
    assert len(await board.search_notes()) == 1


async def two_on_one_root(board: Board, budget: Budget) -> Request:
    """Two teammates on two tasks of one root: the second asks while the first one's answer is on its way, and has to
    wait for what that one reserved. Returns what the second model was asked."""
    thinking, listening = asyncio.Event(), Listening(board)

    async def ask(inner: ScriptedModel, request: Request) -> Reply:
        thinking.set()
        await listening.refused.wait()
        return await inner.ask(request)

    alice = await set_stage(board, model=Wrapped(ScriptedModel({TITLE: [END]}), ask))
    bob = await set_stage(listening, [], others={"Child": [END]}, name="bob")  # type: ignore[arg-type]
    claim = await alice.begin(budget=budget)
    await board.follow_up(claim, "Child", assignee="bob")
    own = await bob.claim()

    async def second() -> object:
        await thinking.wait()
        return await bob.go_on(own)

    assert await asyncio.gather(alice.go_on(claim), second()) == [Done("built"), Done("built")]
    return bob.model.asked[0]


@pytest.mark.parametrize("budget", [Budget(tokens=13_500), Budget(seconds=600.2)], ids=["tokens", "seconds"])
async def test_who_finds_all_reserved_waits_for_the_others_and_goes_on(board: Board, budget: Budget) -> None:
    await two_on_one_root(board, budget)
    spending = await board.budget(1)
    assert spending.reserved == Amount()
    assert spending.held is None


async def test_after_waiting_for_the_others_the_output_is_fitted_to_what_is_left_then(board: Board) -> None:
    request = await two_on_one_root(board, Budget(tokens=13_500))
    assert request.output_tokens_max > 2_000


async def test_after_waiting_for_the_others_the_patience_is_fitted_to_what_is_left_then(board: Board) -> None:
    request = await two_on_one_root(board, Budget(seconds=600.2))
    assert request.seconds_max >= 60  # A tenth of what it wanted is the least it takes while others hold the rest.


async def test_after_a_lost_answer_the_output_is_fitted_to_what_is_left_then(board: Board) -> None:
    stage = await set_stage(board, [Step(calls=END.calls, faults=("timeout",))])
    assert await stage.run(budget=Budget(tokens=20_000)) == Done("built")


async def test_a_cap_in_dollars_is_refused_for_a_model_without_a_price(board: Board) -> None:
    stage = await set_stage(board, [END])
    claim = await stage.begin(budget=Budget(dollars=1))
    with pytest.raises(ModelMisconfigured, match="#1 has a cap in dollars, but the price of scripted is not known"):
        await stage.agent.work(claim)
    assert not stage.model.asked
    stage.agent.model = ScriptedModel({TITLE: [END]}, price=PRICE)
    assert await stage.go_on(claim) == Done("built")
    assert (await board.budget(1)).spent.microdollars > 0


async def test_a_provider_that_counts_nothing_is_charged_by_our_own_count(board: Board) -> None:
    nothing = Usage()
    stage = await set_stage(board, [Step(say="x" * 3_000, usage=nothing)])
    stage.model.facts = replace(stage.model.facts, price=PRICE)
    await stage.run(budget=Budget(tokens=1_000_000, dollars=10))
    spending = await board.budget(1)
    assert spending.spent.tokens > 1_000
    assert spending.spent.microdollars > 5 * 1_000


@pytest.mark.parametrize("pace", [{"requests_per_minute": 1}, {"tokens_per_minute": 1}], ids=["requests", "tokens"])
async def test_the_pace_of_a_key_is_kept_across_teammates(
    opener: Opener, monkeypatch: pytest.MonkeyPatch, pace: dict[str, int]
) -> None:
    board, elsewhere = await opener(sources=CALM), await opener(sources=CALM)
    pauses: list[float] = []
    real = asyncio.sleep

    async def note_pause(seconds: float) -> None:
        pauses.append(seconds)
        await real(0)

    limits = AgentLimits(patience_max=2)
    first = await set_stage(board, [END], **pace)
    second = await set_stage(elsewhere, [END], name="bob", limits=limits, **pace)
    assert await first.run() == Done("built")
    claim = await second.begin()
    with monkeypatch.context() as patch:
        patch.setattr("dugnad.agent.model_calls.asyncio.sleep", note_pause)
        assert isinstance(await second.agent.work(claim), Released)
    assert len(pauses) == 2
    assert all(0 < pause <= 60 for pause in pauses)
    assert not second.model.asked


async def test_a_call_that_ends_in_a_wait_gives_back_what_it_had_reserved(board: Board) -> None:
    @tool
    async def order(what: str) -> Ends:
        """Order something, which a person has to sign."""
        return Ends(Waiting(on="human", question=f"Sign for {what}?"))

    stage = await set_stage(board, [call("order", what="paint"), END], tools=[order])
    outcome = await stage.run(budget=Budget(seconds=10_000))
    assert isinstance(outcome, Waiting)
    account = await board.budget(1)
    assert account.reserved == Amount()
    assert account.spent.milliseconds < stage.agent.limits.tool_seconds_max * 1000
    assert not [event for event in await board.events() if event.kind == "forfeited"]


async def test_a_call_that_the_board_refuses_gives_back_what_it_had_reserved(board: Board) -> None:
    @tool
    async def look(context: Context, task: int) -> str:
        """Look at a task."""
        return (await context.board.find(task)).title

    stage = await set_stage(board, [call("look", task=99), END], tools=[look])
    assert await stage.run(budget=Budget(seconds=10_000)) == Done("built")
    assert not [event for event in await board.events() if event.kind == "forfeited"]
    assert (await board.budget(1)).spent.milliseconds < stage.agent.limits.tool_seconds_max * 1000


def looking(asks: float) -> tuple[Tool, list[float]]:
    """A tool that asks for so many seconds, and those that its calls were given."""
    given: list[float] = []

    @tool(seconds=asks)
    async def look(context: Context) -> str:
        """Look at something for a while."""
        given.append(round(context.seconds or 0))
        return "seen"

    return look, given


@pytest.mark.parametrize(("asks", "left"), [(200, 150), (100, 100)])
async def test_a_tool_is_given_no_seconds_that_another_has_reserved(board: Board, asks: float, left: float) -> None:
    look, given = looking(asks)
    stage = await set_stage(board, [call("look"), END], tools=[look], limits=replace(FAST, tool_seconds_max=1_000))
    claim = await stage.begin(budget=Budget(seconds=1_000))
    await board.follow_up(claim, "Child", assignee="bob")
    bob = await set_stage(board, name="bob")
    await board.reserve(await bob.claim(), Amount(milliseconds=850_000))
    assert await stage.go_on(claim) == Done("built")
    assert given == [left]


async def test_a_tool_that_asks_for_more_than_others_leaves_half_of_what_is_left(board: Board) -> None:
    look, given = looking(800)
    stage = await set_stage(board, [call("look"), END], tools=[look], limits=replace(FAST, tool_seconds_max=120))
    assert await stage.run(budget=Budget(seconds=1_000)) == Done("built")
    assert 490 <= given[0] <= 500


async def test_all_that_was_asked_is_in_the_account(board: Board) -> None:
    """Turns, summaries, consulted minds, lost answers and refused ones: the events add up to the account."""
    long = call("note", title="t", text="word " * 1_000)
    steps = [
        long, long, Step(calls=(("consult", {"prompt": "?"}),), faults=("timeout", "unavailable")), long,
        call("compact"), Step(calls=long.calls, faults=("overflow", "timeout")), Step(odd="empty"), END,
    ]  # fmt: skip
    stage = await set_stage(
        board, steps, others={"(summary)": [Step(say="s")] * 20, "(consult)": [call("list_tasks"), Step(say="c")]},
        limits=replace(FAST, keep_share=0.01),
    )  # fmt: skip
    stage.model.facts = replace(stage.model.facts, price=PRICE)
    await stage.run(budget=Budget(tokens=1_000_000, dollars=10, seconds=100_000))
    titles = {request.title for request in stage.model.asked}
    assert titles == {TITLE, "(summary)", "(consult)"}
    events = await board.events()
    spending = await board.budget(1)
    for kind in ("tokens", "microdollars", "milliseconds"):
        paid = sum(int(str(event.data[kind])) for event in events if event.kind in ("spent", "forfeited"))
        free = sum(int(str(event.data[kind])) for event in events if event.kind == "turn" and event.data["unreserved"])
        assert getattr(spending.spent, kind) == paid + free
    assert spending.reserved == Amount()
    opened = {event.data["key"] for event in events if event.kind == "reserved"}
    closed = {event.data["key"] for event in events if event.kind in ("spent", "forfeited")}
    assert opened == closed
    assert not any(event.kind == "forfeited" for event in events)
    assert len(opened) == len(stage.model.asked)


async def test_what_a_teammate_is_told_of_the_budget_is_what_the_board_says(board: Board) -> None:
    stage = await set_stage(board, [*[used(13_000, call("list_tasks"))] * 2, END])
    await stage.run(budget=Budget(tasks=5, tokens=50_000))
    said = told(stage.model.asked[-1])
    assert said == "[turn 3 of 50 · this goal: 1 of 5 task runs used, 26,020 of 50,000 tokens]"


class NothingToHear:
    """A watch of which it is known that nothing will come."""

    def __enter__(self) -> NothingToHear:
        return self

    def __exit__(self, *trouble: object) -> None: ...

    async def wait(self, seconds: float) -> bool:
        raise AssertionError(f"waits {seconds} seconds for what cannot come")


async def test_who_waits_for_the_others_is_told_when_they_have_spent_it_all(board: Board) -> None:
    """Between the two looks of the second teammate, the first one spends all that it had reserved."""

    class Slow(Listening):
        async def reserve(self, *given: object, **fields: object) -> str:
            try:
                return await super().reserve(*given, **fields)
            finally:
                await board.spend(claim, taken, Amount(tokens=9_000))

        def watch(self, topics: object) -> NothingToHear:
            return NothingToHear()

    alice = await set_stage(board)
    bob = await set_stage(Slow(board), name="bob")  # type: ignore[arg-type]
    claim = await alice.begin(budget=Budget(tokens=10_000))
    taken = await board.reserve(claim, Amount(tokens=9_000))
    await board.follow_up(claim, "Child", assignee="bob")
    outcome = await bob.agent.work(await bob.claim())
    assert isinstance(outcome, Waiting)
    assert outcome.on == "budget"


async def test_a_call_that_is_cut_at_its_time_does_not_pass_the_cap_in_seconds(board: Board) -> None:
    stage = await set_stage(board, [Step(say="late", seconds=5)], limits=AgentLimits(retry_seconds=0.01))
    outcome = await stage.run(budget=Budget(seconds=1.2))
    assert isinstance(outcome, Waiting)
    account = await board.budget(1)
    assert 1_000 < account.spent.milliseconds <= 1_200
