"""Refusals reach ordinary clients: Python's http.client and requests, Node's fetch, Go's net/http and
curl send bodies that the server refuses, and each must read every answer to its end.

Arguments: the binary, how often each client tries each refusal, and, where given, the clients to try.
The network of the caller is used; `cargo xtask references` runs this where there is only loopback.
"""

import http.client
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

import requests

HERE = pathlib.Path(__file__).parent
KEY = "refusal-check-admin-key-" + os.urandom(8).hex()
PATIENCE_SECONDS = 60
MIB = 1024 * 1024
JSON = {"content-type": "application/json"}
KEYED = {"authorization": "Bearer " + KEY}
# The tenant that has as many unfinished deliveries as it may have.
FULL = {**KEYED, **JSON, "postrider-tenant": "full"}
EVENT = '{"type": "a.b", "data": 1}'


def refusals(reader):
    """Status, headers, how the body begins, and how many bytes it has; it ends with spaces. Each is sent to
    POST /v1/events. `reader` is a key that may only read."""
    return [
        (401, JSON, "", MIB // 2),
        (403, {**JSON, "authorization": "Bearer " + reader}, EVENT, MIB // 2),
        (413, {**KEYED, **JSON}, "", 5 * MIB),
        (415, {**KEYED, "content-type": "text/csv"}, "", MIB // 2),
        (422, {**KEYED, **JSON}, '{"type": "not a type", "data": 1}', MIB // 2),
        (429, FULL, EVENT, MIB // 2),
    ]


def call(address, path, headers, body):
    """The status and the answer of a call that prepares the refusals."""
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_SECONDS)
    connection.request("POST", path, body, {**JSON, **headers})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read() or "null")


def prepare(address):
    """Fills the quota of a tenant. Returns a key that may only read."""
    url = "http://127.0.0.1:1/"
    for path, headers, body in [
        ("/v1/tenants", KEYED, {"id": "full"}),
        ("/v1/subscriptions", FULL, {"url": url, "types": ["a.b"]}),
    ]:
        status, answer = call(address, path, headers, json.dumps(body))
        if status != 201:
            sys.exit(f"POST {path}: {status} {answer}")
    for _ in range(100):
        if call(address, "/v1/events", FULL, EVENT)[0] == 429:
            break
    else:
        sys.exit("the quota of unfinished deliveries is never reached")
    return call(address, "/v1/keys", KEYED, '{"tenant": "default", "scopes": ["read"]}')[1]["key"]


def start(binary, folder):
    quota = ["--set", "limits.tenant_unfinished=1"]
    server = subprocess.Popen(
        [binary, "serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir", folder] + quota,
        env={**os.environ, "POSTRIDER_ADMIN_KEY": KEY},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    for line in server.stdout:
        if '"listening"' in line:
            threading.Thread(target=server.stdout.read, daemon=True).start()
            return server, json.loads(line)["address"]
    sys.exit("the server did not start")


def is_whole(status, found, text):
    return found == status and json.loads(text)["status"] == status


def with_http_client(address, count, status, headers, body):
    """On one connection for as long as the server keeps it."""
    cut, connection = 0, None
    for _ in range(count):
        connection = connection or http.client.HTTPConnection(address, timeout=PATIENCE_SECONDS)
        try:
            connection.request("POST", "/v1/events", body, headers)
            answer = connection.getresponse()
            text = answer.read()
            cut += not is_whole(status, answer.status, text)
            if answer.will_close:
                connection = None
        except (OSError, http.client.HTTPException, ValueError):
            cut, connection = cut + 1, None
    return cut


def with_requests(address, count, status, headers, body):
    cut, session = 0, requests.Session()
    for _ in range(count):
        try:
            answer = session.post(
                f"http://{address}/v1/events", body, headers=headers, timeout=PATIENCE_SECONDS
            )
            cut += not is_whole(status, answer.status_code, answer.text)
        except (requests.RequestException, ValueError):
            cut += 1
    return cut


def with_program(words, address, count, status, headers, body):
    """A program that gets its task as JSON and prints how many answers were cut."""
    task = {"url": f"http://{address}/v1/events", "count": count, "status": status}
    task |= {"headers": headers, "body": body.decode().rstrip(" "), "bytes": len(body)}
    done = subprocess.run(words, input=json.dumps(task), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    return int(done.stdout)


def with_node(*task):
    return with_program(["node", HERE / "refusals.mjs"], *task)


def with_go(*task):
    return with_program(["go", "run", HERE / "refusals.go"], *task)


def with_curl(address, count, status, headers, body):
    """As it is, and without the header that asks before it sends."""
    cut = 0
    for more, tries in [([], count - count // 2), (["--header", "expect:"], count // 2)]:
        with tempfile.NamedTemporaryFile() as file:
            file.write(body)
            file.flush()
            words = ["curl", "--silent", "--data-binary", "@" + file.name]
            words += ["--output", "/dev/null", "--write-out", "%{http_code} %{size_download} %{exitcode}\n"]
            for name, value in headers.items():
                words += ["--header", f"{name}: {value}"]
            words += more + [f"http://{address}/v1/events?n=[1-{tries}]"]
            done = subprocess.run(words, capture_output=True, text=True)
        lines = [line.split() for line in done.stdout.splitlines()]
        whole = [line for line in lines if line[0] == str(status) and line[1] != "0" and line[2] == "0"]
        cut += tries - len(whole)
    return cut


CLIENTS = {
    "http.client": with_http_client,
    "requests": with_requests,
    "fetch": with_node,
    "net/http": with_go,
    "curl": with_curl,
}


def main():
    binary, count, *chosen = sys.argv[1:]
    count, total = int(count), 0
    with tempfile.TemporaryDirectory() as folder:
        server, address = start(binary, folder)
        try:
            reader = prepare(address)
            for name in chosen or CLIENTS:
                cuts = []
                for status, headers, begin, length in refusals(reader):
                    body = begin.ljust(length).encode()
                    cut = CLIENTS[name](address, count, status, headers, body)
                    cuts.append(f"{status}: {cut} of {count}")
                    total += cut
                print(f"refusals cut, {name}: {', '.join(cuts)}", flush=True)
        finally:
            server.terminate()
            server.wait(timeout=PATIENCE_SECONDS)
    sys.exit(1 if total else 0)


main()
