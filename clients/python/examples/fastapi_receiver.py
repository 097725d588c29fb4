"""A FastAPI dependency that lets a webhook through only where Postrider has signed its raw body."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import HTTPException, Request

from postrider import VerificationError, verify


def webhook(*secrets: str) -> Callable[[Request], Awaitable[bytes]]:
    """Gives the raw body; answers 401 unless one of the secrets has signed it."""

    async def verified(request: Request) -> bytes:
        body = await request.body()
        try:
            verify(body, request.headers, secrets)
        except VerificationError as error:
            raise HTTPException(401, error.code) from None
        return body

    return verified
