"""Teammates, and the hosts that run them."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import BadInput, HostLost, NotReady, UnknownHost, UnknownTeammate
from ...types import Teammate
from .. import records, rules
from ..store.seam import Row, TryAgain, Tx, as_json, event, ids_json, wake
from .idempotency import once
from .messages import Show, show


@dataclass(frozen=True, slots=True, kw_only=True)
class StartHost:
    id: str
    label: str
    scope: tuple[int, ...] | None  # The roots under which its teammates may claim; None: all.


async def start_host(tx: Tx, call: StartHost) -> None:
    lease = int(tx.limits.lease_seconds * 1000)
    scope = None if call.scope is None else ids_json(call.scope)
    if await tx.fetch("insert_host", id=call.id, label=call.label, scope=scope, lease=lease):
        event(tx, "host_started", call.label, host=call.id, label=call.label, scope=call.scope)
        wake(tx, "team")


@dataclass(frozen=True, slots=True, kw_only=True)
class OfHost:
    host: str


async def heartbeat(tx: Tx, call: OfHost) -> list[tuple[int, int]]:
    """Renew the lease of all the host's claims. Returns the claims that it still has: (task, epoch)."""
    lease = int(tx.limits.lease_seconds * 1000)
    if not await tx.fetch("renew_host", id=call.host, lease=lease):
        if not (back := await tx.fetch("revive_host", id=call.host, lease=lease)):
            if await tx.fetch("read_host", id=call.host):
                raise HostLost(f"Host {call.host} was stopped; start a new one.")
            raise UnknownHost(f"There is no host {call.host}; register it first.")
        event(tx, "host_back", back[0]["label"], host=call.host)
        wake(tx, "team")
    return [(row["id"], row["epoch"]) for row in await tx.fetch("claims_of_host", host=call.host)]


async def stop_host(tx: Tx, call: OfHost) -> None:
    """Stop a host in order. The next `take_back` does not wait for its lease, and its teammates can move at once."""
    if rows := await tx.fetch("stop_host", id=call.host):
        event(tx, "host_stopped", "board", host=call.host, label=rows[0]["label"])
        wake(tx, "team")
    elif not await tx.fetch("read_host", id=call.host):
        raise UnknownHost(f"There is no host {call.host}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn:
    name: str
    roles: tuple[str, ...]
    lead: bool
    prompt: str
    model: str
    plan: bool
    by: str
    host: str | None = None  # Seat it there at once, before another host can take it.


async def spawn(tx: Tx, call: Spawn) -> Teammate:
    """Add a teammate. One that exists with the same settings stays as it is."""
    roles = as_json(list(call.roles))
    arguments = {
        "name": call.name,
        "roles": roles,
        "lead": int(call.lead),
        "prompt": call.prompt,
        "model": call.model,
        "plan": int(call.plan),
    }
    rows = await tx.fetch("hold_teammate", name=call.name)
    known = rows and rows[0]["state"] != "human"  # An older board may have a teammate of such a name, which may stay.
    if not known and rules.is_taken(call.name, lead=call.lead):
        raise BadInput(f"{call.name!r} is a reserved name, or looks like one; choose another name.")
    if not rows:
        if not await tx.fetch("insert_teammate", **arguments):
            raise TryAgain  # Another process has just used the name.
        changed = True
    else:
        changed = rows[0]["state"] in ("stopped", "failed")
        same = all(rows[0][name] == value for name, value in arguments.items())
        if not changed and not same:
            raise NotReady(f"A teammate {call.name} exists with other settings; stop it or choose another name.")
        if changed:
            await tx.fetch("respawn_teammate", **arguments)
    if changed:
        event(
            tx, "spawned", call.by, name=call.name, roles=list(call.roles), lead=call.lead, prompt=call.prompt,
            model=call.model, plan=call.plan or None,
        )  # fmt: skip
        wake(tx, "team")
        if call.host is not None:
            await _must_live(tx, call.host)
            await _take_seat(tx, call.name, call.host)
    return await _read(tx, call.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    host: str
    name: str | None  # None: any that waits for a host, or whose host died.
    count: int
    key: str


async def seat(tx: Tx, call: Seat) -> list[Teammate]:
    """Seat teammates that wait for a host, or that lost theirs, at this host."""

    async def take() -> list[str]:
        await _must_live(tx, call.host)
        if call.name is not None:
            row = await _hold(tx, call.name)
            if row["state"] == "seated" and row["host_id"] == call.host:
                return [call.name]
        await tx.fetch("lock_seats")
        rows = await tx.fetch("takeable_teammates", name=call.name, count=call.count)
        for row in rows:
            await _take_seat(tx, row["name"], call.host)
        if not rows and call.name is not None:
            raise NotReady(f"{call.name} cannot be seated: it is stopped, or another host runs it.")
        return [row["name"] for row in rows]

    return [await _read(tx, name) for name in await once(tx, call.key, "seat", take)]


async def _must_live(tx: Tx, host: str) -> None:
    """Refuse a host without a lease."""
    lease_max = int(tx.limits.lease_seconds_max * 1000)
    if not any(row["id"] == host and row["alive"] for row in await tx.fetch("list_hosts", lease_max=lease_max)):
        raise HostLost(f"The lease of host {host} has run out; register it, or send a heartbeat.")


async def _take_seat(tx: Tx, name: str, host: str) -> None:
    after = (await tx.fetch("seat_teammate", name=name, host=host))[0]
    event(tx, "seated", name, name=name, host=host, seat=after["seat"])
    wake(tx, "team")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTeammate:
    name: str
    by: str
    reason: str
    failed: bool
    seat: int | None  # Only if it still has this seat, so that an old host cannot stop a teammate that moved.
    if_quiet: bool = False  # Only if it has read all messages, so that none is lost between working and resting.


async def end_teammate(tx: Tx, call: EndTeammate) -> None:
    """Shut a teammate down, or mark it as failed. Messages do not bring it back."""
    row = await _hold(tx, call.name)
    state = "failed" if call.failed else "stopped"
    if row["state"] == state:
        return
    if row["state"] == "human":
        raise BadInput("The human cannot be stopped.")
    if call.seat is not None and row["seat"] != call.seat:
        raise HostLost(f"Another host has taken over {call.name}; do not stop it.")
    if call.if_quiet and await tx.fetch("first_unread", recipient=call.name):
        raise NotReady(f"{call.name} has mail.")
    await tx.fetch("end_teammate", name=call.name, state=state, reason=call.reason or None)
    event(tx, state + "_teammate", call.by, name=call.name, reason=call.reason)
    # The shutdown is done; if the teammate comes back it must not read the request again.
    asked = await tx.fetch("unread_shutdowns", recipient=call.name)
    await show(tx, Show(recipient=call.name, messages=tuple(row["id"] for row in asked)))
    wake(tx, "team")
    wake(tx, f"inbox:{call.name}")


async def _hold(tx: Tx, name: str) -> Row:
    rows = await tx.fetch("hold_teammate", name=name)
    if not rows:
        raise UnknownTeammate(f"There is no teammate {name!r}; `dugnad team` lists them.")
    return rows[0]


async def _read(tx: Tx, name: str) -> Teammate:
    lease_max = int(tx.limits.lease_seconds_max * 1000)
    return records.teammate((await tx.fetch("list_teammates", name=name, lease_max=lease_max))[0])
