"""Asking a model within the budget: reserve, ask, and what to do when there is no reply.

A rate limit is state and not a failure: the provider's key cools down for the whole team, and the call is made again.
What may have been billed counts as spent. When patience is over, the task is put down; it never fails for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..board import Board
from ..clock import Sources
from ..errors import AnswerLost, BudgetSpent, CoolingDown, ModelTrouble, ModelUnavailable, QuotaSpent, RateLimited
from ..logs import logger
from ..logs.steps import step
from ..models.port import Model, Reply, Request, Usage
from ..settings import AgentLimits
from ..text import clean, length, one_line
from ..types import Amount, Claim, Outcome, Pace, Released, Spending, Waiting
from .conversation import BYTES_PER_TOKEN, estimate_tokens, size_bytes
from .stop import Stop

_LOG = logger(__name__)
_OUTPUT_TOKENS_MIN = 256  # It is no use to ask for fewer.


class PutDown(Exception):
    """The attempt ends here, with this outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(str(outcome))
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A reply with what it cost, not settled yet."""

    reply: Reply
    used: Amount
    reservation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Asks one model on behalf of one claim."""

    board: Board
    claim: Claim
    model: Model
    limits: AgentLimits
    sources: Sources
    pace: Pace
    stop: Stop = field(default_factory=Stop)
    doing: Callable[[str], None] = lambda what: None  # Is told what the mind waits for, for people who watch.

    async def ask(self, request: Request, spending: Spending, known_tokens: int = 0) -> ModelAnswer:
        failures = waits = 0
        why = "its rate limit or the budget left no room"
        input_tokens = estimate_tokens(request, known_tokens)
        while waits < self.limits.patience_max:
            if failures or waits:
                spending = await self.board.budget(self.claim.task.root)
            reserved = await self._reserve(request, spending, input_tokens)
            if reserved is None:
                waits += 1
                continue
            fitted, amount, reservation = reserved
            began = self.sources.working_ms()
            try:
                reply = await self._reply(fitted)
            except RateLimited as limited:
                _LOG.warning("model-limited model=%s seconds=%s", self.model.name, limited.seconds)
                await self._return(reservation)
                waits, why = waits + 1, str(limited)
                await self._cool_down(limited.seconds, why)
            except QuotaSpent as spent_quota:
                await self._return(reservation)
                if spent_quota.seconds is None or spent_quota.seconds > self.limits.quota_seconds_max:
                    raise
                waits, why = waits + 1, str(spent_quota)
                await self._cool_down(max(1.0, spent_quota.seconds), why)
            except (ModelUnavailable, AnswerLost) as trouble:
                # The time is known. Of a lost answer it is not known what was billed, so all of it counts.
                spent = max(0, min(self.sources.working_ms() - began, amount.milliseconds))
                lost = amount if isinstance(trouble, AnswerLost) else Amount()
                await self.board.spend(self.claim, reservation, replace(lost, milliseconds=spent))
                failures, why = failures + 1, str(trouble)
                _LOG.warning("model-failed model=%s ms=%d failures=%d why=%s", self.model.name, spent, failures, why)
                self.doing(f"waits for {self.model.name}: {one_line(why, 60)}")
                if failures > self.limits.retries_max and isinstance(trouble, AnswerLost):
                    break  # This one request gets no answer; the provider may answer others.
                if failures > self.limits.retries_max:
                    failures, waits = 0, waits + 1
                    await self._cool_down(None, why)
                else:
                    await asyncio.sleep(self.limits.retry_seconds * 2 ** (failures - 1) * (0.5 + self.sources.chance()))
            except ModelTrouble:  # The provider refused it, so it cost nothing. The caller knows what to do.
                await self._return(reservation)
                raise
            else:
                # The call was cut at what was reserved; time beyond that is our own.
                spent = min(self.sources.working_ms() - began, amount.milliseconds)
                used = used_by(reply, self.model, input_tokens, spent)
                tries = failures + waits
                _LOG.info("model-called model=%s tokens=%d ms=%d retries=%d", reply.model, used.tokens, spent, tries)
                return ModelAnswer(reply, used, reservation)
        rested = waits >= self.limits.patience_max  # Nothing is wrong with the work, so it continues later.
        raise PutDown(Released(f"{self.model.name} gave no reply: {why}", self.limits.give_back_seconds, resume=rested))

    async def _reply(self, request: Request) -> Reply:
        with step("chat", self.model.name, request=request) as facts:
            reply = facts["reply"] = sound(await self.model.ask(request))
        return reply

    async def _return(self, reservation: str) -> None:
        await self.board.spend(self.claim, reservation, Amount())

    async def _cool_down(self, seconds: float | None, reason: str) -> None:
        await self.board.cool_down(self.model.key, seconds=seconds, reason=reason, by=self.claim.teammate)

    async def _reserve(
        self, request: Request, spending: Spending, input_tokens: int
    ) -> tuple[Request, Amount, str] | None:
        """The request as it fits, what it may cost and the reservation; or None after a wait for the provider, or for
        others. PutDown when waiting is no use."""
        try:
            return await self._reserve_now(request, spending, input_tokens)
        except BudgetSpent:
            pass
        # Others hold what is missing. Ask again whenever one of them gives something back; a quiet minute is a wait.
        root = self.claim.task.root
        with self.board.watch([f"budget:{root}"]) as watch:
            while True:
                try:
                    return await self._reserve_now(request, await self.board.budget(root), input_tokens)
                except BudgetSpent:
                    if not await watch.wait(60):
                        return None

    async def _reserve_now(
        self, request: Request, spending: Spending, input_tokens: int
    ) -> tuple[Request, Amount, str] | None:
        """BudgetSpent only if others may give something back."""
        fitted = fit(request, spending, input_tokens, self.model)
        amount = reserved_for(fitted, input_tokens, self.model)
        try:
            return fitted, amount, await self.board.reserve(self.claim, amount, pace=self.pace)
        except CoolingDown as cooling:
            _LOG.info("model-cooling model=%s seconds=%.1f", self.model.name, cooling.seconds)
            self.doing(f"waits {length(cooling.seconds * 1000)}: {one_line(str(cooling), 60)}")
            await self.stop.unless(asyncio.sleep(cooling.seconds))  # It may be hours until a quota is reset.
            if self.stop:
                raise PutDown(Released(self.stop.why, resume=True)) from None
            return None
        except BudgetSpent as spent:
            if spent.may_free_up:
                raise
            _LOG.warning("budget-reached root=%d kind=%s", self.claim.task.root, spent.kind)
            raise PutDown(Waiting(on="budget", question=str(spent), amount=amount)) from None


def worst(model: Model, input_tokens: int, output_tokens: int) -> int:
    """The most that a call can cost: all of its input written to the provider's cache, if that costs more."""
    if model.facts.price is None:
        return 0
    plain = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
    written = replace(plain, cache_write_tokens=input_tokens)
    return max(model.facts.price.microdollars(plain), model.facts.price.microdollars(written))


def reserved_for(request: Request, input_tokens: int, model: Model) -> Amount:
    return Amount(
        tokens=input_tokens + request.output_tokens_max,
        microdollars=worst(model, input_tokens, request.output_tokens_max),
        milliseconds=int(request.seconds_max * 1000),
    )


def used_by(reply: Reply, model: Model, input_tokens: int, milliseconds: int) -> Amount:
    """What a reply cost by the provider's count, or by ours if it gives none: a reply is never free."""
    price, usage = model.facts.price, reply.usage
    if not usage.tokens:
        usage = Usage(input_tokens=input_tokens, output_tokens=1 + size_bytes(reply) // BYTES_PER_TOKEN)
    microdollars = price.microdollars(usage) if price else 0
    return Amount(tokens=usage.tokens, microdollars=microdollars, milliseconds=max(0, milliseconds))


def fit(request: Request, spending: Spending, input_tokens: int, model: Model) -> Request:
    """The request with no longer output, and no longer wait, than the budget has left.

    While others hold a part of the budget, very little is not worth asking for: they will give some back.
    """
    output, seconds = request.output_tokens_max, request.seconds_max
    alone = spending.reserved == Amount()
    least = _OUTPUT_TOKENS_MIN if alone else max(_OUTPUT_TOKENS_MIN, output // 4)
    least_seconds = 1.0 if alone else max(1.0, seconds / 10)
    if (left := spending.left("tokens")) is not None:
        output = min(output, max(least, left - input_tokens))
    if (left := spending.left("microdollars")) is not None and model.facts.price is not None:
        paid = worst(model, input_tokens, 0)
        affordable = int((left - paid) / model.facts.price.output) if model.facts.price.output else output
        output = min(output, max(least, affordable))
    if (left := spending.left("milliseconds")) is not None:
        seconds = min(seconds, max(least_seconds, left / 1000))
    if (output, seconds) == (request.output_tokens_max, request.seconds_max):
        return request
    return replace(request, output_tokens_max=output, seconds_max=seconds)


def sound(reply: Reply) -> Reply:
    """A reply that can be written down: half a surrogate pair cannot."""
    calls = tuple(replace(call, name=clean(call.name), arguments=clean(call.arguments)) for call in reply.calls)
    if clean(reply.text) == reply.text and calls == reply.calls:
        return reply
    return replace(reply, text=clean(reply.text), calls=calls, native=None)
