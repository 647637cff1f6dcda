"""Asking a model: the port, the providers behind it, prices, and the scripted model."""

from .opening import open_model
from .scripted import ScriptedModel
from .talk import Facts, Model, Price, Reply, Request, ToolCall, Usage

__all__ = ["Facts", "Model", "Price", "Reply", "Request", "ScriptedModel", "ToolCall", "Usage", "open_model"]
