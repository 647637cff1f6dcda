"""Where an attempt works: a git worktree, a folder of its own, or the project itself."""
