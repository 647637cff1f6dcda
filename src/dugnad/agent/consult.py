"""A second mind for a moment: it gets a fresh conversation, of which only the answer comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..models.port import Reply, Request, Said
from ..prompts import tell
from ..text import Told, joined
from ..tools.tool import Tool
from .conversation import Conversation
from .model_calls import Asker
from .tool_calls import Actor


async def consult(
    asker: Asker, prompt: str, role: str | None, *, who: Told, tools: Iterable[Tool],
    actor: Callable[[Conversation], Actor],
) -> str:  # fmt: skip
    """Ask it. The budget of the asker's claim pays. `who`: the teammate that asks."""
    claim, board, limits = asker.claim, asker.board, asker.limits
    name, task, specs = claim.teammate, claim.task, tuple(each.spec for each in tools)
    works_on = tell("teammate.task", task=task.id, title=task.title, root=task.root)
    system = tell("teammate.consult", name=f"{name}, as {role}" if role else name, who=joined((who, works_on), " "))
    talk = Conversation(epoch=claim.epoch, to_say=[tell("teammate.consulted", name=name, prompt=prompt)])
    for _ in range(limits.consult_turns_max):
        said = Said(joined(talk.to_say) or tell("teammate.consult_on"))
        request = Request(
            system=system, messages=(*talk.entries, said), tools=specs, output_tokens_max=limits.output_tokens_max,
            seconds_max=limits.model_seconds_max, teammate=name, task=task.id,
            title=f"(consult) {role or ''}".strip(), turn=talk.replies + 1, memory=talk.memory,
        )  # fmt: skip
        answer = await asker.ask(request, await board.budget(task.root))
        await board.spend(claim, answer.reservation, answer.used)
        talk.apply_reply(said, answer.reply)
        if not answer.reply.calls:
            return answer.reply.text.strip() or tell("teammate.no_answer")
        for place in list(talk.open_calls):
            result = await actor(talk).run(place)
            talk.apply_result(place, result.text, bad=result.bad)
    last = next((entry.text for entry in reversed(talk.entries) if isinstance(entry, Reply) and entry.text), "")
    return f"{last}\n{tell('teammate.consult_stopped', turns=limits.consult_turns_max)}".strip()
