"""git worktrees and the merge queue, by a git that runs nothing a repository names."""
