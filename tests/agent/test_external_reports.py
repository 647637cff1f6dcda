"""What other agents print, read strictly: shapes, costs, errors, and garbage that must not be believed."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dugnad.agent.external.answer import own_words, protocol, read_answer
from dugnad.agent.external.command import ExternalCommand, Reads
from dugnad.agent.external.reports import read_report, resets_in
from dugnad.models.port import Usage
from dugnad.types import Amount, Spending
from dugnad.workspace.sandbox.sandbox import CommandResult


def ran(output: str | bytes, code: int = 0, *, timed_out: bool = False) -> CommandResult:
    raw = output if isinstance(output, bytes) else output.encode()
    return CommandResult(code=code, output=raw, timed_out=timed_out, shortened=False, seconds=1.0)


def claude(**fields: Any) -> str:
    return json.dumps({"type": "result", "subtype": "success", "is_error": False, "result": "Done.", **fields})


def test_the_result_of_claude_is_found_among_chatter_and_in_a_list() -> None:
    for output in (f"warning: old node\n{claude()}\n", f'[{{"type":"system"}},{claude()}]'):
        found = read_report("claude-json", ran(output))
        assert (found.ended, found.text) == ("well", "Done.")
        assert (found.microdollars, found.usage) == (None, None)


def test_all_input_of_claude_counts_cached_or_not() -> None:
    used = {"input_tokens": 1, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 4, "output_tokens": 8}
    found = read_report("claude-json", ran(claude(usage=used, total_cost_usd=0.0000011)))
    assert found.usage == Usage(input_tokens=7, output_tokens=8, cache_read_tokens=4, cache_write_tokens=2)
    assert found.microdollars == 2  # Rounded up.


@pytest.mark.parametrize("cost", [-1, "1", None, True, float("nan"), float("inf"), 1e300])
def test_a_cost_that_is_no_amount_is_not_believed(cost: Any) -> None:
    assert read_report("claude-json", ran(claude(total_cost_usd=cost))).microdollars is None


def test_a_reconnect_of_codex_is_not_its_end() -> None:
    events = [
        {"type": "thread.started", "thread_id": "t"}, {"type": "error", "message": "Reconnecting... 1/5"},
        {"type": "item.completed", "item": {"id": "i", "type": "agent_message", "text": "Done."}},
        {"type": "turn.completed", "usage": {"input_tokens": 9, "cached_input_tokens": 4, "output_tokens": 2}},
    ]  # fmt: skip
    found = read_report("codex-jsonl", ran("\n".join(map(json.dumps, events))))
    assert (found.ended, found.text, found.trouble) == ("well", "Done.", "")
    assert found.usage == Usage(input_tokens=9, output_tokens=2, cache_read_tokens=4)


@pytest.mark.parametrize(
    ("status", "ended"),
    [(401, "refused"), (403, "refused"), (429, "busy"), (529, "busy"), (400, "failed"), (500, "failed"),
     (None, "failed"), ("401", "failed"), (True, "failed"), ([401], "failed")],
)  # fmt: skip
def test_troubles_are_told_apart_by_the_status_that_is_reported(status: Any, ended: str) -> None:
    result = claude(is_error=True, api_error_status=status, result="API Error")
    assert read_report("claude-json", ran(result, 1)).ended == ended
    event = {"type": "turn.failed", "error": {"message": "stream error", "httpStatusCode": status}}
    assert read_report("codex-jsonl", ran(json.dumps(event), 1)).ended == ended


@pytest.mark.parametrize(
    ("message", "ended"),
    [("unexpected status 401 Unauthorized: wrong key, url: http://localhost/v1/responses", "refused"),
     ("exceeded retry limit, last status: 429 Too Many Requests, request id: r1", "busy"),
     ("unexpected status 500 Internal Server Error: oh", "failed"),
     ("it said: unexpected status 401 Unauthorized", "failed")],
)  # fmt: skip
def test_codex_reports_a_status_at_the_beginning_of_its_error(message: str, ended: str) -> None:
    events = [{"type": "error", "message": f"Reconnecting... 1/5 ({message})"},
              {"type": "turn.failed", "error": {"message": message}}]  # fmt: skip
    assert read_report("codex-jsonl", ran("\n".join(map(json.dumps, events)), 1)).ended == ended


def opencode_step(reason: str = "stop", cost: Any = 0.25, **tokens: Any) -> dict[str, Any]:
    counts = {"input": 10, "output": 2, "reasoning": 1, "cache": {"read": 4, "write": 3}, **tokens}
    return {"type": "step_finish", "part": {"reason": reason, "tokens": counts, "cost": cost}}


def opencode(*events: dict[str, Any]) -> str:
    said = {"type": "text", "part": {"messageID": "m2", "text": "Done."}}
    return "\n".join(map(json.dumps, [{"type": "text", "part": {"messageID": "m1", "text": "First."}}, said, *events]))


def test_all_steps_of_opencode_count_and_its_last_message_is_the_result() -> None:
    found = read_report("opencode-jsonl", ran(opencode(opencode_step("tool-calls"), opencode_step())))
    assert (found.ended, found.text, found.microdollars) == ("well", "Done.", 500_000)
    assert found.usage == Usage(input_tokens=34, output_tokens=6, cache_read_tokens=8, cache_write_tokens=6)


def test_opencode_without_a_price_does_not_say_what_it_cost() -> None:
    assert read_report("opencode-jsonl", ran(opencode(opencode_step(cost=0)))).microdollars is None


@pytest.mark.parametrize(
    ("event", "code", "ended"),
    [({"type": "error", "error": {"name": "APIError", "data": {"message": "no", "statusCode": 401}}}, 1, "refused"),
     ({"type": "error", "error": {"name": "APIError", "data": {"message": "no", "statusCode": 429}}}, 1, "busy"),
     ({"type": "error", "error": {"name": "UnknownError"}}, 1, "failed"),
     ({"type": "error", "error": "no"}, 1, "failed"),
     (opencode_step("length"), 0, "cut"), (opencode_step("tool-calls"), 0, "failed"), (opencode_step(), 1, "failed")],
)  # fmt: skip
def test_how_a_run_of_opencode_ended_is_told_by_its_last_event(event: dict[str, Any], code: int, ended: str) -> None:
    found = read_report("opencode-jsonl", ran(opencode(event), code))
    assert found.ended == ended
    assert found.trouble


@pytest.mark.parametrize(
    "said",
    ["I fixed the authentication, but a test is red", "401 Unauthorized", "invalid api key; please run /login",
     "credit balance", "insufficient_quota", "rate limit", "529 Overloaded", "usage limit reached"],
)  # fmt: skip
def test_what_a_failed_agent_says_decides_nothing(said: str) -> None:
    error = {"type": "turn.failed", "error": {"message": said}}
    for found in (
        read_report("text", ran(said, 1)),
        read_report("codex-jsonl", ran(json.dumps(error), 1)),
        read_report("claude-json", ran(said, 1)),
        read_report("claude-json", ran(claude(is_error=True, result=said), 1)),
        read_report("claude-json", ran(claude(subtype="error_during_execution", is_error=True, errors=[said]), 1)),
    ):
        assert found.ended == "failed"
        assert said in found.trouble


def test_a_subscription_says_when_it_has_more_and_only_the_status_makes_that_count() -> None:
    said = "Claude AI usage limit reached|1800003600"
    at = 1_800_000_000_000
    busy = read_report("claude-json", ran(claude(is_error=True, api_error_status=429, result=said), 1))
    assert (busy.ended, resets_in(busy, at), resets_in(busy, at + 9_000_000)) == ("busy", 3_600.0, 1.0)
    assert resets_in(read_report("claude-json", ran(claude(is_error=True, result=said), 1)), at) is None
    assert resets_in(read_report("claude-json", ran(claude(is_error=True, api_error_status=429), 1)), at) is None


def test_words_of_a_result_that_went_well_are_no_trouble() -> None:
    said = "I fixed the 401 Unauthorized and the rate limit."
    assert read_report("claude-json", ran(claude(result=said))).ended == "well"
    assert read_report("text", ran(said)).ended == "well"


@given(st.sampled_from(get_args(Reads)), st.binary(max_size=400), st.integers(0, 255), st.booleans())
def test_no_output_whatever_breaks_the_reader(reads: Any, output: bytes, code: int, timed_out: bool) -> None:
    found = read_report(reads, ran(output, code, timed_out=timed_out))
    if timed_out:
        assert found.ended == "late"
    elif code or reads != "text":
        assert found.ended != "well" or b"type" in output


@given(st.text(max_size=300) | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(str))
def test_no_text_whatever_breaks_the_answer(text: str) -> None:
    for said in (text, f"```dugnad\n{text}\n```", f"x\n```dugnad\n{{{text}}}\n```"):
        answer = read_answer(said)
        assert bool(answer.wrong) != bool(answer.result or answer.question or answer.failure)


def test_the_example_that_agents_are_shown_is_understood() -> None:
    example = protocol("abc", file=True).partition("```dugnad")[2].partition("```")[0]
    answer = read_answer(own_words(f"Text.\n```dugnad{example}```\n", "abc"))
    assert (answer.wrong, answer.outcome) == ("", "approved")


def test_a_block_that_is_not_the_last_word_is_not_guessed_at() -> None:
    assert "the last thing you say" in read_answer('```dugnad\n{"result": "x"}\n```\nBye.').wrong


def test_the_text_before_the_block_is_the_result_where_it_names_none() -> None:
    answer = read_answer('All is well.\n\n```dugnad\n{"outcome": "approved"}\n```')
    assert (answer.result, answer.outcome) == ("All is well.", "approved")


def spending(**fields: Any) -> Spending:
    caps: dict[str, Any] = {"tasks_max": None, "tokens_max": None, "microdollars_max": None, "milliseconds_max": None}
    return Spending(root=1, runs=0, tasks=1, held=None, **{**caps, "spent": Amount(), "reserved": Amount(), **fields})


def test_a_run_takes_what_was_set_and_no_more_than_is_left() -> None:
    command = ExternalCommand(name="command:x", run=("x",), seconds=100.0)
    assert command.at_most(spending()) == Amount(milliseconds=100_000)
    capped = spending(tokens_max=50_000, microdollars_max=9_000_000, milliseconds_max=60_000)
    assert command.at_most(capped) == Amount(tokens=50_000, microdollars=5_000_000, milliseconds=60_000)
    used = spending(microdollars_max=9_000_000, spent=Amount(microdollars=8_000_000))
    assert command.at_most(used).microdollars == 1_000_000
    held = spending(microdollars_max=9_000_000, reserved=Amount(microdollars=8_900_000))
    assert command.at_most(held).microdollars == 1_250_000  # Others will give some back.


def test_its_own_cap_is_passed_only_where_there_is_one() -> None:
    command = ExternalCommand(name="command:x", run=("x", "it's"), dollars_option="--cap")
    amount = Amount(microdollars=250_000)
    assert "--cap" not in command.line(amount, spending())
    assert "x 'it'\"'\"'s' --cap 0.250000" in command.line(amount, spending(microdollars_max=1))
