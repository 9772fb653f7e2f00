"""Edit the JSON, save, and the next request starts warm: on real models, through real HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx_lm
import pytest

from tests.serving.process import Json, Server, cached, serving, text, write
from tests.toys import ARCHITECTURES, make_model, make_raw_tokenizer

RULES = "You are a careful reviewer of code. " * 12


def system(content: str) -> list[Json]:
    return [{"role": "system", "content": content}]


def ask(content: str, question: str = "hello there") -> list[Json]:
    return [*system(content), {"role": "user", "content": question}]


def entry(name: str, content: str, **more: Any) -> Json:
    return {"name": name, "messages": system(content), **more}


def cold_answer(model_folder: Path, messages: list[Json], max_tokens: int = 4) -> str:
    """What the model says without any server or cache."""
    model, tokenizer = mlx_lm.load(str(model_folder))
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    return str(mlx_lm.generate(model, tokenizer, prompt, max_tokens=max_tokens))


def warmed(server: Server) -> list[tuple[str, int]]:
    """Which entries were prefilled so far, and how many tokens each."""
    return [(line["entry"], line["new_tokens"]) for line in server.seen("entry.warmed")]


OTHER = "Other. " + RULES * 2
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"b": 1, "a": {"c": 2}}}}]
AGENT = "You call tools. " * 12
BRIEF = "Be brief. " * 12
ENTRIES = [
    entry("rules", RULES),
    entry("other", OTHER),
    entry("agent", AGENT, tools=TOOLS),
    {"name": "turn", "messages": ask(BRIEF, "this text is only a stand-in")},
]


@dataclass(frozen=True, slots=True)
class Warm:
    """A server that has warmed all `ENTRIES`: the tests that share it only ask it.

    Attributes:
        server: It.
        model: What it serves.
        tokens: How many each entry has.
    """

    server: Server
    model: Path
    tokens: dict[str, int]


@pytest.fixture(scope="module", params=ARCHITECTURES)
def warm(
    request: pytest.FixtureRequest, models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Warm]:
    """One for each architecture."""
    prompts = tmp_path_factory.mktemp("warm") / "prompts.json"
    write(prompts, ENTRIES)
    with serving(models[request.param], prompts) as server:
        events = [server.wait_for("entry.warmed", entry=each["name"]) for each in ENTRIES]
        tokens = {event["entry"]: event["tokens"] for event in events}
        yield Warm(server, models[request.param], tokens)


@pytest.mark.parametrize("more", [{}, {"seed": 1}], ids=["batched", "sequential"])
@pytest.mark.promise(7)
def test_the_next_request_starts_warm_and_gets_the_cold_answer(warm: Warm, more: Json) -> None:
    answers = [warm.server.chat(ask(RULES), **more) for _ in range(2)]
    assert [cached(answer) >= warm.tokens["rules"] for answer in answers] == [True, True]
    assert cached(warm.server.chat(ask(RULES, "12 or 123?"), **more)) >= warm.tokens["rules"]
    expected = cold_answer(warm.model, ask(RULES))
    assert [text(answer) for answer in answers] == [expected, expected]


def test_requests_of_different_lengths_in_one_batch_get_their_cold_answers(warm: Warm) -> None:
    requests = [
        ask(RULES, "hi"),
        ask(OTHER, "hello there " * 20),
        ask(RULES, "\n\n  12 or 123? " * 9),
        ask("Nothing of this is warm. " * 9),
        ask(OTHER, "x"),
    ]
    with ThreadPoolExecutor(len(requests)) as threads:
        answers = list(threads.map(lambda request: warm.server.chat(request, max_tokens=24), requests))
    # The one in the middle shares no more with the others than what the template begins with.
    assert [cached(answer) > 10 for answer in answers] == [True, True, True, False, True]
    expected = [cold_answer(warm.model, request, max_tokens=24) for request in requests]
    assert [text(answer) for answer in answers] == expected


def test_tools_and_template_kwargs_are_part_of_the_prefix(warm: Warm) -> None:
    assert cached(warm.server.chat(ask(AGENT), tools=TOOLS)) == warm.tokens["agent"]
    assert cached(warm.server.chat(ask(AGENT))) < warm.tokens["agent"]


def test_the_entry_s_last_user_turn_is_where_the_prefix_ends(warm: Warm) -> None:
    assert cached(warm.server.chat(ask(BRIEF, "something else"))) == warm.tokens["turn"]


def test_a_request_that_nothing_can_be_made_of_hurts_nobody_else(
    models: dict[str, Path], tmp_path: Path, warm: Warm
) -> None:
    hollow = tmp_path / "hollow"
    hollow.mkdir()
    (hollow / "config.json").write_text((models["llama"] / "config.json").read_text())
    chat, plain = "/v1/chat/completions", "/v1/completions"
    for path, body in (
        (chat, {"messages": ask(RULES), "model": "no-such/model", "max_tokens": 1}),
        (chat, {"messages": ask("x"), "stop": 5}),
        (chat, {"messages": ask("x"), "stop": [5]}),
        (chat, {"messages": ask("x"), "model": str(hollow)}),
        (chat, {"messages": ask("x"), "draft_model": str(hollow)}),
        (plain, {"prompt": ""}),
        (plain, {"prompt": ["a", "b"]}),
    ):
        assert (body, warm.server.post(path, body)[0]) == (body, 404)
        # What is loaded stays loaded, and warm.
        assert cached(warm.server.chat(ask(RULES, path))) >= warm.tokens["rules"]
    assert warm.server.seen("engine.model_changed") == []


@pytest.mark.parametrize(
    "flags",
    [["--kv-bits", "8", "--kv-group-size", "32", "--quantized-kv-start", "0"], ["--draft-model", "same"]],
    ids=["kv-bits", "draft-model"],
)
def test_the_sequential_path_starts_warm(models: dict[str, Path], tmp_path: Path, flags: list[str]) -> None:
    model = models["llama"]
    flags = [str(model) if flag == "same" else flag for flag in flags]
    write(tmp_path / "prompts.json", [system(RULES)])
    write(tmp_path / "empty.json", [])
    with serving(model, tmp_path / "prompts.json", *flags) as server:
        tokens = server.wait_for("entry.warmed")["tokens"]
        warm = server.chat(ask(RULES))
        assert cached(warm) == tokens
    with serving(model, tmp_path / "empty.json", *flags) as server:
        server.wait_for("daemon.ready")
        cold = server.chat(ask(RULES))
    assert (cached(cold), text(cold)) == (0, text(warm))


def test_a_later_turn_is_a_hit_also_where_quantising_takes_whole_steps(
    models: dict[str, Path], tmp_path: Path
) -> None:
    write(tmp_path / "prompts.json", [entry("rules", RULES)])
    flags = ("--kv-bits", "8", "--kv-group-size", "32", "--quantized-kv-start", "0")
    with serving(models["llama"], tmp_path / "prompts.json", *flags, "--prefill-step-size", "256") as server:
        tokens = server.wait_for("entry.warmed")["tokens"]
        assert tokens < 256
        first = ask(RULES, "what? " * 300)
        # It is quantised after steps that an entry of less than one would shift.
        answer = server.chat(first)
        assert cached(answer) == 0
        server.chat([*first, answer["choices"][0]["message"], {"role": "user", "content": "more"}])
        hit = server.wait_for("live.hit")
        assert (hit["entry"], hit["cached"]) == ("rules", answer["usage"]["prompt_tokens"])
        assert server.seen("live.near_miss") == []


def test_only_what_was_edited_is_prefilled(models: dict[str, Path], tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.json"
    one, two, three = entry("one", "1. " + RULES), entry("two", "2. " + RULES), entry("three", "3. " + RULES)
    write(prompts, [one, two])
    with serving(models["llama"], prompts) as server:
        server.wait_for("entry.warmed", entry="two")
        before = len(warmed(server))

        write(prompts, [two, one])
        assert server.wait_for("plan.made")["new_tokens"] == 0
        prompts.write_text(json.dumps({"prompts": [two, one]}, indent=4), encoding="utf-8")
        assert server.wait_for("plan.made")["new_tokens"] == 0
        write(prompts, [{**two, "name": "renamed", "priority": 5}, one])
        assert server.wait_for("plan.made")["new_tokens"] == 0

        write(prompts, [two, one, three])
        added = server.wait_for("entry.warmed", entry="three")
        # All of it, but for what the template begins with.
        assert added["reused_tokens"] < 10
        write(prompts, [two, {**one, "messages": system("1. changed " + RULES)}, three])
        edited = server.wait_for("entry.warmed", entry="one")
        assert edited["reused_tokens"] < 10
        assert [name for name, new in warmed(server)[before:] if new] == ["three", "one"]

        write(prompts, [two])
        assert server.wait_for("plan.made")["drop"] == 2
        server.wait_for("entry.dropped", entry="one")
        server.wait_for("entry.dropped", entry="three")
        assert cached(server.chat(ask("3. " + RULES))) < 20


@pytest.mark.promise(3)
def test_a_bad_file_changes_nothing_and_is_explained_once(models: dict[str, Path], tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.json"
    write(prompts, [system(RULES)])
    with serving(models["llama"], prompts) as server:
        tokens = server.wait_for("entry.warmed")["tokens"]
        prompts.write_text('[\n  [{"role": "system"}],\n]', encoding="utf-8")
        rejected = server.wait_for("prompts.rejected")
        assert (rejected["kept_generation"], rejected["errors"][0]["line"]) == (1, 2)
        prompts.unlink()
        rejected = server.wait_for("prompts.rejected")
        assert (rejected["sha256"], rejected["errors"][0]["line"]) == (None, None)
        assert cached(server.chat(ask(RULES))) == tokens
        write(prompts, [])
        assert server.wait_for("plan.made")["drop"] == 1


def test_unrelated_requests_do_not_push_a_warm_prefix_out(models: dict[str, Path], tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.json"
    write(prompts, [system(RULES)])
    with serving(models["llama"], prompts, "--prompt-cache-size", "4") as server:
        tokens = server.wait_for("entry.warmed")["tokens"]
        for number in range(15):
            server.chat(ask(f"{number} something else entirely"), max_tokens=1)
        assert cached(server.chat(ask(RULES))) == tokens


def test_state_follows_the_model_that_a_request_loads(models: dict[str, Path], tmp_path: Path) -> None:
    prompts, other = tmp_path / "prompts.json", make_model(tmp_path / "other", seed=5)
    write(prompts, [system(RULES)])
    with serving(models["llama"], prompts) as server:
        tokens = server.wait_for("entry.warmed")["tokens"]
        first = server.chat(ask("Be brief."), model=str(other))
        assert text(first) == cold_answer(other, ask("Be brief."))
        changed = server.wait_for("engine.model_changed", model=str(other))
        assert changed["previous"] == str(models["llama"])
        server.wait_for("entry.warmed")
        assert cached(server.chat(ask(RULES), model=str(other))) == tokens
        back = server.chat(ask("Be brief."))
        assert text(back) == cold_answer(models["llama"], ask("Be brief."))
        server.wait_for("entry.warmed")
        assert cached(server.chat(ask(RULES))) == tokens


def test_an_edit_is_acted_on_while_a_long_answer_is_generated(
    models: dict[str, Path], tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.json"
    write(prompts, [entry("gone", RULES)])
    never_end = {str(make_raw_tokenizer().token_to_id("</s>")): -100}
    # The server is gone before the answer is waited for.
    with ThreadPoolExecutor(1) as thread, serving(models["llama"], prompts) as server:
        server.wait_for("entry.warmed")
        long = thread.submit(server.chat, ask("Go on."), max_tokens=30_000, logit_bias=never_end)
        write(prompts, [])
        server.wait_for("entry.dropped")
        assert not long.done()


def test_one_entry_that_cannot_be_rendered_does_not_stop_the_others(tmp_path: Path) -> None:
    template = (
        "{%- for message in messages %}{%- if message.role == 'tool' %}"
        "{{- raise_exception('Tools are not supported') }}{%- endif %}"
        "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
    )
    model, prompts = make_model(tmp_path / "model", template=template), tmp_path / "prompts.json"
    bad = {"name": "bad", "messages": [*system(RULES), {"role": "tool", "content": "x"}]}
    write(prompts, [bad, entry("good", RULES)])
    with serving(model, prompts) as server:
        failed = server.wait_for("entry.failed", entry="bad")
        assert (failed["state"], failed["retry_in_s"]) == ("failed", None)
        assert "Tools are not supported" in failed["reason"]
        server.wait_for("entry.warmed", entry="good")


def test_what_took_too_long_goes_on_from_where_it_was(models: dict[str, Path], tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.json"
    write(prompts, [entry("long", RULES * 60)])
    # A token a step: no machine is done within two seconds.
    environment = {"WARMD_WARM_TIMEOUT": "1", "WARMD_WARM_CHUNK_TOKENS": "1"}
    with serving(models["llama"], prompts, environment=environment) as server:
        reasons = [server.wait_for("entry.failed")["reason"] for _ in range(2)]
    told = re.compile(r"warming failed: it took more than 1 s .* come to ([\d,]+) of [\d,]+ tokens")
    found = [told.fullmatch(reason) for reason in reasons]
    first, second = (int(match[1].replace(",", "")) for match in found if match is not None)
    assert 0 < first < second
