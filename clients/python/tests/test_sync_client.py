"""The synchronous client against the real server. Made by `scripts/unasync.py`: change the asynchronous file."""

from __future__ import annotations

import time as _time
import base64
import logging
import traceback
from collections.abc import Iterator, Callable
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from postrider import Client, NewEvent, PostriderError, ProblemError, VerificationError, models, verify
from postrider.testing import Server
from support import Receiver

pytestmark = pytest.mark.anyio


@contextmanager
def fresh(server: Server) -> Iterator[Client]:
    """An admin client in a tenant of its own."""
    with server.client(tenant=server.fresh_tenant()) as client:
        yield client


def until(is_true: Callable[[], bool]) -> None:
    for _ in range(500):
        if is_true():
            return
        _time.sleep(0.02)
    raise AssertionError("the condition did not come true within ten seconds")


def test_an_event_arrives_signed_with_the_secret_that_was_shown(
    postrider_server: Server, receiver: Receiver
) -> None:
    with fresh(postrider_server) as client:
        subscription = client.subscriptions.create(receiver.url, ["task.*"])
        sent = client.events.send("task.updated", {"status": "CUR", "ключ": "☃"}, old=None, object="t1")
        assert sent.deliveries == 1 and not sent.duplicate
        headers, body = receiver.take()
        verified = verify(body, headers, subscription.secret)

        def is_delivered() -> bool:
            return (client.deliveries.get(verified.id)).state == "delivered"

        until(is_delivered)
        delivery = client.deliveries.get(verified.id)
        assert (delivery.event_id, delivery.attempt_log[0].outcome) == (sent.id, "delivered")
        assert isinstance(delivery.finished_at, datetime)
        event = client.events.get(sent.id)
        assert event.data == {"status": "CUR", "ключ": "☃"}
        assert [one.id for one in event.deliveries] == [verified.id]


def test_during_a_rotation_both_secrets_verify_and_a_third_does_not(
    postrider_server: Server, receiver: Receiver
) -> None:
    with fresh(postrider_server) as client:
        old = client.subscriptions.create(receiver.url, ["*"])
        new = client.subscriptions.rotate_secret(old.id, overlap_seconds=60)
        assert new.secret != old.secret and new.retiring_secrets == 1
        assert (client.subscriptions.test(old.id)).outcome == "delivered"
        headers, body = receiver.take()
        assert len(headers["webhook-signature"].split(" ")) == 2
        for secret in (old.secret, new.secret):
            verify(body, headers, secret)
        with pytest.raises(VerificationError):
            verify(body, headers, "whsec_" + base64.b64encode(b"x" * 32).decode())


def test_an_ed25519_subscription_is_verified_with_its_public_key(
    postrider_server: Server, receiver: Receiver
) -> None:
    with fresh(postrider_server) as client:
        secret = "whsk_" + base64.b64encode(b"7" * 32).decode()
        subscription = client.subscriptions.create(receiver.url, ["*"], secret=secret)
        client.subscriptions.test(subscription.id)
        headers, body = receiver.take()
        assert subscription.public_key is not None
        verify(body, headers, subscription.public_key)


def test_subscriptions_are_created_read_changed_listed_and_deleted(postrider_server: Server) -> None:
    with fresh(postrider_server) as client:
        condition = {"all": [{"field": "data.n", "op": "gt", "value": 3}]}
        url = "http://127.0.0.1:9/x"
        created = client.subscriptions.create(
            url, ["a.b"], auth_token="token-of-the-receiver", headers={"x-a": "value-1234567"}, filter=condition
        )
        changed = client.subscriptions.update(created.id, auth_token=None, types=["a.*"], enabled=False)
        assert (changed.auth_token, changed.types, changed.enabled) == (None, ["a.*"], False)
        assert (client.subscriptions.get(created.id)).filter == condition
        assert [one.id for one in client.subscriptions.list().to_list()] == [created.id]
        with pytest.raises(ProblemError) as raised:
            client.subscriptions.create(url, ["a.*"], filter=condition)
        assert (raised.value.status, raised.value.code) == (409, "twin_subscription")
        assert raised.value.existing_id == created.id
        client.subscriptions.delete(created.id)
        with pytest.raises(ProblemError, match="404 not_found"):
            client.subscriptions.get(created.id)


def test_a_problem_names_its_code_its_field_and_what_to_do(postrider_server: Server) -> None:
    with fresh(postrider_server) as client:
        with pytest.raises(ProblemError) as raised:
            client.events.send_batch([NewEvent(type="a.b", data=1), NewEvent(type="a b", data=1)])
        problem = raised.value
        assert (problem.status, problem.code, problem.field) == (422, "invalid_field", "[1].type")
        assert (problem.attempts, problem.retry_after, problem.title) == (1, None, "A field is not acceptable")
        assert str(problem).startswith("422 invalid_field ([1].type): not an event type")
        with pytest.raises(ProblemError) as raised:
            client.test_filter({"field": "data.a", "op": "eqq"}, {"type": "a.b", "data": 1})
        assert raised.value.field == "filter.op"
        verdict = client.test_filter({"field": "data", "op": "eq", "value": 1}, {"type": "a.b", "data": 1})
        assert verdict.matches


def test_batches_are_split_and_lists_yield_each_entry_once(postrider_server: Server) -> None:
    with fresh(postrider_server) as client:
        events = (NewEvent(type="batch.sent", data={"n": n}, id=f"e-{n}") for n in range(2345))
        ids = [result.id for result in client.events.send_all(events)]
        assert ids == [f"e-{n}" for n in range(2345)]
        listed = [event.id for event in client.events.list(type="batch.sent", page_size=500)]
        assert sorted(listed) == sorted(ids)
        assert len(client.events.list(page_size=2).to_list(3)) == 3
        page = client.events.list(page_size=7).page()
        assert len(page.data) == 7
        assert (client.events.list(page_size=7).page(page.next_cursor)).data[0].id not in [
            event.id for event in page.data
        ]
        assert (client.events.send("batch.sent", {"n": 5}, id="e-5")).duplicate


def test_a_batch_beyond_16_mib_is_split_by_its_bytes(postrider_server: Server) -> None:
    with fresh(postrider_server) as client:
        events = (NewEvent(type="large.sent", data={"n": n, "text": "x" * 900_000}) for n in range(20))
        assert len([result for result in client.events.send_all(events)]) == 20


def test_a_delivery_is_explained_cancelled_replayed_and_listed_with_its_attempts(
    postrider_server: Server, receiver: Receiver
) -> None:
    receiver.status = 500
    with fresh(postrider_server) as client:
        subscription = client.subscriptions.create(receiver.url, ["*"])
        event = client.events.send("a.b", None, time=datetime.now(UTC))
        since = datetime.now(UTC) - timedelta(minutes=1)
        waiting = client.deliveries.list(event=event.id, state="waiting", since=since)

        def is_waiting() -> bool:
            return len(waiting.to_list()) == 1

        until(is_waiting)
        [delivery] = waiting.to_list()
        explained = client.deliveries.explain(delivery.id)
        assert explained.summary.startswith("waiting for retry 1")
        assert explained.next is not None and explained.next.at == delivery.next_attempt_at
        client.deliveries.retry(delivery.id)

        def is_attempted_twice() -> bool:
            return (client.deliveries.get(delivery.id)).attempts == 2

        until(is_attempted_twice)
        assert (client.deliveries.cancel(delivery.id)).state == "cancelled"
        with pytest.raises(ProblemError, match="wrong_state"):
            client.deliveries.cancel(delivery.id)
        receiver.status = 204
        client.deliveries.replay(delivery.id)

        def is_delivered() -> bool:
            return (client.deliveries.get(delivery.id)).state == "delivered"

        until(is_delivered)
        attempts = client.deliveries.attempts(delivery.id, page_size=1).to_list()
        assert [attempt.status for attempt in attempts] == [500, 500, 204]

        assert client.replays.count(subscription=subscription.id, state="delivered") == 1
        job = client.replays.create(subscription=subscription.id, state="delivered", per_second=100)

        def is_finished() -> bool:
            return (client.replays.get(job.id)).state == "finished"

        until(is_finished)
        assert [one.id for one in client.replays.list().to_list()] == [job.id]
        for action in (client.replays.pause, client.replays.resume, client.replays.cancel):
            with pytest.raises(ProblemError, match="409"):
                action(job.id)
        ledger = client.ledger()
        ended = ledger.delivered + ledger.dead + ledger.cancelled
        assert ledger.accepted == ledger.queued + ledger.in_flight + ledger.waiting + ended == 1
        stats = client.stats(step_minutes=60, since=since)
        assert sum(span.accepted for span in stats.data) == 1


def test_destinations_are_listed_frozen_enabled_and_tell_their_timeline(postrider_server: Server) -> None:
    with fresh(postrider_server) as client:
        id = (client.subscriptions.create("http://127.0.0.1:9/y", ["*"])).destination_id
        assert (client.destinations.freeze(id, reason="maintenance")).state == "frozen"
        assert (client.destinations.enable(id)).state == "enabled"
        assert (client.destinations.get(id)).thresholds.disabled_by_failure_share.grace == 100
        assert [one.id for one in client.destinations.list().to_list()] == [id]
        timeline = client.destinations.timeline(id).to_list()
        assert [(entry.from_, entry.to) for entry in timeline] == [("frozen", "enabled"), ("enabled", "frozen")]


def test_tenants_and_keys_are_made_and_removed(postrider_server: Server) -> None:
    with postrider_server.client() as admin:
        id = postrider_server.fresh_tenant()
        client = admin.with_options(tenant=id)
        expires_at = datetime.now(UTC) + timedelta(minutes=1)
        created = client.keys.create(["ingest"], name="app", expires_at=expires_at)
        assert (client.keys.get(created.id)).tenant == id
        assert [key.id for key in client.keys.list(page_size=1).to_list()] == [created.id]
        with Client(postrider_server.url, f" {created.key}\n") as app:
            app.events.send("a.b", 1)
            with pytest.raises(ProblemError, match="missing_scope"):
                app.subscriptions.list().to_list()
            client.keys.delete(created.id)
            with pytest.raises(ProblemError, match="401"):
                app.events.send("a.b", 1)
        assert id in [tenant.id for tenant in admin.tenants.list(page_size=1000)]
        assert "key.create" in [entry.action for entry in admin.audit(tenant=id)]
        assert {limit.name: limit.used for limit in client.limits()}["keys"] == 0
        admin.tenants.delete(id)
        with pytest.raises(ProblemError, match="404"):
            admin.tenants.get(id)


def test_the_stream_tells_of_attempts(postrider_server: Server, receiver: Receiver) -> None:
    with fresh(postrider_server) as client:
        client.subscriptions.create(receiver.url, ["*"])
        with client.stream() as events:
            sent = client.events.send("a.b", {"text": "\u2028\n\n: € 漢字"})
            for event in events:
                assert isinstance(event, models.AttemptEvent)
                assert (event.delivery.event_id, event.attempt.outcome) == (sent.id, "delivered")
                break


def test_a_stream_ends_with_a_reason_when_its_key_is_revoked(postrider_server: Server) -> None:
    with fresh(postrider_server) as client:
        key = client.keys.create(["read"])
        with Client(postrider_server.url, key.key) as reader:
            with reader.stream() as events:
                client.keys.delete(key.id)
                seen = [event for event in events]
            assert [type(event) for event in seen] == [models.ClosedEvent]
            with pytest.raises(ProblemError, match="401"):
                with reader.stream():
                    pass


def test_no_error_log_or_repr_shows_a_secret(
    postrider_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    shown: list[Any] = []
    with fresh(postrider_server) as client:
        subscription = client.subscriptions.create("http://127.0.0.1:9/z", ["*"], auth_token="a-token-1234567")
        key = client.keys.create(["read"])
        with Client(postrider_server.url, "wrong-key-of-somebody") as stranger:
            with pytest.raises(ProblemError) as raised:
                stranger.ledger()
        error = raised.value
        shown += [client, client._api.settings, subscription, key, error, vars(error), postrider_server]
        shown += traceback.format_exception(error)
    text = "".join(repr(one) + str(one) for one in shown) + caplog.text
    secrets = [postrider_server.key, subscription.secret, key.key, "wrong-key-of-somebody", "a-token-1234567"]
    assert [secret for secret in secrets if secret in text] == []
    with pytest.raises(PostriderError) as refused:
        Client(postrider_server.url, "key with a space\nand more")
    assert "with a space" not in str(refused.value)


def test_identifiers_cannot_lead_to_another_path(postrider_server: Server) -> None:
    with fresh(postrider_server) as client:
        for id in ("../ledger", "a/b", "x?limit=1", "%2e%2e"):
            with pytest.raises(ProblemError, match="404"):
                client.events.get(id)
        for id in ("", "..", "."):
            with pytest.raises(PostriderError, match="identifier"):
                client.events.get(id)
