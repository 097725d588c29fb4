"""The asynchronous client. `_sync_client.py` is made from this file by `scripts/unasync.py`: change this one."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Generic, List, Literal, Self, TypeVar

import httpx

from . import _core as core
from ._core import UNSET, Call, Time, Unset, decode, get, part, post
from .models import (
    Attempt,
    AuditEntry,
    Delivery,
    DeliveryDetail,
    DeliveryState,
    Destination,
    EventAccepted,
    EventDetail,
    EventSummary,
    Explanation,
    Filter,
    FilterVerdict,
    Format,
    Key,
    KeyCreated,
    Ledger,
    Limit,
    NewEvent,
    Replay,
    Scope,
    Stats,
    StreamEvent,
    Subscription,
    SubscriptionWithSecret,
    Tenant,
    TestOutcome,
    Transition,
)

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


class _AsyncApi:
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

    def list(self, kind: type[T], path: str, page_size: int | None, **query: Any) -> AsyncPages[T]:
        async def fetch(cursor: str | None) -> AsyncPage[T]:
            page = await self.send(get(path, limit=page_size, cursor=cursor, **query))
            return AsyncPage([decode(kind, entry) for entry in page["data"]], page["next_cursor"])

        return AsyncPages(fetch)


class AsyncTenants:
    """Tenants, for admin keys."""

    def __init__(self, api: _AsyncApi) -> None:
        self._api = api

    async def create(
        self,
        id: str,
        *,
        name: str | None = None,
        description: str | None = None,
        metadata: Mapping[str, str] | None = None,
        quotas: Mapping[str, int] | None = None,
        requests_per_second: int | None = None,
        events_per_second: int | None = None,
        idempotency_key: str | None = None,
    ) -> Tenant:
        body = core.given(
            id=id,
            name=name,
            description=description,
            metadata=metadata,
            quotas=quotas,
            requests_per_second=requests_per_second,
            events_per_second=events_per_second,
        )
        return await self._api.fetch(Tenant, post("/v1/tenants", idempotency_key, body))

    async def update(
        self,
        id: str,
        *,
        name: str | None | Unset = UNSET,
        description: str | None | Unset = UNSET,
        metadata: Mapping[str, str] | None | Unset = UNSET,
        quotas: Mapping[str, int] | None | Unset = UNSET,
        requests_per_second: int | None | Unset = UNSET,
        events_per_second: int | None | Unset = UNSET,
        idempotency_key: str | None = None,
    ) -> Tenant:
        """What is left out stays as it is; None removes a value."""
        body = core.changed(
            name=name,
            description=description,
            metadata=metadata,
            quotas=quotas,
            requests_per_second=requests_per_second,
            events_per_second=events_per_second,
        )
        path = f"/v1/tenants/{part(id)}"
        call = Call("PATCH", path, body=core.encode(body), idempotency_key=idempotency_key)
        return await self._api.fetch(Tenant, call)

    async def get(self, id: str) -> Tenant:
        return await self._api.fetch(Tenant, get(f"/v1/tenants/{part(id)}"))

    def list(self, *, page_size: int | None = None) -> AsyncPages[Tenant]:
        return self._api.list(Tenant, "/v1/tenants", page_size)

    async def delete(self, id: str, *, idempotency_key: str | None = None) -> None:
        await self._api.send(Call("DELETE", f"/v1/tenants/{part(id)}", idempotency_key=idempotency_key))


class AsyncKeys:
    """API keys, for admin keys."""

    def __init__(self, api: _AsyncApi) -> None:
        self._api = api

    async def create(
        self,
        scopes: Sequence[Scope],
        *,
        tenant: str | None = None,
        name: str | None = None,
        expires_at: Time | None = None,
        idempotency_key: str | None = None,
    ) -> KeyCreated:
        """The answer's ``key`` is shown this once."""
        body = core.given(scopes=list(scopes), tenant=tenant, name=name, expires_at=expires_at)
        return await self._api.fetch(KeyCreated, post("/v1/keys", idempotency_key, body))

    async def get(self, id: str) -> Key:
        return await self._api.fetch(Key, get(f"/v1/keys/{part(id)}"))

    def list(
        self,
        *,
        tenant: str | None = None,
        scope: Literal["admin"] | None = None,
        page_size: int | None = None,
    ) -> AsyncPages[Key]:
        return self._api.list(Key, "/v1/keys", page_size, tenant=tenant, scope=scope)

    async def delete(self, id: str, *, idempotency_key: str | None = None) -> None:
        await self._api.send(Call("DELETE", f"/v1/keys/{part(id)}", idempotency_key=idempotency_key))


class AsyncEvents:
    """Events: what happened."""

    def __init__(self, api: _AsyncApi) -> None:
        self._api = api

    async def send(
        self,
        type: str,
        data: Any,
        *,
        old: Any | Unset = UNSET,
        object: str | None = None,
        id: str | None = None,
        time: Time | None = None,
        idempotency_key: str | None = None,
    ) -> EventAccepted:
        """Returns when the event and all its deliveries are on stable storage."""
        body = {"type": type, "data": data, **core.given(object=object, id=id, time=time), **core.changed(old=old)}
        return await self._api.fetch(EventAccepted, post("/v1/events", idempotency_key, body))

    async def send_batch(
        self, events: Iterable[NewEvent], *, idempotency_key: str | None = None
    ) -> List[EventAccepted]:
        """One request with at most 1000 events, accepted whole or refused whole."""
        return await self._send_lines([core.encode(event) for event in events], idempotency_key)

    async def send_all(self, events: Iterable[NewEvent]) -> AsyncIterator[EventAccepted]:
        """Any number of events, in as many batches as are needed, each with its own idempotency key.

        Yields one result for each event, in order. Where a batch is refused, all results before it have been
        yielded. Nothing is sent that is not asked for: go through the results to the end.
        """
        lines: List[bytes] = []
        size = 0
        for event in events:
            line = core.encode(event)
            is_full = len(lines) == core.BATCH_EVENTS_MAX or size + len(line) > core.BATCH_BYTES_MAX
            if lines and is_full:
                for result in await self._send_lines(lines, None):
                    yield result
                lines, size = [], 0
            lines.append(line)
            size += len(line) + 1
        if lines:
            for result in await self._send_lines(lines, None):
                yield result

    async def _send_lines(self, lines: List[bytes], idempotency_key: str | None) -> List[EventAccepted]:
        call = Call(
            "POST",
            "/v1/events/batch",
            body=b"\n".join(lines),
            content_type="application/x-ndjson",
            idempotency_key=idempotency_key,
        )
        answer = await self._api.send(call)
        return [decode(EventAccepted, result) for result in answer["results"]]

    async def get(self, id: str) -> EventDetail:
        """With its payload and its deliveries."""
        return await self._api.fetch(EventDetail, get(f"/v1/events/{part(id)}"))

    def list(
        self,
        *,
        type: str | None = None,
        object: str | None = None,
        since: Time | None = None,
        until: Time | None = None,
        page_size: int | None = None,
    ) -> AsyncPages[EventSummary]:
        return self._api.list(
            EventSummary, "/v1/events", page_size, type=type, object=object, since=since, until=until
        )


class AsyncSubscriptions:
    """Subscriptions: who wants to know what, and where."""

    def __init__(self, api: _AsyncApi) -> None:
        self._api = api

    async def create(
        self,
        url: str,
        types: Sequence[str],
        *,
        object: str | None = None,
        filter: Filter | None = None,
        format: Format | None = None,
        workfront: Mapping[str, Any] | None = None,
        auth_token: str | None = None,
        headers: Mapping[str, str] | None = None,
        secret: str | None = None,
        rate_limit: float | None = None,
        enabled: bool | None = None,
        client_certificate: str | None = None,
        client_key: str | None = None,
        ca_certificates: str | None = None,
        name: str | None = None,
        description: str | None = None,
        metadata: Mapping[str, str] | None = None,
        uid: str | None = None,
        idempotency_key: str | None = None,
    ) -> SubscriptionWithSecret:
        """The answer's ``secret`` is shown this once.

        With the ``uid`` and the fields of one that exists, the answer is that one, without its secret.
        """
        body = core.given(
            url=url,
            types=list(types),
            object=object,
            filter=filter,
            format=format,
            workfront=workfront,
            auth_token=auth_token,
            headers=headers,
            secret=secret,
            rate_limit=rate_limit,
            enabled=enabled,
            client_certificate=client_certificate,
            client_key=client_key,
            ca_certificates=ca_certificates,
            name=name,
            description=description,
            metadata=metadata,
            uid=uid,
        )
        return await self._api.fetch(SubscriptionWithSecret, post("/v1/subscriptions", idempotency_key, body))

    async def get(self, id: str) -> Subscription:
        return await self._api.fetch(Subscription, get(f"/v1/subscriptions/{part(id)}"))

    def list(
        self,
        *,
        destination: str | None = None,
        uid: str | None = None,
        q: str | None = None,
        metadata: str | None = None,
        page_size: int | None = None,
    ) -> AsyncPages[Subscription]:
        """``q`` is a part of the name, description, uid, URL or a value of the metadata; ``metadata`` is ``key:value``."""
        return self._api.list(
            Subscription, "/v1/subscriptions", page_size, destination=destination, uid=uid, q=q, metadata=metadata
        )

    async def update(
        self,
        id: str,
        *,
        url: str | Unset = UNSET,
        types: Sequence[str] | Unset = UNSET,
        object: str | None | Unset = UNSET,
        filter: Filter | None | Unset = UNSET,
        format: Format | None | Unset = UNSET,
        workfront: Mapping[str, Any] | None | Unset = UNSET,
        auth_token: str | None | Unset = UNSET,
        headers: Mapping[str, str] | None | Unset = UNSET,
        rate_limit: float | None | Unset = UNSET,
        enabled: bool | Unset = UNSET,
        client_certificate: str | None | Unset = UNSET,
        client_key: str | None | Unset = UNSET,
        ca_certificates: str | None | Unset = UNSET,
        name: str | None | Unset = UNSET,
        description: str | None | Unset = UNSET,
        metadata: Mapping[str, str] | None | Unset = UNSET,
        uid: str | None | Unset = UNSET,
        idempotency_key: str | None = None,
    ) -> Subscription:
        """What is left out stays as it is; None removes what can be removed."""
        body = core.changed(
            url=url,
            types=types,
            object=object,
            filter=filter,
            format=format,
            workfront=workfront,
            auth_token=auth_token,
            headers=headers,
            rate_limit=rate_limit,
            enabled=enabled,
            client_certificate=client_certificate,
            client_key=client_key,
            ca_certificates=ca_certificates,
            name=name,
            description=description,
            metadata=metadata,
            uid=uid,
        )
        path = f"/v1/subscriptions/{part(id)}"
        call = Call("PATCH", path, body=core.encode(body), idempotency_key=idempotency_key)
        return await self._api.fetch(Subscription, call)

    async def delete(self, id: str, *, idempotency_key: str | None = None) -> None:
        """What is still owed to the subscription is cancelled."""
        await self._api.send(Call("DELETE", f"/v1/subscriptions/{part(id)}", idempotency_key=idempotency_key))

    async def rotate_secret(
        self, id: str, *, overlap_seconds: int | None = None, idempotency_key: str | None = None
    ) -> SubscriptionWithSecret:
        """A new secret. The one before signs along for ``overlap_seconds``, a day where it is left out."""
        body = core.given(overlap_seconds=overlap_seconds)
        call = post(f"/v1/subscriptions/{part(id)}/secret/rotate", idempotency_key, body)
        return await self._api.fetch(SubscriptionWithSecret, call)

    async def test(self, id: str, *, idempotency_key: str | None = None) -> TestOutcome:
        """Sends a test event now and says how it went."""
        return await self._api.fetch(TestOutcome, post(f"/v1/subscriptions/{part(id)}/test", idempotency_key))


class AsyncDeliveries:
    """Deliveries: one event owed to one subscription."""

    def __init__(self, api: _AsyncApi) -> None:
        self._api = api

    def list(
        self,
        *,
        state: DeliveryState | None = None,
        destination: str | None = None,
        subscription: str | None = None,
        event: str | None = None,
        type: str | None = None,
        object: str | None = None,
        since: Time | None = None,
        until: Time | None = None,
        page_size: int | None = None,
    ) -> AsyncPages[Delivery]:
        return self._api.list(
            Delivery,
            "/v1/deliveries",
            page_size,
            state=state,
            destination=destination,
            subscription=subscription,
            event=event,
            type=type,
            object=object,
            since=since,
            until=until,
        )

    async def get(self, id: str) -> DeliveryDetail:
        """With the first attempts; see `attempts` for all of them."""
        return await self._api.fetch(DeliveryDetail, get(f"/v1/deliveries/{part(id)}"))

    def attempts(self, id: str, *, page_size: int | None = None) -> AsyncPages[Attempt]:
        return self._api.list(Attempt, f"/v1/deliveries/{part(id)}/attempts", page_size)

    async def explain(self, id: str) -> Explanation:
        """Where it stands, why, what happens next, and what would help."""
        return await self._api.fetch(Explanation, get(f"/v1/deliveries/{part(id)}/explain"))

    async def retry(self, id: str, *, idempotency_key: str | None = None) -> Delivery:
        """Attempts a delivery that waits now, without waiting for its slot."""
        return await self._api.fetch(Delivery, post(f"/v1/deliveries/{part(id)}/retry", idempotency_key))

    async def replay(self, id: str, *, idempotency_key: str | None = None) -> Delivery:
        """Sends a delivery that has ended once more."""
        return await self._api.fetch(Delivery, post(f"/v1/deliveries/{part(id)}/replay", idempotency_key))

    async def cancel(self, id: str, *, idempotency_key: str | None = None) -> Delivery:
        """Ends a delivery that has not ended."""
        return await self._api.fetch(Delivery, post(f"/v1/deliveries/{part(id)}/cancel", idempotency_key))


class AsyncDestinations:
    """Destinations: URLs with their circuits."""

    def __init__(self, api: _AsyncApi) -> None:
        self._api = api

    def list(self, *, page_size: int | None = None) -> AsyncPages[Destination]:
        return self._api.list(Destination, "/v1/destinations", page_size)

    async def get(self, id: str) -> Destination:
        return await self._api.fetch(Destination, get(f"/v1/destinations/{part(id)}"))

    def timeline(self, id: str, *, page_size: int | None = None) -> AsyncPages[Transition]:
        """Every change of its state, with the evidence."""
        return self._api.list(Transition, f"/v1/destinations/{part(id)}/timeline", page_size)

    async def enable(
        self,
        id: str,
        *,
        reason: str | None = None,
        waiting: Literal["slots", "drain"] | None = None,
        dead_since: Time | None = None,
        idempotency_key: str | None = None,
    ) -> Destination:
        """The only way out of frozen.

        What waits follows its slots or is drained, as the server is configured where ``waiting`` is left out. With
        ``dead_since``, what died there since then is replayed: ``replay`` of the answer names the job.
        """
        body = core.given(reason=reason, waiting=waiting, dead_since=dead_since)
        call = post(f"/v1/destinations/{part(id)}/enable", idempotency_key, body)
        return await self._api.fetch(Destination, call)

    async def freeze(
        self, id: str, *, reason: str | None = None, idempotency_key: str | None = None
    ) -> Destination:
        call = post(f"/v1/destinations/{part(id)}/freeze", idempotency_key, core.given(reason=reason))
        return await self._api.fetch(Destination, call)


class AsyncReplays:
    """Bulk replays."""

    def __init__(self, api: _AsyncApi) -> None:
        self._api = api

    async def create(
        self,
        *,
        destination: str | None = None,
        subscription: str | None = None,
        type: str | None = None,
        state: Literal["dead", "delivered", "cancelled", "waiting"] | None = None,
        since: Time | None = None,
        until: Time | None = None,
        ended_since: Time | None = None,
        per_second: int | None = None,
        idempotency_key: str | None = None,
    ) -> Replay:
        """Begins to replay all deliveries that match: the dead ones where ``state`` is left out.

        With ``state="waiting"`` each is attempted once, without waiting for its slot.
        """
        body = core.given(
            destination=destination,
            subscription=subscription,
            type=type,
            state=state,
            since=since,
            until=until,
            ended_since=ended_since,
            per_second=per_second,
        )
        return await self._api.fetch(Replay, post("/v1/replays", idempotency_key, body))

    async def count(
        self,
        *,
        destination: str | None = None,
        subscription: str | None = None,
        type: str | None = None,
        state: Literal["dead", "delivered", "cancelled", "waiting"] | None = None,
        since: Time | None = None,
        until: Time | None = None,
        ended_since: Time | None = None,
    ) -> int:
        """How many deliveries such a replay would send. Nothing is sent."""
        body = core.given(
            destination=destination,
            subscription=subscription,
            type=type,
            state=state,
            since=since,
            until=until,
            ended_since=ended_since,
            dry_run=True,
        )
        answer = await self._api.send(post("/v1/replays", None, body))
        return int(answer["total"])

    async def get(self, id: str) -> Replay:
        return await self._api.fetch(Replay, get(f"/v1/replays/{part(id)}"))

    def list(self, *, page_size: int | None = None) -> AsyncPages[Replay]:
        return self._api.list(Replay, "/v1/replays", page_size)

    async def pause(self, id: str, *, idempotency_key: str | None = None) -> Replay:
        return await self._api.fetch(Replay, post(f"/v1/replays/{part(id)}/pause", idempotency_key))

    async def resume(self, id: str, *, idempotency_key: str | None = None) -> Replay:
        return await self._api.fetch(Replay, post(f"/v1/replays/{part(id)}/resume", idempotency_key))

    async def cancel(self, id: str, *, idempotency_key: str | None = None) -> Replay:
        return await self._api.fetch(Replay, post(f"/v1/replays/{part(id)}/cancel", idempotency_key))


class AsyncClient:
    """A client of one server with one key. Close it, or use it as a context manager.

    ``timeout`` limits, in seconds, the connecting and each wait for data. A request that fails is sent again up to
    ``retries`` times; ``retry_wait_max`` is the longest wait in between. ``tenant`` is for admin keys only.
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
        api = self._api = _AsyncApi(http, settings)
        self.tenants = AsyncTenants(api)
        self.keys = AsyncKeys(api)
        self.events = AsyncEvents(api)
        self.subscriptions = AsyncSubscriptions(api)
        self.deliveries = AsyncDeliveries(api)
        self.destinations = AsyncDestinations(api)
        self.replays = AsyncReplays(api)

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
        answer = await self._api.send(get("/v1/limits"))
        return [decode(Limit, limit) for limit in answer["data"]]

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

    @asynccontextmanager
    async def stream(self, *, silence_max: float = 60.0) -> AsyncIterator[AsyncIterator[StreamEvent]]:
        """What happens from now on, live: a context that gives an iterator.

        The iterator ends when the server ends the stream; connect again then. The server sends a sign of life every
        15 s; a silence of ``silence_max`` seconds raises `TimedOut`.
        """
        call = get("/v1/stream")
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
