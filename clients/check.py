#!/usr/bin/env python3
"""Runs the tests and the README examples of all clients, and the receivers of the guide, against a real server.

    python3 clients/check.py --binary target/debug/postrider --work target/clients

Needs node and npm, go, cargo, and Python 3.11 or newer with venv; packages come from the registries that this machine is set
up for. Sources are copied to the work folder first: nothing is written beside them. It prints one line of figures for
each client, and ends with 1 where something failed. A second run in the same work folder installs nothing again
unless the requirements have changed.

    --only python            run one client, or several: --only python,go
    --update-openapi         save the server's OpenAPI document to clients/openapi.json instead of comparing it
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import samples

HERE = Path(__file__).resolve().parent
GUIDE = HERE.parent / "docs" / "guide" / "receiving.md"
START_SECONDS_MAX = 60
COMMAND_SECONDS_MAX = 900
EXAMPLE_SECONDS_MAX = 60
DENO = "deno@2.9.6"
SHARED_FILES = ("openapi.json", "oldest-answers.json", "verify-cases.json")
LEFT_OUT = ("node_modules", "dist", "build", "__pycache__", ".mypy_cache", "schema.ts", "*_sync_*.py")
PACKED = {"package.json", "README.md", "LICENSE", "dist/index.js", "dist/index.d.ts", "dist/verify.js", "dist/verify.d.ts"}


class Failed(Exception):
    """A check that did not pass, with what there is to read about it."""


@dataclass(frozen=True)
class Server:
    """The real server, with its admin key."""

    url: str
    key: str
    binary: Path
    samples: str
    """The URL of the server that answers with samples."""

    def access(self) -> dict[str, str]:
        """What the tests of a client find in their environment."""
        return {"POSTRIDER_SERVER": self.url, "POSTRIDER_KEY": self.key, "POSTRIDER_SAMPLES": self.samples}

    def call(self, method: str, path: str, body: Any = None, tenant: str | None = None) -> Any:
        """One call of the API, made by hand: the examples are judged without the clients."""
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        if tenant is not None:
            headers["postrider-tenant"] = tenant
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")


def environment(**more: str) -> dict[str, str]:
    """Our environment without the settings of a server or of the command line, which are not those of a test."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("POSTRIDER_")}
    return {**kept, **more}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running_server(binary: Path, work: Path, samples_url: str) -> Iterator[Server]:
    """Starts the server with a data directory that is removed afterwards."""
    folder = work / "server"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    key = f"check-admin-key-{secrets.token_hex(16)}"
    port = free_port()
    server = Server(f"http://127.0.0.1:{port}", key, binary, samples_url)
    command: list[Any] = [binary, "serve", "--dev", "--listen", f"127.0.0.1:{port}", "--data-dir", folder / "data"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=environment(POSTRIDER_ADMIN_KEY=key)
        )
    try:
        wait_for(lambda: is_ready(server.url) or process.poll() is not None, START_SECONDS_MAX, "the server is ready")
        if process.poll() is not None:
            raise Failed(f"the server did not start:\n{(folder / 'log').read_text(errors='replace')[-2000:]}")
        yield server
    finally:
        stop(process)
        shutil.rmtree(folder, ignore_errors=True)


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(is_true: Callable[[], bool], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > end:
            raise Failed(f"waited {seconds} s in vain until {what}")
        time.sleep(0.05)


def stop(process: subprocess.Popen[Any]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def run(
    command: list[Any], folder: Path, settings: dict[str, str] | None = None, seconds: float = COMMAND_SECONDS_MAX
) -> str:
    """What a command printed. Raises `Failed` with the end of it where the command fails."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment(**(settings or {})),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            text=True,
            errors="replace",
        )
    except FileNotFoundError:
        raise Failed(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired as late:
        raise Failed(f"{shown(command)} took longer than {seconds} s:\n{str(late.stdout or '')[-4000:]}") from None
    if done.returncode != 0:
        raise Failed(f"{shown(command)} ended with {done.returncode}:\n{done.stdout[-6000:]}")
    return done.stdout


def shown(command: list[Any]) -> str:
    return " ".join(map(str, command))


def copied(name: str, work: Path) -> Path:
    """A copy of a client's sources, beside the files that the clients share. What was installed there stays."""
    target = work / "src" / name
    target.mkdir(parents=True, exist_ok=True)
    for old in target.iterdir():
        if old.name != "node_modules":
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    ignore = shutil.ignore_patterns(*LEFT_OUT, "*.tgz", "*.egg-info")
    shutil.copytree(HERE / name, target, ignore=ignore, dirs_exist_ok=True)
    for file in SHARED_FILES:
        shutil.copy(HERE / file, target.parent / file)
    return target


def unless_done(stamp: Path, requirements: str, install: Callable[[], None]) -> None:
    """Installs, unless the stamp says that the same requirements were installed before."""
    digest = hashlib.sha256(requirements.encode()).hexdigest()
    if not stamp.exists() or stamp.read_text() != digest:
        install()
        stamp.write_text(digest)


def number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    if found is None:
        raise Failed(f"no figures in:\n{text[-2000:]}")
    return int(found[1])


# The README examples


def blocks(readme: Path, language: str) -> list[str]:
    """The code blocks of a README in this language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", readme.read_text(), re.MULTILINE | re.DOTALL)


def run_examples(server: Server, examples: list[tuple[list[Any], Path, str]]) -> int:
    """Runs each example: the command, its folder, and its text. Each one has a tenant of its own."""
    for command, folder, text in examples:
        tenant = f"example-{secrets.token_hex(6)}"
        server.call("POST", "/v1/tenants", {"id": tenant})
        scopes = ["ingest", "manage", "read"]
        key = server.call("POST", "/v1/keys", {"scopes": scopes, "tenant": tenant})["key"]
        settings = {
            "POSTRIDER_SERVER": server.url,
            "POSTRIDER_KEY": key,
            "TEST_POSTRIDER_BINARY": str(server.binary),
        }
        if "WEBHOOK_SECRET" in text:
            run_receiver(server, tenant, command, folder, settings)
        else:
            # A second run must work too: an example leaves nothing behind that is in its way.
            for _ in range(2):
                told = run(command, folder, settings, EXAMPLE_SECONDS_MAX)
                if told.strip() == "" or ("verify(" in text.lower() and "verified dlv_" not in told):
                    raise Failed(f"{shown(command)} did not print what it should:\n{told}")
    return len(examples)


def guide_receiver(language: str, secret: str, port: str) -> str:
    """The receiver of the guide in this language, which takes its secret and its port by these expressions instead."""
    [text] = [block for block in blocks(GUIDE, language) if "whsec_…" in block]
    changed = text.replace('"whsec_…"', secret).replace("9001", port)
    if secret not in changed or port not in changed:
        raise Failed(f"the receiver of {GUIDE.name} in {language} has no secret or no port:\n{text}")
    return changed


def run_guide(server: Server, command: list[Any], folder: Path) -> None:
    """Runs a receiver of the guide, with a tenant of its own."""
    tenant = f"guide-{secrets.token_hex(6)}"
    server.call("POST", "/v1/tenants", {"id": tenant})
    run_receiver(server, tenant, command, folder, {}, says="genuine dlv_")


def run_receiver(
    server: Server, tenant: str, command: list[Any], folder: Path, settings: dict[str, str], says: str = "verified"
) -> None:
    """A receiver must accept a webhook of the server and say so, and nothing else."""
    port = free_port()
    secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    log = folder / "receiver.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(**settings, PORT=str(port), WEBHOOK_SECRET=secret),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for(lambda: is_open(port) or process.poll() is not None, 30, f"{shown(command)} listens")
        url = f"http://127.0.0.1:{port}/hook"
        body = {"url": url, "types": ["*"], "secret": secret}
        subscription = server.call("POST", "/v1/subscriptions", body, tenant)
        outcome = server.call("POST", f"/v1/subscriptions/{subscription['id']}/test", tenant=tenant)
        if outcome["outcome"] != "delivered":
            raise Failed(f"{shown(command)} refused a webhook: {outcome}")
        forged = urllib.request.Request(url, b'{"type":"forged"}', method="POST")
        for name in ("webhook-id", "webhook-timestamp", "webhook-signature"):
            forged.add_header(name, {"webhook-timestamp": str(int(time.time()))}.get(name, "v1,AAAA"))
        try:
            with urllib.request.urlopen(forged, timeout=10) as answer:
                raise Failed(f"{shown(command)} accepted a forged webhook with {answer.status}")
        except urllib.error.HTTPError as error:
            if error.code != 401:
                raise Failed(f"{shown(command)} answered a forged webhook with {error.code}") from None
        wait_for(lambda: says in log.read_text(), 10, f"{shown(command)} says that it verified")
    except (Failed, OSError) as error:
        raise Failed(f"{error}\n{log.read_text(errors='replace')[-3000:]}") from None
    finally:
        stop(process)


# The clients


def typescript(server: Server, work: Path) -> str:
    folder = copied("typescript", work)
    lock = (folder / "package-lock.json").read_text()
    unless_done(
        work / "typescript.stamp", lock, lambda: void(run(["npm", "ci", "--no-progress", "--prefer-offline"], folder))
    )
    tested = run(["npm", "test"], folder, server.access())
    tests = number(r"(?:#|ℹ) pass (\d+)", tested)
    in_deno = verified_in_deno(folder, work)
    [packed] = json.loads(run(["npm", "pack", "--json", "--ignore-scripts", "--loglevel=error"], folder))
    files = {file["path"] for file in packed["files"]}
    strange = {file for file in files if not file.startswith("dist/")} - PACKED
    if strange or not PACKED <= files:
        raise Failed(f"the package has {sorted(strange)} too many and lacks {sorted(PACKED - files)}")
    if json.loads((folder / "package.json").read_text()).get("dependencies"):
        raise Failed("the package has dependencies")
    examples = work / "typescript-examples"
    shutil.rmtree(examples, ignore_errors=True)
    unpack_package(folder / packed["filename"], folder / "node_modules", examples)
    texts = blocks(folder / "README.md", "ts")
    for index, text in enumerate(texts):
        (examples / f"example-{index}.ts").write_text(text)
    options = ["--module", "nodenext", "--target", "es2022", "--strict", "--types", "node"]
    run(["node_modules/.bin/tsc", *options, *sorted(path.name for path in examples.glob("*.ts"))], examples)
    ran = run_examples(
        server, [(["node", f"example-{index}.js"], examples, text) for index, text in enumerate(texts)]
    )
    receiver = guide_receiver("js", "process.env.WEBHOOK_SECRET", "Number(process.env.PORT)")
    (examples / "receiver.mjs").write_text(receiver)
    run_guide(server, ["node", "receiver.mjs"], examples)
    size = packed["size"] / 1024
    return f"{tests} tests, {in_deno} in Deno, {ran} README examples, package of {len(files)} files and {size:.0f} KiB"


def verified_in_deno(folder: Path, work: Path) -> int:
    """Runs the built tests of verify() in Deno, whose binary is a package of npm's; returns how many passed."""
    place = work / "deno"
    place.mkdir(exist_ok=True)
    (place / "package.json").write_text('{"private": true}\n')
    install = ["npm", "install", "--no-progress", "--no-audit", "--no-fund", "--prefer-offline", DENO]
    unless_done(work / "deno.stamp", DENO, lambda: void(run(install, place)))
    deno = [place / "node_modules" / ".bin" / "deno", "test", "--no-check", "--allow-read", "--allow-env"]
    settings = {"DENO_DIR": str(place / "cache"), "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}
    return number(r"ok \| (\d+) passed \| 0 failed", run([*deno, "build/test/verify.test.js"], folder, settings))


def unpack_package(tarball: Path, modules: Path, target: Path) -> None:
    """A project that has our package as it would be published, and beside it what the examples need."""
    package = target / "node_modules" / "@postrider" / "client"
    package.mkdir(parents=True)
    shutil.unpack_archive(tarball, target / "unpacked", "gztar")
    shutil.copytree(target / "unpacked" / "package", package, dirs_exist_ok=True)
    shutil.rmtree(target / "unpacked")
    for module in modules.iterdir():
        if module.name != "@postrider":
            (target / "node_modules" / module.name).symlink_to(module)
    (target / "package.json").write_text('{"type": "module", "private": true}\n')


def python(server: Server, work: Path) -> str:
    folder = copied("python", work)
    venv = work / "venv"
    program = venv / "bin" / "python"
    pip = [program, "-m", "pip", "--disable-pip-version-check", "-q"]
    manifest = (folder / "pyproject.toml").read_text()

    def install() -> None:
        shutil.rmtree(venv, ignore_errors=True)
        run([sys.executable, "-m", "venv", venv], work)
        run([*pip, "install", "hatchling>=1.26", f"{folder}[dev]"], work)

    unless_done(work / "python.stamp", manifest, install)
    # The wheel is what is tested, not the sources.
    wheels = work / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", wheels, folder], work)
    [wheel] = wheels.glob("postrider-*.whl")
    run([*pip, "install", "--no-deps", "--force-reinstall", wheel], work)
    run([program, "scripts/unasync.py"], folder)
    checked = number(r"no issues found in (\d+) source files", run([program, "-m", "mypy"], folder))
    settings = {"TEST_POSTRIDER_BINARY": str(server.binary), "POSTRIDER_SAMPLES": server.samples}
    tested = run([program, "-m", "pytest"], folder, settings)
    tests = number(r"(\d+) passed", tested)
    if re.search(r"\d+ (skipped|failed|xfailed)", tested):
        raise Failed(f"a test was skipped:\n{tested[-2000:]}")
    examples = work / "python-examples"
    shutil.rmtree(examples, ignore_errors=True)
    examples.mkdir()
    texts = blocks(folder / "README.md", "python")
    for index, text in enumerate(texts):
        (examples / f"example_{index}.py").write_text(text)
    run([program, "-m", "mypy", "--strict", "--cache-dir", work / "mypy-cache", "."], examples)
    ran = run_examples(
        server, [([program, f"example_{index}.py"], examples, text) for index, text in enumerate(texts)]
    )
    imported = '__import__("os").environ'
    receiver = guide_receiver("python", f'{imported}["WEBHOOK_SECRET"]', f'int({imported}["PORT"])')
    (examples / "receiver_client.py").write_text(receiver)
    run_guide(server, [program, "receiver_client.py"], examples)
    return f"{tests} tests, {ran} README examples, mypy --strict on {checked} files, wheel of {wheel.stat().st_size / 1024:.0f} KiB"


def go(server: Server, work: Path) -> str:
    folder = copied("go", work)
    # Nothing is fetched: the client has the standard library alone.
    settings = {"GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOCACHE": str(work / "go-cache")}
    version = run(["go", "env", "GOVERSION"], folder, settings).strip()
    unformatted = run(["gofmt", "-l", "."], folder)
    if unformatted.strip():
        raise Failed(f"gofmt would change {unformatted.split()}")
    run(["go", "vet", "./..."], folder, settings)
    command = ["go", "test", "-count=1", "-json", "./..."]
    lines = run(command, folder, {**settings, **server.access()}).splitlines()
    results = [json.loads(line) for line in lines if line.startswith("{")]
    tests = sum(one["Action"] == "pass" and "Test" in one for one in results)
    if any(one["Action"] == "skip" and "Test" in one for one in results):
        raise Failed("a test was skipped")
    examples = work / "go-examples"
    shutil.rmtree(examples, ignore_errors=True)
    texts = blocks(folder / "README.md", "go")
    module = re.search(r"^module (\S+)$", (folder / "go.mod").read_text(), re.MULTILINE)
    if module is None:
        raise Failed("go.mod names no module")
    for index, text in enumerate(texts):
        (examples / f"example{index}").mkdir(parents=True)
        (examples / f"example{index}" / "main.go").write_text(text)
    (examples / "go.mod").write_text(
        f"module examples\n\ngo 1.19\n\nrequire {module[1]} v0.0.0\n\nreplace {module[1]} => {folder}\n"
    )
    run(["go", "vet", "./..."], examples, settings)
    run(["go", "build", "-o", "bin/", "./..."], examples, settings)
    ran = run_examples(
        server, [([examples / "bin" / f"example{index}"], examples, text) for index, text in enumerate(texts)]
    )
    receiver = guide_receiver("go", 'os.Getenv("WEBHOOK_SECRET")', '" + os.Getenv("PORT") + "')
    (examples / "receiver").mkdir()
    (examples / "receiver" / "main.go").write_text(receiver.replace('"net/http"\n', '"net/http"\n\t"os"\n'))
    run(["go", "build", "-o", "bin/", "./receiver"], examples, settings)
    run_guide(server, [examples / "bin" / "receiver"], examples)
    return f"{tests} tests with {version}, {ran} README examples"


def rust(server: Server, work: Path) -> str:
    """A member of the workspace. Features are those of the whole workspace, so that what CI has built is used."""
    root = HERE.parent
    run(["cargo", "check", "--quiet", "--package", "postrider-client", "--no-default-features"], root)
    tests = [word for name in ("readme", "real_server", "scripted", "verify") for word in ("--test", name)]
    command = ["cargo", "test", "--quiet", "--workspace", *tests, "--", "--include-ignored"]
    tested = run(command, root, server.access())
    results = re.findall(r"test result: ok\. (\d+) passed; 0 failed; (\d+) ignored", tested)
    count = sum(int(passed) for passed, _ in results)
    if len(results) * 2 != len(tests) or any(ignored != "0" for _, ignored in results):
        raise Failed(f"a test was skipped:\n{tested[-2000:]}")
    examples = sorted((HERE / "rust" / "examples").glob("*.rs"))
    names = [word for one in examples for word in ("--example", one.stem)]
    run(["cargo", "build", "--quiet", "--workspace", *names], root)
    folder = work / "rust-examples"
    folder.mkdir(exist_ok=True)
    binaries = root / os.environ.get("CARGO_TARGET_DIR", "target") / "debug" / "examples"
    ran = run_examples(server, [([binaries / one.stem], folder, one.read_text()) for one in examples])
    return f"{count} tests, {ran} README examples"


def void(_: object) -> None:
    """Takes a value and gives none."""


def check_openapi(server: Server, is_update: bool) -> None:
    """The clients are made for the API of this very server."""
    document = server.call("GET", "/openapi.json")
    target = HERE / "openapi.json"
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    if is_update:
        target.write_text(text)
        return
    kept = json.loads(target.read_text())
    if kept != document:
        parts = ((document["paths"], kept["paths"]), (document["components"]["schemas"], kept["components"]["schemas"]))
        changed = [name for new, old in parts for name in sorted({*new, *old}) if new.get(name) != old.get(name)]
        raise Failed(
            f"the server's OpenAPI document is not that of clients/openapi.json (other: {', '.join(changed)}): "
            "adapt the clients and run this again with --update-openapi"
        )


CLIENTS: dict[str, Callable[[Server, Path], str]] = {"typescript": typescript, "python": python, "go": go, "rust": rust}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, required=True, help="the program postrider")
    parser.add_argument("--work", type=Path, required=True, help="a folder for everything that is installed and built")
    parser.add_argument("--only", default=",".join(CLIENTS), help="names of clients, joined by commas")
    parser.add_argument("--update-openapi", action="store_true", help="save the server's OpenAPI document")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    if unknown := [name for name in names if name not in CLIENTS]:
        parser.error(f"no such client: {', '.join(unknown)}")
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    code = 0
    try:
        with samples.served() as known, running_server(arguments.binary.resolve(), work, known.url) as server:
            check_openapi(server, arguments.update_openapi)
            for name in names:
                began = time.monotonic()
                try:
                    figures = CLIENTS[name](server, work)
                    if missing := known.missing(name):
                        raise Failed("calls of the API are missing:\n" + "\n".join(missing))
                    figures += f", all {known.promised()} calls"
                    print(f"{name}: {figures}, {time.monotonic() - began:.0f} s", flush=True)
                except Failed as failed:
                    print(f"{name}: FAILED: {failed}", flush=True)
                    code = 1
            (work / "calls.md").write_text(known.table(names) + "\n")
    except Failed as failed:
        print(f"FAILED: {failed}", flush=True)
        code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
