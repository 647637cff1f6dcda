"""Asking a model: the port, the providers behind it, prices, and the scripted model."""

from .open import open_model
from .port import Facts, Model, Price, Reply, Request, ToolCall, Usage
from .scripted import ScriptedModel

__all__ = ["Facts", "Model", "Price", "Reply", "Request", "ScriptedModel", "ToolCall", "Usage", "open_model"]
