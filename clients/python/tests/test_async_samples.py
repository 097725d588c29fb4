"""Every call with everything that it takes, against answers of this server, of an older and of a newer one.

`test_sync_samples.py` is made from this file by `scripts/unasync.py`: change this one.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from postrider import AsyncClient, models

pytestmark = pytest.mark.anyio

AT = datetime.fromtimestamp(0, UTC)
FILTER = {"field": "data.a", "op": "exists"}
DESCRIBED: dict[str, Any] = {"name": "n", "description": "d", "metadata": {"a": "b"}}
RATES: dict[str, Any] = {"requests_per_second": 1, "events_per_second": 1, "quotas": {"keys": 1}}
DELIVERY: dict[str, Any] = {
    **DESCRIBED,
    "object": "o",
    "filter": FILTER,
    "format": "workfront",
    "workfront": {"version": "v1"},
    "auth_token": "t",
    "headers": {"a": "b"},
    "rate_limit": 1.0,
    "policy": {"retry": {"max": 3}, "recovery": {"dead": "replay"}},
    "enabled": True,
    "client_certificate": "c",
    "client_key": "k",
    "ca_certificates": "a",
    "uid": "u",
}


@asynccontextmanager
async def server(form: str) -> AsyncIterator[AsyncClient]:
    base = os.environ.get("POSTRIDER_SAMPLES")
    assert base is not None, "POSTRIDER_SAMPLES is not set: run clients/check.py"
    async with AsyncClient(f"{base}/{form}", "k", retries=0) as client:
        yield client


async def call_records(client: AsyncClient) -> list[Any]:
    return [
        await client.tenants.create("t", **DESCRIBED, **RATES),
        await client.tenants.update("t", **DESCRIBED, **RATES),
        await client.tenants.get("t"),
        await client.tenants.list().to_list(),
        await client.keys.create(["read"], tenant="t", name="n", expires_at=AT),
        await client.keys.get("k"),
        await client.keys.list(tenant="t", scope="admin").to_list(),
        await client.events.send("a.b", 1, old=2, object="o", id="i", time=AT),
        await client.events.send_batch([{"type": "a.b", "data": 1}]),
        await client.events.get("e"),
        await client.events.list(type="t", object="o", since=AT, until=AT).to_list(),
        await client.events.matches("e").to_list(),
        await client.subscriptions.create("u", ["*"], secret="s", **DELIVERY),
        await client.subscriptions.get("s"),
        await client.subscriptions.list(destination="d", uid="u", q="q", metadata="a:b").to_list(),
        await client.subscriptions.update("s", url="u", types=["*"], **DELIVERY),
        await client.subscriptions.rotate_secret("s", overlap_seconds=1),
        await client.subscriptions.test("s"),
    ]


async def call_deliveries(client: AsyncClient) -> list[Any]:
    which: dict[str, Any] = {"destination": "d", "subscription": "s", "type": "t", "since": AT, "until": AT}
    return [
        await client.deliveries.list(state="dead", event="e", object="o", **which).to_list(),
        await client.deliveries.due(),
        await client.deliveries.dead(limit=1),
        await client.deliveries.get("d"),
        await client.deliveries.attempts("d").to_list(),
        await client.deliveries.request("d", 1),
        await client.deliveries.explain("d"),
        await client.deliveries.retry("d"),
        await client.deliveries.replay("d"),
        await client.deliveries.cancel("d"),
        await client.destinations.list(state="frozen", q="q").to_list(),
        await client.destinations.summary(),
        await client.destinations.figures(["d", "e"]),
        await client.destinations.stats("d", hours=1),
        await client.destinations.get("d"),
        await client.destinations.timeline("d").to_list(),
        await client.destinations.enable("d", reason="r", waiting="drain", dead_since=AT),
        await client.destinations.freeze("d", reason="r"),
        await client.replays.create(state="waiting", ended_since=AT, per_second=1, **which),
        await client.replays.count(state="waiting", ended_since=AT, **which),
        await client.replays.get("r"),
        await client.replays.list().to_list(),
        await client.replays.pause("r"),
        await client.replays.resume("r"),
        await client.replays.cancel("r"),
    ]


async def call_operations(client: AsyncClient) -> list[Any]:
    fields: dict[str, Any] = {"description": "d", "schema": {}, "example": 1, "deprecated": True, "scope": "server"}
    return [
        await client.event_types.create("a.b", **fields),
        await client.event_types.update("a.b", **fields),
        await client.event_types.get("a.b", scope="server"),
        await client.event_types.list(scope="tenant").to_list(),
        await client.event_types.catalogue(),
        await client.event_types.update_catalogue(unknown_types="flag", misfits=None),
        await client.erasures.create(event="e", object="o"),
        await client.erasures.get("e"),
        await client.erasures.list().to_list(),
        await client.portal_links.create("read", expires_in=60, theme={"accent": "#123456"}),
        await client.portal_links.list().to_list(),
        await client.alerts.list(),
        await client.alerts.test("t"),
        await client.operations.server(),
        await client.operations.settings(),
        await client.operations.backup(),
        await client.operations.start_backup("/b"),
    ]


async def call_figures(client: AsyncClient) -> list[Any]:
    return [
        await client.ledger(scope="all"),
        await client.stats(since=AT, until=AT, step_minutes=1, scope="all"),
        await client.limits(),
        await client.rates(),
        await client.policy(),
        await client.simulate(
            1,
            1,
            per_seconds=1,
            healthy_before_seconds=1,
            answer_ms=1,
            enable_after_seconds=1,
            policy={"retry": {"max": 1}},
            presets=["server"],
            subscription="s",
            samples=10,
        ),
        await client.audit(tenant="t", key="k", action="a", target="x", since=AT, until=AT).to_list(),
        await client.test_filter(FILTER, {"type": "a.b", "data": 1}),
        await client.try_filter(FILTER, event_ids=["e"], recent=1, type="t"),
    ]


@pytest.mark.parametrize("form", ["full", "old", "new"])
async def test_every_call_reads_the_answers_of_this_an_older_and_a_newer_server(form: str) -> None:
    async with server(form) as client:
        for call_all in (call_records, call_deliveries, call_operations, call_figures):
            assert len(await call_all(client)) > 8
        await client.tenants.delete("t")
        await client.keys.delete("k")
        await client.subscriptions.delete("s")
        await client.event_types.delete("a.b", scope="server")
        await client.portal_links.revoke("p")
        if form != "new":
            assert (await client.erasures.wait("e", pause=0)).state == "finished"
        async with client.stream(outcome="failed", destination="d", body="no") as events:
            kinds = [type(event) async for event in events]
    assert kinds == [*([models.UnknownEvent] if form == "new" else []), models.AttemptEvent]


async def test_an_older_server_lacks_what_came_later_and_a_newer_one_has_other_words() -> None:
    async with server("old") as old:
        subscription = await old.subscriptions.get("s")
        assert (subscription.effective_policy, subscription.uid, subscription.metadata) == (None, None, {})
        assert (await old.destinations.get("d")).recovery is None
        assert await old.rates() == []
    async with server("new") as new:
        assert (await new.deliveries.get("d")).state not in ("queued", "dead")
        policy = (await new.subscriptions.get("s")).effective_policy
        assert policy is not None and policy.retry.max == 202


async def test_the_link_of_a_portal_is_not_shown_by_accident() -> None:
    async with server("full") as client:
        link = await client.portal_links.create("manage")
        assert link.url == "text" and "url=" not in repr(link)
