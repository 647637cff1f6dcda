"""Whatever stands in a dugnad.toml or in the user's config.toml: it works, or one short sentence says what is wrong."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dugnad.config.project import read_project
from dugnad.config.user import read_user
from dugnad.errors import DugnadError

KEYS = (
    "board", "model", "check", "review", "team", "roles", "members", "policies", "budget", "limits", "mcp", "boards",
    "models", "sandbox", "commands", "name", "agents", "lead", "prompt", "prompt_file", "plan", "role", "tasks",
    "dollars", "minutes", "turns_max", "lease_seconds", "idle_seconds", "use", "without", "bash", "hosts", "readable",
    "base_url", "api_key_env", "price_input", "command", "args", "env", "url", "alice", "coder", "openai:x", "",
    "a.b", "æ\u202e", "\x1b[2J", "\ud7ff", "x" * 300,
)  # fmt: skip
WORDS = st.one_of(
    st.sampled_from(
        (*KEYS, "sqlite:///b.db", "postgresql://x/y", "scripted:s.yaml", "/dev/zero", "..", "allow", "deny")
    ),
    st.text(max_size=20),
)
NUMBERS = st.one_of(
    st.integers(), st.integers(min_value=-(10**40), max_value=10**40), st.floats(), st.sampled_from((10**4_200, -1, 0))
)


class Raw(str):
    """A date or a time, which TOML writes without quotes."""


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(WORDS, NUMBERS, st.booleans(), st.sampled_from(("1979-05-27", "07:32:00")).map(Raw)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)),
    max_leaves=12,
)  # fmt: skip


def toml(value: Any) -> str:
    """A value as TOML, in one line."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(each):08x}" for each in value) + '"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(key)} = {toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return str(value)


def one_sentence(work: Any) -> None:
    try:
        work()
    except DugnadError as trouble:
        said = str(trouble)
        assert said
        assert "\n" not in said
        assert len(said) < 1_000
        assert "\x1b" not in said
        assert "\u202e" not in said


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4), st.one_of(st.just(b""), st.binary(max_size=3)))
def test_a_table_of_anything_is_understood_or_named(table: dict[str, Any], junk: bytes) -> None:
    source = "\n".join(f"{toml(key)} = {toml(each)}" for key, each in table.items()).encode() + b"\n" + junk
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "dugnad.toml").write_bytes(source)
        (root / "dugnad").mkdir()
        (root / "dugnad" / "config.toml").write_bytes(source)
        environment = {"HOME": folder, "XDG_CONFIG_HOME": folder}
        one_sentence(lambda: read_project(root, environment=environment).board_url(None, environment))
        one_sentence(lambda: read_user(environment))
