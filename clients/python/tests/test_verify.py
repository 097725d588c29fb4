"""verify(), by the table that all clients share."""

from __future__ import annotations

import base64
import json
import sys
import traceback
from pathlib import Path
from typing import Any

import httpx
import pytest

from postrider import VerificationError, verify

TABLE = json.loads((Path(__file__).parent.parent.parent / "verify-cases.json").read_text())
FIRST = TABLE["cases"][0]
BODY = base64.b64decode(FIRST["body_base64"])


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: case["name"])
def test_verify_decides_each_case_as_the_table_says(case: dict[str, Any]) -> None:
    body = base64.b64decode(case["body_base64"])
    try:
        verify(
            body,
            case["headers"],
            case["secrets"],
            tolerance_seconds=case["tolerance_seconds"],
            now=case["now"],
        )
        outcome = "ok"
    except VerificationError as error:
        outcome = error.code
        shown = "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))
        assert not any(secret[6:] in shown for secret in case["secrets"])
    assert outcome == case["expected"]


@pytest.mark.parametrize("case", TABLE["bad_secrets"], ids=lambda case: case["name"])
def test_verify_refuses_a_secret_that_is_none_without_showing_it(case: dict[str, str]) -> None:
    with pytest.raises(ValueError) as raised:
        verify(BODY, FIRST["headers"], case["secret"], now=FIRST["now"])
    assert case["secret"] == "" or case["secret"] not in str(raised.value)


def test_verify_reads_headers_in_every_usual_form() -> None:
    pairs = [(name.upper(), value) for name, value in FIRST["headers"].items()]
    for headers in (pairs, dict(pairs), httpx.Headers(pairs), tuple(pairs), iter(pairs)):
        assert verify(BODY, headers, FIRST["secrets"], now=FIRST["now"]).id == FIRST["headers"]["webhook-id"]
    for twice in (pairs + pairs[:1], httpx.Headers(pairs + pairs[:1])):
        with pytest.raises(VerificationError) as raised:
            verify(BODY, twice, FIRST["secrets"], now=FIRST["now"])
        assert raised.value.code == "malformed_header"


def test_verify_takes_text_and_one_secret_and_tells_the_time() -> None:
    verified = verify(BODY.decode(), FIRST["headers"], FIRST["secrets"][0], now=FIRST["now"])
    assert verified.timestamp.timestamp() == 1614265330


def test_verify_refuses_where_the_tolerance_is_not_a_number() -> None:
    with pytest.raises(VerificationError):
        verify(BODY, FIRST["headers"], FIRST["secrets"], now=FIRST["now"], tolerance_seconds=float("nan"))


def test_a_public_key_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    public = TABLE["cases"][1]["secrets"][0]
    with pytest.raises(RuntimeError, match=r"postrider\[ed25519\]"):
        verify(BODY, FIRST["headers"], public, now=FIRST["now"])


def test_verify_says_so_where_the_body_was_parsed_before() -> None:
    parsed: Any = {"test": 2432232314}
    with pytest.raises(TypeError, match="raw body"):
        verify(parsed, FIRST["headers"], FIRST["secrets"], now=FIRST["now"])
