"""Where work happens: commands in a sandbox, files, git worktrees. Only this layer knows a sandbox or git."""
