"""The user's own file: where models are asked, with which key, and that no secret is said aloud."""

from __future__ import annotations

from pathlib import Path

import pytest

from dugnad.config.user import Endpoint, UserSettings, open_named_model, read_user
from dugnad.errors import BadInput, ModelMisconfigured
from dugnad.models import Price
from tests.strangers import give_away


def user(folder: Path, text: str, **environment: str) -> dict[str, str]:
    """An environment whose user has this configuration."""
    (folder / "config" / "dugnad").mkdir(parents=True)
    (folder / "config" / "dugnad" / "config.toml").write_text(text)
    return {"XDG_CONFIG_HOME": str(folder / "config"), **environment}


def test_a_user_without_a_file_has_no_settings_but_the_environments(folder: Path) -> None:
    assert read_user({}) == read_user({"HOME": str(folder)}) == UserSettings()
    found = read_user({"DUGNAD_BASE_URL": "http://localhost:11434/v1"})
    assert found.endpoint("openai:qwen3") == Endpoint(base_url="http://localhost:11434/v1")
    assert found.endpoint("anthropic:claude-x") == Endpoint()  # Its key is not for that server.


async def test_what_a_user_says_of_a_model_is_used_when_it_is_opened(folder: Path) -> None:
    text = """
model = "openai:llama3"
[models."openai:llama3"]
base_url = "http://gateway.example:8000/v1"
api_key_env = "GATEWAY_KEY"
price_input = 0.5
price_output = 2
window_tokens = 9000
requests_per_minute = 50
"""
    found = read_user(user(folder, text, GATEWAY_KEY="key-of-mine"))
    endpoint = found.endpoint("openai:llama3")
    assert (endpoint.api_key, endpoint.requests_per_minute) == ("key-of-mine", 50)
    assert "key-of-mine" not in repr(found)
    model = open_named_model(None, found)
    facts = (model.name, model.facts.window_tokens, model.facts.price)
    assert facts == ("openai:llama3", 9_000, Price(input=0.5, output=2))
    await model.close()


def test_the_server_of_the_environment_gets_no_key_that_the_file_names(folder: Path) -> None:
    text = "[models.'openai:x']\napi_key_env = 'KEY'\n[models.'openai:y']\nwindow_tokens = 9"
    found = read_user(user(folder, text, KEY="k", DUGNAD_BASE_URL="http://localhost:1/v1"))
    assert found.endpoint("openai:x").base_url is None
    assert found.endpoint("openai:y") == Endpoint(base_url="http://localhost:1/v1", window_tokens=9)


def test_a_key_that_is_not_set_is_named_by_its_variable(folder: Path) -> None:
    found = read_user(user(folder, "[models.'openai:x']\napi_key_env = 'GATEWAY_KEY'"))
    with pytest.raises(ModelMisconfigured, match="GATEWAY_KEY, which is not set"):
        open_named_model("openai:x", found)


@pytest.mark.parametrize(("text", "said"), [
    ("[models.'openai:x']\napi_key = 'sk-1234'", "api_key_env"),
    ("api_key = 'sk-1234'", "api_key_env"),
    ("[models.'openai:x']\napi_key_env = 'sk-1234'", "the name of a variable"),
    ("[models.'openai:x']\nbase_url = 'http://me:sk-1234@host/v1'", "name or password"),
    ("[models.'openai:x']\nbase_url = 'sk-1234'", "an address such as"),
    ("[models.'openai:x']\nbase_url = 'ftp://sk-1234'", "an address such as"),
    ("[models.'openai:x']\nprice_input = 1", "price_input and price_output"),
    ("[models.x]\nwindow_tokens = 1", "provider:model"),
    ("[model.'openai:x']\nwindow_tokens = 1", "model must be text, not a table"),
])  # fmt: skip
def test_what_is_wrong_in_the_users_file_is_said_without_the_secret(folder: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput) as met:
        read_user(user(folder, text))
    assert said in str(met.value)
    assert "config.toml" in str(met.value)
    assert "sk-1234" not in str(met.value)


@pytest.mark.parametrize("address", ["localhost:11434", "http://", "http://x:99999/", "http://a:b@x/"])
def test_a_wrong_base_url_in_the_environment_is_refused(address: str) -> None:
    with pytest.raises(BadInput, match="DUGNAD_BASE_URL"):
        read_user({"DUGNAD_BASE_URL": address})


def test_the_file_is_found_where_the_desktop_or_the_home_folder_has_it(folder: Path) -> None:
    environment = user(folder, "model = 'openai:a'")
    (folder / ".config" / "dugnad").mkdir(parents=True)
    (folder / ".config" / "dugnad" / "config.toml").write_text("model = 'openai:b'")
    assert read_user({**environment, "HOME": str(folder)}).model == "openai:a"
    assert read_user({"XDG_CONFIG_HOME": "relative", "HOME": str(folder)}).model == "openai:b"


def test_a_configuration_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = user(folder, "")
    give_away(folder / "config" / "dugnad" / "config.toml", monkeypatch)
    with pytest.raises(BadInput, match="belongs to another user"):
        read_user(environment)
