"""The errors of this client. None of them holds the API key, a signing secret or a request's body."""

from __future__ import annotations

from typing import Any, Literal


class PostriderError(Exception):
    """Any error of this client."""


class ProblemError(PostriderError):
    """The server refused the request and said why, as a problem document (RFC 9457)."""

    def __init__(
        self, status: int, document: dict[str, Any], retry_after: float | None, attempts: int
    ) -> None:
        self.status = status
        """The HTTP status."""
        self.code = str(document.get("code", "unknown"))
        """The stable name of the problem, such as ``invalid_field``."""
        self.title = str(document.get("title", ""))
        """The problem in a few words."""
        self.detail = str(
            document.get(
                "detail",
                "the answer is not a problem document: check the url of the server and what is in front of it",
            )
        )
        """What is wrong this time, and what to do."""
        self.field: str | None = document.get("field")
        """The offending field, such as ``filter.all[2].op``; None where it is no field."""
        self.existing_id: str | None = document.get("existing_id")
        """What exists already, where that is the problem."""
        self.pointer: str | None = document.get("pointer")
        """The place of the fault in a payload or schema, as a JSON pointer; None where there is none."""
        self.retry_after = retry_after
        """The seconds that the server's ``Retry-After`` says; None where it says nothing."""
        self.attempts = attempts
        """How many times the request was sent."""
        place = f" ({self.field})" if self.field else ""
        super().__init__(f"{status} {self.code}{place}: {self.detail}")


class ConnectionFailed(PostriderError):
    """No usable answer arrived: no connection, a connection that broke, or a time limit."""

    def __init__(self, message: str, attempts: int) -> None:
        self.attempts = attempts
        """How many times the request was sent."""
        super().__init__(message)


class TimedOut(ConnectionFailed):
    """No answer arrived within the time limit."""


VerificationFailure = Literal[
    "missing_header", "malformed_header", "too_old", "too_new", "no_matching_signature"
]


class VerificationError(PostriderError):
    """A webhook that is not to be trusted."""

    def __init__(self, code: VerificationFailure, message: str) -> None:
        self.code: VerificationFailure = code
        super().__init__(message)
