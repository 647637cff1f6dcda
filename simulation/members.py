"""What the oracle holds against the log where it speaks of teammates, hosts, messages and notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dugnad.types import HUMAN, Event

from .history import History

Rule = Callable[[History, Event, Mapping[str, Any]], None]


def _told(history: History, event: Event, data: Mapping[str, Any]) -> None:
    history.happens(event, "told", data["key"], data["to"], promise=7)
    history.messages[data["message"]] = {**data, "sender": event.actor}
    if data["message_kind"] == "text" and event.task is not None:
        _by_owner(history, event, data)
    if data["message_kind"] == "notice" and data["to"] == HUMAN:
        history.owed.discard(event.task or 0)
    if data["message_kind"] == "shutdown":
        history.asked_to_go.add(data["to"])
    # A reply goes to one who was shut down too: its task goes on with the answer, in other hands.
    if history.teammates.get(data["to"]) == "gone" and not data["message_kind"].endswith(("reply", "answer")):
        history.fault(event, f"{data['to']} was shut down, and reads nothing", 7)


def _by_owner(history: History, event: Event, data: Mapping[str, Any]) -> None:
    task = history.tasks[event.task or 0]
    if not task.heard_from(event.actor, data.get("epoch")):
        history.fault(event, f"said by one who does not hold #{event.task}", 2)


def _noted(history: History, event: Event, data: Mapping[str, Any]) -> None:
    if event.task is not None:
        _by_owner(history, event, data)


def _stopped(history: History, event: Event, data: Mapping[str, Any]) -> None:
    """Who stops by itself has read everything but notices, which it reads with its next task; nothing is lost between
    working and resting."""
    unread = [
        number
        for number, message in history.messages.items()
        if message["to"] == data["name"] and number not in history.shown and message["message_kind"] != "notice"
    ]
    by_itself = event.actor in (data["name"], "board")  # Or it made room, at rest, for another.
    if unread and by_itself:
        history.fault(event, f"{data['name']} went to rest with message {unread[0]} unread", 7)
    history.teammates[data["name"]] = "gone"
    if not by_itself:
        history.sent_away.add(data["name"])
    if str(data.get("reason")).startswith("shut down") and data["name"] not in history.asked_to_go:
        history.fault(event, f"{data['name']} is shut down, and nobody asked it since it was spawned", 7)


def _spawned(history: History, event: Event, data: Mapping[str, Any]) -> None:
    if event.actor == "board" and data["name"] in history.sent_away:
        history.fault(event, f"{data['name']} was shut down, and comes back without anybody's word", 7)
    history.sent_away.discard(data["name"])
    history.asked_to_go.discard(data["name"])
    history.teammates[data["name"]] = "wanted"


def _seated(history: History, event: Event, data: Mapping[str, Any]) -> None:
    if history.teammates.get(data["name"]) == "gone":
        history.fault(event, f"{data['name']} was shut down, and nobody spawned it again", 7)
    history.teammates[data["name"]], history.seats[data["name"]] = "seated", data["host"]


def _shown(history: History, event: Event, data: Mapping[str, Any]) -> None:
    for message in data["messages"]:
        if message in history.shown:
            history.fault(event, f"message {message} was shown before", 7)
        history.shown.add(message)


def _state(of: str, key: str, state: str) -> Rule:
    def note(history: History, event: Event, data: Mapping[str, Any]) -> None:
        known: dict[str, str] = getattr(history, of)
        known[data[key]] = state

    return note


RULES: dict[str, Rule] = {
    "host_started": _state("hosts", "host", "started"), "host_stopped": _state("hosts", "host", "stopped"),
    "host_lost": _state("hosts", "host", "lost"), "host_back": _state("hosts", "host", "started"),
    "spawned": _spawned, "seated": _seated, "stopped_teammate": _stopped,
    "failed_teammate": _state("teammates", "name", "gone"), "told": _told, "shown": _shown, "noted": _noted,
}  # fmt: skip
