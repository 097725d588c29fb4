"""A server that answers every call with a sample made from the OpenAPI document, and keeps record of who called what.

The base path of its URL chooses the server that it stands for:

    /full    this version: every field that the document has
    /old     the oldest that the clients work with: only the fields of `oldest-answers.json`, and null where that may be
    /new     a later one: more fields in every object, and a word that nobody knows in place of each enumerated one

Each client calls every one of its methods here. The record then says which calls, parameters and fields it lacks.
"""

from __future__ import annotations

import json
import re
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

HERE = Path(__file__).resolve().parent
UNKNOWN_WORD = "from_the_future"

NOT_PROMISED = {
    "showReference": "a page for people",
    "checkLiveness": "for probes",
    "checkReadiness": "for probes",
    "showMetrics": "for Prometheus",
    "showDocument": "the document itself",
    "showPortalLogo": "a picture",
    "showSession": "sessions are for pages of the server itself",
    "signIn": "sessions are for pages of the server itself",
    "signOut": "sessions are for pages of the server itself",
}
"""Calls that the clients leave out, and why."""

LEFT_OUT = {
    "changeSubscription": {"secret": "the server refuses it: there is a call that rotates"},
}
"""Parameters and fields of promised calls that the clients leave out, and why."""


@dataclass
class Operation:
    """One call of the document."""

    id: str
    method: str
    path: re.Pattern[str]
    parameters: set[str]
    """Of the query and, at the top, of the body."""
    answers: dict[str, Any]
    """By status: the schema; None where the answer has no body."""


@dataclass
class Samples:
    """The document, and what each client has called."""

    operations: list[Operation]
    schemas: dict[str, Any]
    oldest: dict[str, list[str]]
    url: str = ""
    called: dict[str, dict[str, set[str]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))
    """By client and operation: the parameters that it gave."""
    faults: list[str] = field(default_factory=list)

    def missing(self, client: str) -> list[str]:
        """What a client lacks, and what it sent that the document does not have."""
        found = [fault for fault in self.faults if fault.startswith(f"{client}: ")]
        for one in self.operations:
            given = self.called[client].get(one.id)
            if one.id in NOT_PROMISED:
                continue
            if given is None:
                found.append(f"{client}: no method calls {one.id}")
                continue
            lacks = one.parameters - given - LEFT_OUT.get(one.id, {}).keys()
            if lacks:
                found.append(f"{client}: {one.id} is called without {', '.join(sorted(lacks))}")
        return found

    def promised(self) -> int:
        return sum(one.id not in NOT_PROMISED for one in self.operations)

    def table(self, clients: list[str]) -> str:
        """The calls by client, as Markdown."""
        rows = [f"| call | {' | '.join(clients)} |", "|---|" + "---|" * len(clients)]
        for one in sorted(self.operations, key=lambda one: one.id):
            if one.id not in NOT_PROMISED:
                cells = ["yes" if one.id in self.called[client] else "no" for client in clients]
                rows.append(f"| {one.id} | {' | '.join(cells)} |")
        return "\n".join(rows)

    def sample(self, schema: dict[str, Any], form: str, name: str = "") -> Any:
        """A value that fits the schema, as a server of this form would answer it."""
        if "$ref" in schema:
            target = schema["$ref"].rsplit("/", 1)[1]
            value = self.sample(self.schemas[target], form, name)
            if form == "old" and target in self.oldest:
                value = {key: one for key, one in value.items() if key in self.oldest[target]}
            return value
        is_nullable = "null" in schema.get("type", ()) or {"type": "null"} in schema.get("oneOf", ())
        if name == "next_cursor" or (form == "old" and is_nullable):
            return None
        if "enum" in schema:
            return UNKNOWN_WORD if form == "new" else schema["enum"][-1]
        if "allOf" in schema:
            return {key: one for part in schema["allOf"] for key, one in self.sample(part, form).items()}
        if "oneOf" in schema:
            return self.sample(schema["oneOf"][0 if schema["oneOf"][0] != {"type": "null"} else 1], form, name)
        return self._plain(schema, form, name)

    def _plain(self, schema: dict[str, Any], form: str, name: str) -> Any:
        kinds = schema.get("type", "any")
        kind = kinds if isinstance(kinds, str) else next(one for one in kinds if one != "null")
        if kind == "array":
            return [self.sample(schema["items"], form)]
        if kind == "object" and "properties" in schema:
            later = {"added_later": {"any": ["JSON"]}} if form == "new" else {}
            return {key: self.sample(one, form, key) for key, one in schema["properties"].items()} | later
        if kind == "object":
            values = schema.get("additionalProperties")
            return {"a": self.sample(values, form) if isinstance(values, dict) else "b"}
        if kind == "string":
            return "2025-11-15T09:30:00.12Z" if schema.get("format") == "date-time" else "text"
        return {"integer": 202, "number": 1.5, "boolean": True}.get(kind, {"any": ["JSON"]})

    def stream(self, form: str) -> str:
        """What the live stream tells: the document does not describe its events."""
        data = {name.lower(): self.sample({"$ref": f"#/components/schemas/{name}"}, form) for name in ("Delivery", "Attempt")}
        later = f"event: {UNKNOWN_WORD}\ndata: {{}}\n\n" if form == "new" else ""
        return f"{later}event: attempt\ndata: {json.dumps(data)}\n\n"


def read() -> Samples:
    """The samples of the document in this folder."""
    document = json.loads((HERE / "openapi.json").read_text())
    schemas = document["components"]["schemas"]
    operations = []
    for path, methods in document["paths"].items():
        pattern = re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)))
        for method, one in methods.items():
            if "operationId" not in one:
                continue
            parameters = {each["name"] for each in one.get("parameters", ()) if each["in"] == "query"}
            body = one.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            if "$ref" in body:
                parameters |= schemas[body["$ref"].rsplit("/", 1)[1]].get("properties", {}).keys()
            answers = {
                status: next((content["schema"] for content in answer.get("content", {}).values()), None)
                for status, answer in one["responses"].items()
                if status.startswith("2")
            }
            # The pages of a list are the iterator's own.
            parameters -= {"limit", "cursor"}
            operations.append(Operation(one["operationId"], method.upper(), pattern, parameters, answers))
    oldest = json.loads((HERE / "oldest-answers.json").read_text())
    return Samples(operations, schemas, oldest)


@contextmanager
def served() -> Iterator[Samples]:
    """The server, on a free port, in a thread."""
    samples = read()

    class Handler(_Handler):
        known = samples

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    samples.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield samples
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    known: Samples
    protocol_version = "HTTP/1.1"
    # Head and body leave together: a second small packet would wait for the first one's acknowledgement.
    wbufsize = 64 * 1024

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self) -> None:
        text = self.rfile.read(int(self.headers.get("content-length") or 0))
        parts = urlsplit(self.path)
        _, form, rest = parts.path.split("/", 2)
        path = unquote("/" + rest)
        agent = re.match(r"postrider-(\w+)/", self.headers.get("user-agent", ""))
        client = agent[1] if agent else "unknown"
        # `/v1/destinations/summary` is a call of its own, and not a destination.
        found = [one for one in self.known.operations if one.method == self.command and one.path.fullmatch(path)]
        if not found:
            return self._refuse(client, f"{self.command} {path} is no call of the document")
        one = min(found, key=lambda each: "[^/]" in each.path.pattern)
        is_object = self.headers.get("content-type") == "application/json" and text.startswith(b"{")
        body = json.loads(text) if is_object else {}
        given = {*parse_qs(parts.query, keep_blank_values=True), *body} - {"limit", "cursor"}
        if strange := given - one.parameters:
            return self._refuse(client, f"{one.id} has no {', '.join(sorted(strange))}")
        self.known.called[client][one.id] |= given
        if one.id == "followStream":
            return self._write(200, self.known.stream(form).encode(), "text/event-stream")
        # A dry run is answered with 200, and so is a subscription that exists.
        status = min(one.answers) if body.get("dry_run") or "201" not in one.answers else "201"
        schema = one.answers[status]
        answer = b"" if schema is None else json.dumps(self.known.sample(schema, form)).encode()
        return self._write(int(status), answer, "application/json")

    def _refuse(self, client: str, what: str) -> None:
        self.known.faults.append(f"{client}: {what}")
        problem = {"type": "about:blank", "title": "no", "status": 400, "code": "no_such_call", "detail": what, "field": None}
        self._write(400, json.dumps(problem).encode(), "application/problem+json")

    def _write(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        if status != 204:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PATCH = do_DELETE = _answer
