"""What a server may answer, and what is made of it."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from tests.engines.http.scripted import Script, scripted
from tests.patience import PATIENCE
from warmd.engines.http.server import (
    LONGEST_NAME,
    MOST_BYTES,
    AnswerError,
    ChatServer,
    UnreachableError,
    read_models,
)


async def prefill(script: Script, *, timeout: float = 20) -> None:
    with scripted(script) as url:
        async with ChatServer(url, timeout=timeout) as server:
            await server.prefill({"messages": []})


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
async def test_an_answer_without_end_is_read_no_further_than_any_answer_goes(
    pack: Callable[[bytes], bytes],
) -> None:
    answer = pack(b" " * MOST_BYTES + b'{"choices": []}')
    headers = {"Content-Encoding": "gzip"} if pack is gzip.compress else {}
    with pytest.raises(AnswerError, match="something that cannot be read"):
        await prefill(Script(body=answer, headers=headers))


async def test_an_answer_that_drips_is_given_up_when_its_time_is_out() -> None:
    with anyio.fail_after(PATIENCE), pytest.raises(UnreachableError, match="does not answer in time"):
        await prefill(Script(body=b" " * 1000, drips=True), timeout=0.3)


async def test_a_redirection_says_what_to_do() -> None:
    with pytest.raises(AnswerError, match=r"answered 307 \(it redirects, which is not followed: name the"):
        await prefill(Script(location="http://elsewhere/"))


@pytest.mark.parametrize(
    "models",
    [
        None,
        {},
        {"a": 1},
        [None],
        ["a"],
        [{}],
        [{"id": None}],
        [{"id": {}}],
        [{"id": ""}],
        [{"id": "a\nb"}],
        [{"id": "a\x1b[31m"}],
        [{"id": "a\ud800"}],
        [{"id": "a" * (LONGEST_NAME + 1)}],
        [{"id": "a"}, {"id": 3}],
    ],
)
def test_what_is_no_list_of_names_is_none(models: Any) -> None:
    with pytest.raises(AnswerError):
        read_models({"data": models})
    with pytest.raises(AnswerError):
        read_models(models)


def test_a_list_of_names() -> None:
    assert read_models({"data": []}) == ()
    assert read_models({"data": [{"id": "/models/Qwen 3"}, {"id": "模型", "more": 1}]}) == (
        "/models/Qwen 3",
        "模型",
    )
