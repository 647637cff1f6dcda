"""What `make test` leaves to `make proof`: the rest of a long list, of which it runs a sample."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import pytest

# Outside the board's own tests the database changes little but the time they take, so there `make test` runs on SQLite
# and `make proof` on PostgreSQL. These are about several processes and one board, and run on both in `make test`.
ON_BOTH = (
    "tests/board/", "tests/chaos/", "tests/crash/", "tests/cli/test_policy_commands.py", "tests/team/test_host.py",
    "tests/team/test_worker.py", "tests/team/test_many_hosts.py", "tests/team/test_partition.py",
)  # fmt: skip


def sample(values: Iterable[Any], keep: Callable[[Any], bool]) -> list[Any]:
    """Parameters for a test: `make test` runs those to keep, `make proof` the others."""
    return [value if keep(value) else pytest.param(value, marks=pytest.mark.proof) for value in values]


def every(step: int, values: Iterable[Any]) -> list[Any]:
    """Parameters for a test: `make test` runs each `step`-th of them, `make proof` the others."""
    kept = (place % step == 0 for place in itertools.count())
    return sample(values, lambda value: next(kept))


# What starts many programs or tries many variants of one rule. `make test` runs the first of so many, `make proof` all
# others; with 0, `make proof` runs them all.
ONE_IN = {
    "tests/agent/test_acp.py::test_a_session_that_cannot_be_held": 3,
    "tests/agent/test_acp.py::test_a_session_that_takes_too_long": 2,
    "tests/agent/test_acp.py::test_a_stop_reason_that_nobody": 5,
    "tests/agent/test_acp.py::test_the_status_of_its_provider": 3,
    "tests/agent/test_acp_asking.py::test_a_form_becomes": 3,
    "tests/agent/test_acp_asking.py::test_a_permission_is_answered": 3,
    "tests/agent/test_acp_server.py::test_a_request": 3,
    "tests/agent/test_acp_tools.py::test_a_crash_in_the_middle": 3,
    "tests/agent/test_external.py::test_a_run_that_fails": 4,
    "tests/agent/test_external.py::test_an_answer_that_is_not_understood": 4,
    "tests/agent/test_external_voice.py::test_what_the_policy_asks": 2,
    "tests/board/test_answer_lost.py::test_a_commit_that_never": 3,
    "tests/board/test_answer_lost.py::test_the_answer_of_a_done": 2,
    "tests/board/test_fairness.py::test_processes_that_come_and_go": 0,
    "tests/board/test_fairness.py": 0,
    "tests/board/test_flushed.py::test_what_a_repeated": 0,
    "tests/board/test_many_processes.py": 2,
    "tests/board/test_opening.py::test_ten_processes": 2,
    "tests/board/test_reconnect.py::test_a_server_that_is_stopped": 0,
    "tests/board/test_watch.py::test_a_lost_push_about": 2,
    "tests/chaos/test_chaos.py::test_hosts": 0,
    "tests/cli/test_chat_caps.py::test_each_cap": 3,
    "tests/cli/test_commands_documented.py::test_the_json": 2,
    "tests/cli/test_commands_live.py": 0,
    "tests/cli/test_demo.py": 0,
    "tests/cli/test_doctor.py::test_a_board_that_cannot_be_written": 0,
    "tests/cli/test_doctor.py::test_what_is_no_board": 4,
    "tests/cli/test_other_agents.py": 3,
    "tests/cli/test_plan_of_a_run.py": 3,
    "tests/cli/test_planted_boards.py::test_odd_contents": 3,
    "tests/cli/test_policy_commands.py::test_a_project_narrows": 4,
    "tests/cli/test_policy_commands.py::test_kill_9": 2,
    "tests/cli/test_preflight.py::test_a_memory": 0,
    "tests/cli/test_preflight.py::test_a_tree_that_a_killed": 0,
    "tests/cli/test_preflight.py::test_ctrl_c": 0,
    "tests/cli/test_preflight.py::test_what_is_known_of_one_project": 0,
    "tests/cli/test_queue_of_a_run.py": 0,
    "tests/cli/test_remote_of_a_run.py::test_a_host_that_nobody": 0,
    "tests/cli/test_remote_of_a_run.py::test_the_users_file": 0,
    "tests/cli/test_run_pipe.py::test_a_reader_that_leaves": 2,
    "tests/cli/test_run_pipe.py::test_a_signal": 2,
    "tests/cli/test_run_pipe.py::test_json_is_one_object": 4,
    "tests/cli/test_run_pipe.py::test_others_look_on": 0,
    "tests/cli/test_run_pipe.py::test_work_takes": 0,
    "tests/cli/test_run_terminal.py::test_a_window": 0,
    "tests/cli/test_run_terminal.py::test_control_c_twice": 0,
    "tests/cli/test_run_terminal.py::test_control_z": 0,
    "tests/cli/test_run_terminal.py::test_the_live_view_shows_the_whole": 0,
    "tests/cli/test_run_terminal.py::test_two_terminals": 0,
    "tests/cli/test_run_terminal.py::test_work_shows": 0,
    "tests/cli/test_run_terminal.py::test_work_that_finds_nothing": 0,
    "tests/cli/test_running_troubles.py::test_a_full_disk": 0,
    "tests/cli/test_running_troubles.py::test_control_c_ends_a_run_whose": 0,
    "tests/cli/test_sandbox_of_a_run.py::test_no_file_of_a_project": 3,
    "tests/cli/test_sandbox_of_a_run.py::test_without_one": 2,
    "tests/cli/test_servers_command.py::test_a_run_for_a_program": 0,
    "tests/cli/test_servers_command.py::test_a_run_uses": 0,
    "tests/cli/test_servers_command.py::test_approving_shows": 0,
    "tests/cli/test_servers_command.py::test_on_a_terminal": 2,
    "tests/cli/test_servers_command.py::test_what_changed": 0,
    "tests/cli/test_service.py::test_a_board_that_is_away": 0,
    "tests/cli/test_service.py::test_a_remote_that_is_away": 0,
    "tests/cli/test_strange_folders.py": 3,
    "tests/cli/test_wrong_things.py::test_a_real_shell": 12,
    "tests/cli/test_wrong_things.py::test_letters_in_a_language": 0,
    "tests/cli/test_wrong_things.py": 4,
    "tests/cli/test_wrong_use.py::test_bad_use": 2,
    "tests/config/test_wrong_toml.py::test_a_table": 0,
    "tests/crash/test_every_step.py::test_a_task_that_is_stopped_again": 0,
    "tests/crash/test_team_killed.py": 2,
    "tests/mcp/test_install.py::test_tokens_are_made": 0,
    "tests/mcp/test_stdio.py::test_a_client_without": 0,
    "tests/mcp/test_stdio.py::test_a_name_that_is_taken": 0,
    "tests/mcp/test_stdio.py::test_a_project_that_is_not_trusted": 0,
    "tests/mcp/test_stdio.py::test_a_signal": 0,
    "tests/mcp/test_stdio.py::test_killed_it_gives": 3,
    "tests/mcp/test_stdio.py::test_killed_with": 0,
    "tests/mcp/test_stdio.py::test_lines_that": 0,
    "tests/mcp/test_stdio.py::test_many_calls": 0,
    "tests/mcp/test_stdio.py::test_the_end_of_its_input": 0,
    "tests/models/test_fold.py::test_a_fold_gives": 4,
    "tests/models/test_fold_broken.py::test_an_error_in_a_stream": 4,
    "tests/models/test_troubles.py": 4,
    "tests/models/test_wire.py": 2,
    "tests/real_agents/test_acp.py": 0,
    "tests/real_agents/test_agents_page.py::test_a_command": 0,
    "tests/real_agents/test_alone.py": 0,
    "tests/real_agents/test_commands.py": 0,
    "tests/real_agents/test_mcp.py": 3,
    "tests/real_agents/test_mcp_troubles.py": 0,
    "tests/simulation/test_mutants.py::test_a_planted_bug_is": 2,
    "tests/simulation/test_sweep.py::test_a_seed_is_the_same": 0,
    "tests/simulation/test_sweep.py::test_a_sweep_prints": 0,
    "tests/simulation/test_sweep.py::test_wrong_use": 4,
    "tests/team/test_board_trouble.py": 3,
    "tests/team/test_clock_jumps.py::test_of_two_hosts": 3,
    "tests/team/test_credit.py::test_what_a_lost_host": 2,
    "tests/team/test_dropped_anywhere.py": 0,
    "tests/team/test_machines.py::test_a_lock_left": 0,
    "tests/team/test_machines.py::test_a_mind_that_had_finished": 3,
    "tests/team/test_machines.py::test_a_task_that_waited": 0,
    "tests/team/test_machines.py::test_two_boards": 0,
    "tests/team/test_machines.py::test_what_a_person_must_mend": 2,
    "tests/team/test_machines.py::test_work_is_reviewed": 0,
    "tests/team/test_many_hosts.py::test_a_frozen_host": 2,
    "tests/team/test_many_hosts.py::test_a_killed_hosts_work": 2,
    "tests/team/test_many_hosts.py::test_hosts_share": 0,
    "tests/team/test_merge_fire.py": 0,
    "tests/team/test_merge_turns.py::test_machines_that_finish": 0,
    "tests/team/test_named_tools.py::test_a_worker_and_its": 3,
    "tests/team/test_proportionate_reviews.py::test_small_work": 3,
    "tests/team/test_remote_fire.py": 0,
    "tests/team/test_reviews_by_commands.py::test_work_whose_test": 0,
    "tests/team/test_servers.py::test_a_server_over_http": 0,
    "tests/team/test_tmp_of_attempts.py::test_the_commands": 3,
    "tests/team/test_two_versions.py": 0,
    "tests/team/test_worktree_troubles.py::test_a_board_in_trouble": 3,
    "tests/team/test_worktree_troubles.py::test_what_cannot_be_committed": 2,
    "tests/test_time_limit.py": 0,
    "tests/test_tutorial.py": 0,
    "tests/tools/test_mcp_client.py::test_a_bad_server": 12,
    "tests/tools/test_mcp_client.py::test_a_server_that_hangs": 0,
    "tests/tools/test_mcp_client.py::test_an_http_server_that_comes_back": 0,
    "tests/tools/test_mcp_client.py::test_an_http_server_that_forgot": 0,
    "tests/web/test_accessible.py::test_every_view": 1,
    "tests/web/test_accessible.py": 0,
    "tests/web/test_acts.py::test_a_comment": 2,
    "tests/web/test_acts.py::test_a_note": 0,
    "tests/web/test_acts.py::test_a_teammate_is_stopped": 0,
    "tests/web/test_acts.py::test_a_tool_call": 0,
    "tests/web/test_acts.py::test_all_tasks": 0,
    "tests/web/test_browser.py::test_what_a_page": 4,
    "tests/web/test_history.py::test_any_event": 0,
    "tests/web/test_hostile.py::test_no_view": 1,
    "tests/web/test_hostile.py": 0,
    "tests/web/test_keyboard.py::test_two_keys": 1,
    "tests/web/test_keyboard.py": 0,
    "tests/web/test_live.py::test_a_page_shows": 1,
    "tests/web/test_live.py": 0,
    "tests/web/test_many.py": 0,
    "tests/web/test_restart.py": 0,
    "tests/web/test_stream.py::test_a_log_that_was": 0,
    "tests/web/test_stream.py::test_a_reader_that_reads_nothing": 0,
    "tests/web/test_time_machine_page.py::test_keys_step": 1,
    "tests/web/test_time_machine_page.py": 0,
    "tests/web/test_views.py::test_a_person_without": 0,
    "tests/web/test_views.py::test_an_empty_board": 0,
    "tests/web/test_views.py::test_every_view_has": 0,
    "tests/web/test_views.py::test_the_filter": 0,
    "tests/web/test_web_command.py::test_a_page_keeps": 0,
    "tests/web/test_web_command.py::test_an_origin": 5,
    "tests/web/test_web_command.py::test_another_address": 2,
    "tests/web/test_web_command.py::test_other_loopback": 2,
    "tests/web/test_why.py::test_ten_thousand": 0,
    "tests/web/test_widths.py::test_every_view": 1,
    "tests/web/test_widths.py": 0,
    "tests/workspace/test_escapes.py::test_every_attempt": 2,
    "tests/workspace/test_escapes.py::test_without_one_option": 0,
    "tests/workspace/test_git_attacks.py": 6,
    "tests/workspace/test_git_obstacles.py::test_a_git_that_uses": 0,
    "tests/workspace/test_git_obstacles.py::test_patterns_that": 0,
    "tests/workspace/test_git_obstacles.py::test_what_a_check_leaves": 3,
    "tests/workspace/test_git_obstacles.py::test_what_a_lost_host_left": 3,
    "tests/workspace/test_git_obstacles.py::test_what_was_given_up": 3,
    "tests/workspace/test_merging.py::test_killed_before": 0,
    "tests/workspace/test_network_escapes.py": 8,
    "tests/workspace/test_ordinary_jobs.py": 5,
    "tests/workspace/test_remote.py::test_a_tree_that_lacks": 4,
    "tests/workspace/test_remote.py::test_both_land": 1,
    "tests/workspace/test_remote.py::test_what_one_machine": 1,
    "tests/workspace/test_remote.py": 0,
    "tests/workspace/test_remote_attacks.py": 0,
    "tests/workspace/test_remote_troubles.py::test_only_the_target": 1,
    "tests/workspace/test_remote_troubles.py": 0,
    "tests/workspace/test_remote_variants.py": 0,
    "tests/workspace/test_remote_ways.py::test_over_https": 0,
    "tests/workspace/test_remote_ways.py::test_what_cannot": 4,
    "tests/workspace/test_searching.py::test_a_renaming": 0,
    "tests/workspace/test_searching.py::test_an_expression": 0,
    "tests/workspace/test_starter.py::test_two_hundred": 0,
    "tests/workspace/test_updating.py::test_stopped_at_any_step": 5,
}  # fmt: skip

# What a verb refuses before it asks the database, in many variants, and what takes long on PostgreSQL. `make test` runs
# all of it on SQLite, and on PostgreSQL the first of so many.
ONE_IN_ON_POSTGRES = {
    "tests/crash/test_every_step.py::test_a_task_stopped": 0,
    "tests/board/test_growing_boards.py": 0,
    "tests/board/test_budgets.py::test_a_budget_that_is_no_quantity": 8,
    "tests/board/test_budgets.py::test_an_amount_that_is_no_quantity": 4,
    "tests/board/test_members.py::test_a_name_that_cannot_be": 4,
    "tests/board/test_names.py": 12,
    "tests/board/test_numbers.py": 4,
    "tests/board/test_settle.py::test_a_malformed_outcome": 4,
    "tests/board/test_tasks.py::test_one_bad_entry": 4,
    "tests/board/test_texts.py::test_names_and_keys": 4,
    "tests/board/test_texts.py::test_what_cannot_be_stored": 4,
}


VARIANTS_ON_POSTGRES = 4  # Of any other test with variants, PostgreSQL gets each fourth one.


@cache
def _steps(file: str, on_postgres: bool) -> dict[str, int]:
    """The rules for the tests of this file, and of the folders that it is in."""
    every = ONE_IN | ONE_IN_ON_POSTGRES if on_postgres else ONE_IN
    return {name: step for name, step in every.items() if file.startswith(name.partition("::")[0])}


def leave_to_proof(items: Iterable[pytest.Item]) -> None:
    counted = Counter[tuple[str, bool]]()
    for item in items:
        call = getattr(item, "callspec", None)
        test, _, _ = item.nodeid.partition("[")
        on_postgres = call is not None and call.params.get("url") == "postgres"
        usual = VARIANTS_ON_POSTGRES if on_postgres and len(call.params) > 1 else 1
        steps = _steps(test.partition("::")[0], on_postgres)
        step = next((step for name, step in steps.items() if test.startswith(name)), usual)
        if on_postgres and not test.startswith(ON_BOTH):
            item.add_marker(pytest.mark.proof)
        elif item.get_closest_marker("proof") is None:
            counted[test, on_postgres] += 1
            if step == 0 or (counted[test, on_postgres] - 1) % step:
                item.add_marker(pytest.mark.proof)
