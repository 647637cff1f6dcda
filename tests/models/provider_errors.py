"""What goes wrong at a provider: a Fault, and the errors of four protocols as the providers word them.

Knows which error types and codes belong to which status. Does not know when a Fault happens; that is `provider_server`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.models.provider_shapes import SERIAL, Answer, Object, Protocol, dump, named, unnamed

ANTHROPIC_ERRORS = {
    400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
    404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 504: "timeout_error",
    529: "overloaded_error",
}  # fmt: skip
OPENAI_ERRORS: Mapping[int, tuple[str, str | None]] = {
    401: ("invalid_request_error", "invalid_api_key"), 404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"), 500: ("server_error", None), 503: ("server_error", "service_unavailable"),
    529: ("server_error", "server_is_overloaded"),
}  # fmt: skip
GEMINI_ERRORS = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED", 529: "UNAVAILABLE",
}  # fmt: skip
UNFINISHED = Answer(text="An answer that does not reach its end, though it is long enough to be cut in the middle.")
MESSAGES = {429: "Rate limit reached.", 503: "The service is unavailable.", 529: "Overloaded"}


@dataclass(kw_only=True)
class Fault:
    """What goes wrong instead. Without a cut, a hang or an error in the stream it is an HTTP error with `status`."""

    status: int = 500
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None  # None: an error body in the provider's shape is made.
    overflow: bool = False  # The prompt is too long for the model; `status` is then 400.
    answer: Answer = UNFINISHED  # What is begun before it goes wrong.
    cut_after_bytes: int | None = None  # Close after so many bytes of the body; 0: not even a status line.
    cut_cleanly: bool = False  # With the above (1 or more): as if that were all; the HTTP reply is whole.
    hang_seconds: float | None = None  # Say nothing for so long, then close.
    error_in_stream: bool = False  # 200, half of the answer, then "overloaded"; a plain request gets a 529.


def error_body(fault: Fault, protocol: Protocol) -> bytes:
    """An error as the provider words it."""
    if fault.body is not None:
        return fault.body
    return dump(error(fault, protocol)).encode()


def error(fault: Fault, protocol: Protocol) -> Object:
    status = 400 if fault.overflow else fault.status
    message = MESSAGES.get(status, f"The request failed with {status}.")
    if protocol == "anthropic":
        text = "prompt is too long: 210000 tokens > 200000 maximum" if fault.overflow else message
        kind = ANTHROPIC_ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": text}, "request_id": f"req_{SERIAL}"}
    if protocol == "gemini":
        text = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
        kind = GEMINI_ERRORS.get(status, "INTERNAL" if status >= 500 else "INVALID_ARGUMENT")
        return {"error": {"code": status, "message": text if fault.overflow else message, "status": kind}}
    default = ("server_error" if status >= 500 else "invalid_request_error", None)
    made, code = OPENAI_ERRORS.get(status, default)
    param = None
    if fault.overflow:
        code, param = "context_length_exceeded", "messages" if protocol == "chat" else "input"
        message = "This model's maximum context length is 200000 tokens. However, your messages are 210000 tokens."
    return {"error": {"message": message, "type": made, "param": param, "code": code}}


def error_event(protocol: Protocol) -> bytes:
    """What a provider sends when it is overloaded after it has begun to answer."""
    overloaded = error(Fault(status=529), protocol)
    if protocol == "anthropic":
        return named(overloaded).encode()
    if protocol == "responses":
        inner = overloaded["error"]
        event = {"type": "error", "code": inner["code"], "message": inner["message"], "param": None}
        return named(event | {"sequence_number": 99}).encode()
    return unnamed(overloaded).encode()
