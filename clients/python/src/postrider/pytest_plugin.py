"""The pytest fixture `postrider_server`: see `postrider.testing`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .testing import Server, running_server


@pytest.fixture(scope="session")
def postrider_server() -> Iterator[Server]:
    """A real server on a free port, for the whole test session."""
    with running_server() as server:
        yield server
