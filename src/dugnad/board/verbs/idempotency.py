"""Stores answers by key, for verbs without a natural key."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from ...errors import BadInput
from ..store.seam import Tx, as_json

P = ParamSpec("P")
Answer = TypeVar("Answer")
Verb = Callable[Concatenate[Tx, P], Coroutine[Any, Any, Answer]]


def once(verb: Verb[P, Answer]) -> Verb[P, Answer]:
    """Have a verb store its answer (plain JSON) by its `key`. With the same key again, it returns the stored answer.

    An empty list means that nothing was changed, so it is not stored.
    """

    name = verb.__name__.removeprefix("_")

    @wraps(verb)
    async def run(tx: Tx, /, *given: P.args, **named: P.kwargs) -> Answer:
        key = named["key"]
        await tx.fetch("lock_key", key=key)
        if kept := await tx.fetch("call_answer", key=key):
            if kept[0]["verb"] != name:
                raise BadInput(f"The key {key!r} was used for {kept[0]['verb']}; use another key for {name}.")
            return cast(Answer, json.loads(kept[0]["answer"]))
        answer = await verb(tx, *given, **named)
        if answer != []:
            await tx.fetch("keep_answer", key=key, verb=name, answer=as_json(answer))
        return answer

    return run
