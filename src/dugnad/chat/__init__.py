"""Talking with the lead while the team works."""
