"""What an agent asks its client for: a permission, or an answer of a person. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..text import clean, one_line
from .line import WRONG_PARAMETERS, RpcRefusal
from .updates import OwnCall, Progress

KINDS = ("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other")
_MESSAGE_CHARS_MAX = 8_000
_FIELDS_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionAsked:
    """May it do this call? `options` are its own names for yes and no, by kind."""

    call: OwnCall
    options: Mapping[str, str]

    @property
    def kind(self) -> str:
        return self.call.kind if self.call.kind in KINDS else "other"

    def answer(self, allowed: bool) -> dict[str, Any]:
        """The narrowest option that says so. Without one, the request counts as cancelled, and is not done."""
        wanted = ("allow_once", "allow_always") if allowed else ("reject_once", "reject_always")
        chosen = next((self.options[each] for each in wanted if each in self.options), None)
        if chosen is None:
            return CANCELLED
        return {"outcome": {"outcome": "selected", "optionId": chosen}}


CANCELLED: dict[str, Any] = {"outcome": {"outcome": "cancelled"}}


def read_permission(params: Any, progress: Progress) -> PermissionAsked:
    call, options = (params.get("toolCall"), params.get("options")) if isinstance(params, dict) else (None, None)
    if not isinstance(call, dict) or not isinstance(options, list):
        raise RpcRefusal(WRONG_PARAMETERS, "A permission needs a toolCall and options.")
    named: dict[str, str] = {}
    for each in options:
        if isinstance(each, dict) and isinstance(each.get("kind"), str) and isinstance(each.get("optionId"), str):
            named.setdefault(each["kind"], each["optionId"])
    return PermissionAsked(call=progress.see_call(call), options=named)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElicitationAsked:
    """A form for a person: a message, and fields with the words that each of them takes."""

    message: str
    fields: Sequence[tuple[str, str, tuple[tuple[str, str], ...]]]  # A name, its title, and choices by title.
    text_only: bool  # Every field is a text or a choice.

    def answer(self, words: str) -> dict[str, Any]:
        """A person's words as the content of the form, where that has one field; otherwise the form is declined. The
        words themselves are told to the agent in its next run."""
        if len(self.fields) != 1 or not self.text_only:
            return DECLINED
        name, _, choices = self.fields[0]
        said = words.strip()
        if not choices:
            return {"action": "accept", "content": {name: said}}
        meant = [value for title, value in choices if said.casefold() in (title.casefold(), value.casefold())]
        return {"action": "accept", "content": {name: meant[0]}} if meant else DECLINED


DECLINED: dict[str, Any] = {"action": "decline"}
CANCELLED_FORM: dict[str, Any] = {"action": "cancel"}


def read_elicitation(params: Any) -> ElicitationAsked | None:
    """None: it is not a form, so nobody can fill it in here."""
    if not isinstance(params, dict) or not isinstance(message := params.get("message"), str):
        raise RpcRefusal(WRONG_PARAMETERS, "An elicitation needs a message.")
    if params.get("mode", "form") != "form":
        return None
    schema = params.get("requestedSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    found = list(properties.items())[:_FIELDS_MAX] if isinstance(properties, dict) else []
    fields = [(str(name), _title(name, each), _choices(each)) for name, each in found]
    plain = all(isinstance(each, dict) and each.get("type") == "string" for _, each in found)
    return ElicitationAsked(message=clean(message)[:_MESSAGE_CHARS_MAX], fields=fields, text_only=plain)


def _title(name: Any, field: Any) -> str:
    told = field.get("title") or field.get("description") if isinstance(field, dict) else None
    return one_line(clean(str(told or name)), 200)


def _choices(field: Any) -> tuple[tuple[str, str], ...]:
    """What may be chosen, as a title and a value."""
    if not isinstance(field, dict):
        return ()
    if isinstance(named := field.get("oneOf") or field.get("anyOf"), list):
        each_of = [each for each in named if isinstance(each, dict)]
        pairs = [(each.get("title") or each.get("const"), each.get("const")) for each in each_of]
    else:
        words = field.get("enum")
        pairs = [(each, each) for each in words] if isinstance(words, list) else []
    return tuple((one_line(clean(str(title)), 200), clean(str(value))) for title, value in pairs if value is not None)
