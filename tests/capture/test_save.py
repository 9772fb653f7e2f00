"""A captured entry in the prompts file."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.explain.examples import Json, system, tool
from warmd.capture import save as save_module
from warmd.capture.errors import NotSavedError
from warmd.capture.files import safe_name
from warmd.capture.save import Saved, check_name, save
from warmd.capture.shared import Captured
from warmd.errors import UsageError
from warmd.prompts import MAX_BYTES, load_document

LONG = "You are a careful reviewer of code.\nName the worst problem first.\n"
TOOLS = ({"type": "function", "function": {"parameters": {}, "name": "b", "description": "é"}}, tool("a"))
FIRST = '{"prompts": [\n  {"name": "a", "messages": [{"role": "system", "content": "I am a"}]}\n]}\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "prompts.json").write_text(FIRST, encoding="utf-8")
    return tmp_path / "prompts.json"


def make(*messages: Json, tools: tuple[Any, ...] | None = None, **kwargs: Any) -> Captured:
    return Captured(messages or (system("Short."),), tools, kwargs)


def put(
    path: Path, captured: Captured, name: str = "new", *, replace: bool = False, most: int = MAX_BYTES
) -> Saved:
    return save(path, name, captured, replace=replace, max_bytes=most)


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_short_entry_stands_in_the_file(path: Path) -> None:
    saved = put(path, make(enable_thinking=False))
    assert saved == Saved(path, (), is_replaced=False)
    entry = '{"name": "new", "messages": [{"role": "system", "content": "Short."}], '
    entry += '"chat_template_kwargs": {"enable_thinking": false}}'
    assert path.read_text() == FIRST.replace("\n]}", f",\n  {entry}\n]}}")


def test_long_texts_and_tools_go_into_files_beside_it(path: Path) -> None:
    captured = make(system(LONG), system("x" * 201), system("y" * 200), tools=TOOLS)
    saved = put(path, captured, "My agent/1")
    assert saved.files == ("prompts/My-agent-1.md", "prompts/My-agent-1-2.md", "tools/My-agent-1.json")
    assert (path.parent / saved.files[0]).read_bytes() == LONG.encode()
    assert (path.parent / saved.files[1]).read_bytes() == b"x" * 201
    entry = load_document(path).entries[1]
    assert entry.messages == captured.messages
    assert json.dumps(entry.tools) == json.dumps(TOOLS)
    assert "é" in (path.parent / saved.files[2]).read_text(encoding="utf-8")


@given(st.text(max_size=30), st.sampled_from(["", "\n", "\r\n", "\n" + "z" * 300]), st.data())
def test_every_text_is_read_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, text: str, more: str, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("any") / "prompts.json"
    mark = data.draw(st.sampled_from(["", "\ufeff"]))
    put(path, make(system(mark + text + more), tools=({"text": text},)))
    (entry,) = load_document(path).entries
    assert entry.messages[0]["content"] == mark + text + more
    assert entry.tools == ({"text": text},)


def test_texts_with_characters_that_editors_do_not_show_stay_in_the_file(path: Path) -> None:
    assert put(path, make(system("a\x00b\n" * 99))).files == ()


def test_a_file_that_does_not_exist_is_made_private(tmp_path: Path) -> None:
    path = tmp_path / "config" / "prompts.json"
    saved = put(path, make(system(LONG)))
    assert [entry.name for entry in load_document(path).entries] == ["new"]
    for file in (path, path.parent / saved.files[0]):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE((path.parent / "prompts").stat().st_mode) == 0o700


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_marks_and_line_ends_are_kept(path: Path, mark: bytes, newline: bytes) -> None:
    before = mark + FIRST.encode().replace(b"\n", newline)
    path.write_bytes(before)
    put(path, make())
    after = path.read_bytes()
    head, tail = before.split(b"}" + newline + b"]}")
    assert after.startswith(head)
    assert after.endswith(newline + b"]}" + tail)
    assert b"\n" not in after.replace(newline, b"")


def test_mode_and_symlinks_are_kept(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "p.json", tmp_path / "prompts.json"
    real.write_text(FIRST)
    real.chmod(0o640)
    link.symlink_to("real/p.json")
    saved = put(link, make(system(LONG)))
    assert link.is_symlink()
    assert link.readlink() == Path("real/p.json")
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    # Names in the file are relative to where it is found, not to where a link leads.
    assert (tmp_path / saved.files[0]).is_file()
    assert stat.S_IMODE((tmp_path / saved.files[0]).stat().st_mode) == 0o640
    assert [entry.name for entry in load_document(link).entries] == ["a", "new"]


# --- names -------------------------------------------------------------------------------------------


def test_a_name_that_is_there_is_refused_unless_it_is_to_be_replaced(path: Path) -> None:
    before = tree(path.parent)
    with pytest.raises(NotSavedError, match="--replace"):
        put(path, make(system(LONG)), "a")
    assert tree(path.parent) == before
    assert put(path, make(system(LONG)), "a", replace=True).is_replaced
    assert [entry.messages[0]["content"] for entry in load_document(path).entries] == [LONG]


def test_a_replaced_entry_keeps_its_other_keys_and_its_files(path: Path) -> None:
    saved = put(path, make(system(LONG), tools=TOOLS, old=1))
    value = json.loads(path.read_text())
    value["prompts"][1] = {"x-note": "mine", "priority": 7, **value["prompts"][1]}
    path.write_text(json.dumps(value, indent=2))
    again = put(path, make(system(LONG + "More.\n"), tools=TOOLS[:1]), replace=True)
    assert again.files == saved.files
    entry = load_document(path).entries[1]
    assert (entry.priority, entry.messages[0]["content"], entry.tools) == (7, LONG + "More.\n", TOOLS[:1])
    assert entry.chat_template_kwargs == {}
    assert list(json.loads(path.read_text())["prompts"][1]) == [
        "x-note",
        "priority",
        "name",
        "messages",
        "tools_file",
    ]


def test_files_that_a_replaced_entry_no_longer_needs_stay_and_are_told(path: Path) -> None:
    put(path, make(system(LONG), system(LONG + "More."), tools=TOOLS))
    put(path, make(system("Short."), tools=TOOLS), name="other")
    value = json.loads(path.read_text())
    value["prompts"][1]["messages"].append({"role": "system", "content_file": "./tools/other.json"})
    path.write_text(json.dumps(value))
    before = tree(path.parent)
    again = put(path, make(system(LONG)), replace=True)
    assert (again.files, again.left) == (("prompts/new.md",), ("prompts/new-2.md", "tools/new.json"))
    assert {**before, "prompts.json": path.read_bytes()} == tree(path.parent)


OTHERS: dict[str, Callable[[Path], object]] = {
    "a symlink": lambda folder: _moved(folder / "prompts" / "new.md", folder / "prompts" / "new-9.md"),
    "a symlink to elsewhere": lambda folder: _moved(folder / "prompts" / "new.md", folder / "mine.md"),
    "in a symlinked folder": lambda folder: _moved(folder / "prompts", folder / "mine"),
    "named by another entry in other letters": lambda folder: _name_as_well(folder, "prompts/New.md"),
    "named by another entry through a link": lambda folder: _name_as_well(folder, "link.md"),
}


def _moved(place: Path, to: Path) -> None:
    place.rename(to)
    place.symlink_to(to)


def _name_as_well(folder: Path, name: str) -> None:
    if name == "link.md":
        (folder / name).symlink_to("prompts/new.md")
    else:
        # As on a file system that takes both for the same name: one file.
        (folder / name).hardlink_to(folder / "prompts" / "new.md")
    value = json.loads((folder / "prompts.json").read_text())
    value["prompts"].append([{"role": "system", "content_file": name}])
    (folder / "prompts.json").write_text(json.dumps(value))


@pytest.mark.parametrize("arrange", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("text", [LONG + "More.", "Short."])
def test_what_may_be_somebody_elses_is_neither_overwritten_nor_removed(
    text: str, arrange: Callable[[Path], object], path: Path
) -> None:
    put(path, make(system(LONG)))
    arrange(path.parent)
    before = tree(path.parent)
    again = put(path, make(system(text)), replace=True)
    assert again.files == (("prompts/new-2.md",) if text != "Short." else ())
    after = tree(path.parent)
    assert before == {name: after[name] for name in before} | {"prompts.json": before["prompts.json"]}


def test_a_file_that_the_replaced_entry_names_in_other_letters_is_overwritten(path: Path) -> None:
    put(path, make(system(LONG)))
    (path.parent / "prompts" / "New.md").hardlink_to(path.parent / "prompts" / "new.md")
    path.write_text(path.read_text().replace("prompts/new.md", "./prompts/New.md"))
    assert put(path, make(system(LONG + "More.")), replace=True).files == ("prompts/new.md",)


def test_nothing_goes_where_the_file_cannot_be_saved(path: Path) -> None:
    put(path, make(system(LONG), tools=TOOLS))
    before = tree(path.parent)
    with pytest.raises(NotSavedError):
        put(path, make(), replace=True, most=200)
    assert tree(path.parent) == before


def test_files_of_others_are_left_alone(path: Path) -> None:
    for name in ("prompts", "tools"):
        (path.parent / name).mkdir()
    (path.parent / "prompts" / "new.md").write_text("mine")
    (path.parent / "prompts" / "new-2.md").symlink_to("nowhere")
    saved = put(path, make(system(LONG)))
    assert saved.files == ("prompts/new-3.md",)
    assert (path.parent / "prompts" / "new.md").read_text() == "mine"


def test_a_file_that_another_entry_names_too_is_not_replaced(path: Path) -> None:
    put(path, make(system(LONG)))
    value = json.loads(path.read_text())
    value["prompts"].append([{"role": "system", "content_file": "./prompts/new.md"}])
    path.write_text(json.dumps(value))
    assert put(path, make(system(LONG + "More.")), replace=True).files == ("prompts/new-2.md",)
    assert load_document(path).entries[2].messages[0]["content"] == LONG


@pytest.mark.parametrize("name", ["", " ", "#1", "a\nb", "x" * 201])
def test_what_is_no_name(path: Path, name: str) -> None:
    before = tree(path.parent)
    with pytest.raises(UsageError, match="NAME"):
        put(path, make(), name)
    assert tree(path.parent) == before


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("coder", "coder"),
        ("../../etc/passwd", "etc-passwd"),
        (".hidden", "hidden"),
        ("a b\tc", "a-b-c"),
        ("Prüfer 你好", "Prüfer-你好"),
        ("///", "entry"),
        ("C:\\x", "C-x"),
        ("v1.2+a@b_c", "v1.2+a@b_c"),
    ],
)
def test_names_of_files(name: str, safe: str) -> None:
    assert safe_name(name) == safe


@given(st.text(min_size=1, max_size=300))
def test_any_name_is_made_safe(name: str) -> None:
    safe = safe_name(name)
    assert safe
    assert "/" not in safe
    assert not safe.startswith((".", "-"))
    assert len(safe.encode("utf-8", "surrogatepass")) <= 80


# --- what may go wrong -------------------------------------------------------------------------------

INVALID = {
    "broken": "[{]",
    "empty": "",
    "not utf-8": b"[[\xff",
    "invalid entry": '[{"name": "a"}]',
    "no prompts": "{}",
    "duplicate key": '{"prompts": [], "prompts": []}',
    "missing include": '[[{"role": "system", "content_file": "gone.md"}]]',
}


@pytest.mark.parametrize("content", INVALID.values(), ids=INVALID)
def test_an_invalid_file_is_left_alone(path: Path, content: str | bytes) -> None:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    before = tree(path.parent)
    with pytest.raises(NotSavedError, match=r"not valid|expected"):
        put(path, make(system(LONG)))
    with pytest.raises(NotSavedError):
        check_name(path, "new", replace=False, max_bytes=MAX_BYTES)
    assert tree(path.parent) == before


def test_what_would_be_too_large_is_refused(path: Path) -> None:
    before = tree(path.parent)
    with pytest.raises(NotSavedError, match="larger"):
        put(path, make(system("x" * 150)), most=200)
    with pytest.raises(NotSavedError, match="larger"):
        put(path, make(system("x" * 5000)), most=400)
    assert tree(path.parent) == before


def test_a_message_that_a_file_cannot_say_is_refused(path: Path) -> None:
    before = tree(path.parent)
    with pytest.raises(NotSavedError, match="not valid"):
        put(path, make(system(LONG), {"role": "system", "content": None}))
    assert tree(path.parent) == before
    assert not (path.parent / "prompts").exists()


def test_defaults_that_the_requests_do_not_have_are_told(path: Path) -> None:
    path.write_text('{"defaults": {"chat_template_kwargs": {"a": 1, "b": 2}}, "prompts": []}')
    saved = put(path, make(a=5))
    assert saved.warnings == (
        "the file's defaults add chat_template_kwargs that the requests do not have: b",
    )
    assert load_document(path).entries[0].chat_template_kwargs == {"a": 5, "b": 2}


def test_a_folder_in_the_way(path: Path) -> None:
    (path.parent / "tools").write_text("in the way")
    before = tree(path.parent)
    with pytest.raises(NotSavedError, match="exists"):
        put(path, make(system(LONG), tools=TOOLS))
    assert tree(path.parent) == before


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_read_only_file_is_refused(path: Path) -> None:
    path.chmod(0o400)
    with pytest.raises(NotSavedError, match="read-only"):
        put(path, make())


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something each time after the includes have been written, before the file is."""
    real = save_module._write_includes

    def write_includes(*args: Any) -> None:
        real(*args)
        act()

    monkeypatch.setattr(save_module, "_write_includes", write_includes)


def test_a_save_of_somebody_else_meanwhile_is_not_lost(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = FIRST.replace('"I am a"', '"Edited"')
    meanwhile(monkeypatch, lambda: path.write_text(other))
    put(path, make(system(LONG)))
    assert path.read_text().startswith(other.removesuffix("\n]}\n"))
    assert [entry.name for entry in load_document(path).entries] == ["a", "new"]


def test_a_name_that_somebody_else_takes_meanwhile_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = FIRST.replace('"name": "a"', '"name": "new"')
    meanwhile(monkeypatch, lambda: path.write_text(other))
    with pytest.raises(NotSavedError, match="already"):
        put(path, make(system(LONG)))
    assert tree(path.parent) == {"prompts.json": other.encode()}


def test_a_file_that_changes_all_the_time_is_given_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meanwhile(monkeypatch, lambda: path.write_text(path.read_text() + " "))
    with pytest.raises(NotSavedError, match="keeps changing"):
        put(path, make(system(LONG)))
    assert list(tree(path.parent)) == ["prompts.json"]
    assert not (path.parent / "prompts").exists()


def test_a_full_disk_leaves_everything_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(path, make(system(LONG), tools=TOOLS))
    before = tree(path.parent)
    real = os.replace

    def replace(source: str, target: Path) -> None:
        if Path(target) == path:
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(NotSavedError, match="no space left"):
        put(path, make(system("Other.\n"), tools=TOOLS[:1]), replace=True)
    with pytest.raises(NotSavedError, match="no space left"):
        put(path, make(system("Other.\n")), "another")
    assert tree(path.parent) == before
