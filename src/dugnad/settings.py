"""Every limit, by name, with its unit last. Handed in; never read from the environment here.

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
    repeats_max: Annotated[int, 0] = 10  # Times an equal follow-up is answered with the one that exists.
    attempts_max: int = 3  # Lost or failed attempts before the task fails.
    claims_max: int = 30  # Claims of one task, but for those that waited for a person or a budget, or were put down.
    chain_max: int = 100  # Chains longer than this count as this long.

    lease_seconds: float = 30.0
    lease_seconds_max: float = 120.0  # A lease that ends later than this from now is void.
    backoff_seconds: Annotated[float, 0] = 2.0  # Doubled with each lost or failed attempt, with jitter.
    backoff_seconds_max: float = 300.0

    cooldown_seconds: Annotated[float, 0] = 5.0  # Of a provider key, doubled with each strike.
    cooldown_seconds_max: float = 300.0
    cooldown_forget_seconds: float = 120.0  # After so long without one, strikes are counted from 1 again.
    retry_after_seconds_max: float = 3_600.0  # A provider that names a longer pause is not believed.

    page_max: int = 1_000  # Rows of one page of a listing.


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long the board waits for a database before it gives up with an error."""

    busy_seconds: float = 30.0  # For another process that writes (SQLite).
    reconnect_seconds: float = 30.0  # For a server that went away (PostgreSQL).
    statement_seconds: float = 30.0
    network_seconds: float = 10.0  # For unacknowledged bytes on the wire.
    poll_seconds: float = 5.0  # The slow sweep behind a lost push.


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLimits:
    """What one teammate may do in one attempt at a task."""

    turns_max: int = 50  # Replies of the model in one attempt; then a person is asked.
    output_tokens_max: int = 8_192  # Of one reply.
    model_seconds_max: float = 600.0  # Of one call of a model.
    tool_seconds_max: float = 120.0  # Of one call of a tool.
    tool_chars_max: int = 16_000  # Of a result the model is shown; the whole is kept.
    tool_bytes_max: int = 4 * 1024 * 1024  # Of a result that is kept.
    odd_replies_max: int = 4  # Empty, cut off or malformed replies in a row before the attempt fails.

    retries_max: Annotated[int, 0] = 4  # Of a call the provider failed, before its key cools down.
    retry_seconds: Annotated[float, 0] = 1.0  # Doubled with each retry, with jitter.
    patience_max: int = 30  # Times one call waits for a rate limit or a budget before the task is given back.
    give_back_seconds: Annotated[float, 0] = 300.0  # How long a task that was given back so rests.

    window_tokens_default: int = 32_000  # Of a model nobody knows the window of.
    micro_share: Annotated[float, (None, 1)] = 0.5  # Of the window: from here old tool results are shortened.
    compact_share: Annotated[float, (None, 1)] = 0.75  # From here the older part becomes a summary.
    keep_share: Annotated[float, (0, 1)] = 0.2  # What of the window stays word for word after that.
    summary_tokens_max: int = 2_048

    todo_turns: int = 10  # Turns after which an untouched list is brought back to mind.
    consult_turns_max: int = 8
    notes_max: Annotated[int, 0] = 20  # In the packet.
    teammates_max: int = 20  # To which a lead may grow the team.
    packet_chars_max: int = 60_000
    recent_messages_max: Annotated[int, 0] = 12  # Of what the teammate was told, and of what it said, in the packet.


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellLimits:
    """What the commands of one attempt may take. Each has its own bounds on memory and the like besides."""

    seconds: float = 120.0  # Of a command that is waited for and asks for no other time.
    seconds_max: float = 1_800.0
    job_seconds: float = 3_600.0  # Of one in the background.
    job_seconds_max: float = 6 * 3_600.0
    jobs_max: int = 4  # In the background at one time.
    wait_seconds_max: float = 600.0  # Of one wait for a job.
    output_bytes_max: int = 64 * 1024 * 1024  # Of one command's output that is kept on disk,
    outputs_bytes_max: int = 256 * 1024 * 1024  # of a task's,
    all_outputs_bytes_max: int = 4 * 1024 * 1024 * 1024  # and of all tasks'; the oldest go first.


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamLimits:
    """How a host runs its teammates."""

    agents_max: Annotated[int, "agents"] = 3  # Teammates a host grows the team to while ready work waits.
    agents_start: int = 3  # Teammates `dugnad run` starts with, if so many are allowed.
    # Without work or a message; then a teammate shuts itself down. Infinite: never.
    idle_seconds: Annotated[float, (0, float("inf"))] = 60.0
    sweep_seconds: float = 5.0  # Between two looks at whether the team fits the work.
    stop_seconds: Annotated[float, 0] = 10.0  # For turns under way when the host is told to stop.
    cancel_seconds: Annotated[float, 0] = 5.0  # For work that was cancelled to let go; then it is left behind.
    shutdown_seconds: Annotated[float, 0] = 60.0  # For a teammate to answer a request to do so; then it is shut down.
    check_rounds_max: Annotated[int, 0] = 3  # Times a red check goes back to the mind; then the task fails.
    no_place_seconds: float = 60.0  # Until work is tried again that has no place, or cannot be brought where it counts.
    change_bytes_max: int = 1024**3  # Of all files that one attempt changes or adds; more of it is not committed.
    review_rounds_max: int = 3  # Times a task's work is looked at; if it is not approved by then, the task fails.
    errand_tasks_max: int = 50  # For what a person asks for outside any goal, and all that follows from it,
    errand_tokens_max: int = 2_000_000  # where no other budget was given.
