"""What a client is told about its task: its claim, where to work, what happened before, and what is new. Pure."""

from __future__ import annotations

from pathlib import Path

from ...models.port import Message, Reply, Said
from ...prompts import tell
from ...text import Told, joined, shorten
from ...types import Claim, Teammate
from ..conversation import Conversation
from ..packet import who_text

_HISTORY_CHARS_MAX = 60_000
_ENTRY_CHARS_MAX = 8_000


def begin_text(
    claim: Claim, teammate: Teammate, team: str, role_prompt: str, tree: Path | None, talk: Conversation, here: Told
) -> Told:  # fmt: skip
    """Everything in one text: a client may have lost what it knew."""
    where = tell("mcp.folder", folder=str(tree)) if tree is not None else tell("mcp.no_folder")
    head = joined((tell("mcp.claim", id=claim.task.id, epoch=claim.epoch), where), "\n")
    before = shorten(joined(map(_entry, talk.entries)), _HISTORY_CHARS_MAX)
    return joined((head, *who_text(teammate, team, role_prompt), tell("mcp.rules"), before, *talk.to_say, here))


def _entry(entry: Message) -> Told:
    """A step of before, as the client or another mind took it."""
    if isinstance(entry, Said):
        return entry.text
    if isinstance(entry, Reply):
        said = shorten(entry.text.strip(), _ENTRY_CHARS_MAX)
        asked = [tell("mcp.asked_before", call=each.arguments) for each in entry.calls if each.name == "ask_human"]
        return joined((tell("mcp.said_before", said=said) if said else None, *asked))
    return tell("mcp.came_of", tool=entry.name, result=shorten(entry.text, _ENTRY_CHARS_MAX))
