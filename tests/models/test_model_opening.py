"""From a name to a model, and what is said when there is no way from one to the other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpcore2
import pytest

from dugnad.errors import DugnadError, ModelMisconfigured
from dugnad.models import Price, ScriptedModel, open_model
from dugnad.models.open import default_model
from tests.models.asking import asking

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY", "ANTHROPIC_AUTH_TOKEN")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in KEYS:
        monkeypatch.delenv(variable, raising=False)


def test_without_a_key_the_three_ways_on_are_named() -> None:
    with pytest.raises(ModelMisconfigured) as met:
        open_model()
    for way in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY", "openai:MODEL", "base URL", "dugnad demo"):
        assert way in str(met.value)


@pytest.mark.parametrize("name", ["anthropic:claude-x", "openai:gpt-x", "openai-chat:gpt-x", "openai-responses:gpt-x"])
def test_a_named_provider_without_its_key_says_which_key(name: str) -> None:
    with pytest.raises(ModelMisconfigured, match="ANTHROPIC_API_KEY" if name[0] == "a" else "OPENAI_API_KEY"):
        open_model(name)


def test_the_first_provider_whose_key_is_set_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "g")
    assert default_model().startswith("google:")
    monkeypatch.setenv("OPENAI_API_KEY", "o")
    assert default_model().startswith("openai:")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a")
    assert default_model().startswith("anthropic:")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "")
    assert default_model().startswith("openai:")
    assert open_model().name == default_model()


def test_a_model_has_the_name_it_was_asked_for_by() -> None:
    model = open_model("anthropic:claude-x", api_key="k", price=Price(input=1, output=2), window_tokens=7)
    assert model.name == "anthropic:claude-x"
    assert (model.facts.window_tokens, model.facts.price) == (7, Price(input=1, output=2))


def test_a_local_server_needs_no_key() -> None:
    assert open_model("openai:qwen:14b", base_url="http://127.0.0.1:11434/v1").name == "openai:qwen:14b"


async def test_the_certificates_of_the_machine_are_read_at_most_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    found = httpcore2.default_ssl_context
    monkeypatch.setattr("httpcore2.default_ssl_context", lambda **given: read.append(1) or found(**given))
    for name in ("openai:one", "openai:two", "anthropic:one"):
        await open_model(name, base_url="http://localhost:1", api_key="k").close()
    assert len(read) <= 1


async def test_a_script_is_played_from_its_path(tmp_path: Path) -> None:
    path = tmp_path / "demo.yaml"
    path.write_text('"*": [{say: Hei på deg}]')
    model = open_model(f"scripted:{path}")
    assert isinstance(model, ScriptedModel)
    assert (await model.ask(asking())).text == "Hei på deg"
    assert open_model("scripted").name == "scripted"


@pytest.mark.parametrize("name", ["anthropic", "gpt-5", "openai:", " "])
def test_a_name_without_a_model_says_how_to_write_it(name: str) -> None:
    with pytest.raises(ModelMisconfigured, match="provider:model"):
        open_model(name, api_key="k")


@pytest.mark.parametrize("name", ["nobody:x", ":x", "Anthropic:claude-x"])
def test_an_unknown_provider_is_for_a_person_to_mend(name: str) -> None:
    with pytest.raises(ModelMisconfigured):
        open_model(name, api_key="k")


def test_a_script_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DugnadError, match=r"missing\.yaml"):
        open_model(f"scripted:{tmp_path / 'missing.yaml'}")


def test_a_provider_that_takes_no_address_says_so() -> None:
    with pytest.raises(ModelMisconfigured):
        open_model("deepseek:deepseek-chat", api_key="k", base_url="http://127.0.0.1:9")


def test_a_provider_whose_package_is_not_installed_says_so() -> None:
    with pytest.raises(ModelMisconfigured, match="not installed"):
        open_model("groq:llama", api_key="k")


def test_importing_the_models_imports_no_provider() -> None:
    heavy = ("pydantic_ai", "anthropic", "openai", "google.genai", "genai_prices", "aiohttp", "httpx2", "yaml")
    code = f"""
import sys
import dugnad.models
dugnad.models.open_model("scripted")
print([name for name in {heavy!r} if name in sys.modules])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_our_own_wire_needs_no_library_of_a_provider() -> None:
    code = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pydantic_ai", "anthropic", "openai"):
            raise ModuleNotFoundError(f"No module named {name!r}")
sys.meta_path.insert(0, Missing())
from dugnad.models import open_model
for name in ("anthropic:claude-x", "openai:gpt-x", "openai-chat:gpt-x"):
    print(open_model(name, api_key="k").name)
try:
    open_model("google:gemini-x", api_key="k")
except Exception as error:
    print(type(error).__name__, error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *opened, refused = run.stdout.splitlines()
    assert opened == ["anthropic:claude-x", "openai:gpt-x", "openai-chat:gpt-x"]
    assert refused.startswith("ModelMisconfigured google:gemini-x needs a package that is not installed")
    assert "dugnad[google]" in refused
