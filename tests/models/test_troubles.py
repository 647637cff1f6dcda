"""Everything that goes wrong at a provider has one name, whatever the protocol, and is told in one sentence."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from dugnad.errors import (
    AnswerLost,
    ContextOverflow,
    ModelMisconfigured,
    ModelTrouble,
    ModelUnavailable,
    QuotaSpent,
    RateLimited,
    RequestRejected,
)
from dugnad.models import open_model
from dugnad.models.port import Said
from tests.models.asking import ALL, ANTHROPIC, CHAT, DIRECT, LOCAL, RESPONSES, answer_of, asking, opened, provider
from tests.models.provider_server import Answer, Fault, ProviderServer, Seen

HTML = Fault(status=502, headers={"content-type": "text/html"}, body=b"<html><h1>502 Bad Gateway</h1></html>")
NO_CREDIT = (
    b'{"error":{"message":"You exceeded your current quota.","type":"insufficient_quota","code":"insufficient_quota"}}'
)
EMPTY_PURSE = (
    b'{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to go on."}}'
)
TROUBLES: dict[str, tuple[Fault, type[ModelTrouble]]] = {
    "400": (Fault(status=400), RequestRejected),
    "401": (Fault(status=401), ModelMisconfigured),
    "402": (Fault(status=402), QuotaSpent),
    "403": (Fault(status=403), ModelMisconfigured),
    "404": (Fault(status=404), ModelMisconfigured),
    "413": (Fault(status=413), ContextOverflow),
    "422": (Fault(status=422), RequestRejected),
    "429": (Fault(status=429), RateLimited),
    "500": (Fault(status=500), ModelUnavailable),
    "502": (Fault(status=502), ModelUnavailable),
    "html": (HTML, ModelUnavailable),
    "503": (Fault(status=503), ModelUnavailable),
    "504": (Fault(status=504), ModelUnavailable),
    "529": (Fault(status=529), RateLimited),
    "overflow": (Fault(overflow=True), ContextOverflow),
    "in stream": (Fault(error_in_stream=True), RateLimited),
    "no status line": (Fault(cut_after_bytes=0), AnswerLost),
    "cut": (Fault(cut_after_bytes=150), AnswerLost),
    "cut cleanly": (Fault(cut_after_bytes=150, cut_cleanly=True), AnswerLost),
    "hung up": (Fault(hang_seconds=0.01), AnswerLost),
}


def each_trouble() -> list[Any]:
    made = []
    for name in ALL:
        for kind in TROUBLES:
            made.append(pytest.param(name, kind, id=f"{name.partition(':')[0]}-{kind}"))
    return made


@pytest.mark.parametrize(("name", "kind"), each_trouble())
async def test_every_fault_has_its_name_and_is_met_once(name: str, kind: str) -> None:
    fault, expected = TROUBLES[kind]
    async with provider(name, [fault, Answer(text="Again.")]) as (model, server):
        with pytest.raises(ModelTrouble) as met:
            await model.ask(asking())
        assert type(met.value) is expected, met.value
        assert len(server.seen) == 1  # Nobody below tries again on its own.
        assert (await model.ask(asking())).text == "Again."


async def told(name: str, fault: Fault) -> str:
    with pytest.raises(ModelTrouble) as met:
        await answer_of(name, fault)
    return str(met.value)


@pytest.mark.parametrize("kind", ["400", "401", "402", "404", "413", "429", "500", "503", "529", "overflow"])
@pytest.mark.parametrize("name", DIRECT)
async def test_a_trouble_says_which_model_and_what_the_provider_said(name: str, kind: str) -> None:
    said = await told(name, TROUBLES[kind][0])
    assert said.startswith(f"{name}: ")
    assert said.endswith(".")
    assert "\n" not in said
    assert "{" not in said


@pytest.mark.parametrize("name", DIRECT)
async def test_a_page_of_html_is_told_without_the_librarys_words(name: str) -> None:
    said = await told(name, HTML)
    assert "502" in said
    assert "model_name" not in said


@pytest.mark.parametrize("name", DIRECT)
async def test_an_answer_that_broke_off_is_told_in_a_sentence_with_the_models_name(name: str) -> None:
    said = await told(name, Fault(cut_after_bytes=150, cut_cleanly=True))
    assert name in said
    assert not said.endswith(": .")


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("status", [429, 529])
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [({}, None), ({"retry-after": "7"}, 7.0), ({"retry-after-ms": "1500"}, 1.5), ({"retry-after": "soon"}, None)],
)
async def test_how_long_the_provider_wants_us_to_wait_is_kept(
    name: str, status: int, headers: dict[str, str], seconds: float | None
) -> None:
    with pytest.raises(RateLimited) as met:
        await answer_of(name, Fault(status=status, headers=headers))
    assert met.value.seconds == seconds


@pytest.mark.parametrize("name", ALL)
async def test_a_date_to_wait_for_becomes_seconds(name: str) -> None:
    async def waits(date: str) -> float | None:
        with pytest.raises(RateLimited) as met:
            await answer_of(name, Fault(status=429, headers={"retry-after": date}))
        return met.value.seconds

    assert await waits("Sat, 01 Jan 2000 00:00:00 GMT") == 0.0
    assert (await waits("Fri, 31 Dec 2100 23:59:59 GMT") or 0) > 1_000_000


@pytest.mark.parametrize("name", [CHAT, RESPONSES, LOCAL])
async def test_a_spent_quota_is_for_a_person_to_mend(name: str) -> None:
    with pytest.raises(ModelMisconfigured, match="no credit left"):
        await answer_of(name, Fault(status=429, body=NO_CREDIT))


@pytest.mark.parametrize("name", [CHAT, RESPONSES, LOCAL])
async def test_a_spent_quota_says_when_it_is_reset_if_the_provider_does(name: str) -> None:
    with pytest.raises(QuotaSpent, match="There is more again in 2h; start again then") as met:
        await answer_of(name, Fault(status=429, body=NO_CREDIT, headers={"retry-after": "7200"}))
    assert met.value.seconds == 7_200


async def test_a_subscription_says_when_it_is_reset_as_a_time() -> None:
    headers = {"anthropic-ratelimit-unified-reset": "4102444800"}
    with pytest.raises(QuotaSpent) as met:
        await answer_of(ANTHROPIC, Fault(status=400, body=EMPTY_PURSE, headers=headers))
    assert (met.value.seconds or 0) > 1_000_000


async def test_an_empty_purse_at_anthropic_is_for_a_person_to_mend() -> None:
    with pytest.raises(ModelMisconfigured, match="no credit left"):
        await answer_of(ANTHROPIC, Fault(status=400, body=EMPTY_PURSE))


@pytest.mark.parametrize("name", DIRECT)
async def test_the_status_counts_also_when_an_error_is_called_a_stream(name: str) -> None:
    headers = {"content-type": "text/event-stream", "retry-after": "3"}
    with pytest.raises(RateLimited) as met:
        await answer_of(name, Fault(status=429, headers=headers))
    assert met.value.seconds == 3.0


@pytest.mark.parametrize("body", [b"{}", b"null", b"[]", b"", b"hello", b'"text"', b'{"choices":[]}', b"\xff\xfe"])
@pytest.mark.parametrize("name", DIRECT)
async def test_an_answer_that_is_none_is_lost(name: str, body: bytes) -> None:
    with pytest.raises(AnswerLost, match=f"^{name}"):
        await answer_of(name, Fault(status=200, body=body))


@pytest.mark.parametrize("name", DIRECT)
async def test_an_error_that_comes_with_200_is_no_answer(name: str) -> None:
    body = b'{"error":{"message":"Odd trouble.","type":"server_error","code":"odd"}}'
    with pytest.raises((AnswerLost, ModelUnavailable)):
        await answer_of(name, Fault(status=200, body=body))


SLOW = {"silence": Fault(hang_seconds=60), "a slow stream": Answer(text="Slow " * 400, gap_seconds=60.0)}


@pytest.mark.parametrize("kind", SLOW)
@pytest.mark.parametrize("name", ALL)
async def test_no_answer_in_time_is_an_answer_lost(name: str, kind: str) -> None:
    def script(seen: Seen) -> Answer | Fault:
        return SLOW[kind] if b"Take your time." in seen.body else Answer(text="Again.")

    async with provider(name, script) as (model, _):
        with pytest.raises(AnswerLost, match=r"did not answer within 0\.2 seconds"):
            await model.ask(asking(Said("Take your time."), seconds_max=0.2))
        assert (await model.ask(asking())).text == "Again."


@pytest.mark.parametrize("name", ALL)
async def test_a_server_that_is_not_there_is_unavailable(name: str) -> None:
    with socket.socket() as taken:  # Bound, and nobody listens: refused, and nobody else can take it.
        taken.bind(("127.0.0.1", 0))
        server = ProviderServer([Answer(text="")])
        server.url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        model = opened(name, server)
        with pytest.raises(ModelUnavailable):
            await model.ask(asking())
        await model.close()


@pytest.mark.parametrize("address", ["127.0.0.1:11434/v1", "ftp://127.0.0.1/v1", "http://127.0.0.1:99999/v1", "no url"])
async def test_an_address_that_is_none_is_for_a_person_to_mend(address: str) -> None:
    async def ask() -> None:
        await open_model(LOCAL, base_url=address).ask(asking())

    with pytest.raises(ModelMisconfigured):
        await ask()


@pytest.mark.parametrize("name", ALL)
async def test_a_refusal_is_told_as_one_with_its_text(name: str) -> None:
    reply = await answer_of(name, Answer(text="I will not.", stop="refusal"))
    assert (reply.stop, reply.text) == ("refused", "I will not.")


@pytest.mark.parametrize("name", ALL)
async def test_a_reply_that_was_cut_off_says_so(name: str) -> None:
    reply = await answer_of(name, Answer(text="And then", stop="length"))
    assert (reply.stop, reply.text) == ("length", "And then")


@pytest.mark.parametrize("name", ALL)
async def test_nothing_said_is_an_empty_reply_with_its_counts(name: str) -> None:
    reply = await answer_of(name, Answer(empty=True))
    assert (reply.stop, reply.text, reply.calls, reply.usage.tokens) == ("end", "", (), 120)


@pytest.mark.parametrize("name", DIRECT)
@pytest.mark.parametrize("written", ['{"text": "half', "not json", '{"a":1}}', "{'a': 1}"])
async def test_malformed_arguments_are_kept_as_they_were_written(name: str, written: str) -> None:
    reply = await answer_of(name, Answer(calls=(("note", "{}", None),), raw_arguments=written))
    assert [call.arguments for call in reply.calls] == [written]
    assert reply.stop == "tools"


@pytest.mark.parametrize("name", ALL)
async def test_a_cancelled_ask_closes_its_connection_and_leaves_the_model_usable(name: str) -> None:
    arrived = asyncio.Event()

    def script(_: Any) -> Answer:
        if arrived.is_set():
            return Answer(text="Again.")
        arrived.set()
        return Answer(text="Never heard.", delay_seconds=60.0)

    async with provider(name, script) as (model, server):
        asked = asyncio.create_task(model.ask(asking()))
        await arrived.wait()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        async with asyncio.timeout(120):
            await server.emptied.wait()
        assert (await model.ask(asking())).text == "Again."
