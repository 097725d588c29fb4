"""What the two clients share: requests, decisions about repeats, and answers as values. No IO and no waiting here."""

from __future__ import annotations

import dataclasses
import email.utils
import enum
import json
import random
import re
import secrets
import time
import types
import typing
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar
from urllib.parse import quote, urlsplit

import httpx

from . import models
from .errors import ConnectionFailed, PostriderError, ProblemError, TimedOut

T = TypeVar("T")
Time = datetime | str

USER_AGENT = "postrider-python/0.1.0"
FIRST_WAIT_SECONDS = 0.2
BATCH_EVENTS_MAX = 1000
BATCH_BYTES_MAX = 15 * 1024 * 1024
"""Below the server's 16 MiB, so that a batch is never refused for its size alone."""


class Unset(enum.Enum):
    """The type of `UNSET`."""

    UNSET = "UNSET"


UNSET: typing.Final = Unset.UNSET
"""Leave this as it is. (None removes it.)"""


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """How to reach a server, and how patiently. The key is never shown."""

    url: str
    key: str = dataclasses.field(repr=False)
    tenant: str | None
    timeout: float
    retries: int
    retry_wait_max: float

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise PostriderError("the server's url must begin with http:// or https:// and name a host")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise PostriderError("the server's url must have no credentials, query or fragment")
        object.__setattr__(self, "url", self.url.rstrip("/"))
        object.__setattr__(self, "key", self.key.strip())
        # Checked here, because a key that cannot be sent would be repeated in an error message of the HTTP library.
        if not re.fullmatch(r"[\x21-\x7e]+", self.key):
            raise PostriderError("the key must be visible ASCII characters without spaces")


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A request, without what is the same for all."""

    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    query: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    body: bytes | None = dataclasses.field(default=None, repr=False)
    content_type: str = "application/json"
    idempotency_key: str | None = None


def get(path: str, **query: Any) -> Call:
    """A reading call. None is left out of the query."""
    return Call("GET", path, query)


def post(path: str, key: str | None, body: Any = UNSET) -> Call:
    """A changing call."""
    return Call("POST", path, body=None if body is UNSET else encode(body), idempotency_key=key)


def patch(path: str, key: str | None, body: Any, **query: Any) -> Call:
    """A call that changes some fields."""
    return Call("PATCH", path, query, body=encode(body), idempotency_key=key)


def delete(path: str, key: str | None, **query: Any) -> Call:
    """A call that removes."""
    return Call("DELETE", path, query, idempotency_key=key)


def part(identifier: str) -> str:
    """An identifier as a part of a path. An empty one would call another path."""
    if identifier in ("", ".", ".."):
        raise PostriderError("an identifier is empty or malformed")
    return quote(identifier, safe="")


def given(**fields: Any) -> dict[str, Any]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def changed(**fields: Any) -> dict[str, Any]:
    """The fields that are not `UNSET`."""
    return {name: value for name, value in fields.items() if value is not UNSET}


def encode(value: Any) -> bytes:
    """JSON. Times are written as RFC 3339 has them."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_default)
    return text.encode()


def _default(value: Any) -> str:
    if isinstance(value, datetime):
        return rfc3339(value)
    raise TypeError(f"cannot write a {type(value).__name__} as JSON")


def rfc3339(value: Time) -> str:
    """A time as the server takes it."""
    if isinstance(value, str):
        return value
    if value.tzinfo is None:
        raise ValueError("a time needs its zone: give datetime.now(UTC), not datetime.now()")
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def build(http: httpx.Client | httpx.AsyncClient, settings: Settings, call: Call) -> httpx.Request:
    """The request of a call. The same one is sent again where it fails, with the same idempotency key."""
    headers = {
        "authorization": f"Bearer {settings.key}",
        "accept": "text/event-stream" if call.path == "/v1/stream" else "application/json",
        "user-agent": USER_AGENT,
    }
    if settings.tenant is not None:
        headers["postrider-tenant"] = settings.tenant
    if call.method != "GET":
        headers["idempotency-key"] = call.idempotency_key or secrets.token_hex(16)
    if call.body is not None:
        headers["content-type"] = call.content_type
    query = {
        name: rfc3339(value) if isinstance(value, datetime) else str(value)
        for name, value in call.query.items()
        if value is not None
    }
    return http.build_request(
        call.method,
        settings.url + call.path,
        params=query or None,
        content=call.body,
        headers=headers,
        timeout=settings.timeout,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that failed."""

    error: PostriderError
    may_help: bool
    """Whether the same request may succeed later."""
    retry_after: float | None = None

    def wait(self, settings: Settings, attempt: int) -> float | None:
        """The seconds to wait before the next attempt; None where there is to be none."""
        if not self.may_help or attempt > settings.retries:
            return None
        backoff = min(FIRST_WAIT_SECONDS * 2.0 ** (attempt - 1), settings.retry_wait_max)
        jittered = backoff * random.uniform(0.5, 1.0)
        if self.retry_after is None:
            return jittered
        if self.retry_after > settings.retry_wait_max:
            return None
        # Later by the jitter and never earlier: the server has said when.
        return self.retry_after + jittered


def answer(response: httpx.Response, attempt: int) -> Failure | tuple[Any]:
    """What a response says: a failure, or its JSON (None where it has no body)."""
    if response.is_success:
        if not response.content:
            return (None,)
        try:
            return (json.loads(response.content),)
        except ValueError:
            # Without its cause, which holds the text of the answer.
            path = f"{response.request.method} {response.request.url.path}"
            return Failure(ConnectionFailed(f"{path}: the answer is not JSON", attempt), True)
    error = problem(response, attempt)
    may_help = error.status in (408, 429) or error.status >= 500
    return Failure(error, may_help, error.retry_after)


def problem(response: httpx.Response, attempt: int) -> ProblemError:
    """The error of a response that is no success."""
    try:
        document = json.loads(response.content)
    except ValueError:
        document = None
    if not isinstance(document, dict) or "code" not in document:
        document = {}
    return ProblemError(response.status_code, document, _retry_after(response), attempt)


def broken(error: httpx.TransportError | httpx.DecodingError, call: Call, attempt: int) -> Failure:
    """A request without an answer."""
    kind = TimedOut if isinstance(error, httpx.TimeoutException) else ConnectionFailed
    text = str(error) or type(error).__name__
    return Failure(kind(f"{call.method} {call.path}: {text}", attempt), True)


def _retry_after(response: httpx.Response) -> float | None:
    value = response.headers.get("retry-after", "")
    if re.fullmatch(r"[0-9]{1,9}", value):
        return float(value)
    parsed = email.utils.parsedate_tz(value)
    return None if parsed is None else max(0.0, email.utils.mktime_tz(parsed) - time.time())


def decode(kind: type[T], value: Any) -> T:
    """JSON as a value of the given type. Fields that the type does not have are ignored."""
    return typing.cast(T, _decode(kind, value))


_HINTS: dict[type, dict[str, Any]] = {}


def _decode(hint: Any, value: Any) -> Any:
    if value is None or hint is Any:
        return value
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        inner = [one for one in typing.get_args(hint) if one is not type(None)]
        return _decode(inner[0], value) if len(inner) == 1 else value
    if origin is list:
        (item,) = typing.get_args(hint)
        return [_decode(item, one) for one in value]
    if hint is datetime:
        return datetime.fromisoformat(value)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        hints = _HINTS.setdefault(hint, typing.get_type_hints(hint))
        # `from` is a word of Python: such a field has an underscore at its end.
        known = {field.name.rstrip("_"): field.name for field in dataclasses.fields(hint)}
        fields = {known[name]: one for name, one in value.items() if name in known}
        return hint(**{name: _decode(hints[name], one) for name, one in fields.items()})
    return value


_STREAM_EVENTS: dict[str, type[models.StreamEvent]] = {
    "attempt": models.AttemptEvent,
    "transition": models.TransitionEvent,
    "dead": models.DeadEvent,
    "warning": models.WarningEvent,
    "filter_over_budget": models.FilterOverBudgetEvent,
    "lagged": models.LaggedEvent,
    "closed": models.ClosedEvent,
}


class EventStream:
    """Server-sent events, from bytes as they arrive."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[models.StreamEvent]:
        """The events that this chunk completes. The server ends its lines with a line feed alone."""
        *blocks, self._rest = (self._rest + chunk).split(b"\n\n")
        return [event for block in blocks if (event := _event(block)) is not None]


def _event(block: bytes) -> models.StreamEvent | None:
    name, data = "", ""
    for line in block.decode().split("\n"):
        if line.startswith("event:"):
            name = line.removeprefix("event:").strip()
        elif line.startswith("data:"):
            data += line.removeprefix("data:").strip()
    if not name or not data:
        return None
    value = json.loads(data)
    kind = _STREAM_EVENTS.get(name)
    return models.UnknownEvent(name, value) if kind is None else decode(kind, value)
