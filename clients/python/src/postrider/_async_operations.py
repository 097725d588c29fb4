"""Catalogue, erasures, portal links, alerts, and the server itself. `_sync_operations.py` is made from this file by `scripts/unasync.py`: change this one."""

from __future__ import annotations

import asyncio
from typing import Any, List, Literal

from . import _core as core
from ._async_api import AsyncApi, AsyncPages
from ._core import UNSET, Unset, delete, get, part, patch, post
from .models import (
    AlertTarget,
    AlertTestResult,
    Backup,
    Catalogue,
    Conduct,
    Erasure,
    EventType,
    EventTypeScope,
    NewTheme,
    PortalLink,
    PortalLinkCreated,
    Server,
    Setting,
)


class AsyncEventTypes:
    """Event types, and what is done with events that do not fit them."""

    def __init__(self, api: AsyncApi) -> None:
        self._api = api

    async def create(
        self,
        name: str,
        *,
        description: str | None = None,
        schema: Any | Unset = UNSET,
        example: Any | Unset = UNSET,
        deprecated: bool | None = None,
        scope: EventTypeScope | None = None,
        idempotency_key: str | None = None,
    ) -> EventType:
        """``schema`` is the JSON Schema of the data. ``scope="server"`` is a type for all tenants, for admin keys."""
        body = core.given(name=name, description=description, deprecated=deprecated, scope=scope)
        body |= core.changed(schema=schema, example=example)
        return await self._api.fetch(EventType, post("/v1/event-types", idempotency_key, body))

    async def get(self, name: str, *, scope: EventTypeScope | None = None) -> EventType:
        """The tenant's own, or else the server's."""
        return await self._api.fetch(EventType, get(f"/v1/event-types/{part(name)}", scope=scope))

    def list(self, *, scope: EventTypeScope | None = None, page_size: int | None = None) -> AsyncPages[EventType]:
        return self._api.list(EventType, "/v1/event-types", page_size, scope=scope)

    async def update(
        self,
        name: str,
        *,
        description: str | None | Unset = UNSET,
        schema: Any | Unset = UNSET,
        example: Any | Unset = UNSET,
        deprecated: bool | Unset = UNSET,
        scope: EventTypeScope | None = None,
        idempotency_key: str | None = None,
    ) -> EventType:
        """What is left out stays as it is; None removes."""
        body = core.changed(description=description, schema=schema, example=example, deprecated=deprecated)
        call = patch(f"/v1/event-types/{part(name)}", idempotency_key, body, scope=scope)
        return await self._api.fetch(EventType, call)

    async def delete(
        self, name: str, *, scope: EventTypeScope | None = None, idempotency_key: str | None = None
    ) -> None:
        await self._api.send(delete(f"/v1/event-types/{part(name)}", idempotency_key, scope=scope))

    async def catalogue(self) -> Catalogue:
        """What is done with events of unknown types, and with those that do not fit their schema."""
        return await self._api.fetch(Catalogue, get("/v1/catalogue"))

    async def update_catalogue(
        self,
        *,
        unknown_types: Conduct | None | Unset = UNSET,
        misfits: Conduct | None | Unset = UNSET,
        idempotency_key: str | None = None,
    ) -> Catalogue:
        """What is left out stays as it is; None takes the server's choice."""
        body = core.changed(unknown_types=unknown_types, misfits=misfits)
        return await self._api.fetch(Catalogue, patch("/v1/catalogue", idempotency_key, body))


class AsyncErasures:
    """Erasures of payloads."""

    def __init__(self, api: AsyncApi) -> None:
        self._api = api

    async def create(
        self, *, event: str | None = None, object: str | None = None, idempotency_key: str | None = None
    ) -> Erasure:
        """Erases the payload of one event, or of all events of an object. Returns when the work is recorded."""
        body = core.given(event=event, object=object)
        return await self._api.fetch(Erasure, post("/v1/erasures", idempotency_key, body))

    async def get(self, id: str) -> Erasure:
        return await self._api.fetch(Erasure, get(f"/v1/erasures/{part(id)}"))

    def list(self, *, page_size: int | None = None) -> AsyncPages[Erasure]:
        return self._api.list(Erasure, "/v1/erasures", page_size)

    async def wait_erased(self, id: str, *, pause: float = 0.5) -> Erasure:
        """Returns when the payloads cannot be read any more. ``pause``: seconds between two questions."""
        while (erasure := await self.get(id)).state == "erasing":
            await asyncio.sleep(pause)
        return erasure

    async def wait(self, id: str, *, pause: float = 0.5) -> Erasure:
        """Returns when nothing of the payloads is left in the store's files.

        The server overwrites those together for all erasures of some minutes (``erasure.scrub_interval``).
        """
        while (erasure := await self.get(id)).state != "finished":
            await asyncio.sleep(pause)
        return erasure


class AsyncPortalLinks:
    """Links that open the page for one tenant, once and without a key."""

    def __init__(self, api: AsyncApi) -> None:
        self._api = api

    async def create(
        self,
        access: Literal["read", "manage"],
        *,
        expires_in: int | None = None,
        theme: NewTheme | None = None,
        idempotency_key: str | None = None,
    ) -> PortalLinkCreated:
        """The answer's ``url`` is shown this once. ``expires_in``: seconds, ten minutes where it is left out."""
        body = core.given(access=access, expires_in=expires_in, theme=theme)
        return await self._api.fetch(PortalLinkCreated, post("/v1/portal-links", idempotency_key, body))

    def list(self, *, page_size: int | None = None) -> AsyncPages[PortalLink]:
        return self._api.list(PortalLink, "/v1/portal-links", page_size)

    async def revoke(self, id: str, *, idempotency_key: str | None = None) -> None:
        """The session that it opened ends too."""
        await self._api.send(delete(f"/v1/portal-links/{part(id)}", idempotency_key))


class AsyncAlerts:
    """Targets of the operator's alerts, for admin keys."""

    def __init__(self, api: AsyncApi) -> None:
        self._api = api

    async def list(self) -> List[AlertTarget]:
        return await self._api.fetch_all(AlertTarget, get("/v1/alerts"))

    async def test(self, target: str | None = None, *, idempotency_key: str | None = None) -> List[AlertTestResult]:
        """Sends a test message to one target, or to all of them, and says how each went."""
        call = post("/v1/alerts/test", idempotency_key, core.given(target=target))
        return await self._api.fetch_all(AlertTestResult, call)


class AsyncOperations:
    """The server itself, for admin keys."""

    def __init__(self, api: AsyncApi) -> None:
        self._api = api

    async def server(self) -> Server:
        """Nodes, lanes, disk and clock."""
        return await self._api.fetch(Server, get("/v1/server"))

    async def settings(self) -> List[Setting]:
        """Every setting, and where it comes from. Secrets are masked."""
        return await self._api.fetch_all(Setting, get("/v1/config"))

    async def backup(self) -> Backup:
        """The last backup."""
        return await self._api.fetch(Backup, get("/v1/backup"))

    async def start_backup(self, to: str, *, idempotency_key: str | None = None) -> Backup:
        """Writes a backup to a directory of the server's machine: an absolute path, new or empty."""
        return await self._api.fetch(Backup, post("/v1/backup", idempotency_key, {"to": to}))
