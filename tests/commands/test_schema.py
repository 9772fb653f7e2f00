"""`warmd schema` prints the JSON schema."""

from __future__ import annotations

import json

import pytest

from warmd.cli import main
from warmd.prompts.json_schema import SCHEMA


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == SCHEMA
