"""One mind: dugnad's own agent, an external one, or a client that works by itself."""
