"""Edit the JSON, save, and the next request starts warm: on real models, through real HTTP."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
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


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("more", [{}, {"seed": 1}], ids=["batched", "sequential"])
@pytest.mark.promise(7)
def test_the_next_request_starts_warm_and_gets_the_cold_answer(
    models: dict[str, Path], tmp_path: Path, architecture: str, more: Json
) -> None:
    prompts = tmp_path / "prompts.json"
    write(prompts, [system(RULES)])
    with serving(models[architecture], prompts) as server:
        tokens = server.wait_for("entry.warmed")["tokens"]
        answers = [server.chat(ask(RULES), **more) for _ in range(2)]
        assert [cached(answer) >= tokens for answer in answers] == [True, True]
        assert cached(server.chat(ask(RULES, "12 or 123?"), **more)) >= tokens
        expected = cold_answer(models[architecture], ask(RULES))
        assert [text(answer) for answer in answers] == [expected, expected]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_requests_of_different_lengths_in_one_batch_get_their_cold_answers(
    models: dict[str, Path], tmp_path: Path, architecture: str
) -> None:
    other = "Other. " + RULES * 2
    write(tmp_path / "prompts.json", [entry("rules", RULES), entry("other", other)])
    requests = [
        ask(RULES, "hi"),
        ask(other, "hello there " * 20),
        ask(RULES, "\n\n  12 or 123? " * 9),
        ask("Nothing of this is warm. " * 9),
        ask(other, "x"),
    ]
    with serving(models[architecture], tmp_path / "prompts.json") as server:
        server.wait_for("entry.warmed", entry="other")
        with ThreadPoolExecutor(len(requests)) as threads:
            answers = list(threads.map(lambda request: server.chat(request, max_tokens=24), requests))
        # The one in the middle shares no more with the others than what the template begins with.
        assert [cached(answer) > 10 for answer in answers] == [True, True, True, False, True]
        expected = [cold_answer(models[architecture], request, max_tokens=24) for request in requests]
        assert [text(answer) for answer in answers] == expected


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


def test_a_request_for_a_model_that_does_not_exist_leaves_the_loaded_one_warm(
    models: dict[str, Path], tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.json"
    write(prompts, [system(RULES)])
    with serving(models["llama"], prompts) as server:
        tokens = server.wait_for("entry.warmed")["tokens"]
        body = {"messages": ask(RULES), "model": "no-such/model", "max_tokens": 1}
        assert server.post("/v1/chat/completions", body)[0] == 404
        assert cached(server.chat(ask(RULES))) == tokens
        assert server.seen("engine.model_changed") == []


def test_an_edit_is_acted_on_while_a_long_answer_is_generated(
    models: dict[str, Path], tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.json"
    write(prompts, [entry("gone", RULES)])
    never_end = {str(make_raw_tokenizer().token_to_id("</s>")): -100}
    with serving(models["llama"], prompts) as server:
        server.wait_for("entry.warmed")
        with ThreadPoolExecutor(1) as thread:
            long = thread.submit(server.chat, ask("Go on."), max_tokens=1500, logit_bias=never_end)
            write(prompts, [])
            server.wait_for("entry.dropped")
            assert not long.done()


def test_a_request_that_nothing_can_be_made_of_hurts_nobody_else(
    models: dict[str, Path], tmp_path: Path
) -> None:
    prompts, hollow = tmp_path / "prompts.json", tmp_path / "hollow"
    write(prompts, [system(RULES)])
    hollow.mkdir()
    (hollow / "config.json").write_text((models["llama"] / "config.json").read_text())
    chat, plain = "/v1/chat/completions", "/v1/completions"
    with serving(models["llama"], prompts) as server:
        tokens = server.wait_for("entry.warmed")["tokens"]
        for path, body in (
            (chat, {"messages": ask("x"), "stop": 5}),
            (chat, {"messages": ask("x"), "stop": [5]}),
            (chat, {"messages": ask("x"), "model": str(hollow)}),
            (chat, {"messages": ask("x"), "draft_model": str(hollow)}),
            (plain, {"prompt": ""}),
            (plain, {"prompt": ["a", "b"]}),
        ):
            assert (body, server.post(path, body)[0]) == (body, 404)
        assert cached(server.chat(ask(RULES))) == tokens
        assert server.seen("engine.model_changed") == []


def test_tools_and_template_kwargs_are_part_of_the_prefix(models: dict[str, Path], tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.json"
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {"b": 1, "a": {"c": 2}}}}]
    write(prompts, [entry("agent", RULES, tools=tools)])
    with serving(models["llama"], prompts) as server:
        tokens = server.wait_for("entry.warmed")["tokens"]
        assert cached(server.chat(ask(RULES), tools=tools)) == tokens
        assert cached(server.chat(ask(RULES))) < tokens


def test_the_entry_s_last_user_turn_is_where_the_prefix_ends(models: dict[str, Path], tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.json"
    write(prompts, [ask(RULES, "this text is only a stand-in")])
    with serving(models["llama"], prompts) as server:
        tokens = server.wait_for("entry.warmed")["tokens"]
        assert cached(server.chat(ask(RULES, "something else"))) == tokens


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
