"""Teammates, and the hosts that run them."""

from __future__ import annotations

from ...errors import BadInput, HostLost, NotReady, UnknownHost
from ...types import Teammate
from .. import records, rules
from ..store.seam import TryAgain, Tx, as_json, event, ids_json, wake
from .idempotency import once
from .messages import member, show

CLIENT_LEFT = "its client left"  # Why a teammate stopped whose mind is a client of the host.


async def start_host(tx: Tx, *, id: str, label: str, scope: tuple[int, ...] | None) -> None:
    """`scope`: the roots under which its teammates may claim; None: all."""
    lease = int(tx.limits.lease_seconds * 1000)
    roots = None if scope is None else ids_json(scope)
    if await tx.fetch("insert_host", id=id, label=label, scope=roots, lease=lease):
        event(tx, "host_started", label, host=id, label=label, scope=scope)
        wake(tx, "team")


async def heartbeat(tx: Tx, *, host: str) -> list[tuple[int, int]]:
    """Renew the lease of all the host's claims. Returns the claims that it still has: (task, epoch)."""
    lease = int(tx.limits.lease_seconds * 1000)
    if not await tx.fetch("renew_host", id=host, lease=lease):
        if not (back := await tx.fetch("revive_host", id=host, lease=lease)):
            if await tx.fetch("read_host", id=host):
                raise HostLost(f"Host {host} was stopped; start a new one.")
            raise UnknownHost(f"There is no host {host}; register it first.")
        event(tx, "host_back", back[0]["label"], host=host)
        wake(tx, "team")
    return [(row["id"], row["epoch"]) for row in await tx.fetch("claims_of_host", host=host)]


async def stop_host(tx: Tx, *, host: str) -> None:
    """Stop a host in order. The next `take_back` does not wait for its lease, and its teammates can move at once."""
    if rows := await tx.fetch("stop_host", id=host):
        event(tx, "host_stopped", "board", host=host, label=rows[0]["label"])
        await end_outsiders(tx, host)
        wake(tx, "team")
    elif not await tx.fetch("read_host", id=host):
        raise UnknownHost(f"There is no host {host}.")


async def spawn(
    tx: Tx, *, name: str, roles: list[str], lead: bool, prompt: str, model: str, plan: bool, keep_context: bool,
    by: str, host: str | None,
) -> Teammate:  # fmt: skip
    """Add a teammate. One that exists with the same settings stays as it is."""
    settings = {
        "name": name, "roles": as_json(roles), "lead": int(lead), "prompt": prompt, "model": model,
        "plan": int(plan), "keep_context": int(keep_context),
    }  # fmt: skip
    named = by != "board"  # The runtime brings back a teammate as it was, named or not.
    rows = await tx.fetch("hold_teammate", name=name)
    known = rows and rows[0]["state"] != "human"  # An older board may have a teammate of such a name, which may stay.
    if not known and rules.is_taken(name, lead=lead):
        raise BadInput(f"{name!r} is a reserved name, or looks like one; choose another name.")
    if not rows:
        if not await tx.fetch("insert_teammate", named=int(named), **settings):
            raise TryAgain  # Another process has just used the name.
    elif rows[0]["state"] in ("stopped", "failed"):
        await tx.fetch("respawn_teammate", named=int(named), **settings)
    elif all(rows[0][each] == value for each, value in settings.items()):
        return await _read(tx, name)
    else:
        raise NotReady(f"A teammate {name} exists with other settings; stop it or choose another name.")
    event(
        tx, "spawned", by, name=name, roles=roles, lead=lead, prompt=prompt, model=model, plan=plan or None,
        keep_context=keep_context or None, named=named or None,
    )  # fmt: skip
    wake(tx, "team")
    if host is not None:  # Seat it there at once, before another host can take it.
        await _must_live(tx, host)
        await _take_seat(tx, name, host)
    return await _read(tx, name)


async def seat(tx: Tx, *, host: str, name: str | None, count: int, key: str) -> list[Teammate]:
    """Seat teammates that wait for a host, or that lost theirs, at this host."""
    return [await _read(tx, each) for each in await _seat(tx, host, name, count, key=key)]


@once
async def _seat(tx: Tx, host: str, name: str | None, count: int, *, key: str) -> list[str]:
    await _must_live(tx, host)
    if name is not None:
        row = await member(tx, name, statement="hold_teammate")
        if row["state"] == "seated" and row["host_id"] == host:
            return [name]
    await tx.fetch("lock_seats")
    rows = await tx.fetch("takeable_teammates", name=name, count=count)
    for row in rows:
        await _take_seat(tx, row["name"], host)
    if not rows and name is not None:
        raise NotReady(f"{name} cannot be seated: it is stopped, or another host runs it.")
    return [row["name"] for row in rows]


async def _must_live(tx: Tx, host: str) -> None:
    """Refuse a host without a lease."""
    lease_max = int(tx.limits.lease_seconds_max * 1000)
    if not any(row["id"] == host and row["alive"] for row in await tx.fetch("list_hosts", lease_max=lease_max)):
        raise HostLost(f"The lease of host {host} has run out; register it, or send a heartbeat.")


async def _take_seat(tx: Tx, name: str, host: str) -> None:
    after = (await tx.fetch("seat_teammate", name=name, host=host))[0]
    event(tx, "seated", name, name=name, host=host, seat=after["seat"])
    wake(tx, "team")


async def end_teammate(
    tx: Tx, *, name: str, by: str, reason: str, failed: bool, seat: int | None, if_quiet: bool
) -> None:
    """Shut a teammate down, or mark it as failed. Messages do not bring it back.

    `seat`: only if it still has this seat, so that an old host cannot stop a teammate that moved. `if_quiet`: only if
    it has read all messages, so that none is lost between working and resting.
    """
    row = await member(tx, name, statement="hold_teammate")
    state = "failed" if failed else "stopped"
    if row["state"] == state:
        return
    if row["state"] == "human":
        raise BadInput("The human cannot be stopped.")
    if seat is not None and row["seat"] != seat:
        raise HostLost(f"Another host has taken over {name}; do not stop it.")
    if if_quiet and await tx.fetch("first_to_answer", recipient=name):
        raise NotReady(f"{name} has mail.")
    await tx.fetch("end_teammate", name=name, state=state, reason=reason or None)
    event(tx, state + "_teammate", by, name=name, reason=reason)
    # The shutdown is done; if the teammate comes back it must not read the request again.
    asked = await tx.fetch("unread_shutdowns", recipient=name)
    await show(tx, recipient=name, messages=[row["id"] for row in asked])
    wake(tx, "team")
    wake(tx, f"inbox:{name}")


async def end_outsiders(tx: Tx, host: str) -> None:
    """Stop the teammates that are clients of a host which is gone. They come back with their clients."""
    for row in await tx.fetch("outsiders_of_host", host=host):
        await end_teammate(
            tx, name=row["name"], by="board", reason=CLIENT_LEFT, failed=False, seat=None, if_quiet=False
        )  # fmt: skip


async def _read(tx: Tx, name: str) -> Teammate:
    lease_max = int(tx.limits.lease_seconds_max * 1000)
    return records.teammate((await tx.fetch("list_teammates", name=name, here=0, most=1, lease_max=lease_max))[0])
