"""Who gets to see a key, and whose rate limit a model shares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dugnad.models.providers import open_provider
from tests.models.asking import (
    ALL,
    ANTHROPIC,
    CHAT,
    DIRECT,
    GOOGLE,
    KEY,
    LOCAL,
    RESPONSES,
    address,
    asking,
    opened,
    provider,
)
from tests.models.provider_server import Answer, Fault, ProviderServer

HELLO = Answer(text="Hello.")
SECRETS = {
    "ANTHROPIC_API_KEY": "secret-anthropic", "ANTHROPIC_AUTH_TOKEN": "secret-token", "OPENAI_API_KEY": "secret-openai",
    "GOOGLE_API_KEY": "secret-google", "GEMINI_API_KEY": "secret-gemini", "OPENAI_ADMIN_KEY": "secret-admin",
}  # fmt: skip


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine on which every provider's key is set."""
    for variable, secret in SECRETS.items():
        monkeypatch.setenv(variable, secret)
    return monkeypatch


def key_in(headers: Any) -> set[str]:
    return {value.removeprefix("Bearer ") for value in headers.values() if KEY in value or "secret-" in value}


async def asked_without_a_key(name: str) -> set[str]:
    async with ProviderServer([HELLO]) as server:
        model = opened(name, server, api_key=None)
        await model.ask(asking())
        await model.close()
        return key_in(server.seen[0].headers)


@pytest.mark.parametrize("name", ALL)
async def test_a_given_key_is_the_only_one_that_is_sent(name: str, environment: pytest.MonkeyPatch) -> None:
    async with provider(name, [HELLO]) as (model, server):
        await model.ask(asking())
    assert key_in(server.seen[0].headers) == {KEY}
    assert "secret" not in server.seen[0].path


async def test_the_key_of_openai_is_not_for_anothers_server(environment: pytest.MonkeyPatch) -> None:
    assert await asked_without_a_key(LOCAL) == set()


@pytest.mark.parametrize(
    ("name", "secret"), [(ANTHROPIC, "secret-anthropic"), (CHAT, "secret-openai"), (RESPONSES, "secret-openai")]
)
async def test_a_key_from_the_environment_goes_to_its_own_provider(
    name: str, secret: str, environment: pytest.MonkeyPatch
) -> None:
    environment.delenv("ANTHROPIC_AUTH_TOKEN")
    assert await asked_without_a_key(name) == {secret}


async def test_a_google_key_from_the_environment_goes_to_google(environment: pytest.MonkeyPatch) -> None:
    environment.delenv("GEMINI_API_KEY")
    assert await asked_without_a_key(GOOGLE) == {"secret-google"}


async def test_the_names_of_an_organisation_are_not_for_anothers_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-ours")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-of-ours")
    async with provider(LOCAL, [HELLO]) as (model, server):
        await model.ask(asking())
    assert "of-ours" not in str(server.seen[0].headers)


@pytest.mark.parametrize("name", DIRECT)
async def test_a_key_does_not_follow_a_redirect_to_another_server(name: str) -> None:
    async with ProviderServer([HELLO]) as other:
        moved = Fault(status=307, headers={"location": f"{other.url}/v1/chat/completions"}, body=b"")
        async with provider(name, [moved]) as (model, _):
            try:
                await model.ask(asking())
            except Exception:  # What comes of it is another matter.
                pass
        assert all(not key_in(seen.headers) for seen in other.seen)


@pytest.mark.parametrize("name", DIRECT)
async def test_a_netrc_file_does_not_take_the_keys_place(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password elses\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    async with provider(name, [HELLO]) as (model, server):
        await model.ask(asking())
    assert key_in(server.seen[0].headers) == {KEY}


def label(name: str, **given: Any) -> str:
    provider_name, _, model_name = name.partition(":")
    model = open_provider(provider_name, model_name, **given)
    return model.key


def test_a_label_tells_keys_apart_and_gives_none_away() -> None:
    one, other = label(ANTHROPIC, api_key="one-key"), label(ANTHROPIC, api_key="other-key")
    assert one != other
    assert one == label(ANTHROPIC, api_key="one-key", base_url="http://127.0.0.1:9")
    assert one.startswith("anthropic:")
    assert "one-key" not in one


def test_a_key_in_the_environment_has_the_label_of_the_same_key_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "the-key")
    assert label(ANTHROPIC) == label(ANTHROPIC, api_key="the-key")


def test_a_local_server_does_not_share_the_rate_limit_of_openai(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "the-key")
    assert label(LOCAL, base_url="http://127.0.0.1:9/v1") != label("openai:gpt-5")


def test_both_protocols_of_openai_share_the_rate_limit_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "the-key")
    assert label(CHAT).partition(":")[2] == label("openai:gpt-5").partition(":")[2]
    monkeypatch.setenv("OPENAI_API_KEY", "another-key")
    assert label(CHAT) != label(CHAT, api_key="the-key")


def test_two_local_servers_have_labels_of_their_own() -> None:
    assert label(LOCAL, base_url="http://127.0.0.1:1/v1") != label(LOCAL, base_url="http://127.0.0.1:2/v1")


async def test_models_at_one_address_keep_their_own_keys() -> None:
    async with ProviderServer([HELLO]) as server:
        models = [
            open_provider("openai", "m", api_key=f"{KEY}-{each}", base_url=address(LOCAL, server)) for each in "ab"
        ]
        for model in models:
            await model.ask(asking())
            await model.close()
        assert [key_in(seen.headers) for seen in server.seen] == [{f"{KEY}-a"}, {f"{KEY}-b"}]
