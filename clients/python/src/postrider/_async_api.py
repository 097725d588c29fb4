"""Calls of the asynchronous client, and its lists. `_sync_api.py` is made from this file by `scripts/unasync.py`: change this one."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Generic, List, TypeVar

import httpx

from . import _core as core
from ._core import Call, decode, get

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class AsyncPage(Generic[T]):
    """One page of a list."""

    data: List[T]
    next_cursor: str | None


class AsyncPages(Generic[T]):
    """A list. Iterating over it fetches a page when it is needed."""

    def __init__(self, fetch: Callable[[str | None], Awaitable[AsyncPage[T]]]) -> None:
        self._fetch = fetch

    async def __aiter__(self) -> AsyncIterator[T]:
        cursor: str | None = None
        while True:
            page = await self._fetch(cursor)
            for entry in page.data:
                yield entry
            cursor = page.next_cursor
            if cursor is None:
                return

    async def page(self, cursor: str | None = None) -> AsyncPage[T]:
        """One page, for those who keep the cursor themselves."""
        return await self._fetch(cursor)

    async def to_list(self, limit: int | None = None) -> List[T]:
        """The first ``limit`` entries; all of them where it is left out."""
        entries: List[T] = []
        if limit is not None and limit <= 0:
            return entries
        async for entry in self:
            entries.append(entry)
            if len(entries) == limit:
                break
        return entries


class AsyncApi:
    """Sends calls to one server with one key."""

    def __init__(self, http: httpx.AsyncClient, settings: core.Settings) -> None:
        self.http = http
        self.settings = settings

    async def send(self, call: Call) -> Any:
        """Sends a call, and sends it again where that can help. The repeat has the same idempotency key."""
        request = core.build(self.http, self.settings, call)
        for attempt in itertools.count(1):
            try:
                outcome = core.answer(await self.http.send(request, follow_redirects=False), attempt)
            except (httpx.TransportError, httpx.DecodingError) as error:
                outcome = core.broken(error, call, attempt)
            if isinstance(outcome, tuple):
                return outcome[0]
            wait = outcome.wait(self.settings, attempt)
            if wait is None:
                raise outcome.error
            await asyncio.sleep(wait)

    async def fetch(self, kind: type[T], call: Call) -> T:
        return decode(kind, await self.send(call))

    async def fetch_all(self, kind: type[T], call: Call) -> List[T]:
        """The entries of an answer that has all of them at once."""
        answer = await self.send(call)
        return [decode(kind, entry) for entry in answer["data"]]

    def list(self, kind: type[T], path: str, page_size: int | None, **query: Any) -> AsyncPages[T]:
        async def fetch(cursor: str | None) -> AsyncPage[T]:
            page = await self.send(get(path, limit=page_size, cursor=cursor, **query))
            return AsyncPage([decode(kind, entry) for entry in page["data"]], page.get("next_cursor"))

        return AsyncPages(fetch)
