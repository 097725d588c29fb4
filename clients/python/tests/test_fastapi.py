"""The FastAPI example, with requests of the real server and with forged ones."""

from __future__ import annotations

import base64
import sys
import threading
from pathlib import Path
from typing import Annotated

import httpx
import uvicorn
from fastapi import Depends, FastAPI, Request

from postrider.testing import Server
from support import wait_until

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
from fastapi_receiver import webhook  # noqa: E402

SECRET = "whsec_" + base64.b64encode(b"3" * 32).decode()
OTHER = "whsec_" + base64.b64encode(b"4" * 32).decode()
got: list[tuple[dict[str, str], bytes]] = []
app = FastAPI()


@app.post("/hook", status_code=204)
async def hook(request: Request, body: Annotated[bytes, Depends(webhook(OTHER, SECRET))]) -> None:
    got.append((dict(request.headers), body))


def test_the_dependency_lets_the_real_webhook_through_and_no_forged_one(postrider_server: Server) -> None:
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started)
        url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/hook"
        with postrider_server.client(tenant=postrider_server.fresh_tenant()) as client:
            subscription = client.subscriptions.create(url, ["*"], secret=SECRET)
            assert client.subscriptions.test(subscription.id).status == 204
        headers, body = got[0]
        signed = {name: value for name, value in headers.items() if name.startswith("webhook-")}

        def send(body: bytes, **changes: str) -> int:
            changed = {name.replace("_", "-"): value for name, value in changes.items()}
            return httpx.post(url, content=body, headers={**signed, **changed}).status_code

        assert send(body) == 204
        assert send(body + b" ") == 401
        assert send(body, webhook_id="other") == 401
        assert send(body, webhook_timestamp="1614265330") == 401
        assert send(body, webhook_signature="v1,AAAA") == 401
        assert httpx.post(url, content=body).status_code == 401
        assert len(got) == 2
    finally:
        server.should_exit = True
        thread.join()
