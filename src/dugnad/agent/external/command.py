"""An external agent as the user set it up: which command, with what, and within which bounds.

It is chosen like a model: `model = "command:claude"`. It is not asked, though: one run works on a whole task.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from ...errors import ModelMisconfigured
from ...models.port import Facts, Reply, Request
from ...types import Amount, Spending

PREFIX, ACP_PREFIX = "command:", "acp:"
PREFIXES = (PREFIX, ACP_PREFIX)
Reads = Literal["claude-json", "codex-jsonl", "opencode-jsonl", "text"]
SECONDS = 1_800.0
_DOLLARS = 5.0  # For one run, if the goal has a cap in dollars and `dollars_per_run` is not set.
_TOKENS = 2_000_000
# The most that a run spends in a minute, unless it is set otherwise; and how long a provider may still work on the
# request of a run that was cut off.
_DOLLARS_PER_MINUTE = 3.0
_TOKENS_PER_MINUTE = 600_000
_UNDER_WAY_SECONDS = 10.0
# It is no use to start a run with less.
_LEAST = Amount(tokens=10_000, microdollars=50_000, milliseconds=30_000)
# Errors are shown only if the command failed; mixed into the answer they would spoil it.
_SCRIPT = 'errors=$(mktemp) && {words} 2>"$errors"; code=$?; [ $code = 0 ] || tail -c 4000 "$errors"; exit $code'


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalCommand:
    """What a teammate has instead of a model."""

    name: str  # command:NAME, or acp:NAME.
    run: tuple[str, ...]
    reads: Reads = "text"  # The format of its output.
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)  # Besides what every command gets.
    hosts: tuple[str, ...] = ()  # That it may reach.
    services: tuple[str, ...] = ()  # Servers of the user's own that it may use, such as localhost:4000.
    readable: tuple[Path, ...] = ()  # Where it is installed, outside the system's folders.
    dollars_option: str = ""  # Its own option for a cap, if it has one.
    seconds: float = SECONDS
    dollars_per_run: float | None = None
    tokens_per_run: int | None = None
    dollars_per_minute: float = _DOLLARS_PER_MINUTE  # The most it can spend, counted for a run that was cut off
    tokens_per_minute: int = _TOKENS_PER_MINUTE  # and did not say what it spent.
    runs_max: int = 6  # In one attempt; then a person is asked.
    missing: tuple[str, ...] = ()  # Variables that it should get and that are not set, as the user wrote them.
    facts: Facts = field(default_factory=Facts)

    @property
    def key(self) -> str:
        return self.name

    @property
    def reports_dollars(self) -> bool:
        return self.reads in ("claude-json", "opencode-jsonl")

    @property
    def table(self) -> str:
        """Where the user describes it."""
        kind, _, name = self.name.partition(":")
        return f"[{'acp' if kind == 'acp' else 'commands'}.{name}]"

    async def ask(self, request: Request) -> Reply:
        raise ModelMisconfigured(f"{self.name} works whole tasks, and cannot be asked a single question.")

    async def close(self) -> None: ...

    def line(self, amount: Amount, spending: Spending) -> str:
        """What the shell runs, with the command's own option for a cap if it has one."""
        capped = spending.microdollars_max is not None or self.dollars_per_run is not None
        own = (self.dollars_option, f"{amount.microdollars / 1e6:.6f}") if self.dollars_option and capped else ()
        return _SCRIPT.format(words=shlex.join([*self.run, *own]))

    def at_most_in(self, seconds: float, amount: Amount) -> Amount:
        """The most that a run of this length can have spent, and never more than was reserved for it."""
        minutes = (seconds + _UNDER_WAY_SECONDS) / 60
        return Amount(
            tokens=min(amount.tokens, math.ceil(self.tokens_per_minute * minutes)),
            microdollars=min(amount.microdollars, math.ceil(self.dollars_per_minute * 1e6 * minutes)),
            milliseconds=min(amount.milliseconds, int(seconds * 1000)),
        )

    def at_most(self, spending: Spending) -> Amount:
        """What one run may cost: what was set up, and no more than is left.

        While others hold a part of the budget, very little is not worth starting with: they will give some back.
        """
        dollars = None if self.dollars_per_run is None else int(self.dollars_per_run * 1e6)
        wanted = {
            "tokens": (self.tokens_per_run, _TOKENS),
            "microdollars": (dollars, int(_DOLLARS * 1e6)),
            "milliseconds": (int(self.seconds * 1000), 0),
        }
        alone = spending.reserved == Amount()
        return Amount(**{kind: _share(spending, kind, *each, alone=alone) for kind, each in wanted.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpCommand(ExternalCommand):
    """A program that speaks the Agent Client Protocol: one run is one session with it."""

    counts_dollars: bool = False  # It reports what a session costs,
    counts_tokens: bool = True  # and the tokens of the whole session.
    version: str = ""  # The one it must have, as it tells in the handshake; empty: any.
    login: str = ""  # How it logs in, by its own name for that; empty: it needs no login.
    options: Mapping[str, str] = field(default_factory=dict)  # Of the session, such as its model.
    start_seconds: float = 120.0  # For the handshake.
    silence_seconds: float = 900.0  # After so long without a word it is cancelled.
    meta: Mapping[str, Any] = field(default_factory=dict)  # What this one program understands besides.

    @property
    def reports_dollars(self) -> bool:
        return self.counts_dollars


def _share(spending: Spending, kind: str, said: int | None, usual: int, *, alone: bool) -> int:
    if (left := spending.left(kind)) is None:
        return said or 0
    most = usual if said is None else said
    least = min(most, getattr(_LEAST, kind) if alone else max(getattr(_LEAST, kind), most // 4))
    return int(min(most, max(least, left)))


_OPENCODE = {
    "ANTHROPIC_API_KEY": "env?:ANTHROPIC_API_KEY",
    "OPENAI_API_KEY": "env?:OPENAI_API_KEY",
    "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "npm_config_offline": "true",  # It would look for a package of its own at each start.
}
# What `[commands.NAME]` need not say for well-known agents. They ask nobody for permission, because the sandbox limits
# them. Those that have a switch for it do not read settings of the project, which could name programs and servers.
PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "claude": {
            "run": (
                "claude", "-p", "--output-format", "json", "--dangerously-skip-permissions",
                "--setting-sources", "user", "--strict-mcp-config",
            ),
            "reads": "claude-json",
            "environment": {
                "ANTHROPIC_API_KEY": "env?:ANTHROPIC_API_KEY",
                "CLAUDE_CODE_OAUTH_TOKEN": "env?:CLAUDE_CODE_OAUTH_TOKEN",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "IS_SANDBOX": "1",  # It refuses to run as root outside of one.
            },
            "hosts": ("api.anthropic.com",),
            "dollars_option": "--max-budget-usd",
        },
        "codex": {
            "run": (
                "codex", "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
                "--config", "features.plugins=false", "--config", "analytics.enabled=false", "-",
            ),
            "reads": "codex-jsonl",
            "environment": {"CODEX_API_KEY": "env?:CODEX_API_KEY", "OPENAI_API_KEY": "env?:OPENAI_API_KEY"},
            "hosts": ("api.openai.com",),
        },
        "opencode": {
            "run": ("opencode", "run", "--format", "json", "--auto", "--pure", "--title", "dugnad"),
            "reads": "opencode-jsonl",
            "environment": _OPENCODE,
            "hosts": ("api.anthropic.com", "api.openai.com"),
        },
    }
)  # fmt: skip

# The same for `[acp.NAME]`. Where a program has a switch for that, it reads no settings of the project, and asks us
# about its tools, so that the policies of `acp__` tools hold for it.
ACP_PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "opencode": {
            "run": ("opencode", "acp"),
            "environment": {
                **_OPENCODE,
                "OPENCODE_CONFIG_CONTENT": "env?:OPENCODE_CONFIG_CONTENT",
                "OPENCODE_DISABLE_CLAUDE_CODE": "1",
                "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
                "OPENCODE_PERMISSION": '{"edit": "ask", "bash": "ask", "webfetch": "ask", "websearch": "ask"}',
            },
            "hosts": ("api.anthropic.com", "api.openai.com"),
            "counts_dollars": True,
            "counts_tokens": False,  # Only those of the last step.
        },
        "claude": {
            "run": ("claude-agent-acp",),
            "environment": {
                "ANTHROPIC_API_KEY": "env?:ANTHROPIC_API_KEY",
                "CLAUDE_CODE_OAUTH_TOKEN": "env?:CLAUDE_CODE_OAUTH_TOKEN",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                # After its work it would ask its model what a person may say next, and not report what that costs.
                "CLAUDE_CODE_ENABLE_PROMPT_SUGGESTION": "false",
                "NO_BROWSER": "1",
            },
            "hosts": ("api.anthropic.com",),
            "counts_dollars": True,
            "meta": {"claudeCode": {"options": {"settingSources": ["user"], "strictMcpConfig": True}}},
        },
        "codex": {
            "run": ("codex-acp",),
            "environment": {
                "CODEX_API_KEY": "env?:CODEX_API_KEY",
                "OPENAI_API_KEY": "env?:OPENAI_API_KEY",
                "INITIAL_AGENT_MODE": "agent-full-access",  # Its own sandbox cannot be made inside ours.
                "NO_BROWSER": "1",
            },
            "hosts": ("api.openai.com",),
            "login": "api-key",
        },
        "gemini": {
            "run": ("gemini", "--experimental-acp"),
            "environment": {"GEMINI_API_KEY": "env?:GEMINI_API_KEY"},
            "hosts": ("generativelanguage.googleapis.com",),
            "login": "gemini-api-key",
        },
    }
)  # fmt: skip
