"""A second mind for a moment: a nested conversation with a fresh context, of which only the answer comes back."""

from __future__ import annotations

from collections.abc import Callable

from ..models.port import Reply, Request, Said
from ..prompts import tell
from ..text import Told, joined
from .conversation import Conversation
from .model_calls import Asker
from .tool_calls import Actor


async def consult(
    asker: Asker, actor_for: Callable[[Conversation], Actor], who: Told, prompt: str, role: str | None
) -> str:
    """Ask until there is an answer. It is paid from the claim's budget; its tools only look."""
    claim, limits = asker.claim, asker.limits
    system = tell("teammate.consult", name=f"{claim.teammate}, as {role}" if role else claim.teammate, who=who)
    asked = tell("teammate.consulted", name=claim.teammate, prompt=prompt)
    talk = Conversation(epoch=claim.epoch, packet=asked, to_say=[asked])
    actor = actor_for(talk)
    specs = tuple(each.spec for each in actor.tools.values())
    for _ in range(limits.consult_turns_max):
        said = Said(joined(talk.to_say) or tell("teammate.consult_on"))
        request = Request(
            system=system, messages=(*talk.entries, said), tools=specs, output_tokens_max=limits.output_tokens_max,
            seconds_max=limits.model_seconds_max, teammate=claim.teammate, task=claim.task.id,
            title=f"(consult) {role or ''}".strip(), turn=talk.replies + 1, memory=talk.memory,
        )  # fmt: skip
        answer = await asker.ask(request, await asker.board.budget(claim.task.root))
        await asker.board.spend(claim, answer.reservation, answer.used)
        talk.apply_reply(said, answer.reply)
        if not answer.reply.calls:
            return answer.reply.text.strip() or tell("teammate.no_answer")
        for place in list(talk.open_calls):
            result = await actor.run(talk, place)
            talk.apply_result(place, result.text, bad=result.bad)
    last = next((entry.text for entry in reversed(talk.entries) if isinstance(entry, Reply) and entry.text), "")
    return f"{last}\n{tell('teammate.consult_stopped', turns=limits.consult_turns_max)}".strip()
