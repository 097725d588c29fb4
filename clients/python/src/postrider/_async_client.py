"""The asynchronous client. `_sync_client.py` is made from this file by `scripts/unasync.py`: change this one."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, List, Literal, Self

import httpx

from . import _core as core
from ._async_api import AsyncApi, AsyncPages
from ._async_deliveries import AsyncDeliveries, AsyncDestinations, AsyncReplays
from ._async_operations import AsyncAlerts, AsyncErasures, AsyncEventTypes, AsyncOperations, AsyncPortalLinks
from ._async_records import AsyncEvents, AsyncKeys, AsyncSubscriptions, AsyncTenants
from ._core import UNSET, Call, Time, Unset, decode, get, post
from .models import (
    AttemptOutcome,
    AuditEntry,
    Filter,
    FilterTrialAnswer,
    FilterVerdict,
    Ledger,
    Limit,
    NewEvent,
    Policy,
    RateLimit,
    SimulationAnswer,
    Stats,
    StreamEvent,
)


class AsyncClient:
    """A client of one server with one key. Close it, or use it as a context manager.

    ``timeout`` limits, in seconds, the connecting and each wait for data. A request that fails is sent again up to
    ``retries`` times; ``retry_wait_max`` is the longest wait in between. ``tenant`` is for admin keys only; ``*`` reads lists
    of all tenants.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        tenant: str | None = None,
        timeout: float = 35.0,
        retries: int = 4,
        retry_wait_max: float = 30.0,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        settings = core.Settings(url, key, tenant, timeout, retries, retry_wait_max)
        self._use(http or httpx.AsyncClient(follow_redirects=False), settings)

    def _use(self, http: httpx.AsyncClient, settings: core.Settings) -> None:
        api = self._api = AsyncApi(http, settings)
        self.tenants = AsyncTenants(api)
        self.keys = AsyncKeys(api)
        self.events = AsyncEvents(api)
        self.subscriptions = AsyncSubscriptions(api)
        self.deliveries = AsyncDeliveries(api)
        self.destinations = AsyncDestinations(api)
        self.replays = AsyncReplays(api)
        self.event_types = AsyncEventTypes(api)
        self.erasures = AsyncErasures(api)
        self.portal_links = AsyncPortalLinks(api)
        self.alerts = AsyncAlerts(api)
        self.operations = AsyncOperations(api)

    def __repr__(self) -> str:
        settings = self._api.settings
        return f"{type(self).__name__}({settings.url!r}, tenant={settings.tenant!r})"

    def with_options(
        self,
        *,
        tenant: str | None | Unset = UNSET,
        timeout: float | Unset = UNSET,
        retries: int | Unset = UNSET,
    ) -> Self:
        """The same client with other settings. It shares the connections: close only one of the two."""
        options = core.changed(tenant=tenant, timeout=timeout, retries=retries)
        other = type(self).__new__(type(self))
        other._use(self._api.http, dataclasses.replace(self._api.settings, **options))
        return other

    async def ledger(self, *, scope: Literal["all"] | None = None) -> Ledger:
        """``accepted = queued + in_flight + waiting + delivered + dead + cancelled``. ``all``: of all tenants."""
        return await self._api.fetch(Ledger, get("/v1/ledger", scope=scope))

    async def stats(
        self,
        *,
        since: Time | None = None,
        until: Time | None = None,
        step_minutes: int | None = None,
        scope: Literal["all"] | None = None,
    ) -> Stats:
        """What happened over time, in spans of equal length."""
        call = get("/v1/stats", since=since, until=until, step_minutes=step_minutes, scope=scope)
        return await self._api.fetch(Stats, call)

    async def limits(self) -> List[Limit]:
        """The limits of the tenant, and how near it is to each."""
        return await self._api.fetch_all(Limit, get("/v1/limits"))

    async def rates(self) -> List[RateLimit]:
        """The rates of the tenant: requests and events per second."""
        answer = await self._api.send(get("/v1/limits"))
        return [decode(RateLimit, rate) for rate in answer.get("rates", ())]

    async def policy(self) -> Policy:
        """The server's policy, and how far the policy of a subscription may go."""
        return await self._api.fetch(Policy, get("/v1/policy"))

    async def simulate(
        self,
        deliveries: int,
        outage_seconds: int,
        *,
        per_seconds: int | None = None,
        healthy_before_seconds: int | None = None,
        answer_ms: int | None = None,
        enable_after_seconds: int | None = None,
        policy: Mapping[str, Any] | None = None,
        presets: Sequence[str] | None = None,
        subscription: str | None = None,
        samples: int | None = None,
    ) -> SimulationAnswer:
        """What policies would do in an outage. Nothing is stored and nothing is sent."""
        body = core.given(
            deliveries=deliveries,
            outage_seconds=outage_seconds,
            per_seconds=per_seconds,
            healthy_before_seconds=healthy_before_seconds,
            answer_ms=answer_ms,
            enable_after_seconds=enable_after_seconds,
            policy=policy,
            presets=presets,
            subscription=subscription,
            samples=samples,
        )
        return await self._api.fetch(SimulationAnswer, post("/v1/simulate", None, body))

    def audit(
        self,
        *,
        tenant: str | None = None,
        key: str | None = None,
        action: str | None = None,
        target: str | None = None,
        since: Time | None = None,
        until: Time | None = None,
        page_size: int | None = None,
    ) -> AsyncPages[AuditEntry]:
        """Who changed what."""
        return self._api.list(
            AuditEntry,
            "/v1/audit",
            page_size,
            tenant=tenant,
            key=key,
            action=action,
            target=target,
            since=since,
            until=until,
        )

    async def test_filter(self, filter: Filter, event: NewEvent) -> FilterVerdict:
        """Tries a filter on an event. Nothing is stored and nothing is sent."""
        body = {"filter": filter, "event": event}
        return await self._api.fetch(FilterVerdict, post("/v1/filters/test", None, body))

    async def try_filter(
        self,
        filter: Filter,
        *,
        event_ids: Sequence[str] | None = None,
        recent: int | None = None,
        type: str | None = None,
    ) -> FilterTrialAnswer:
        """Tries a filter on events that were accepted: those that are named, or the newest ones."""
        body = core.given(filter=filter, event_ids=event_ids, recent=recent, type=type)
        return await self._api.fetch(FilterTrialAnswer, post("/v1/filters/test/events", None, body))

    @asynccontextmanager
    async def stream(
        self,
        *,
        outcome: AttemptOutcome | None = None,
        destination: str | None = None,
        body: Literal["no"] | None = None,
        silence_max: float = 60.0,
    ) -> AsyncIterator[AsyncIterator[StreamEvent]]:
        """What happens from now on, live: a context that gives an iterator.

        ``outcome`` and ``destination`` limit the attempts that are told; ``body="no"`` leaves out what receivers
        answered.

        The iterator ends when the server ends the stream; connect again then. The server sends a sign of life every
        15 s; a silence of ``silence_max`` seconds raises `TimedOut`.
        """
        call = get("/v1/stream", outcome=outcome, destination=destination, body=body)
        request = core.build(self._api.http, self._api.settings, call)
        request.extensions["timeout"]["read"] = silence_max
        try:
            response = await self._api.http.send(request, stream=True, follow_redirects=False)
        except httpx.TransportError as error:
            raise core.broken(error, call, 1).error from error
        try:
            if not response.is_success:
                await response.aread()
                raise core.problem(response, 1)
            yield self._events(response, call)
        finally:
            await response.aclose()

    async def _events(self, response: httpx.Response, call: Call) -> AsyncIterator[StreamEvent]:
        stream = core.EventStream()
        try:
            async for chunk in response.aiter_bytes():
                for event in stream.feed(chunk):
                    yield event
        except httpx.TransportError as error:
            raise core.broken(error, call, 1).error from error

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._api.http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
