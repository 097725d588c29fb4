"""What the tests share: a receiver, and a proxy that cuts answers. The server comes from our own pytest plugin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import Receiver


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as one:
        yield one
