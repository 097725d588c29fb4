"""A real Postrider server for tests, on a free port, with a data directory that is removed afterwards.

The program is the one that ``TEST_POSTRIDER_BINARY`` names, else ``postrider`` on the ``PATH``. With pytest, the fixture
``postrider_server`` starts one for the whole test session:

    def test_order_is_announced(postrider_server):
        client = postrider_server.client()
        client.events.send("order.created", {"id": 1})
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from ._async_client import AsyncClient
from ._sync_client import Client
from .errors import PostriderError

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 10.0
PORT_TRIES = 5


class ServerDidNotStart(PostriderError):
    """The server could not be started; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs."""

    url: str
    key: str = field(repr=False)
    """The admin key."""

    def client(self, tenant: str | None = None) -> Client:
        """A new client with the admin key."""
        return Client(self.url, self.key, tenant=tenant)

    def async_client(self, tenant: str | None = None) -> AsyncClient:
        """A new asynchronous client with the admin key."""
        return AsyncClient(self.url, self.key, tenant=tenant)

    def fresh_tenant(self) -> str:
        """A new tenant, so that tests do not meet each other."""
        with self.client() as client:
            return client.tenants.create(f"test-{secrets.token_hex(6)}").id


@contextmanager
def running_server(binary: str | None = None, arguments: Sequence[str] = ()) -> Iterator[Server]:
    """Starts ``postrider serve --dev`` and stops it at the end of the context."""
    program = binary or os.environ.get("TEST_POSTRIDER_BINARY") or shutil.which("postrider")
    if program is None:
        raise ServerDidNotStart("no postrider: put it on the PATH or set TEST_POSTRIDER_BINARY to its path")
    key = f"test-admin-key-{secrets.token_hex(16)}"
    with tempfile.TemporaryDirectory(prefix="postrider-test-") as folder:
        process, url = _start(program, Path(folder), key, arguments)
        try:
            yield Server(url, key)
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _start(
    program: str, folder: Path, key: str, arguments: Sequence[str]
) -> tuple[subprocess.Popen[bytes], str]:
    """Another program may take a port between our choice and the server's start: then the next one is tried."""
    log = folder / "log"
    for number in range(PORT_TRIES):
        port = _free_port()
        command = [program, "serve", "--dev", "--listen", f"127.0.0.1:{port}"]
        command += ["--data-dir", str(folder / f"data-{number}"), *arguments]
        # The settings of the caller's shell are not those of a test.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("POSTRIDER_")}
        environment["POSTRIDER_ADMIN_KEY"] = key
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        url = f"http://127.0.0.1:{port}"
        if _is_ready(process, url):
            return process, url
        process.kill()
        process.wait()
    told = log.read_text(errors="replace")[-2000:].replace(key, "***")
    raise ServerDidNotStart(f"{program} did not start:\n{told}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_ready(process: subprocess.Popen[bytes], url: str) -> bool:
    end = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < end and process.poll() is None:
        try:
            if httpx.get(f"{url}/readyz", timeout=2.0, trust_env=False).is_success:
                return process.poll() is None
        except httpx.TransportError:
            time.sleep(0.05)
    return False
