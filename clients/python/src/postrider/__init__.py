"""Client for Postrider, the webhook delivery server, and `verify` for those who receive its webhooks."""

from . import models
from ._async_api import AsyncPage, AsyncPages
from ._async_client import AsyncClient
from ._core import UNSET
from ._sync_api import Page, Pages
from ._sync_client import Client
from .errors import (
    ConnectionFailed,
    PostriderError,
    ProblemError,
    TimedOut,
    VerificationError,
    VerificationFailure,
)
from .models import NewEvent
from .webhooks import Verified, verify

__all__ = [
    "UNSET",
    "AsyncClient",
    "AsyncPage",
    "AsyncPages",
    "Client",
    "ConnectionFailed",
    "NewEvent",
    "Page",
    "Pages",
    "PostriderError",
    "ProblemError",
    "TimedOut",
    "VerificationError",
    "VerificationFailure",
    "Verified",
    "models",
    "verify",
]
__version__ = "0.1.0"
