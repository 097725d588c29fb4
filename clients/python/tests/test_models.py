"""The models have the fields of the OpenAPI document, so that a change of the API is noticed here."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from postrider import models

SHARED = Path(__file__).parent.parent.parent
SCHEMAS = json.loads((SHARED / "openapi.json").read_text())["components"]["schemas"]
OLDEST: dict[str, list[str]] = json.loads((SHARED / "oldest-answers.json").read_text())
MODELS = [name for name in SCHEMAS if dataclasses.is_dataclass(getattr(models, name, None))]
WORDS = [name for name in SCHEMAS if "enum" in SCHEMAS[name] and hasattr(models, name)]


def properties(schema: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """The properties of a schema, and which of them are always there."""
    if "$ref" in schema:
        return properties(SCHEMAS[schema["$ref"].rsplit("/", 1)[1]])
    found, required = dict(schema.get("properties", {})), set(schema.get("required", ()))
    for part in schema.get("allOf", ()):
        more, also = properties(part)
        found, required = found | more, required | also
    return found, required


def is_nullable(schema: dict[str, Any]) -> bool:
    return "null" in schema.get("type", ()) or {"type": "null"} in schema.get("oneOf", ())


def test_the_answers_of_the_api_have_models() -> None:
    assert len(MODELS) >= 85, MODELS
    assert len(WORDS) >= 14, WORDS


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_the_fields_of_its_schema(name: str) -> None:
    model = getattr(models, name)
    schema, required = properties(SCHEMAS[name])
    hints = typing.get_type_hints(model)
    fields = {field.name.rstrip("_"): field for field in dataclasses.fields(model)}
    assert set(fields) == set(schema)
    for key, one in schema.items():
        hint = hints[fields[key].name]
        is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
        has_none = is_union and type(None) in typing.get_args(hint)
        has_default = fields[key].default is not dataclasses.MISSING
        has_default |= fields[key].default_factory is not dataclasses.MISSING
        # A field that older servers lack may be None for that reason alone.
        if hint is not Any and not (has_default and has_none):
            assert has_none == is_nullable(one), f"{name}.{key}"
        # Where a subscription with the uid existed, the answer has no secret.
        if (name, key) != ("SubscriptionWithSecret", "secret"):
            is_certain = key in required and key in OLDEST[name]
            assert has_default != is_certain, f"{name}.{key}"
        is_time = hint is datetime or (is_union and datetime in typing.get_args(hint))
        assert is_time == (one.get("format") == "date-time"), f"{name}.{key}"


@pytest.mark.parametrize("name", WORDS)
def test_the_states_are_those_of_the_document(name: str) -> None:
    assert list(typing.get_args(getattr(models, name))) == SCHEMAS[name]["enum"]
