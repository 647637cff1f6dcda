"""Other people's agents as a test starts them: each in a home of its own, with a model server of the tests.

They are as npm brings them. What they need to reach the model server is what a user of a gateway writes. All else is as
it is by itself, but for updates, telemetry and downloads.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
BIN = ROOT / ".venv" / "agents" / "bin"
NAMES = ("claude", "codex", "opencode")
PATH = f"{BIN}:{ROOT / '.venv' / 'bin'}:/usr/local/bin:/usr/bin:/bin"
SECONDS = 300.0  # Only ends a hang.
_WORDS = {
    "claude": ("claude", "-p", "--output-format", "json", "--dangerously-skip-permissions"),
    "codex": ("codex", "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
    "opencode": ("opencode", "run", "--format", "json", "--auto"),
}
_QUIET = {
    "claude": {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "IS_SANDBOX": "1"},
    "codex": {},
    "opencode": {
        "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1", "npm_config_offline": "true",
    },
}  # fmt: skip


def codex_settings(url: str) -> str:
    return (
        'model_provider = "puppet"\n[model_providers.puppet]\nname = "puppet"\n'
        f'base_url = "{url}/v1"\nwire_api = "responses"\nenv_key = "CODEX_API_KEY"\n'
        "[features]\nplugins = false\n[analytics]\nenabled = false\n"
    )


def opencode_settings(url: str) -> str:
    model = {"limit": {"context": 200_000, "output": 8_000}, "cost": {"input": 1, "output": 2, "cache_read": 0.5}}
    options = {"baseURL": f"{url}/v1", "apiKey": "none"}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"puppet-1": model}}
    return json.dumps({"model": "puppet/puppet-1", "provider": {"puppet": provider}})


@dataclass(frozen=True)
class Ran:
    code: int
    output: str
    complaints: str


@dataclass
class Program:
    """One program, in its own home. `more` is added to its environment."""

    name: str
    home: Path
    url: str
    more: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert (BIN / self.name).exists(), f"{self.name} is missing: run `make agents`, which fetches it with npm"
        for path, text in {
            ".codex/config.toml": codex_settings(self.url),
            ".config/opencode/opencode.json": opencode_settings(self.url),
        }.items():
            if self.name in path and not (self.home / path).exists():
                (self.home / path).parent.mkdir(parents=True, exist_ok=True)
                (self.home / path).write_text(text)

    @property
    def environment(self) -> dict[str, str]:
        keys = {"ANTHROPIC_API_KEY": "none", "ANTHROPIC_BASE_URL": self.url, "CODEX_API_KEY": "none"}
        own = {name: value for name, value in keys.items() if name.startswith("CODEX") == (self.name == "codex")}
        shared = {"PATH": PATH, "HOME": str(self.home), "LANG": "C.UTF-8"}
        shared |= {"XDG_STATE_HOME": os.environ["XDG_STATE_HOME"], "NO_PROXY": "127.0.0.1,localhost"}
        return {**shared, **own, **_QUIET[self.name], **self.more}

    def words(self, prompt: str, *options: str) -> tuple[str, ...]:
        return (*_WORDS[self.name], *options, *(("--", prompt) if self.name == "claude" else (prompt,)))

    async def start(self, prompt: str, folder: Path, *options: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self.words(prompt, *options), cwd=folder, env=self.environment, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, start_new_session=True, limit=1 << 26,
        )  # fmt: skip

    async def run(self, prompt: str, folder: Path, *options: str) -> Ran:
        process = await self.start(prompt, folder, *options)
        return await ended(process)


async def ended(process: asyncio.subprocess.Process) -> Ran:
    """Wait for its end. What it leaves behind goes with it."""
    try:
        output, complaints = await asyncio.wait_for(process.communicate(), SECONDS)
    finally:
        end(process)
    return Ran(process.returncode or 0, output.decode(), complaints.decode())


def end(process: asyncio.subprocess.Process) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


class Elsewhere:
    """A proxy that lets nobody through and remembers who asked for what."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.url = ""

    @property
    def environment(self) -> dict[str, str]:
        return dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"), self.url)

    async def _refuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append((await reader.readline()).decode("latin-1").strip())
        writer.write(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()


@asynccontextmanager
async def elsewhere() -> AsyncIterator[Elsewhere]:
    made = Elsewhere()
    server = await asyncio.start_server(made._refuse, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
