"""Tenants, keys, events and subscriptions. `_sync_records.py` is made from this file by `scripts/unasync.py`: change this one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, List, Literal

from . import _core as core
from ._async_api import AsyncApi, AsyncPages
from ._core import UNSET, Call, Time, Unset, decode, delete, get, part, patch, post
from .models import (
    EventAccepted,
    EventDetail,
    EventSummary,
    Filter,
    Format,
    Key,
    KeyCreated,
    Match,
    NewEvent,
    NewSubscriptionPolicy,
    Scope,
    Subscription,
    SubscriptionWithSecret,
    Tenant,
    TestOutcome,
)


class AsyncTenants:
    """Tenants, for admin keys."""

    def __init__(self, api: AsyncApi) -> None:
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
        return await self._api.fetch(Tenant, patch(f"/v1/tenants/{part(id)}", idempotency_key, body))

    async def get(self, id: str) -> Tenant:
        return await self._api.fetch(Tenant, get(f"/v1/tenants/{part(id)}"))

    def list(self, *, page_size: int | None = None) -> AsyncPages[Tenant]:
        return self._api.list(Tenant, "/v1/tenants", page_size)

    async def delete(self, id: str, *, idempotency_key: str | None = None) -> None:
        await self._api.send(delete(f"/v1/tenants/{part(id)}", idempotency_key))


class AsyncKeys:
    """API keys, for admin keys."""

    def __init__(self, api: AsyncApi) -> None:
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
        await self._api.send(delete(f"/v1/keys/{part(id)}", idempotency_key))


class AsyncEvents:
    """Events: what happened."""

    def __init__(self, api: AsyncApi) -> None:
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

    def matches(self, id: str, *, page_size: int | None = None) -> AsyncPages[Match]:
        """Which subscriptions want this event, and why the others do not."""
        return self._api.list(Match, f"/v1/events/{part(id)}/matches", page_size)


class AsyncSubscriptions:
    """Subscriptions: who wants to know what, and where."""

    def __init__(self, api: AsyncApi) -> None:
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
        policy: NewSubscriptionPolicy | None = None,
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
            policy=policy,
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
        policy: NewSubscriptionPolicy | None | Unset = UNSET,
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
            policy=policy,
            enabled=enabled,
            client_certificate=client_certificate,
            client_key=client_key,
            ca_certificates=ca_certificates,
            name=name,
            description=description,
            metadata=metadata,
            uid=uid,
        )
        return await self._api.fetch(Subscription, patch(f"/v1/subscriptions/{part(id)}", idempotency_key, body))

    async def delete(self, id: str, *, idempotency_key: str | None = None) -> None:
        """What is still owed to the subscription is cancelled."""
        await self._api.send(delete(f"/v1/subscriptions/{part(id)}", idempotency_key))

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
