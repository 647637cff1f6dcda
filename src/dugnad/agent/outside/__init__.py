"""A mind outside of dugnad: a client that asks for tasks, works on them by itself, and says how they end."""
