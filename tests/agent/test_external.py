"""Somebody else's agent as a teammate's mind: run in the tree, its answer taken back, durable and within the budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dugnad.agent.external.agent import ExternalAgent
from dugnad.agent.external.command import ExternalCommand
from dugnad.board import Board
from dugnad.errors import ModelMisconfigured
from dugnad.settings import AgentLimits
from dugnad.team import requests
from dugnad.types import HUMAN, Amount, Budget, Done, Failed, Released, Waiting
from dugnad.workspace.sandbox.sandbox import Sandbox
from tests.agent.stage_agent import TITLE, Stage
from tests.agent.standin import asked, block, prompts, script, stand_in
from tests.models.provider_server import Answer, ProviderServer

REPORTED = Amount(tokens=370, microdollars=12_300)  # What the stand-in for claude says that a run costs.


async def stage_of(
    board: Board, sandbox: Sandbox | None, tree: Path | None, command: ExternalCommand, **member: Any
) -> Stage:
    teammate = await board.spawn("alice", **member)
    host = await board.start_host("stage")
    await board.seat(host, name="alice")
    mind: Any = ExternalAgent(board=board, teammate=teammate, command=command, sandbox=sandbox, tree=tree)
    return Stage(board=board, host=host, agent=mind, model=None)  # type: ignore[arg-type]


def spent(amount: Amount) -> Amount:
    """Without the time, which is the machine's."""
    return Amount(tokens=amount.tokens, microdollars=amount.microdollars)


@pytest.mark.parametrize("name", ["claude", "codex", "plain"])
async def test_it_is_run_in_the_tree_with_the_packet_and_its_text_is_the_result(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path, name: str
) -> None:
    script(tree, {"say": "It is built, in out.txt.", "write": {"out.txt": "built"}, "complain": "a warning\n"})
    stage = await stage_of(board, sandbox, tree, stand_in(folder, name), prompt="You like short functions.")
    outcome = await stage.run(body="Build the thing.", check="test -f out.txt")
    assert outcome == Done("It is built, in out.txt.")
    assert (tree / "out.txt").read_text() == "built"
    (prompt,) = prompts(tree)
    for words in (
        "You are alice",
        "You like short functions.",
        f"#1: {TITLE}",
        "> Build the thing.",
        "test -f out.txt",
    ):
        assert words in prompt
    turns = await board.transcript(1, 1)
    assert [turn.kind for turn in turns] == ["request", "reply"]


async def test_what_a_run_says_it_cost_is_what_is_spent(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"say": "Done."})
    stage = await stage_of(board, sandbox, tree, stand_in(folder))
    await stage.run(budget=Budget(dollars=1.0, tokens=50_000))
    account = await board.budget(1)
    assert (spent(account.spent), account.reserved) == (REPORTED, Amount())
    assert 5 < account.spent.milliseconds < 300_000  # No program starts and ends in less.
    (run,) = asked(tree)
    assert run["argv"][-2:] == ["--max-budget-usd", "1.000000"]


async def test_what_it_does_not_report_counts_as_spent_in_full(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"say": "Done."})
    stage = await stage_of(board, sandbox, tree, stand_in(folder, "plain", tokens_per_run=20_000))
    await stage.run(budget=Budget(tokens=50_000))
    assert (await board.budget(1)).spent.tokens == 20_000


@pytest.mark.parametrize("cost", [None, "nothing", -1, True])
async def test_dollars_it_does_not_report_count_as_spent_in_full(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path, cost: object
) -> None:
    script(tree, {"say": "Done.", "cost": cost})
    stage = await stage_of(board, sandbox, tree, stand_in(folder, dollars_per_run=0.5))
    await stage.run(budget=Budget(dollars=2.0))
    assert (await board.budget(1)).spent.microdollars == 500_000


async def test_follow_ups_notes_and_messages_go_on_the_board_as_if_a_teammate_had_put_them(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    await board.spawn("bob", roles=["tester"])
    wishes = {
        "result": "built", "outcome": "approved", "follow_ups": [
            {"title": "Test it", "role": "tester", "check": "true"}, {"title": "Write it up", "needs": ["1:approved"]}],
        "notes": [{"title": "A trap", "text": "Mind the gap."}], "messages": [{"to": "bob", "text": "Soon."}],
    }  # fmt: skip
    script(tree, {"say": block(**wishes)})
    stage = await stage_of(board, sandbox, tree, stand_in(folder))
    assert await stage.run() == Done("built", "approved")
    tasks = {task.title: task for task in await board.list_tasks()}
    assert (tasks["Test it"].root, tasks["Test it"].role, tasks["Test it"].put_by) == (1, "tester", "alice")
    assert tasks["Write it up"].state == "ready"  # Its need was met by the outcome.
    assert [note.text for note in await board.search_notes(root=1)] == ["Mind the gap."]
    assert [message.text for message in await board.inbox("bob")] == ["Soon."]


async def test_an_answer_in_a_file_is_taken_and_the_file_removed(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"say": "See the file.", "answer": {"follow_ups": [{"title": "More"}]}})
    stage = await stage_of(board, sandbox, tree, stand_in(folder, "codex"))
    assert await stage.run() == Done("See the file.")
    assert [task.title for task in await board.list_tasks()] == [TITLE, "More"]
    assert not (tree / ".dugnad-answer.json").exists()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[1]", "one JSON object"),
        ('{"results": "x"}', "no key 'results'"),
        ('{"result": "x", "result": "y"}', "twice"),
        ('{"result": 7}', "'result' must be text"),
        ('{"result": "x", "failure": "y"}', "keep one of them"),
        ('{"result": "x", "outcome": "no word at all!", "follow_ups": [{"title": "t"}]}', "outcome"),
        ('{"result": "x", "follow_ups": [{"body": "no title"}]}', "title"),
        ('{"result": "x", "follow_ups": [{"title": "t", "priority": NaN}]}', "NaN"),
        ('{"result": "x", "follow_ups": {"title": "t"}}', "a list of objects"),
        ('{"result": "' + "x" * 300_000 + '"}', "KiB"),
        ('{"follow_ups": []}', "neither"),
    ],
)
async def test_an_answer_that_is_not_understood_goes_back_and_nothing_of_it_is_done(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path, answer: str, says: str
) -> None:
    script(tree, {"say": f"```dugnad\n{answer}\n```"}, {"say": "Now in words."})
    stage = await stage_of(board, sandbox, tree, stand_in(folder, "plain"))
    assert await stage.run() == Done("Now in words.")
    said = prompts(tree)[1]
    assert says in said or (says == "neither" and 'no "result"' in said)
    assert len(await board.list_tasks()) == 1


async def test_two_answers_in_a_row_that_make_no_sense_fail_the_attempt(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"say": ""})
    stage = await stage_of(board, sandbox, tree, stand_in(folder, "plain"))
    outcome = await stage.run()
    assert isinstance(outcome, Failed)
    assert outcome.retry
    assert "without a word" in outcome.reason
    assert len(asked(tree)) == 2


async def test_what_the_board_refuses_goes_back_before_the_task_ends(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"say": block(result="r", follow_ups=[{"title": "A"}, {"title": "B", "needs": ["77"]}])},
           {"say": block(result="r", follow_ups=[{"title": "A"}])})  # fmt: skip
    stage = await stage_of(board, sandbox, tree, stand_in(folder))
    assert await stage.run() == Done("r")
    assert "#77" in prompts(tree)[1]
    assert [task.title for task in await board.list_tasks()] == [TITLE, "A"]


async def test_a_question_waits_for_a_person_and_the_answer_begins_another_run(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"say": block(question="Red or blue?")}, {"say": "It is blue."})
    stage = await stage_of(board, sandbox, tree, stand_in(folder))
    assert await stage.run() == Waiting(on="human", question="Red or blue?")
    await requests.answer(board, "1", "Blue.")
    assert await stage.go_on() == Done("It is blue.")
    assert "Blue." in prompts(tree)[1]
    assert len(asked(tree)) == 2


async def test_a_failure_ends_the_task_for_everybody(board: Board, sandbox: Sandbox, tree: Path, folder: Path) -> None:
    script(tree, {"say": block(failure="There is no such thing.")})
    stage = await stage_of(board, sandbox, tree, stand_in(folder))
    assert await stage.run() == Failed("There is no such thing.")
    assert (await board.find(1)).state == "failed"


@pytest.mark.parametrize(
    ("name", "step", "says"),
    [
        ("claude", {"error": "error_during_execution", "errors": ["it fell over"]}, "it fell over"),
        ("claude", {"raw": "Segmentation fault", "code": 139}, "no result: Segmentation fault (exit code 139)"),
        ("claude", {"raw": '{"type": "result", "subtype": "succ'}, "no result"),
        ("claude", {"say": "fine", "code": 3}, "exit code 3"),
        ("codex", {"error": "stream disconnected before completion"}, "stream disconnected before completion"),
        ("codex", {"raw": '{"type":"thread.started","thread_id":"x"}\n'}, "ended before its turn did"),
        ("codex", {"raw": "\x00\xff garbage [[[["}, "ended before its turn did"),
        ("plain", {"say": "", "complain": "no such model", "code": 2}, "exit code 2: no such model"),
    ],
)
async def test_a_run_that_fails_is_a_failed_try_that_says_why(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path, name: str, step: dict[str, Any], says: str
) -> None:
    script(tree, step)
    stage = await stage_of(board, sandbox, tree, stand_in(folder, name))
    outcome = await stage.run()
    assert isinstance(outcome, Failed)
    assert outcome.retry
    assert says in outcome.reason
    assert len(asked(tree)) == 1


async def test_a_busy_provider_gives_the_task_back_for_later(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"say": "API Error: 529 Overloaded", "refused": True, "status": 529})
    stage = await stage_of(board, sandbox, tree, stand_in(folder))
    outcome = await stage.run()
    assert isinstance(outcome, Released)
    assert outcome.delay_seconds > 0
    assert "529" in outcome.why


@pytest.mark.parametrize(("most", "waits"), [(0.0, False), (1e6, False), (1e12, True)])
async def test_a_subscription_is_waited_for_until_it_has_more_if_that_was_asked_for(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path, most: float, waits: bool
) -> None:
    script(tree, {"say": "Claude AI usage limit reached|9999999999", "refused": True, "status": 429})
    stage = await stage_of(board, sandbox, tree, stand_in(folder))
    stage.agent.limits = AgentLimits(quota_seconds_max=most, give_back_seconds=7)
    outcome = await stage.run()
    assert isinstance(outcome, Released)
    assert (outcome.delay_seconds > 1e9, outcome.delay_seconds == 7) == (waits, not waits)


async def test_a_provider_that_does_not_know_us_is_for_a_person_and_the_next_try_runs_again(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"say": "Invalid API key · Please run /login", "refused": True, "status": 401}, {"say": "Done."})
    stage = await stage_of(board, sandbox, tree, stand_in(folder))
    claim = await stage.begin()
    with pytest.raises(ModelMisconfigured, match="Invalid API key"):
        await stage.agent.work(claim)
    await board.settle(claim, Released("it was refused", resume=True))
    assert await stage.go_on() == Done("Done.")


async def test_a_run_that_reached_its_own_limit_is_gone_on_with_until_the_budget_ends(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"error": "error_max_budget_usd", "cost": 0.40})
    stage = await stage_of(board, sandbox, tree, stand_in(folder, dollars_per_run=0.40))
    outcome = await stage.run(budget=Budget(dollars=1.0))
    assert isinstance(outcome, Waiting)
    assert outcome.on == "budget"
    caps = [run["argv"][-1] for run in asked(tree)]
    assert caps == ["0.400000", "0.400000", "0.200000"]
    assert "limit of dollars" in prompts(tree)[1]
    assert (await board.budget(1)).reserved == Amount()


async def test_too_many_runs_ask_a_person_who_may_let_it_go_on(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"error": "error_max_turns"}, {"error": "error_max_turns"}, {"say": "Done."})
    stage = await stage_of(board, sandbox, tree, stand_in(folder, runs_max=2))
    outcome = await stage.run()
    assert isinstance(outcome, Waiting)
    assert "was run 2 times" in outcome.question
    await requests.answer(board, "1", "Try the other door.")
    assert await stage.go_on() == Done("Done.")
    assert "Try the other door." in prompts(tree)[2]


async def test_a_cap_in_dollars_is_refused_for_a_command_that_does_not_say_what_it_costs(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    stage = await stage_of(board, sandbox, tree, stand_in(folder, "codex"))
    with pytest.raises(ModelMisconfigured, match="does not say what it costs"):
        await stage.run(budget=Budget(dollars=1.0))
    assert not asked(tree)


async def test_without_a_folder_or_a_sandbox_a_person_is_asked(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    stage = await stage_of(board, sandbox, None, stand_in(folder))
    outcome = await stage.run()
    assert isinstance(outcome, Waiting)
    assert "`dugnad doctor` says what is missing" in outcome.question
    script(tree, {"say": "Done."})
    await requests.answer(board, "1", "Now.")
    stage.agent.equip(tree=tree)  # type: ignore[attr-defined]
    assert await stage.go_on() == Done("Done.")


async def test_a_program_that_is_not_there_is_named(board: Board, sandbox: Sandbox, tree: Path) -> None:
    stage = await stage_of(board, sandbox, tree, ExternalCommand(name="command:nobody", run=("no-such-agent",)))
    with pytest.raises(ModelMisconfigured, match=r"'no-such-agent'.*\[commands\.nobody\]"):
        await stage.run()
    assert (await board.budget(1)).reserved == Amount()


async def test_a_teammate_with_a_plan_to_show_is_not_let_loose_before_a_person_agrees(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"say": "Done."})
    stage = await stage_of(board, sandbox, tree, stand_in(folder), plan=True)
    outcome = await stage.run()
    assert isinstance(outcome, Waiting)
    assert outcome.on == "plan"
    assert not asked(tree)
    await requests.decide_plan(board, "1", accept=True)
    assert await stage.go_on() == Done("Done.")


async def test_it_sees_its_own_variables_and_reaches_its_own_hosts_and_no_others(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOMEBODYS_KEY", "secret")
    script(tree, {"say": "Done."})
    stage = await stage_of(board, sandbox, tree, stand_in(folder, environment={"MY_KEY": "mine"}))
    await stage.run("A")
    stage.agent.command = stand_in(folder, hosts=("api.example.org",))  # type: ignore[attr-defined]
    await stage.run("B")
    without, reaching = (run["environment"] for run in asked(tree))
    assert without["MY_KEY"] == "mine"
    assert "SOMEBODYS_KEY" not in without
    assert "HTTPS_PROXY" not in without
    assert reaching["HTTPS_PROXY"].startswith("http://")


async def test_a_very_long_answer_is_recorded_in_short(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"say": "\x01" * 5_000_000 + block(result="short")})
    stage = await stage_of(board, sandbox, tree, stand_in(folder, "plain"))
    assert await stage.run() == Done("short")


async def test_messages_are_in_the_prompt_and_read_when_the_answer_is_recorded(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    script(tree, {"say": "Done."})
    stage = await stage_of(board, sandbox, tree, stand_in(folder))
    await board.tell(HUMAN, "alice", "Use tabs.")
    await stage.run()
    assert "<inbox>\nFrom the human:\n> Use tabs." in prompts(tree)[0]
    assert not await board.has_unread("alice")


async def test_it_uses_a_service_of_the_users_own_and_is_told_when_that_is_down(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path
) -> None:
    """The agent is curl, and what the server on this machine answers is its result."""
    async with ProviderServer([Answer(text="It is done.")]) as near:
        port = near.url.rpartition(":")[2]
        body = '{"model": "m", "messages": []}'
        run = ("curl", "-sS", "--fail-with-body", f"http://localhost:{port}/v1/chat/completions", "-d", body)
        command = ExternalCommand(name="command:mine", run=run, services=(f"localhost:{port}",))
        stage = await stage_of(board, sandbox, tree, command)
        outcome = await stage.run()
        assert isinstance(outcome, Done)
        assert "It is done." in outcome.result
    outcome = await stage.run("B")
    assert isinstance(outcome, Failed)
    assert f"(network: The service localhost:{port} does not answer; start it)" in outcome.reason
