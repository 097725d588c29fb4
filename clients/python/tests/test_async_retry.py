"""The asynchronous client repeats requests. `test_sync_retry.py` is made from this file by `scripts/unasync.py`: change this one."""

from __future__ import annotations

import json
from email.utils import formatdate
from time import time

import pytest

from postrider import AsyncClient, ConnectionFailed, NewEvent, PostriderError, ProblemError, TimedOut
from postrider.testing import Server
from support import CuttingProxy, Scripted, closed_port

pytestmark = pytest.mark.anyio

Answer = tuple[int, dict[str, str], bytes]
OK: Answer = (202, {}, b'{"id":"e","deliveries":0}')


def problem(status: int, **headers: str) -> Answer:
    document = {"type": "/", "title": "t", "status": status, "code": f"code_{status}", "detail": "d", "field": None}
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, json.dumps(document).encode()


def impatient(url: str) -> AsyncClient:
    return AsyncClient(url, "k", retries=2, retry_wait_max=2.5)


@pytest.mark.parametrize("size", [0, 1, 100, 250])
async def test_a_post_whose_answer_is_cut_is_repeated_and_has_its_effect_once(
    postrider_server: Server, size: int
) -> None:
    tenant = postrider_server.fresh_tenant()
    with CuttingProxy(postrider_server.url, cuts=2, size=size) as proxy:
        async with AsyncClient(proxy.url, postrider_server.key, tenant=tenant) as client:
            subscription = await client.subscriptions.create("http://127.0.0.1:9/cut", ["*"])
            assert len(proxy.keys) == 3 and len(set(proxy.keys)) == 1, "two answers were cut"
            assert [one.id for one in await client.subscriptions.list().to_list()] == [subscription.id]
            assert subscription.secret.startswith("whsec_")


async def test_an_event_whose_answer_is_cut_is_accepted_once(postrider_server: Server) -> None:
    tenant = postrider_server.fresh_tenant()
    async with postrider_server.async_client(tenant=tenant) as direct:
        await direct.subscriptions.create("http://127.0.0.1:9/cut", ["*"])
    with CuttingProxy(postrider_server.url, cuts=1, size=20) as proxy:
        async with AsyncClient(proxy.url, postrider_server.key, tenant=tenant) as client:
            await client.events.send("a.b", 1)
            assert len(proxy.keys) == 2
            await client.events.send_batch([NewEvent(type="a.b", data=1), NewEvent(type="a.b", data=2)])
            assert len(await client.events.list().to_list()) == 3
            assert (await client.ledger()).accepted == 3
            assert len(set(filter(None, proxy.keys))) == 2, "each call has a key of its own"


@pytest.mark.parametrize(
    "failure", [problem(429), problem(503), problem(500), problem(408), (502, {}, b"<html>"), None], ids=str
)
async def test_what_may_succeed_later_is_repeated_with_the_same_key(
    failure: Answer | None,
) -> None:
    with Scripted(failure, failure, OK) as server:
        async with impatient(server.url) as client:
            assert (await client.events.send("a.b", 1)).id == "e"
        assert len(server.seen) == 3
        assert len({key for _, key in server.seen}) == 1


@pytest.mark.parametrize("status", [307, 400, 401, 403, 404, 409, 413, 422])
async def test_what_was_refused_for_good_is_not_repeated(status: int) -> None:
    with Scripted(problem(status, location="http://127.0.0.1:1/")) as server:
        async with impatient(server.url) as client:
            with pytest.raises(ProblemError, match=f"{status} code_{status}") as raised:
                await client.events.send("a.b", 1)
        assert raised.value.attempts == len(server.seen) == 1


async def test_repeats_are_bounded_and_the_error_says_how_many_there_were() -> None:
    with Scripted(problem(503)) as server:
        async with impatient(server.url) as client:
            with pytest.raises(ProblemError) as raised:
                await client.events.send("a.b", 1)
            assert raised.value.attempts == len(server.seen) == 3
            with pytest.raises(ProblemError):
                await client.with_options(retries=0).events.send("a.b", 1)
            assert len(server.seen) == 4
    with Scripted(None) as server:
        async with impatient(server.url) as client:
            with pytest.raises(ConnectionFailed) as broken:
                await client.events.send("a.b", 1)
        assert broken.value.attempts == len(server.seen) == 3


async def test_retry_after_is_waited_for_and_not_where_it_is_too_long() -> None:
    with Scripted(problem(429, retry_after="1"), OK) as server:
        async with impatient(server.url) as client:
            await client.events.send("a.b", 1)
        (first, _), (second, _) = server.seen
        assert second - first >= 1
    with Scripted(problem(503, retry_after=formatdate(time() + 2, usegmt=True)), OK) as server:
        async with impatient(server.url) as client:
            await client.events.send("a.b", 1)
        assert len(server.seen) == 2
    with Scripted(problem(429, retry_after="3600"), OK) as server:
        async with impatient(server.url) as client:
            with pytest.raises(ProblemError) as raised:
                await client.events.send("a.b", 1)
        assert (raised.value.retry_after, len(server.seen)) == (3600, 1)


async def test_a_time_limit_ends_an_attempt() -> None:
    with Scripted(0.5) as server:
        async with AsyncClient(server.url, "k", timeout=0.1, retries=1) as client:
            with pytest.raises(TimedOut) as raised:
                await client.events.send("a.b", 1)
        assert raised.value.attempts == 2


async def test_an_answer_that_is_not_json_is_told_without_its_text() -> None:
    with Scripted((200, {}, b"whsec_not-json-at-all")) as server:
        async with AsyncClient(server.url, "k", retries=0) as client:
            with pytest.raises(ConnectionFailed) as raised:
                await client.events.send("a.b", 1)
        assert "whsec" not in str(raised.value) and raised.value.__cause__ is None


async def test_a_key_of_the_callers_own_is_sent(postrider_server: Server) -> None:
    async with postrider_server.async_client(tenant=postrider_server.fresh_tenant()) as client:
        first = await client.events.send("a.b", 1, idempotency_key="mine")
        assert (await client.events.send("a.b", 1, idempotency_key="mine")).id == first.id
        with pytest.raises(ProblemError, match="idempotency_conflict"):
            await client.events.send("a.c", 1, idempotency_key="mine")


async def test_a_server_that_is_not_there_is_told_without_the_key() -> None:
    async with AsyncClient(f"http://127.0.0.1:{closed_port()}", "key-not-to-be-shown", retries=1) as client:
        with pytest.raises(ConnectionFailed) as raised:
            await client.ledger()
    assert raised.value.attempts == 2
    assert "GET /v1/ledger" in str(raised.value) and "key-not" not in repr(raised.value)


async def test_a_url_that_cannot_be_is_refused_at_once() -> None:
    for url in ("127.0.0.1:8080", "ftp://host", "http://user:pass@host", "http://host/?a=b", "http://"):
        with pytest.raises(PostriderError) as raised:
            AsyncClient(url, "k")
        assert "pass" not in str(raised.value)
