"""The Agent Client Protocol, version 1, from the client's side: about ten messages, read strictly and within bounds.

It knows pipes and messages. It knows no board, no policy and no budget: see `agent/external/sessions.py` for those.
"""
