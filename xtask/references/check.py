"""Holds the running server against other people's work: the Standard Webhooks libraries for Python
and JavaScript verify what it signs, and Schemathesis tries the API, and Workfront's, against its own document.

Run by `cargo xtask references` in a network namespace that has nothing but loopback, so whatever URL
a generated request names, nothing leaves it. Arguments: the binary, and the folder with the
JavaScript library. The official client of the Model Context Protocol for Python drives `postrider mcp`.
"""

import asyncio
import contextlib
import json
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

ADMIN_KEY = "reference-check-admin-key-" + os.urandom(8).hex()
SUBSCRIPTIONS = "/attask/eventsubscription/api/v1/subscriptions"
HERE = pathlib.Path(__file__).parent
PATIENCE_SECONDS = 60


def start(binary, folder):
    """Starts the server and returns it with its address, which it tells in its log."""
    server = subprocess.Popen(
        [binary, "serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir", folder],
        env={**os.environ, "POSTRIDER_ADMIN_KEY": ADMIN_KEY},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    for line in server.stdout:
        if '"listening"' in line:
            threading.Thread(target=server.stdout.read, daemon=True).start()
            return server, "http://" + json.loads(line)["address"]
    sys.exit("the server did not start")


def call(base, path, body):
    request = urllib.request.Request(
        base + path,
        data=json.dumps(body).encode(),
        headers={"authorization": "Bearer " + ADMIN_KEY, "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
        return json.load(answer)


def receiver():
    """A receiver and the queue of what arrives."""
    arrived = queue.Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            arrived.put((dict((k.lower(), v) for k, v in self.headers.items()), body.decode()))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/in", arrived


def is_refused(secret, body, headers):
    try:
        Webhook(secret).verify(body, headers)
    except (WebhookVerificationError, ValueError):
        # The library says the latter of what is not even base64.
        return True
    return False


def check_signatures(base, node_folder):
    url, arrived = receiver()
    subscription = call(base, "/v1/subscriptions", {"url": url, "types": ["reference.*"]})
    secrets = [subscription["secret"]]
    messages = []
    for number, text in enumerate(["plain", "Straße ☃ \u0000 \"quoted\"", "x" * 100_000]):
        if number == 1:
            rotated = call(base, f"/v1/subscriptions/{subscription['id']}/secret/rotate", {})
            secrets.append(rotated["secret"])
        call(base, "/v1/events", {"type": "reference.sent", "data": {"text": text}})
        headers, body = arrived.get(timeout=PATIENCE_SECONDS)
        # After the rotation both secrets sign, so that nobody is cut off.
        for secret in secrets:
            assert Webhook(secret).verify(body, headers)["data"]["text"] == text
            for bad in [
                {**headers, "webhook-id": headers["webhook-id"] + "0"},
                {**headers, "webhook-timestamp": str(int(headers["webhook-timestamp"]) + 1)},
                {**headers, "webhook-signature": "v1,"},
                {**headers, "webhook-signature": headers["webhook-signature"].split("=")[0][:-1]},
            ]:
                assert is_refused(secret, body, bad), bad
            assert is_refused(secret, body + " ", headers)
            messages.append({"secret": secret, "headers": headers, "body": body})
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(messages, file)
        file.flush()
        subprocess.run(["node", HERE / "verify.mjs", node_folder, file.name], check=True)
    print(f"signatures: {len(messages)} verified by Python and by JavaScript, forgeries refused")


def face(base, method, path, body=None):
    """A call of Workfront's API; returns its status and its answer."""
    request = urllib.request.Request(
        base + SUBSCRIPTIONS + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"sessionID": ADMIN_KEY, "content-type": "application/json"},
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")


def check_workfront(base, folder):
    """Schemathesis over the face's own document, with examples that name subscriptions which exist: without them
    nearly every call would be answered with 404. Each operation has a subscription of its own; Schemathesis uses some of
    them in other operations too."""
    header = f"sessionID: {ADMIN_KEY}"
    request = urllib.request.Request(base + "/attask/eventsubscription/openapi.json")
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
        document = json.load(answer)
    ids = {}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            wish = {"objCode": "PROJ", "eventType": "UPDATE", "authToken": "EauthToken1234"}
            wish["url"] = f"https://hooks.example.com/{len(ids)}"
            status, created = face(base, "POST", "", wish)
            assert status == 201, created
            ids[method, path.removeprefix(SUBSCRIPTIONS)] = created["id"]
            for parameter in operation.get("parameters", []):
                if parameter["name"] == "id":
                    parameter["example"] = created["id"]
    versions = document["components"]["schemas"]["VersionsChange"]
    versions["example"] = {"subscriptionIds": [ids["put", "/version"]], "version": "v1"}
    document["components"]["schemas"]["VersionChange"]["example"] = {"version": "v1"}
    file = pathlib.Path(folder) / "workfront.json"
    file.write_text(json.dumps(document))
    check_document(base, file, header)
    # The examples were used: what they name was changed.
    status, _ = face(base, "GET", "/" + ids["delete", "/{id}"])
    assert status == 404, "no call has deleted the subscription that exists"
    _, shown = face(base, "GET", "/" + ids["put", "/version"])
    assert shown.get("dateVersionUpdated"), f"no call has changed its version: {shown}"


def check_mcp(binary, base):
    """The official client initializes a session, lists the tools and calls each one that needs no argument."""

    async def session():
        settings = {"POSTRIDER_SERVER": base, "POSTRIDER_KEY": ADMIN_KEY}
        command = StdioServerParameters(command=binary, args=["mcp"], env=settings)
        async with stdio_client(command) as (read, write), ClientSession(read, write) as client:
            hello = await client.initialize()
            tools = (await client.list_tools()).tools
            called = 0
            for tool in tools:
                described = tool.model_dump(by_alias=True)["inputSchema"]
                if not described.get("required"):
                    result = (await client.call_tool(tool.name, {})).model_dump(by_alias=True)
                    assert not result["isError"], (tool.name, result)
                    called += 1
            assert called > 2, tools
            version = hello.model_dump(by_alias=True)["protocolVersion"]
            print(f"mcp: {len(tools)} tools, {called} called, in version {version}")

    asyncio.run(session())
    # Version 2025-03-26 lets a client send several messages in one array.
    lines = [[{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in range(2)]]
    done = subprocess.run(
        [binary, "mcp"],
        input="".join(json.dumps(line) + "\n" for line in lines),
        env={**os.environ, "POSTRIDER_SERVER": base, "POSTRIDER_KEY": ADMIN_KEY},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    assert [one["id"] for one in json.loads(done.stdout)] == [0, 1], done.stdout


def check_document(base, place, header):
    """No 5xx, and no answer that the document does not describe. The document is a path of the server, or a file."""
    tool = pathlib.Path(sys.executable).parent / "schemathesis"
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,"
    checks += "response_schema_conformance"
    given = f"{place} --url {base}" if isinstance(place, pathlib.Path) else base + place
    words = f"run {given} --exclude-path /v1/stream --phases examples,coverage,fuzzing "
    words += f"--max-examples 20 --seed 1 --checks {checks} --continue-on-failure --warnings off"
    done = subprocess.run(
        [tool, *words.split(), "--no-color", "--header", header],
        env={**os.environ, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
        cwd=tempfile.gettempdir(),
    )
    figures = [line.strip() for line in done.stdout.splitlines() if "generated" in line]
    if done.returncode != 0 or not figures:
        sys.exit(done.stdout + done.stderr)
    print(f"openapi: {place}: {figures[-1]}")


@contextlib.contextmanager
def running(binary):
    """A server of its own: what Schemathesis changes in one, such as a tenant's rate, is not in the next."""
    with tempfile.TemporaryDirectory() as folder:
        server, base = start(binary, folder)
        try:
            yield base, folder
            assert server.poll() is None, "the server has ended"
        finally:
            server.terminate()
            server.wait(timeout=PATIENCE_SECONDS)


def main():
    binary, node_folder = sys.argv[1:]
    with running(binary) as (base, _):
        check_signatures(base, node_folder)
        check_mcp(binary, base)
        check_document(base, "/openapi.json", f"Authorization: Bearer {ADMIN_KEY}")
    with running(binary) as (base, folder):
        check_workfront(base, folder)


main()
