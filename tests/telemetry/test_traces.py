"""One trace for each line of attempts, as a collector gets it from a real host, over HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from dugnad.board import Board
from dugnad.errors import AnswerLost, RequestRejected
from dugnad.models import ScriptedModel
from dugnad.models.port import Usage
from dugnad.models.scripted import Step
from dugnad.team.workspaces.workspace import Workshop, shared
from dugnad.telemetry import exporting as exporting_module
from dugnad.telemetry.exporting import exporting
from dugnad.telemetry.traces import span_id, trace_id
from dugnad.workspace.sandbox.sandbox import Sandbox
from tests.agent.standin import script, stand_in
from tests.conftest import Opener
from tests.team.stage_team import Paused, Raising, hosting, kill, short_lease, until_ended, until_state
from tests.team.stage_trees import finish, shell, worktrees, write
from tests.team.test_external_host import minds
from tests.telemetry.collector import Collector, collecting
from tests.workspace.repository import new_repository


def usages(collector: Collector) -> set[str]:
    """The names of the spans that carry usage."""
    return {each.name for each in collector.spans if any(name.startswith("gen_ai.usage") for name in each.told)}


async def test_a_task_is_one_trace_with_its_calls_tools_checks_and_merges(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, own = new_repository(tmp_path / "p"), await board.identity()
    await board.spawn("alice", roles=["coder"])
    used = Usage(input_tokens=900, output_tokens=30, cache_read_tokens=500)
    say = Step(calls=(("write_file", {"path": "a.py", "text": "a = 1\n"}),), usage=used)
    model = ScriptedModel({"Write a": [say, finish("red"), write("a.py", "a = 2\n"), finish()]})
    with collecting(monkeypatch) as collector:
        async with (
            exporting(board) as told,
            worktrees(board, root) as places,
            hosting(board, model, workspaces=places),
        ):
            assert told == f"Telemetry: traces and metrics go to {collector.url}."
            (done,) = await until_ended(board, await board.put("Write a", check="grep -q 'a = 2' a.py", role="coder"))
        (attempt,) = collector.of("invoke_agent")
        assert done.state == "done"
        assert int.from_bytes(attempt.trace) == trace_id(own, done.id, 1)
        assert (int.from_bytes(attempt.id), attempt.parent) == (span_id(own, done.id, 1), b"")
        assert attempt.name == attempt.told["gen_ai.operation.name"] + " alice"
        assert attempt.told["dugnad.attempt.outcome"] == "done"
        assert attempt.told["gen_ai.conversation.id"] == f"{own[:8]}.{done.id}"
        assert {each.trace for each in collector.spans} == {attempt.trace}
        assert len({each.id for each in collector.spans}) == len(collector.spans)
        inside = [each.name for each in collector.spans if each.parent == attempt.id]
        assert inside.count("chat scripted") == 4
        assert inside.count("execute_tool write_file") == inside.count("execute_tool finish") == 2
        assert (inside.count("check"), inside.count("merge")) == (2, 1)
        assert [each.failed for each in collector.of("check")] == [True, False]
        assert collector.of("merge")[0].told["dugnad.merge.as"] == "Merged"
        first = collector.of("chat")[0]
        assert first.told["gen_ai.usage.input_tokens"] == 900
        assert first.told["gen_ai.usage.output_tokens"] == 30
        assert first.told["gen_ai.usage.cache_read.input_tokens"] == 500
        assert first.told["gen_ai.response.finish_reasons"] == ["tool_calls"]
        assert first.kind == 3  # CLIENT
        assert usages(collector) == {"chat scripted"}
        assert all(each.nanoseconds >= 0 for each in collector.spans)
        assert collector.resources[0]["service.name"] == "dugnad"
        assert collector.resources[0]["dugnad.board"] == own[:8]


async def test_what_goes_on_after_a_lost_host_goes_on_in_the_same_trace(
    opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = await opener(**short_lease())
    await board.spawn("alice")
    task = await board.put("Think")
    paused = Paused({"Think": [finish("Never said.")]})
    with collecting(monkeypatch) as collector:
        async with exporting(board), hosting(board, paused) as first:
            await paused.reached.wait()
            await kill(first)
            async with hosting(board, ScriptedModel({"Think": [finish()]})):
                await until_ended(board, task)
        own = await board.identity()
        root, resumed = sorted(collector.of("invoke_agent"), key=lambda each: bool(each.parent))
        assert resumed.trace == root.trace == trace_id(own, task.id, 1).to_bytes(16)
        assert resumed.parent == root.id != resumed.id
        assert (root.trace, root.id, "earlier attempt") in resumed.links
        calls = [each for each in collector.of("chat") if each.parent == resumed.id]
        assert [each.failed for each in calls] == [False]
        assert len({each.id for each in collector.spans}) == len(collector.spans)


async def test_another_try_is_another_trace_that_names_the_first(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    await board.spawn("alice")
    task = await board.put("Try")
    model = Raising(RequestRejected("It rains."), times=1, then=ScriptedModel({"Try": [finish()]}))
    with collecting(monkeypatch) as collector:
        async with exporting(board), hosting(board, model):
            (done,) = await until_ended(board, task)
        assert done.state == "done"
        first, second = sorted(collector.of("invoke_agent"), key=lambda each: each.told["dugnad.attempt.epoch"])
        assert first.trace != second.trace
        assert second.links == [(first.trace, first.id, "earlier attempt")]
        assert (first.failed, first.told["error.type"], second.failed) == (True, "failed", False)


async def test_a_task_is_linked_to_the_attempts_that_ended_what_it_needs(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    await board.spawn("alice")
    one, two = await board.put("one"), await board.put("two")
    last = await board.put("last", needs=[one.id, two.id])
    with collecting(monkeypatch) as collector:
        async with exporting(board), hosting(board, ScriptedModel(lambda request: finish())):
            await until_ended(board, last)
        spans = {each.told["dugnad.task.id"]: each for each in collector.of("invoke_agent")}
        wanted = {(spans[each.id].trace, spans[each.id].id, "need") for each in (one, two)}
        assert set(spans[last.id].links) == wanted


async def test_a_call_without_an_answer_is_a_span_of_its_own(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    await board.spawn("alice")
    model = Raising(AnswerLost("The line broke."), times=1, then=ScriptedModel({"Ask": [finish()]}))
    with collecting(monkeypatch) as collector:
        async with exporting(board), hosting(board, model):
            await until_ended(board, await board.put("Ask"))
        assert [(each.failed, each.told.get("error.type")) for each in collector.of("chat")] == [
            (True, "AnswerLost"), (False, None),
        ]  # fmt: skip
        assert "The line broke" not in collector.everything()


SAID = ("TITLE-of-the-task", "BODY-of-the-task", "WORDS-of-the-model", "ARGUMENT-of-a-call", "RESULT-of-a-call")


async def work_with_words(board: Board, root: Path) -> None:
    words = Step(say=SAID[2], calls=(("bash", {"command": f"echo {SAID[3]} && echo RESULT-$(echo of-a-call)"}),))
    model = ScriptedModel({SAID[0]: [words, finish(SAID[2])]})
    async with exporting(board), worktrees(board, root) as places, hosting(board, model, workspaces=places):
        await until_ended(board, await board.put(SAID[0], body=SAID[1]))


async def test_nothing_that_anybody_says_is_sent_unless_that_is_asked_for(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await board.spawn("alice")
    with collecting(monkeypatch) as collector:
        await work_with_words(board, new_repository(tmp_path / "p"))
        assert len(collector.of("chat")) == 2
        assert [each for each in SAID if each in collector.everything()] == []
    capture = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
    with collecting(monkeypatch, **capture) as collector:
        await work_with_words(board, new_repository(tmp_path / "q"))
        assert [each for each in SAID if each not in collector.everything()] == []
        said = [json.loads(each.told["gen_ai.input.messages"]) for each in collector.of("chat")]
        assert [part["role"] for part in said[1]] == ["user", "assistant", "tool"]


async def test_no_secret_is_sent_even_with_all_that_was_said(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "Xenv-4711-key")
    await board.spawn("alice")
    command = 'echo Xenv-4711-key; echo "x-api-key: X4711secret"; env'
    model = ScriptedModel({"Print": [shell(command), finish("Xenv-4711-key Xhead-4711-key")]})
    environment = {
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20Xhead-4711-key",
    }
    with collecting(monkeypatch, **environment) as collector:
        root = new_repository(tmp_path / "p")
        async with exporting(board), worktrees(board, root) as places, hosting(board, model, workspaces=places):
            await until_ended(board, await board.put("Print"))
        assert collector.headers[0]["authorization"] == "Bearer Xhead-4711-key"  # The collector is asked by its key.
        (printed,) = collector.of("execute_tool bash")
        assert "[OPENAI_API_KEY]" in printed.told["gen_ai.tool.call.result"]
        assert "OTEL_" not in printed.told["gen_ai.tool.call.result"]  # Nothing of it is seen in the sandbox.
        assert "4711" not in collector.everything()


async def test_a_sampled_trace_is_sent_whole_or_not_at_all(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    await board.spawn("alice")
    ratio = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"}
    with collecting(monkeypatch, **ratio) as collector:
        async with exporting(board), hosting(board, ScriptedModel(lambda request: finish())):
            await until_ended(board, *[await board.put(f"task {each}") for each in range(20)])
        traces = {
            each.trace: {other.name for other in collector.spans if other.trace == each.trace}
            for each in collector.spans
        }
        assert 0 < len(traces) < 20
        assert {frozenset(names) for names in traces.values()} == {
            frozenset({"invoke_agent alice", "chat scripted", "execute_tool finish"})
        }


async def test_a_collector_that_is_away_slow_or_broken_changes_nothing(
    board: Board, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    await board.spawn("alice")
    monkeypatch.setattr(exporting_module, "_FLUSH_SECONDS", 0.2)

    async def work() -> str:
        async with exporting(board), hosting(board, ScriptedModel(lambda request: finish())):
            (done,) = await until_ended(board, await board.put("task"))
        return done.state

    with collecting(monkeypatch, OTEL_BSP_SCHEDULE_DELAY="10") as collector:
        collector.status = 400
        assert await work() == "done"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    assert await work() == "done"
    with collecting(monkeypatch, answers=False, OTEL_BSP_SCHEDULE_DELAY="10") as collector:
        assert await work() == "done"  # It ends while the collector still holds what it was sent.
        assert collector.asked.is_set()
        assert collector.spans == []
    assert capfd.readouterr().err == ""


async def test_a_bug_of_telemetry_is_no_bug_of_the_work(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    from dugnad.telemetry import traces

    def broken(*given: object, **named: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(traces, "attributes", broken)
    monkeypatch.setattr(traces, "born", broken)
    await board.spawn("alice")
    with collecting(monkeypatch) as collector:
        async with exporting(board), hosting(board, ScriptedModel(lambda request: finish())):
            (done,) = await until_ended(board, await board.put("task"))
        assert (done.state, collector.spans) == ("done", [])


async def test_what_is_stopped_in_the_middle_of_a_call_is_sent_too(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    await board.spawn("alice")
    task = await board.put("Think")
    paused = Paused(lambda request: finish())
    with collecting(monkeypatch) as collector:
        async with exporting(board), hosting(board, paused, limits={"stop_seconds": 0.1}):
            await asyncio.wait_for(paused.reached.wait(), 120)
        await until_state(board, task, "ready")
        (chat,), (attempt,) = collector.of("chat"), collector.of("invoke_agent")
        assert (chat.told["error.type"], attempt.told["error.type"]) == ("CancelledError", "CancelledError")
        assert chat.parent == attempt.id


async def test_a_run_of_another_agent_is_a_span_with_its_usage_and_its_checks_beside_it(
    board: Board, sandbox: Sandbox, tree: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await board.spawn("alice")
    script(tree, {"say": "I think so."}, {"say": "Now it is.", "write": {"out.txt": "built"}})
    places = shared(Workshop(board=board, sandbox=sandbox, outputs=tree.parent / "outputs"), tree)
    mind = minds(board, sandbox, tree, stand_in(folder))
    with collecting(monkeypatch) as collector:
        async with exporting(board), hosting(board, None, mind=mind, workspaces=places):
            await until_ended(board, await board.put("Build", check="cat out.txt"))
        (attempt,) = collector.of("invoke_agent alice")
        runs = collector.of("invoke_agent command:")
        assert [each.parent for each in runs] == [attempt.id, attempt.id]
        assert [each.told["dugnad.run.ended"] for each in runs] == ["well", "well"]
        assert [each.failed for each in collector.of("check")] == [True, False]
        assert usages(collector) == {"invoke_agent command:claude"}


async def test_a_board_that_goes_away_at_the_end_keeps_a_host_for_a_bounded_time(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    await board.spawn("alice")
    never = asyncio.Event()
    monkeypatch.setattr(exporting_module, "_FLUSH_SECONDS", 0.2)
    with collecting(monkeypatch) as collector:
        async with exporting(board):
            async with hosting(board, ScriptedModel(lambda request: finish())):
                await until_ended(board, await board.put("task"))

            async def hangs(*given: object) -> None:
                await never.wait()

            monkeypatch.setattr(board, "health", hangs)
            monkeypatch.setattr(board, "needs_of", hangs)
        assert {each.name for each in collector.spans} >= {"chat scripted", "execute_tool finish"}


def test_ids_are_derived_and_differ() -> None:
    assert trace_id("board", 1, 1) == trace_id("board", 1, 1)
    made = {trace_id(board, task, born) for board in ("a", "b") for task in (1, 11) for born in (1, 11)}
    assert len(made) == 8
    assert (
        len({span_id("a", task, epoch, place) for task in (1, 11) for epoch in (1, 11) for place in (0, 1, 11)}) == 12
    )
    assert trace_id("a", 1, 1) < 2**128
    assert span_id("a", 1, 1) < 2**64
