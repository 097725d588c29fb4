"""Deliveries, destinations and replays. `_sync_deliveries.py` is made from this file by `scripts/unasync.py`: change this one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import List, Literal

from . import _core as core
from ._async_api import AsyncApi, AsyncPages
from ._core import Time, get, part, post
from .models import (
    Attempt,
    DeadLetters,
    Delivery,
    DeliveryDetail,
    DeliveryState,
    Destination,
    DestinationFigures,
    DestinationState,
    DestinationStats,
    DestinationSummary,
    Explanation,
    Replay,
    RetriesDue,
    SentRequest,
    Transition,
)


class AsyncDeliveries:
    """Deliveries: one event owed to one subscription."""

    def __init__(self, api: AsyncApi) -> None:
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

    async def due(self) -> RetriesDue:
        """How many waiting deliveries fall due in each of the next 48 hours."""
        return await self._api.fetch(RetriesDue, get("/v1/deliveries/due"))

    async def dead(self, *, limit: int | None = None) -> DeadLetters:
        """Dead deliveries by destination and reason, at most ``limit`` groups (50), the largest first."""
        return await self._api.fetch(DeadLetters, get("/v1/deliveries/dead", limit=limit))

    async def get(self, id: str) -> DeliveryDetail:
        """With the first attempts; see `attempts` for all of them."""
        return await self._api.fetch(DeliveryDetail, get(f"/v1/deliveries/{part(id)}"))

    def attempts(self, id: str, *, page_size: int | None = None) -> AsyncPages[Attempt]:
        return self._api.list(Attempt, f"/v1/deliveries/{part(id)}/attempts", page_size)

    async def request(self, id: str, attempt: int) -> SentRequest:
        """What was sent to the receiver in an attempt, made again from the event. Its secrets are masked."""
        return await self._api.fetch(SentRequest, get(f"/v1/deliveries/{part(id)}/attempts/{attempt}/request"))

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

    def __init__(self, api: AsyncApi) -> None:
        self._api = api

    def list(
        self, *, state: DestinationState | None = None, q: str | None = None, page_size: int | None = None
    ) -> AsyncPages[Destination]:
        """``q`` is a part of the URL."""
        return self._api.list(Destination, "/v1/destinations", page_size, state=state, q=q)

    async def summary(self) -> DestinationSummary:
        """How many there are in each state."""
        return await self._api.fetch(DestinationSummary, get("/v1/destinations/summary"))

    async def figures(self, ids: Sequence[str]) -> List[DestinationFigures]:
        """The figures of at most 100 destinations, in the order of ``ids``; all zero for one that does not exist."""
        return await self._api.fetch_all(DestinationFigures, get("/v1/destinations/stats", ids=",".join(ids)))

    async def get(self, id: str) -> Destination:
        return await self._api.fetch(Destination, get(f"/v1/destinations/{part(id)}"))

    async def stats(self, id: str, *, hours: int | None = None) -> DestinationStats:
        """Its attempts by the hour: the last 24 hours, or up to 168."""
        return await self._api.fetch(DestinationStats, get(f"/v1/destinations/{part(id)}/stats", hours=hours))

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

    def __init__(self, api: AsyncApi) -> None:
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
