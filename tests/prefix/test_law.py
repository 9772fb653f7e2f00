"""The law of prefixes: every request begins with the prefix, and no more than two shared tokens are lost."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.prefix.requests import WEATHER_TOOL, ServerRenderer, assistant, make_entry, system, user
from tests.prefix.templates import TEMPLATES
from tests.toys import CHATML, KINDS, MARKERS, make_tokenizer
from warmd.errors import RenderError
from warmd.prefix import find_prefix, ignores_tools, request_messages
from warmd.prompts.document import Entry
from warmd.radix import common_length

ENTRIES = {
    "system": make_entry(system("You are a careful reviewer of code. Answer briefly.")),
    "tools": make_entry(system("You are kind and do"), tools=[WEATHER_TOOL]),
    "user": make_entry(system("You are a helpful assistant:\n"), user("ignored")),
    "history": make_entry(system("Be kind."), user("12?"), assistant("<think>hm</think>It's 12.\n\n")),
    "no_system": make_entry(user("Hello! "), assistant("Hi there")),
}

ADVERSARIAL = (
    *("hello", "What", "1", "1234", "é", "e\u0301", "\u0301", "你好", "😀", "п", "ر", "ﬁ", "\x00"),
    *("", " ", "  ", "   x", "\n", "\n\n", "\n\n\n\nx", " \n", "\n ", "\t", "\t\tx", "\r\n", "\r"),
    *("\u00a0", "\u3000", "\u2028x", "\ufeff", "'s", "'LL be", "'", ".", "..", ":", ":\n", ">\n", "!"),
    *("?!\n\n", "-", "---", "//", "_x", ")", "]", ">"),
    *("<s>", " </s>", "\n<|im_end|>", "<|im_start|>", " [INST] ", "[/INST]", "<|eot_id|>"),
    *("<end_of_turn>\n", "<tool_response>", "<tool_response>x</tool_response>", "</tool_response>"),
    *("</think>", "<think>\nx</think>\n\ny", "/no_think", "x /think", "</assistant>", "ASSISTANT: x"),
    *("er\n", "ser", "user\n\n", "r\n\nuser", "ssistant\n\n", "istant", "ou are", "re a", "odel\n"),
)  # fmt: skip

TEMPLATE_FOLDER = Path(__file__).parents[3] / "shared" / "templates"
REAL_TEMPLATES = sorted(TEMPLATE_FOLDER.glob("*.jinja"))
REFUSED = {
    ("google-gemma-2-2b-it", "tools"): "System role not supported",
    # These two loop over the tools without asking whether there are any.
    ("CohereForAI-c4ai-command-r-plus-tool_use", "no_system"): "object is not iterable",
    ("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "no_system"): "object is not iterable",
}
_MARKER = re.compile(r"<[|｜][^<>\s]+?[|｜]>|</?[a-z]+_[a-z_]+>|</?s>|</?think>|<bos>|\[/?[A-Z_]+\]")


@cache
def engine(template: str, kind: str) -> ServerRenderer:
    return ServerRenderer(make_tokenizer(kind, TEMPLATES[template]))


def encode(renderer: ServerRenderer, entry: Entry, text: str) -> list[int]:
    tools = [copy.deepcopy(tool) for tool in entry.tools] if entry.tools else None
    ids = renderer.encode(request_messages(entry, text), tools, dict(entry.chat_template_kwargs))
    return list(ids)


@cache
def prefix_tokens(template: str, kind: str, name: str) -> tuple[int, ...]:
    return find_prefix(ENTRIES[name], engine(template, kind)).tokens


def shared_by_all(renderer: ServerRenderer, entry: Entry, texts: Iterable[str]) -> list[int]:
    renders = [encode(renderer, entry, text) for text in texts]
    return renders[0][: min(common_length(renders[0], ids) for ids in renders)]


def assert_law(renderer: ServerRenderer, entry: Entry, texts: Iterable[str]) -> None:
    tokens = list(find_prefix(entry, renderer).tokens)
    shared = shared_by_all(renderer, entry, texts)
    assert tokens == shared[: len(tokens)]
    assert len(shared) - len(tokens) <= 2


def pieces(kind: str) -> Iterator[str]:
    """What the tokens stand for, as far as it is ASCII."""
    for token in engine("chatml", kind).vocabulary():
        text = token.replace("Ġ", " ").replace("Ċ", "\n").replace("▁", " ")
        if text.isascii():
            yield text


def user_texts(kind: str) -> st.SearchStrategy[str]:
    piece = st.one_of(
        st.sampled_from(ADVERSARIAL), st.sampled_from(sorted(pieces(kind))), st.text(max_size=4)
    )
    whole = st.lists(piece, min_size=1, max_size=3).map("".join)
    # An HTTP request cannot carry a lone surrogate.
    return whole.map(lambda text: text.encode("utf-8", "ignore").decode("utf-8"))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=250, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_request_begins_with_the_prefix(kind: str, data: st.DataObject) -> None:
    template = data.draw(st.sampled_from(sorted(TEMPLATES)))
    name = data.draw(st.sampled_from(sorted(ENTRIES)))
    tokens = prefix_tokens(template, kind, name)
    for text in data.draw(st.lists(user_texts(kind), min_size=6, max_size=6)):
        assert tokens == tuple(encode(engine(template, kind), ENTRIES[name], text)[: len(tokens)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("template", TEMPLATES)
def test_at_most_two_shared_tokens_are_lost(template: str, kind: str) -> None:
    for name in ("system", "history"):
        assert_law(engine(template, kind), ENTRIES[name], ADVERSARIAL)


def is_plain(name: str) -> bool:
    row = next(
        line for line in (TEMPLATE_FOLDER / "INDEX.md").read_text().splitlines() if f"| {name} |" in line
    )
    return "plain text" in row


def real_renderer(path: Path, kind: str) -> ServerRenderer:
    source = path.read_text(encoding="utf-8")
    # These files are indented for reading; their README says to undo it so.
    template = source.replace("    ", "").replace("\n", "") if path.name.startswith("cz-") else source
    markers = ("<s>", "</s>") if is_plain(path.name) else (*MARKERS, *_MARKER.findall(template))
    return ServerRenderer(make_tokenizer(kind, template, tuple(dict.fromkeys(markers))))


@pytest.mark.skipif(not REAL_TEMPLATES, reason="the folder shared/templates is not beside this repository")
@pytest.mark.parametrize("path", REAL_TEMPLATES, ids=lambda path: path.stem)
def test_the_law_holds_for_a_real_model_s_template(path: Path) -> None:
    for kind in ("llama3", "spm"):
        renderer = real_renderer(path, kind)
        for name in ("tools", "no_system"):
            if (path.stem, name) in REFUSED:
                with pytest.raises(RenderError, match=REFUSED[path.stem, name]):
                    find_prefix(ENTRIES[name], renderer)
            else:
                assert_law(renderer, ENTRIES[name], ADVERSARIAL)


def assert_tools_are_told_right(renderer: ServerRenderer) -> None:
    """Without a search it says what two would, for the entry with and without its tools."""
    entry = ENTRIES["tools"]
    try:
        prefix = find_prefix(entry, renderer)
        is_ignored = find_prefix(replace(entry, tools=None), renderer).tokens == prefix.tokens
    except RenderError:
        return
    before = renderer.renders
    assert ignores_tools(entry, renderer) is is_ignored
    assert renderer.renders == before + 2
    assert not ignores_tools(replace(entry, tools=None), renderer)


def test_tools_behind_what_the_user_says_are_not_left_out() -> None:
    ignored = CHATML.replace("{%- if tools %}", "{%- if false %}")
    for template, is_ignored in ((ignored, True), (ignored + "{{ tools }}", False)):
        renderer = ServerRenderer(make_tokenizer("llama3", template))
        assert ignores_tools(ENTRIES["tools"], renderer) is is_ignored


@pytest.mark.parametrize("template", TEMPLATES)
def test_it_is_told_whether_a_template_leaves_tools_out(template: str) -> None:
    assert_tools_are_told_right(engine(template, "llama3"))


@pytest.mark.skipif(not REAL_TEMPLATES, reason="the folder shared/templates is not beside this repository")
@pytest.mark.parametrize("path", REAL_TEMPLATES, ids=lambda path: path.stem)
def test_it_is_told_whether_a_real_model_s_template_leaves_tools_out(path: Path) -> None:
    assert_tools_are_told_right(real_renderer(path, "llama3"))
