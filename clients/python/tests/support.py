"""A receiver, a proxy that cuts answers, and a server that answers by a script. All of them run in threads."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit


class Quiet(BaseHTTPRequestHandler):
    """A handler that reads the body and writes no log."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length", "0")))


class InThread:
    """An HTTP server on a free port, in a thread."""

    def __init__(self, handler: type[Quiet]) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Receiver(InThread):
    """Keeps what it gets and answers as `status` says."""

    def __init__(self) -> None:
        receiver = self
        self.received: list[tuple[dict[str, str], bytes]] = []
        self.status = 200

        class Handler(Quiet):
            def do_POST(self) -> None:
                receiver.received.append((dict(self.headers.items()), self.body()))
                self.send_response(receiver.status)
                self.send_header("content-length", "0")
                self.end_headers()

        super().__init__(Handler)

    def take(self) -> tuple[dict[str, str], bytes]:
        """The first request, when it has arrived."""
        wait_until(lambda: bool(self.received))
        return self.received[0]


class Scripted(InThread):
    """Gives these answers (status, headers, body), one after the other; the last one for ever.

    ``None`` closes the connection without an answer, a number waits for so many seconds first.
    """

    def __init__(self, *answers: tuple[int, dict[str, str], bytes] | float | None) -> None:
        seen = self.seen = list[tuple[float, str | None]]()

        class Handler(Quiet):
            def do_POST(self) -> None:
                self.body()
                answer = answers[min(len(seen), len(answers) - 1)]
                seen.append((time.monotonic(), self.headers["idempotency-key"]))
                if isinstance(answer, float):
                    time.sleep(answer)
                    answer = None
                if answer is None:
                    self.close_connection = True
                    return
                status, headers, body = answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        super().__init__(Handler)


class CuttingProxy:
    """A TCP proxy. It breaks the first `cuts` connections after `size` bytes of the answer."""

    def __init__(self, target: str, cuts: int, size: int) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 80)
        self._cuts, self._size = cuts, size
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[bytes] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as upstream:
            request = bytearray()

            def forward() -> None:
                try:
                    while chunk := client.recv(65536):
                        request.extend(chunk)
                        upstream.sendall(chunk)
                    upstream.shutdown(socket.SHUT_WR)
                except OSError:
                    pass

            threading.Thread(target=forward, daemon=True).start()
            try:
                while chunk := upstream.recv(65536):
                    self.requests.append(bytes(request))
                    request.clear()
                    if self._cuts > 0:
                        self._cuts -= 1
                        client.sendall(chunk[: self._size])
                        break
                    client.sendall(chunk)
                # Closing alone would tell the client nothing while the other thread still reads.
                client.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    @property
    def keys(self) -> list[str]:
        """The idempotency keys of the requests that were answered, in order; empty for those without."""
        found = [re.search(rb"(?i)idempotency-key: (\S+)", request) for request in self.requests]
        return [match[1].decode() if match else "" for match in found]


def wait_until(is_true: Callable[[], bool]) -> None:
    """Waits for a condition, at most ten seconds."""
    for _ in range(500):
        if is_true():
            return
        time.sleep(0.02)
    raise AssertionError("the condition did not come true within ten seconds")


def closed_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
