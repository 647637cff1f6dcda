"""Every limit, with its unit at the end of its name. Callers pass limits in; nothing here reads the environment.

A file may set a limit to any number above zero. An annotation says where that is different: a number is the least
value, a pair the least and the most, and a text the key in the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a board allows. The defaults suit a team left alone overnight."""

    title_chars_max: int = 200
    body_bytes_max: int = 256 * 1024
    turn_bytes_max: int = 16 * 1024 * 1024
    name_chars_max: int = 40
    key_chars_max: int = 200
    needs_max: int = 1_000  # Of one task.
    batch_max: int = 10_000  # Tasks in one put_many.

    depth_max: Annotated[int, 0] = 10  # Follow-ups of follow-ups.
    children_max: Annotated[int, 0] = 50  # Follow-ups of one task.
    tasks_per_root_max: int = 1_000
    repeats_max: Annotated[int, 0] = 10  # How often an equal follow-up is answered with the existing task.
    attempts_max: int = 3  # Lost or failed attempts before the task fails.
    claims_max: int = 30  # Claims of one task, without those that waited for a person or a budget.
    chain_max: int = 100  # Longer chains count as this long.

    lease_seconds: float = 30.0
    lease_seconds_max: float = 120.0  # A lease that ends later than this from now is void.
    backoff_seconds: Annotated[float, 0] = 2.0  # Doubled with each lost or failed attempt, with jitter.
    backoff_seconds_max: float = 300.0

    cooldown_seconds: Annotated[float, 0] = 5.0  # Of a provider key, doubled with each refusal in a row.
    cooldown_seconds_max: float = 300.0
    cooldown_forget_seconds: float = 120.0  # Without a refusal for this long, counting begins again.
    retry_after_seconds_max: float = 3_600.0  # The longest pause that a provider can ask for.

    page_max: int = 1_000  # Rows of one page of a listing.


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long the board waits for a database before it gives up with an error."""

    busy_seconds: float = 30.0  # For another process that writes (SQLite).
    reconnect_seconds: float = 30.0  # For a server that does not answer (PostgreSQL).
    statement_seconds: float = 30.0
    network_seconds: float = 10.0  # For sent bytes that are not acknowledged.
    poll_seconds: float = 5.0  # Between two sweeps that find what a lost push would have told.


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLimits:
    """What one teammate may do in one attempt at a task."""

    turns_max: int = 50  # Replies of the model in one attempt; then a person is asked.
    output_tokens_max: int = 8_192  # Of one reply.
    model_seconds_max: float = 600.0  # Of one call of a model.
    tool_seconds_max: float = 120.0  # Of one call of a tool.
    tool_chars_max: int = 16_000  # Of a result that the model sees; the whole result is kept.
    tool_bytes_max: int = 4 * 1024 * 1024  # Of a result that is kept.
    odd_replies_max: int = 4  # Empty, cut off or malformed replies in a row before the attempt fails.

    retries_max: Annotated[int, 0] = 4  # Of a failed call, before the provider key cools down.
    retry_seconds: Annotated[float, 0] = 1.0  # Doubled with each retry, with jitter.
    patience_max: int = 30  # How often one call waits for a rate limit or a budget before the task is released.
    quota_seconds_max: Annotated[float, 0] = 0.0  # The longest wait for a spent quota to be reset; 0: the run ends.
    give_back_seconds: Annotated[float, 0] = 300.0  # How long such a released task waits.

    window_tokens_default: int = 32_000  # Of a model with an unknown window.
    micro_share: Annotated[float, (None, 1)] = 0.85  # Of the window: a longer conversation is made shorter,
    low_share: Annotated[float, (0, 1)] = 0.45  # in one go, until it takes no more than this share.
    keep_share: Annotated[float, (0, 1)] = 0.2  # The share of the window that is not summarised.
    summary_tokens_max: int = 2_048
    context_share: Annotated[float, (None, 1)] = 0.4  # Of the window: earlier tasks that are longer become a summary.
    context_tasks_max: int = 50  # Earlier tasks in one conversation; then they become a summary.

    todo_turns: int = 10  # After this many turns without a change, the teammate is reminded of its list.
    consult_turns_max: int = 8
    notes_max: Annotated[int, 0] = 20  # In the packet.
    teammates_max: int = 20  # The largest team that a lead may make.
    packet_chars_max: int = 60_000
    recent_messages_max: Annotated[int, 0] = 12  # To the teammate, and from it, in the packet.


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellLimits:
    """Limits of the commands of one attempt. The sandbox has further limits, for example on memory."""

    seconds: float = 120.0  # Of a command in the foreground, if it asks for no other time.
    seconds_max: float = 1_800.0
    job_seconds: float = 3_600.0  # Of a job in the background.
    job_seconds_max: float = 6 * 3_600.0
    jobs_max: int = 4  # At the same time.
    wait_seconds_max: float = 600.0  # Of one wait for a job.
    output_bytes_max: int = 64 * 1024 * 1024  # Of the output that is kept on disk: of one command,
    outputs_bytes_max: int = 256 * 1024 * 1024  # of one task,
    all_outputs_bytes_max: int = 4 * 1024 * 1024 * 1024  # and of all tasks; the oldest is removed first.


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamLimits:
    """How a host runs its teammates."""

    agents_max: Annotated[int, "agents"] = 3  # The largest team that a host makes while ready work waits.
    agents_start: int = 1  # Teammates that `dugnad run` starts with, but no more than agents_max.
    # After this time without work or a message a teammate stops itself. Infinite: never.
    idle_seconds: Annotated[float, (0, float("inf"))] = 60.0
    sweep_seconds: float = 5.0  # Between two checks whether the team fits the work.
    stop_seconds: Annotated[float, 0] = 10.0  # For running turns when the host is told to stop.
    cancel_seconds: Annotated[float, 0] = 5.0  # For cancelled work to end; then it is abandoned.
    quiet_seconds: float = 1_800.0  # Without a call for so long, a client over MCP gives its task back.
    shutdown_seconds: Annotated[float, 0] = 60.0  # For a teammate to answer a shutdown request; then it is stopped.
    check_rounds_max: Annotated[int, 0] = 3  # How often a failed check goes back to the mind; then the task fails.
    no_place_seconds: float = 60.0  # Before a retry, if a workspace cannot be made or work cannot be merged.
    change_bytes_max: int = 1024**3  # Of all files that one attempt changes or adds; more is not committed.
    review_rounds_max: int = 3  # Reviews of one task; if none approves it, the task fails.
    errand_tasks_max: int = 50  # For an errand outside of any goal, and its follow-ups,
    errand_tokens_max: int = 2_000_000  # if no other budget was given.
