"""The part of the model that is about teammates, their hosts and their inboxes."""

from __future__ import annotations

from dataclasses import dataclass

from dugnad.errors import BadInput, HostLost, NotReady, StoppedTeammate, UnknownRequest, UnknownTeammate
from dugnad.types import HUMAN

REPLIES = {"question": "answer", "plan": "plan_reply", "shutdown": "shutdown_reply"}


@dataclass(slots=True)
class Member:
    roles: tuple[str, ...]
    lead: bool
    state: str = "wanted"
    host: str | None = None


@dataclass(slots=True)
class Station:
    """A host."""

    until: int
    lost: bool = False


@dataclass(slots=True)
class Letter:
    """A message."""

    sender: str
    recipient: str
    kind: str
    text: str
    task: int | None
    rank: int  # Shutdown, human, lead, peers.
    accepted: bool | None = None
    answers: int | None = None  # The letter this one replies to.
    shown: bool = False
    taken: str | None = None


class Team:
    def __init__(self, now: int, lease_ms: int) -> None:
        self.now = now
        self.lease_ms = lease_ms
        self.members: dict[str, Member] = {}
        self.hosts: dict[str, Station] = {}
        self.letters: list[Letter] = []
        self.told: dict[str, int] = {}

    # Hosts and teammates.

    def start_host(self, host: str) -> None:
        self.hosts[host] = Station(self.now + self.lease_ms)

    def alive(self, host: str) -> bool:
        return host in self.hosts and not self.hosts[host].lost and self.hosts[host].until > self.now

    def spawn(self, name: str, roles: tuple[str, ...], lead: bool) -> None:
        there = self.members.get(name)
        if there and there.state != "stopped":
            if (there.roles, there.lead) != (roles, lead):
                raise NotReady
            return
        self.members[name] = Member(roles, lead)

    def seat(self, host: str, name: str) -> None:
        if not self.alive(host):
            raise HostLost
        member = self.member(name)
        if member.state == "seated" and member.host == host:
            return
        if member.state == "stopped" or (member.state == "seated" and self.alive(member.host or "")):
            raise NotReady
        member.state, member.host = "seated", host

    def stop(self, name: str) -> None:
        member = self.member(name)
        member.state, member.host = "stopped", None
        for letter in self.letters:
            letter.shown = letter.shown or (letter.recipient == name and letter.kind == "shutdown")  # It was obeyed.

    def member(self, name: str) -> Member:
        if name not in self.members:
            raise UnknownTeammate
        return self.members[name]

    def reachable(self, name: str) -> None:
        if name != HUMAN and self.member(name).state == "stopped":
            raise StoppedTeammate

    def lanes_of(self, who: str, host: str) -> set[str]:
        """What this teammate may take, if it may claim at all."""
        member = self.member(who)
        if not self.alive(host):
            raise HostLost
        if member.state == "stopped":
            raise StoppedTeammate
        if member.state != "seated" or member.host != host:
            raise HostLost
        return {f"@{who}", *member.roles, *(() if member.lead else ("",))}

    # Messages.

    def tell(self, sender: str, recipient: str, text: str, kind: str, key: str, task: int | None = None) -> int:
        if key in self.told:
            return self.told[key]
        if sender != HUMAN:
            self.member(sender)
        self.reachable(recipient)
        self.told[key] = self.post(sender, recipient, kind, task, text=text)
        return self.told[key]

    def post(
        self, sender: str, recipient: str, kind: str, task: int | None, *, text: str = "",
        accepted: bool | None = None, answers: int | None = None,
    ) -> int:  # fmt: skip
        lead = sender in self.members and self.members[sender].lead
        rank = 0 if kind == "shutdown" else 1 if sender == HUMAN else 2 if lead else 3
        self.letters.append(Letter(sender, recipient, kind, text, task, rank, accepted, answers))
        return len(self.letters) - 1

    def answer(self, letter: int, sender: str, text: str, accepted: bool | None) -> bool:
        """Whether the reply is the first; the same again is fine."""
        if not 0 <= letter < len(self.letters) or self.letters[letter].kind not in REPLIES:
            raise UnknownRequest
        asked = self.letters[letter]
        if asked.kind != "question" and accepted is None:
            raise BadInput
        for other in self.letters:
            if other.answers == letter:
                if (other.sender, other.text, other.accepted) != (sender, text, accepted):
                    raise NotReady
                return False
        if sender not in (asked.recipient, HUMAN):
            raise NotReady
        self.post(
            sender, asked.sender, REPLIES[asked.kind], asked.task, text=text, accepted=accepted, answers=letter
        )  # fmt: skip
        return True

    def take(self, recipient: str, key: str, count: int) -> list[int]:
        """The same key gives the same, until they were shown."""
        if recipient != HUMAN:
            self.member(recipient)
        queued = [
            place for place, letter in enumerate(self.letters) if letter.recipient == recipient and not letter.shown
        ]
        queued.sort(key=lambda place: (self.letters[place].rank, place))
        taken = [place for place in queued if self.letters[place].taken == key] or queued[:count]
        for place in taken:
            self.letters[place].taken = key
        return taken

    def show(self, recipient: str, places: list[int]) -> None:
        for place in places:
            if self.letters[place].recipient == recipient:
                self.letters[place].shown = True
