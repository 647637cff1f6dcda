"""Stores answers by key, for verbs without a natural key."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from ...errors import BadInput
from ..store.seam import Tx, as_json


async def once(tx: Tx, key: str, verb: str, work: Callable[[], Awaitable[Any]]) -> Any:
    """Do the work and store its answer (plain JSON). With the same key again, return the stored answer.

    An empty list means that nothing was changed, so it is not stored.
    """
    await tx.fetch("lock_key", key=key)
    if kept := await tx.fetch("call_answer", key=key):
        if kept[0]["verb"] != verb:
            raise BadInput(f"The key {key!r} was used for {kept[0]['verb']}; use another key for {verb}.")
        return json.loads(kept[0]["answer"])
    answer = await work()
    if answer != []:
        await tx.fetch("keep_answer", key=key, verb=verb, answer=as_json(answer))
    return answer
