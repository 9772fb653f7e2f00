"""The official client of the API that mlx-lm's server speaks: streaming and not, with tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from tests.serving.process import Server, serving, write
from tests.serving.test_warm import RULES

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city now.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]
MESSAGES: list[Any] = [{"role": "system", "content": RULES}, {"role": "user", "content": "Is it 12 or 123?"}]


@pytest.fixture(scope="module")
def server(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one entry that has tools and one that has not, both warm."""
    prompts = tmp_path_factory.mktemp("openai") / "prompts.json"
    plain = {"name": "plain", "messages": MESSAGES[:1]}
    write(prompts, [plain, {**plain, "name": "tools", "tools": TOOLS}])
    with serving(models["llama"], prompts) as server:
        server.wait_for("entry.warmed", entry="plain")
        server.wait_for("entry.warmed", entry="tools")
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> OpenAI:
    return OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)


def ask(client: OpenAI, **more: Any) -> Any:
    arguments = {"messages": MESSAGES, "max_tokens": 8, "temperature": 0.0, "model": "default_model", **more}
    return client.chat.completions.create(**arguments)


@pytest.mark.parametrize("tools", [None, TOOLS], ids=["plain", "tools"])
def test_a_request_begins_warm_and_streams_what_it_answers_at_once(
    server: Server, client: OpenAI, tools: list[Any] | None
) -> None:
    more = {"tools": tools} if tools else {}
    answer = ask(client, **more)
    name = "tools" if tools else "plain"
    size = next(line["tokens"] for line in server.seen("entry.warmed") if line["entry"] == name)
    assert answer.usage.prompt_tokens_details.cached_tokens >= size
    chunks = ask(client, stream=True, **more)
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(pieces) == (answer.choices[0].message.content or "")
    assert [server.wait_for("live.hit")["entry"] for _ in range(2)] == [name, name]


def test_the_served_model_is_listed_where_nothing_was_ever_downloaded(
    models: dict[str, Path], tmp_path: Path
) -> None:
    write(tmp_path / "p.json", [])
    nowhere = {"HOME": str(tmp_path), "HF_HUB_CACHE": str(tmp_path / "hub")}
    with serving(models["llama"], tmp_path / "p.json", environment=nowhere) as server:
        server.wait_for("daemon.ready")
        client = OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
        (listed,) = client.models.list().data
        assert (listed.id, listed.object) == (str(models["llama"].resolve()), "model")
        assert listed.created > 0
        assert server.stop() == 0
        assert [line for line in server.seen("foreign.logged") if line["level"] == "error"] == []
