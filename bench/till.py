"""What a provider bills: the published rules of OpenAI's and Anthropic's prompt caches, as far as tokens go."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from tests.models.provider_server import Seen, Usage

BYTES_PER_TOKEN = 4
_MINIMUM_TOKENS, _STEP_TOKENS, _LOOK_BACK = 1_024, 128, 20


@dataclass
class Till:
    """What one provider has in its cache, and what it has billed."""

    kind: str
    written: set[bytes] = field(default_factory=set)
    input: int = 0
    cached: int = 0
    first: int = 0  # Tokens of all that the first request sends.
    ended: bool = True

    def bill(self, seen: Seen) -> Usage:
        tokens, read = self._anthropic(seen.json) if self.kind == "anthropic" else self._openai(seen.json)
        self.first = self.first or len(seen.body) // BYTES_PER_TOKEN
        self.input += tokens
        self.cached += read
        return Usage(input=tokens, output=60, cache_read=read)

    @property
    def share(self) -> float | None:
        """None: the work did not come to its end."""
        return round((self.input - self.cached) / self.input, 4) if self.ended else None

    def _openai(self, body: dict[str, Any]) -> tuple[int, int]:
        """The longest beginning that was seen before, in whole steps."""
        sent = json.dumps([body.get("tools", []), *body["messages"]]).encode()
        digest, read, seen = hashlib.sha256(), 0, True
        step = _STEP_TOKENS * BYTES_PER_TOKEN
        for end in range(step, len(sent) + 1, step):
            digest.update(sent[end - step : end])
            seen = seen and digest.digest() in self.written
            if seen and end // BYTES_PER_TOKEN >= _MINIMUM_TOKENS:
                read = end // BYTES_PER_TOKEN
            self.written.add(digest.digest())
        return len(sent) // BYTES_PER_TOKEN, read

    def _anthropic(self, body: dict[str, Any]) -> tuple[int, int]:
        """The longest beginning that ends at most twenty blocks before a breakpoint, and that was written there."""
        system = body.get("system") or []
        blocks = [*body.get("tools", []), *([{"text": system}] if isinstance(system, str) else system)]
        for message in body["messages"]:
            content = message["content"]
            blocks += [{"text": content}] if isinstance(content, str) else content
        breaks = [place for place, block in enumerate(blocks) if "cache_control" in block]
        breaks += [len(blocks) - 1] if body.get("cache_control") and len(blocks) - 1 not in breaks else []
        assert len(breaks) <= 4, "Anthropic refuses a fifth breakpoint."
        digest, sizes, ends = hashlib.sha256(), [0], []
        for block in blocks:
            plain = json.dumps({key: value for key, value in block.items() if key != "cache_control"}).encode()
            digest.update(plain)
            ends.append(digest.digest())
            sizes.append(sizes[-1] + len(plain))
        near = {place for end in breaks for place in range(max(0, end - _LOOK_BACK + 1), end + 1)}
        read = max((sizes[place + 1] for place in near if ends[place] in self.written), default=0)
        self.written |= {ends[at] for at in breaks if sizes[at + 1] // BYTES_PER_TOKEN >= _MINIMUM_TOKENS}
        return sizes[-1] // BYTES_PER_TOKEN, read // BYTES_PER_TOKEN
