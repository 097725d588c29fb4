"""The asynchronous client against the real server. `test_sync_client.py` is made from this file by `scripts/unasync.py`: change this one."""

from __future__ import annotations

import asyncio
import base64
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from postrider import AsyncClient, NewEvent, PostriderError, ProblemError, VerificationError, models, verify
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


async def test_an_event_arrives_signed_with_the_secret_that_was_shown(
    postrider_server: Server, receiver: Receiver
) -> None:
    async with fresh(postrider_server) as client:
        subscription = await client.subscriptions.create(receiver.url, ["task.*"])
        sent = await client.events.send("task.updated", {"status": "CUR", "ключ": "☃"}, old=None, object="t1")
        assert sent.deliveries == 1 and not sent.duplicate
        headers, body = receiver.take()
        verified = verify(body, headers, subscription.secret)

        async def is_delivered() -> bool:
            return (await client.deliveries.get(verified.id)).state == "delivered"

        await until(is_delivered)
        delivery = await client.deliveries.get(verified.id)
        assert (delivery.event_id, delivery.attempt_log[0].outcome) == (sent.id, "delivered")
        assert isinstance(delivery.finished_at, datetime)
        event = await client.events.get(sent.id)
        assert event.data == {"status": "CUR", "ключ": "☃"}
        assert [one.id for one in event.deliveries] == [verified.id]


async def test_during_a_rotation_both_secrets_verify_and_a_third_does_not(
    postrider_server: Server, receiver: Receiver
) -> None:
    async with fresh(postrider_server) as client:
        old = await client.subscriptions.create(receiver.url, ["*"])
        new = await client.subscriptions.rotate_secret(old.id, overlap_seconds=60)
        assert new.secret != old.secret and new.retiring_secrets == 1
        assert (await client.subscriptions.test(old.id)).outcome == "delivered"
        headers, body = receiver.take()
        assert len(headers["webhook-signature"].split(" ")) == 2
        for secret in (old.secret, new.secret):
            verify(body, headers, secret)
        with pytest.raises(VerificationError):
            verify(body, headers, "whsec_" + base64.b64encode(b"x" * 32).decode())


async def test_an_ed25519_subscription_is_verified_with_its_public_key(
    postrider_server: Server, receiver: Receiver
) -> None:
    async with fresh(postrider_server) as client:
        secret = "whsk_" + base64.b64encode(b"7" * 32).decode()
        subscription = await client.subscriptions.create(receiver.url, ["*"], secret=secret)
        await client.subscriptions.test(subscription.id)
        headers, body = receiver.take()
        assert subscription.public_key is not None
        verify(body, headers, subscription.public_key)


async def test_subscriptions_are_created_read_changed_listed_and_deleted(postrider_server: Server) -> None:
    async with fresh(postrider_server) as client:
        condition = {"all": [{"field": "data.n", "op": "gt", "value": 3}]}
        url = "http://127.0.0.1:9/x"
        created = await client.subscriptions.create(
            url, ["a.b"], auth_token="token-of-the-receiver", headers={"x-a": "value-1234567"}, filter=condition
        )
        changed = await client.subscriptions.update(created.id, auth_token=None, types=["a.*"], enabled=False)
        assert (changed.auth_token, changed.types, changed.enabled) == (None, ["a.*"], False)
        assert (await client.subscriptions.get(created.id)).filter == condition
        assert [one.id for one in await client.subscriptions.list().to_list()] == [created.id]
        with pytest.raises(ProblemError) as raised:
            await client.subscriptions.create(url, ["a.*"], filter=condition)
        assert (raised.value.status, raised.value.code) == (409, "twin_subscription")
        assert raised.value.existing_id == created.id
        await client.subscriptions.delete(created.id)
        with pytest.raises(ProblemError, match="404 not_found"):
            await client.subscriptions.get(created.id)


async def test_a_problem_names_its_code_its_field_and_what_to_do(postrider_server: Server) -> None:
    async with fresh(postrider_server) as client:
        with pytest.raises(ProblemError) as raised:
            await client.events.send_batch([NewEvent(type="a.b", data=1), NewEvent(type="a b", data=1)])
        problem = raised.value
        assert (problem.status, problem.code, problem.field) == (422, "invalid_field", "[1].type")
        assert (problem.attempts, problem.retry_after, problem.title) == (1, None, "A field is not acceptable")
        assert str(problem).startswith("422 invalid_field ([1].type): not an event type")
        with pytest.raises(ProblemError) as raised:
            await client.test_filter({"field": "data.a", "op": "eqq"}, {"type": "a.b", "data": 1})
        assert raised.value.field == "filter.op"
        verdict = await client.test_filter({"field": "data", "op": "eq", "value": 1}, {"type": "a.b", "data": 1})
        assert verdict.matches
        due = {"field": "data.due", "op": "gt", "value": "2026-11-16T19:59:59Z", "as": "time"}
        event = NewEvent(type="a.b", data={"due": "2026-11-16T12:00:00.000-0800"})
        assert (await client.test_filter(due, event)).matches


async def test_batches_are_split_and_lists_yield_each_entry_once(postrider_server: Server) -> None:
    async with fresh(postrider_server) as client:
        events = (NewEvent(type="batch.sent", data={"n": n}, id=f"e-{n}") for n in range(2345))
        ids = [result.id async for result in client.events.send_all(events)]
        assert ids == [f"e-{n}" for n in range(2345)]
        listed = [event.id async for event in client.events.list(type="batch.sent", page_size=500)]
        assert sorted(listed) == sorted(ids)
        assert len(await client.events.list(page_size=2).to_list(3)) == 3
        page = await client.events.list(page_size=7).page()
        assert len(page.data) == 7
        assert (await client.events.list(page_size=7).page(page.next_cursor)).data[0].id not in [
            event.id for event in page.data
        ]
        assert (await client.events.send("batch.sent", {"n": 5}, id="e-5")).duplicate


async def test_a_batch_beyond_16_mib_is_split_by_its_bytes(postrider_server: Server) -> None:
    async with fresh(postrider_server) as client:
        events = (NewEvent(type="large.sent", data={"n": n, "text": "x" * 900_000}) for n in range(20))
        assert len([result async for result in client.events.send_all(events)]) == 20


async def test_a_delivery_is_explained_cancelled_replayed_and_listed_with_its_attempts(
    postrider_server: Server, receiver: Receiver
) -> None:
    receiver.status = 500
    async with fresh(postrider_server) as client:
        subscription = await client.subscriptions.create(receiver.url, ["*"])
        event = await client.events.send("a.b", None, time=datetime.now(UTC))
        since = datetime.now(UTC) - timedelta(minutes=1)
        waiting = client.deliveries.list(event=event.id, state="waiting", since=since)

        async def is_waiting() -> bool:
            return len(await waiting.to_list()) == 1

        await until(is_waiting)
        [delivery] = await waiting.to_list()
        explained = await client.deliveries.explain(delivery.id)
        assert explained.summary.startswith("waiting for retry 1")
        assert explained.next is not None and explained.next.at == delivery.next_attempt_at
        await client.deliveries.retry(delivery.id)

        async def is_attempted_twice() -> bool:
            return (await client.deliveries.get(delivery.id)).attempts == 2

        await until(is_attempted_twice)
        assert (await client.deliveries.cancel(delivery.id)).state == "cancelled"
        with pytest.raises(ProblemError, match="wrong_state"):
            await client.deliveries.cancel(delivery.id)
        receiver.status = 204
        await client.deliveries.replay(delivery.id)

        async def is_delivered() -> bool:
            return (await client.deliveries.get(delivery.id)).state == "delivered"

        await until(is_delivered)
        attempts = await client.deliveries.attempts(delivery.id, page_size=1).to_list()
        assert [attempt.status for attempt in attempts] == [500, 500, 204]

        assert await client.replays.count(subscription=subscription.id, state="delivered") == 1
        job = await client.replays.create(subscription=subscription.id, state="delivered", per_second=100)

        async def is_finished() -> bool:
            return (await client.replays.get(job.id)).state == "finished"

        await until(is_finished)
        assert [one.id for one in await client.replays.list().to_list()] == [job.id]
        for action in (client.replays.pause, client.replays.resume, client.replays.cancel):
            with pytest.raises(ProblemError, match="409"):
                await action(job.id)
        ledger = await client.ledger()
        ended = ledger.delivered + ledger.dead + ledger.cancelled
        assert ledger.accepted == ledger.queued + ledger.in_flight + ledger.waiting + ended == 1
        stats = await client.stats(step_minutes=60, since=since)
        assert sum(span.accepted for span in stats.data) == 1


async def test_destinations_are_listed_frozen_enabled_and_tell_their_timeline(postrider_server: Server) -> None:
    async with fresh(postrider_server) as client:
        id = (await client.subscriptions.create("http://127.0.0.1:9/y", ["*"])).destination_id
        assert (await client.destinations.freeze(id, reason="maintenance")).state == "frozen"
        assert (await client.destinations.enable(id)).state == "enabled"
        assert (await client.destinations.get(id)).thresholds.disabled_by_failure_share.grace == 100
        assert [one.id for one in await client.destinations.list().to_list()] == [id]
        timeline = await client.destinations.timeline(id).to_list()
        assert [(entry.from_, entry.to) for entry in timeline] == [("frozen", "enabled"), ("enabled", "frozen")]
        stats = await client.destinations.stats(id, hours=2)
        assert (len(stats.hours), stats.total.success_rate, stats.figures.recent) == (2, None, [])
        assert [one.destination_id for one in await client.destinations.figures([id])] == [id]


async def test_tenants_and_keys_are_made_and_removed(postrider_server: Server) -> None:
    async with postrider_server.async_client() as admin:
        id = postrider_server.fresh_tenant()
        client = admin.with_options(tenant=id)
        expires_at = datetime.now(UTC) + timedelta(minutes=1)
        created = await client.keys.create(["ingest"], name="app", expires_at=expires_at)
        assert (await client.keys.get(created.id)).tenant == id
        assert [key.id for key in await client.keys.list(page_size=1).to_list()] == [created.id]
        async with AsyncClient(postrider_server.url, f" {created.key}\n") as app:
            await app.events.send("a.b", 1)
            with pytest.raises(ProblemError, match="missing_scope"):
                await app.subscriptions.list().to_list()
            await client.keys.delete(created.id)
            with pytest.raises(ProblemError, match="401"):
                await app.events.send("a.b", 1)
        assert id in [tenant.id async for tenant in admin.tenants.list(page_size=1000)]
        assert "key.create" in [entry.action async for entry in admin.audit(tenant=id)]
        assert {limit.name: limit.used for limit in await client.limits()}["keys"] == 0
        await admin.tenants.delete(id)
        with pytest.raises(ProblemError, match="404"):
            await admin.tenants.get(id)


async def test_the_stream_tells_of_attempts(postrider_server: Server, receiver: Receiver) -> None:
    async with fresh(postrider_server) as client:
        await client.subscriptions.create(receiver.url, ["*"])
        async with client.stream() as events:
            sent = await client.events.send("a.b", {"text": "\u2028\n\n: € 漢字"})
            async for event in events:
                assert isinstance(event, models.AttemptEvent)
                assert (event.delivery.event_id, event.attempt.outcome) == (sent.id, "delivered")
                break


async def test_a_stream_ends_with_a_reason_when_its_key_is_revoked(postrider_server: Server) -> None:
    async with fresh(postrider_server) as client:
        key = await client.keys.create(["read"])
        async with AsyncClient(postrider_server.url, key.key) as reader:
            async with reader.stream() as events:
                await client.keys.delete(key.id)
                seen = [event async for event in events]
            assert [type(event) for event in seen] == [models.ClosedEvent]
            with pytest.raises(ProblemError, match="401"):
                async with reader.stream():
                    pass


async def test_no_error_log_or_repr_shows_a_secret(
    postrider_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    shown: list[Any] = []
    async with fresh(postrider_server) as client:
        subscription = await client.subscriptions.create("http://127.0.0.1:9/z", ["*"], auth_token="a-token-1234567")
        key = await client.keys.create(["read"])
        async with AsyncClient(postrider_server.url, "wrong-key-of-somebody") as stranger:
            with pytest.raises(ProblemError) as raised:
                await stranger.ledger()
        error = raised.value
        shown += [client, client._api.settings, subscription, key, error, vars(error), postrider_server]
        shown += traceback.format_exception(error)
    text = "".join(repr(one) + str(one) for one in shown) + caplog.text
    secrets = [postrider_server.key, subscription.secret, key.key, "wrong-key-of-somebody", "a-token-1234567"]
    assert [secret for secret in secrets if secret in text] == []
    with pytest.raises(PostriderError) as refused:
        AsyncClient(postrider_server.url, "key with a space\nand more")
    assert "with a space" not in str(refused.value)


async def test_identifiers_cannot_lead_to_another_path(postrider_server: Server) -> None:
    async with fresh(postrider_server) as client:
        for id in ("../ledger", "a/b", "x?limit=1", "%2e%2e"):
            with pytest.raises(ProblemError, match="404"):
                await client.events.get(id)
        for id in ("", "..", "."):
            with pytest.raises(PostriderError, match="identifier"):
                await client.events.get(id)
