"""Every error dugnad raises on purpose, one tree.

DugnadError
├── BadInput               what was asked cannot be right; nothing was changed
│   ├── UnknownTask, UnknownTeammate, UnknownHost, UnknownReservation, UnknownRequest
│   ├── Cycle              a need would make tasks wait for one another
│   ├── BadText            NUL, half a surrogate pair, too long, or empty
│   └── BadBoardURL
├── Refused                right in form, but not allowed as the board stands; nothing was changed
│   ├── StaleClaim         a newer epoch exists: the caller lost the task and must stop
│   ├── NotReady           the task cannot be claimed, changed or retried in the state it is in
│   ├── StoppedTeammate    a message or a claim for someone who was shut down
│   ├── HostLost           the host is not registered, or its heartbeat ran out
│   ├── BudgetSpent        the root's cap does not allow it
│   ├── CoolingDown        the provider key pauses, or the team has used up its minute
│   └── LimitReached       a loop guard: depth, children, tasks of a root, repeats
├── BoardTrouble           the database, not the call
│   ├── BoardBusy          another process held the board for too long
│   ├── BoardFull          no space left on the disk
│   ├── BoardReadOnly
│   ├── BoardTooNew        written by a newer dugnad
│   ├── BoardOnNetworkDisk
│   ├── BoardUnreachable   gone, not there, or not a board
│   └── BoardClosed        by this very process
├── ModelTrouble           there is no reply
│   ├── RateLimited        the provider asks for patience; nothing was billed
│   ├── ModelUnavailable   the provider is in trouble, or cannot be reached; nothing was billed
│   ├── AnswerLost         the request went out and no answer came: it may have been billed
│   ├── ContextOverflow    the request is longer than the model's window
│   ├── RequestRejected    the provider will not take this very request
│   └── ModelMisconfigured the key, the model's name, the quota or the price: a person has to act
└── ToolError              a tool cannot do what was asked; the model is told, and goes on

A message says what happened and what to do next. Where no message is given, the docstring is the message.
"""

from __future__ import annotations


class DugnadError(Exception):
    """Something went wrong."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class BadInput(DugnadError):
    """The call is not well formed."""


class UnknownTask(BadInput):
    """There is no such task; `dugnad tasks` lists them."""


class UnknownTeammate(BadInput):
    """There is no such teammate; `dugnad team` lists them."""


class UnknownHost(BadInput):
    """There is no such host."""


class UnknownReservation(BadInput):
    """There is no such reservation under this claim."""


class UnknownRequest(BadInput):
    """There is no such request; `dugnad inbox` lists what waits for an answer."""


class Cycle(BadInput):
    """The need would close a circle of tasks that wait for one another."""


class BadText(BadInput):
    """The text cannot be stored."""


class BadBoardURL(BadInput):
    """The board's address is neither sqlite:///path nor postgresql://host/database."""


class Refused(DugnadError):
    """Not allowed as the board stands."""


class StaleClaim(Refused):
    """The claim is no longer valid: the task moved on without this holder, who must stop its work."""


class NotReady(Refused):
    """The task is not in a state that allows this."""


class StoppedTeammate(Refused):
    """The teammate was shut down; spawn it again first."""


class HostLost(Refused):
    """The host's heartbeat ran out; send a heartbeat, drop the work it lost, then go on."""


class BudgetSpent(Refused):
    """The root's budget does not allow it; raise it with `dugnad budget`."""

    def __init__(self, message: str, *, kind: str, may_free_up: bool) -> None:
        super().__init__(message)
        self.kind = kind  # tasks, tokens, dollars or seconds.
        self.may_free_up = may_free_up  # True: others hold reservations that may come back.


class CoolingDown(Refused):
    """The provider key cannot take this call now; ask again later."""

    def __init__(self, message: str, *, key: str, seconds: float) -> None:
        super().__init__(message)
        self.key = key
        self.seconds = seconds  # How long to wait before asking again, spread so that waiters do not come as one.


class LimitReached(Refused):
    """A loop guard stopped this; a person has to look."""

    def __init__(self, message: str, *, guard: str) -> None:
        super().__init__(message)
        self.guard = guard


class BoardTrouble(DugnadError):
    """The board's database is in trouble."""


class BoardBusy(BoardTrouble):
    """Another process held the board for too long; nothing was changed. Try again."""


class BoardFull(BoardTrouble):
    """The disk of the board is full; nothing was changed. Free some space and try again."""


class BoardReadOnly(BoardTrouble):
    """The board cannot be written; nothing was changed. Check the file's owner and permissions."""


class BoardTooNew(BoardTrouble):
    """The board was written by a newer dugnad; upgrade this one."""


class BoardOnNetworkDisk(BoardTrouble):
    """SQLite cannot be trusted on a network file system; use a local path or a PostgreSQL board."""


class BoardUnreachable(BoardTrouble):
    """The board cannot be reached."""


class BoardClosed(BoardTrouble):
    """The board was closed; open it again."""


class ModelTrouble(DugnadError):
    """The model gave no reply."""


class RateLimited(ModelTrouble):
    """The provider asks for patience."""

    def __init__(self, message: str, *, seconds: float | None = None) -> None:
        super().__init__(message)
        self.seconds = seconds  # What Retry-After said, if it said anything.


class ModelUnavailable(ModelTrouble):
    """The provider is in trouble; it is asked again later."""


class AnswerLost(ModelTrouble):
    """The request went out and no answer came, so it counts as spent."""


class ContextOverflow(ModelTrouble):
    """The conversation is longer than the model's window."""


class RequestRejected(ModelTrouble):
    """The provider will not take this request."""


class ModelMisconfigured(ModelTrouble):
    """The provider rejects the key or the model's name; set them right and start again."""


class ToolError(DugnadError):
    """The tool cannot do this."""
