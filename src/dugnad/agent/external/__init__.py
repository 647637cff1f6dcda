"""Somebody else's agent as a teammate's mind: a command that is run in the workspace."""
