"""Policies, descriptions, the catalogue, erasures and recovery against the real server.

`test_sync_recovery.py` is made from this file by `scripts/unasync.py`: change this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from postrider import AsyncClient, ProblemError
from postrider.testing import Server
from support import Receiver

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def fresh(server: Server) -> AsyncIterator[AsyncClient]:
    """An admin client in a tenant of its own."""
    async with server.async_client(tenant=server.fresh_tenant()) as client:
        yield client


async def until(is_true: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(500):
        if await is_true():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the condition did not come true within ten seconds")


async def test_a_subscription_has_a_policy_of_its_own_and_goes_back_to_the_servers(postrider_server: Server) -> None:
    async with fresh(postrider_server) as client:
        created = await client.subscriptions.create(
            "http://127.0.0.1:9/p",
            ["*"],
            policy={"retry": {"max": 3, "unit_seconds": 60}, "recovery": {"dead": "replay", "mode": "drain"}},
        )
        assert created.policy is not None and created.effective_policy is not None
        assert (created.policy.retry.max, created.policy.attempt.deadline_seconds) == (3, None)
        assert (created.effective_policy.retry.max, created.effective_policy.dead) == (3, "replay")
        changed = await client.subscriptions.update(created.id, policy={"retry": {"max": 5}})
        assert changed.policy is not None
        assert (changed.policy.retry.max, changed.policy.retry.unit_seconds) == (5, 60)
        destination = await client.destinations.get(created.destination_id)
        assert destination.recovery is not None
        assert (destination.recovery.from_, destination.recovery.mode) == ("subscription", "drain")
        server = await client.policy()
        reset = await client.subscriptions.update(created.id, policy=None)
        assert reset.effective_policy is not None and reset.effective_policy.retry == server.retry
        assert server.subscription_limits is not None


async def test_a_subscription_with_a_uid_is_created_once_and_found_by_what_describes_it(
    postrider_server: Server,
) -> None:
    async with fresh(postrider_server) as client:
        url, about = "http://127.0.0.1:9/u", {"plan": "gold"}
        first = await client.subscriptions.create(url, ["*"], uid="crm", name="CRM", metadata=about)
        again = await client.subscriptions.create(url, ["*"], uid="crm", name="CRM", metadata=about)
        assert (again.id, again.secret) == (first.id, "") and first.secret != ""
        assert (await client.subscriptions.get("crm")).id == first.id
        await client.subscriptions.create("http://127.0.0.1:9/other", ["*"])
        for found in (
            client.subscriptions.list(uid="crm"),
            client.subscriptions.list(q="CRM"),
            client.subscriptions.list(metadata="plan:gold"),
            client.subscriptions.list(destination=first.destination_id),
        ):
            assert [one.id for one in await found.to_list()] == [first.id]


async def test_a_tenant_has_quotas_and_rates_of_its_own(postrider_server: Server) -> None:
    async with postrider_server.async_client() as admin:
        id = postrider_server.fresh_tenant()
        changed = await admin.tenants.update(
            id, name="Acme", metadata={"crm": "7"}, quotas={"subscriptions": 1}, requests_per_second=1000
        )
        assert (changed.name, changed.quotas, changed.requests_per_second) == ("Acme", {"subscriptions": 1}, 1000)
        client = admin.with_options(tenant=id)
        limits = {limit.name: limit for limit in await client.limits()}
        assert (limits["subscriptions"].limit, limits["subscriptions"].own) == (1, True)
        rates = {rate.name: rate for rate in await client.rates()}
        assert (rates["requests_per_second"].limit, rates["events_per_second"].own) == (1000, False)
        await client.subscriptions.create("http://127.0.0.1:9/q", ["*"])
        with pytest.raises(ProblemError, match="429"):
            await client.subscriptions.create("http://127.0.0.1:9/r", ["*"])
        assert (await admin.tenants.update(id, name=None, quotas={})).quotas == {}


async def test_events_are_judged_by_the_catalogue(postrider_server: Server) -> None:
    async with fresh(postrider_server) as client:
        schema = {"type": "object", "required": ["id"]}
        made = await client.event_types.create("order.paid", schema=schema, example={"id": 1}, description="Paid")
        assert (made.schema, made.example, made.scope) == (schema, {"id": 1}, "tenant")
        assert (await client.event_types.update("order.paid", deprecated=True)).deprecated
        assert [one.name for one in await client.event_types.list(scope="tenant").to_list()] == ["order.paid"]
        changed = await client.event_types.update_catalogue(misfits="refuse", unknown_types="flag")
        assert (changed.own.misfits, changed.unknown_types) == ("refuse", "flag")
        with pytest.raises(ProblemError) as refused:
            await client.events.send("order.paid", {"no": "id"})
        assert refused.value.status == 422
        sent = await client.events.send("order.unheard", 1)
        flagged = (await client.events.get(sent.id)).flagged
        assert flagged is not None and flagged.reason == "unknown_type"
        assert (await client.event_types.update_catalogue(misfits=None)).own.misfits is None
        await client.event_types.delete("order.paid")
        with pytest.raises(ProblemError, match="404"):
            await client.event_types.get("order.paid")


async def test_payloads_of_an_object_are_erased(postrider_server: Server, receiver: Receiver) -> None:
    async with fresh(postrider_server) as client:
        await client.subscriptions.create(receiver.url, ["*"])
        sent = await client.events.send("a.b", {"name": "Jane"}, object="person-1")
        other = await client.events.send("a.b", {"name": "John"}, object="person-2")
        receiver.take()
        assert [event.id for event in await client.events.list(object="person-1").to_list()] == [sent.id]
        [delivery] = await client.deliveries.list(object="person-1").to_list()
        assert delivery.event_id == sent.id
        job = await client.erasures.create(object="person-1")
        done = await client.erasures.wait_erased(job.id, pause=0.02)
        assert (done.erased, done.object) == (1, "person-1") and done.state in ("scrubbing", "finished")
        erased = await client.events.get(sent.id)
        assert erased.data is None and erased.erased_at is not None
        assert (await client.events.get(other.id)).data == {"name": "John"}
        assert [one.id for one in await client.erasures.list().to_list()] == [job.id]


async def test_what_waits_is_retried_in_bulk_and_what_died_is_replayed_when_enabled(
    postrider_server: Server, receiver: Receiver
) -> None:
    receiver.status = 500
    async with fresh(postrider_server) as client:
        created = await client.subscriptions.create(receiver.url, ["*"])
        sent = await client.events.send("a.b", 1)

        async def is_waiting() -> bool:
            return len(await client.deliveries.list(event=sent.id, state="waiting").to_list()) == 1

        await until(is_waiting)
        [delivery] = await client.deliveries.list(event=sent.id).to_list()
        asked = await client.deliveries.request(delivery.id, 1)
        assert asked.method == "POST" and asked.url.startswith(receiver.url)
        receiver.status = 200
        assert await client.replays.count(state="waiting", destination=created.destination_id) == 1
        job = await client.replays.create(state="waiting", destination=created.destination_id)

        async def is_delivered() -> bool:
            return (await client.deliveries.get(delivery.id)).state == "delivered"

        await until(is_delivered)
        assert (await client.replays.get(job.id)).filter.state == "waiting"
        since = datetime.now(UTC) - timedelta(hours=1)
        enabled = await client.destinations.enable(created.destination_id, waiting="drain", dead_since=since)
        assert enabled.replay is not None
        assert (await client.replays.get(enabled.replay)).filter.state == "dead"


async def test_an_admin_reads_the_lists_of_all_tenants(postrider_server: Server) -> None:
    async with fresh(postrider_server) as client, postrider_server.async_client(tenant="*") as everybody:
        created = await client.subscriptions.create("http://127.0.0.1:9/all", ["*"])
        tenants = {one.id: one.tenant async for one in everybody.destinations.list(page_size=1000)}
        assert tenants[created.destination_id] is not None
        summary = await client.destinations.summary()
        assert (summary.enabled, summary.complete) == (1, True)
        with pytest.raises(ProblemError):
            await everybody.events.send("a.b", 1)


async def test_the_server_tells_of_itself(postrider_server: Server) -> None:
    async with fresh(postrider_server) as client:
        server = await client.operations.server()
        assert server.store == "embedded" and len(server.nodes) == 1
        assert "limits.tenant_subscriptions" in {setting.key for setting in await client.operations.settings()}
        assert await client.alerts.list() == []
        with pytest.raises(ProblemError, match="no target of alerts"):
            await client.alerts.test()
        link = await client.portal_links.create("read", expires_in=60)
        assert link.url.startswith("http") and link.url not in repr(link)
        await client.portal_links.revoke(link.id)
        answer = await client.simulate(10, 3600, presets=["default"], samples=10)
        assert [plan.name for plan in answer.plans] == ["default"]
        sent = await client.events.send("a.b", {"n": 1})
        trial = await client.try_filter({"field": "data.n", "op": "eq", "value": 1}, event_ids=[sent.id])
        assert [event.matches for event in trial.data] == [True]
        assert await client.events.matches(sent.id).to_list() == []
