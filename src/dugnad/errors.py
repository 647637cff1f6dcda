"""Every error dugnad raises on purpose, one tree.

DugnadError
├── BadInput       the call is wrong; nothing was changed
│   └── UnknownTask, UnknownTeammate, UnknownHost, UnknownReservation, UnknownRequest, Cycle, BadText, BadBoardURL
├── Refused        the call is well formed, but the board does not allow it now; nothing was changed
│   └── StaleClaim, NotReady, StoppedTeammate, HostLost, BudgetSpent, CoolingDown, LimitReached
├── BoardTrouble   the database has a problem, not the call
│   └── BoardBusy, BoardFull, BoardReadOnly, BoardTooNew, BoardOnNetworkDisk, BoardUnreachable, BoardClosed
├── ModelTrouble   the model gave no reply; only AnswerLost may have been billed
│   └── RateLimited, ModelUnavailable, AnswerLost, ContextOverflow, RequestRejected, ModelMisconfigured, QuotaSpent
└── ToolError      a tool cannot do what was asked; the model is told, and goes on

A message says what happened and what to do next. Without a message, the docstring is the message.
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
    """There is no such request; `dugnad inbox` lists the open ones."""


class Cycle(BadInput):
    """The need would make tasks wait for one another in a circle."""


class BadText(BadInput):
    """The text cannot be stored: it is empty or too long, or holds a NUL or half a surrogate pair."""


class BadBoardURL(BadInput):
    """The board's address is neither sqlite:///path nor postgresql://host/database."""


class Refused(DugnadError):
    """The board does not allow this now."""


class StaleClaim(Refused):
    """The claim is no longer valid: the task has a newer epoch. Stop working on it."""


class NotReady(Refused):
    """The state of the task does not allow this."""


class StoppedTeammate(Refused):
    """The teammate was shut down; spawn it again first."""


class HostLost(Refused):
    """The host's lease ran out; send a heartbeat, drop the work that it lost, then go on."""


class BudgetSpent(Refused):
    """The goal's budget does not allow this; raise it with `dugnad budget`."""

    def __init__(self, message: str, *, kind: str, may_free_up: bool) -> None:
        super().__init__(message)
        self.kind = kind  # tasks, tokens, dollars or seconds.
        self.may_free_up = may_free_up  # True: other tasks hold reservations that may be given back.


class CoolingDown(Refused):
    """The provider key cools down, or the team has used up its rate limit; ask again later."""

    def __init__(self, message: str, *, key: str, seconds: float) -> None:
        super().__init__(message)
        self.key = key
        self.seconds = seconds  # How long to wait before asking again; it has jitter.


class LimitReached(Refused):
    """A loop guard stopped this; a person must look at it."""

    def __init__(self, message: str, *, guard: str) -> None:
        super().__init__(message)
        self.guard = guard  # depth, children, tasks or repeats.


class BoardTrouble(DugnadError):
    """The board's database has a problem."""


class BoardBusy(BoardTrouble):
    """Another process locked the board for too long; nothing was changed. Try again."""


class BoardFull(BoardTrouble):
    """The disk of the board is full; nothing was changed. Free some space, then try again."""


class BoardReadOnly(BoardTrouble):
    """The board cannot be written; nothing was changed. Check the file's owner and permissions."""


class BoardTooNew(BoardTrouble):
    """The board was written by a newer dugnad; upgrade this one."""


class BoardOnNetworkDisk(BoardTrouble):
    """SQLite can lose writes on a network file system; use a local path or a PostgreSQL board."""


class BoardUnreachable(BoardTrouble):
    """The board does not answer, does not exist, or is not a board."""


class BoardClosed(BoardTrouble):
    """The board was closed; open it again."""


class ModelTrouble(DugnadError):
    """The model gave no reply."""


class RateLimited(ModelTrouble):
    """The provider asks to wait."""

    def __init__(self, message: str, *, seconds: float | None = None) -> None:
        super().__init__(message)
        self.seconds = seconds  # The value of Retry-After, if there was one.


class ModelUnavailable(ModelTrouble):
    """The provider fails; the call is repeated later."""


class AnswerLost(ModelTrouble):
    """The request was sent and no answer came, so it counts as spent."""


class ContextOverflow(ModelTrouble):
    """The conversation is longer than the model's window."""


class RequestRejected(ModelTrouble):
    """The provider does not accept this request."""


class ModelMisconfigured(ModelTrouble):
    """The provider rejects the key, the model's name, or the account; correct it and start again."""


class QuotaSpent(ModelMisconfigured):
    """The account or the subscription has nothing left."""

    def __init__(self, message: str, *, seconds: float | None = None) -> None:
        super().__init__(message)
        self.seconds = seconds  # Until there is more again, if the provider said so.


class ToolError(DugnadError):
    """The tool cannot do this."""
