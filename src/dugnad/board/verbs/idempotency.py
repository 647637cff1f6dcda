"""Answers kept by key, for verbs that have no natural key of their own."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from ...errors import BadInput
from ..store.seam import Tx, as_json


async def once(tx: Tx, key: str, verb: str, work: Callable[[], Awaitable[Any]]) -> Any:
    """Do the work and keep its answer (plain JSON); asked again with the same key, give the kept answer.

    An empty list says that nothing was changed, so there is nothing to keep.
    """
    await tx.fetch("lock_key", key=key)
    if kept := await tx.fetch("call_answer", key=key):
        if kept[0]["verb"] != verb:
            raise BadInput(f"The key {key!r} was used for {kept[0]['verb']}; take a new one for {verb}.")
        return json.loads(kept[0]["answer"])
    answer = await work()
    if answer != []:
        await tx.fetch("keep_answer", key=key, verb=verb, answer=as_json(answer))
    return answer
