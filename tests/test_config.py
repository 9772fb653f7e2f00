"""Settings: where they come from, and what is said when one is wrong."""

from __future__ import annotations

import tomllib
from contextlib import nullcontext
from dataclasses import asdict, fields
from pathlib import Path

import pytest

from warmd.config import config_path, load_settings
from warmd.errors import UsageError
from warmd.settings import MemorySettings, PromptsSettings, Settings, WarmSettings, WatchSettings

SECTIONS = ", ".join(f"[{each.name}]" for each in fields(Settings()))

SAMPLE = Path(__file__).parent.parent / "config" / "warmd.toml"


def load(path: Path, text: str, **environment: str) -> Settings:
    """Settings of a file with this text."""
    path.write_text(text, "utf-8")
    return load_settings({"WARMD_CONFIG": str(path), **environment})


def complaint(path: Path, text: str = "", **environment: str) -> str:
    """What is said about a file, less the path at the beginning."""
    with pytest.raises(UsageError) as caught:
        load(path, text, **environment)
    assert caught.value.exit_code == 2
    return str(caught.value).replace(f"{path}: ", "FILE: ")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a test's settings file goes."""
    return tmp_path / "warmd.toml"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_without_a_file_the_defaults_hold(home: Path) -> None:
    assert Settings() == load_settings({})


def test_the_file_is_found_in_the_home_folder(home: Path) -> None:
    path = home / ".config" / "warmd" / "warmd.toml"
    path.parent.mkdir(parents=True)
    path.write_text("[warm]\nconcurrency = 3\n")
    assert path == config_path({})
    assert Settings(warm=WarmSettings(concurrency=3)) == load_settings({})


def test_a_home_folder_that_is_a_file_means_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert Settings() == load_settings({})


def test_a_home_that_nobody_has_is_an_error() -> None:
    with pytest.raises(UsageError) as caught:
        config_path({"WARMD_CONFIG": "~no-such-user-of-warmd/warmd.toml"})
    assert str(caught.value) == "~no-such-user-of-warmd/warmd.toml: there is no home folder to take ~ for"


def test_a_file_that_the_environment_names_must_exist(file: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load_settings({"WARMD_CONFIG": str(file)})
    assert f"{file}: No such file or directory" == str(caught.value)


def test_a_folder_in_place_of_the_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load_settings({"WARMD_CONFIG": str(tmp_path)})
    assert f"{tmp_path}: Is a directory" == str(caught.value)


def test_the_environment_beats_the_file_and_the_file_the_defaults(file: Path) -> None:
    text = "[watch]\nsettle = 2\nceiling = 3.5\npoll = true\n[warm]\nchunk_tokens = 8\n"
    environment = {"WARMD_WATCH_SETTLE": "0.5", "WARMD_WATCH_POLL": "off", "WARMD_PROMPTS_PATH": "p.json"}
    expected = Settings(
        prompts=PromptsSettings(path="p.json"),
        watch=WatchSettings(settle=0.5, ceiling=3.5, poll=False),
        warm=WarmSettings(chunk_tokens=8),
    )
    assert expected == load(file, text, **environment)


def test_sizes_are_kept_as_they_are_written(file: Path) -> None:
    text = '[memory]\nlimit = "12 GB"\nlook = 1\n[warm]\ncheckpoint_max_bytes = "0"\ncheckpoint_tokens = 16\n'
    environment = {"WARMD_MEMORY_LIMIT": "1_500MiB", "WARMD_MEMORY_RESERVE": "0"}
    expected = Settings(
        warm=WarmSettings(checkpoint_tokens=16, checkpoint_max_bytes="0"),
        memory=MemorySettings(limit="1_500MiB", reserve="0", look=1.0),
    )
    assert expected == load(file, text, **environment)


def test_a_whole_number_is_taken_for_a_number_of_seconds(file: Path) -> None:
    settle = load(file, "[watch]\nsettle = 2\n").watch.settle
    assert (2.0, float) == (settle, type(settle))


def test_a_byte_order_mark_is_no_error(file: Path) -> None:
    assert Settings(warm=WarmSettings(concurrency=2)) == load(file, "\ufeff[warm]\r\nconcurrency = 2\r\n")


@pytest.mark.parametrize(
    ("given", "expected"),
    [("p/q.json", "{folder}/p/q.json"), ("/p.json", "/p.json"), ("~/p.json", "~/p.json")],
)
def test_a_relative_path_in_the_file_is_relative_to_the_file(file: Path, given: str, expected: str) -> None:
    settings = load(file, f'[prompts]\npath = "{given}"\n')
    assert expected.format(folder=file.parent) == settings.prompts.path


@pytest.mark.parametrize("key", ["prompts.path", "state.dir", "store.path", "log.file"])
@pytest.mark.parametrize("value", ["auto", " "])
def test_a_word_or_a_blank_is_no_path(file: Path, key: str, value: str) -> None:
    section, name = key.split(".")
    is_known = (key, value) == ("log.file", "auto")
    variable = f"WARMD_{section}_{name}".upper()
    refused = f"expected a path, found '{value}'"
    for text, environment in ((f'[{section}]\n{name} = "{value}"\n', {}), ("", {variable: value})):
        with nullcontext() if is_known else pytest.raises(UsageError, match=refused):
            assert load(file, text, **environment).log.file == "auto"


@pytest.mark.parametrize("word", ["1", "true", "YES", " on "])
def test_words_for_true(file: Path, word: str) -> None:
    assert Settings(watch=WatchSettings(poll=True)) == load(file, "", WARMD_WATCH_POLL=word)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[warn]\n", "FILE: unknown section [warn]; the nearest known one is [warm]"),
        (
            "chunktokens = 1\n",
            "FILE: unknown key 'chunktokens'; the nearest known one is [warm] chunk_tokens",
        ),
        # Of two keys of this name the one in the same section.
        (
            "[warm]\ntime_out = 1\n",
            "FILE: [warm] time_out: unknown key; the nearest known one is [warm] timeout",
        ),
        ("[watch]\npol = 1\n", "FILE: [watch] pol: unknown key; the nearest known one is [watch] poll"),
        ("[warm.timeout]\nx = 1\n", "FILE: [warm] timeout: expected a number, found a table"),
        ("[warm]\nSettel = 1\n", "FILE: [warm] Settel: unknown key; the nearest known one is [watch] settle"),
        (
            "[elsewhere]\n",
            f"FILE: unknown section [elsewhere]; there are {SECTIONS}",
        ),
        ("[memory]\nzzz = 1\n", "FILE: [memory] zzz: unknown key; there are limit, reserve, look"),
        ("warm = 3\n", "FILE: [warm] must be a table"),
        ("[[warm]]\n", "FILE: [warm] must be a table"),
        (
            "[warm]\nconcurrency = true\n",
            "FILE: [warm] concurrency: expected a whole number, found true or false",
        ),
        ("[warm]\nconcurrency = 1.0\n", "FILE: [warm] concurrency: expected a whole number, found a number"),
        ("[warm]\nconcurrency = 0\n", "FILE: [warm] concurrency: expected at least 1, found 0"),
        ("[warm]\nconcurrency = [1]\n", "FILE: [warm] concurrency: expected a whole number, found a list"),
        ("[watch]\npoll = 1\n", "FILE: [watch] poll: expected true or false, found a whole number"),
        ("[watch]\nsettle = true\n", "FILE: [watch] settle: expected a number, found true or false"),
        ("[watch]\nsettle = '1'\n", "FILE: [watch] settle: expected a number, found text"),
        ("[watch]\nsettle = nan\n", "FILE: [watch] settle: expected a finite number, found nan"),
        ("[watch]\nsettle = inf\n", "FILE: [watch] settle: expected a finite number, found inf"),
        ("[watch]\nsettle = -0.5\n", "FILE: [watch] settle: expected at least 0, found -0.5"),
        (
            "[watch]\nsettle = 1" + "0" * 400,
            "FILE: [watch] settle: expected a finite number, found one that is too large",
        ),
        ("[prompts]\npath = ''\n", "FILE: [prompts] path: expected a path, found ''"),
        (
            "[memory]\nlimit = 'lots'\n",
            "FILE: [memory] limit: expected auto or a size such as 12GB or 800MiB, found 'lots'",
        ),
        (
            "[memory]\nlimit = '0'\n",
            "FILE: [memory] limit: expected auto or a size of at least 1 MB, found '0'",
        ),
        (
            "[memory]\nlimit = '12'\n",
            "FILE: [memory] limit: expected auto or a size such as 12GB or 800MiB, found '12', which is 12 "
            "bytes",
        ),
        (
            "[store]\nwrite_rate = '100'\n",
            "FILE: [store] write_rate: expected a size such as 12GB or 800MiB, found '100', which is 100 "
            "bytes",
        ),
        (
            "[memory]\nreserve = 'auto'\n",
            "FILE: [memory] reserve: expected a size such as 12GB or 800MiB, found 'auto'",
        ),
        ("[memory]\nlimit = 12\n", "FILE: [memory] limit: expected text, found a whole number"),
        ("[memory]\nlook = 0.01\n", "FILE: [memory] look: expected at least 0.05, found 0.01"),
        (
            "[memory]\nlimits = '1GB'\n",
            "FILE: [memory] limits: unknown key; the nearest known one is [memory] limit",
        ),
        (
            "[warm]\ncheckpoint_max_bytes = '-1GB'\n",
            "FILE: [warm] checkpoint_max_bytes: expected a size such as 12GB or 800MiB, found '-1GB'",
        ),
        (
            "[warm]\ncheckpoint_tokens = 15\n",
            "FILE: [warm] checkpoint_tokens: expected at least 16, found 15",
        ),
        ("[prompts]\npath = 3\n", "FILE: [prompts] path: expected text, found a whole number"),
        (
            "[warm\n",
            "FILE: not valid TOML: Expected ']' at the end of a table declaration (at line 1, column 6)",
        ),
        ("[warm]\nconcurrency = " + "[" * 5000, "FILE: nested too deeply"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(file: Path, text: str, expected: str) -> None:
    assert expected == complaint(file, text)


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("WARMD_WARM_CONCURRENCY", "two", "WARMD_WARM_CONCURRENCY: expected a whole number, found 'two'"),
        ("WARMD_WARM_CONCURRENCY", "0", "WARMD_WARM_CONCURRENCY: expected at least 1, found 0"),
        ("WARMD_WARM_CONCURRENCY", "", "WARMD_WARM_CONCURRENCY: expected a whole number, found ''"),
        ("WARMD_WATCH_POLL", "maybe", "WARMD_WATCH_POLL: expected true or false, found 'maybe'"),
        ("WARMD_WATCH_REHASH", "nan", "WARMD_WATCH_REHASH: expected a finite number, found nan"),
        ("WARMD_WATCH_REHASH", "1e999", "WARMD_WATCH_REHASH: expected a finite number, found inf"),
        (
            "WARMD_MEMORY_LIMIT",
            "nan GB",
            "WARMD_MEMORY_LIMIT: expected auto or a size such as 12GB or 800MiB, found 'nan GB'",
        ),
        (
            "WARMD_MEMORY_LIMIT",
            "",
            "WARMD_MEMORY_LIMIT: expected auto or a size such as 12GB or 800MiB, found ''",
        ),
        (
            "WARMD_MEMORY_RESERVE",
            "1\n2",
            "WARMD_MEMORY_RESERVE: expected a size such as 12GB or 800MiB, found '1\\n2'",
        ),
        ("WARMD_MEMORY_LOOK", "inf", "WARMD_MEMORY_LOOK: expected a finite number, found inf"),
        ("WARMD_PROMPTS_PATH", " ", "WARMD_PROMPTS_PATH: expected a path, found ' '"),
        (
            "WARMD_WARM_CHUNKTOKENS",
            "1",
            "WARMD_WARM_CHUNKTOKENS: unknown variable; the nearest known one is WARMD_WARM_CHUNK_TOKENS",
        ),
        ("WARMD_Z", "1", "WARMD_Z: unknown variable; a setting's is WARMD_SECTION_KEY"),
        ("WARMD_CONFIGS", "1", "WARMD_CONFIGS: unknown variable; the nearest known one is WARMD_CONFIG"),
    ],
)
def test_what_is_wrong_in_the_environment_is_named(
    file: Path, variable: str, value: str, expected: str
) -> None:
    assert expected == complaint(file, **{variable: value})


def test_everything_that_is_wrong_is_told_at_once_in_a_line_each(file: Path) -> None:
    text = "[warm]\nconcurrency = 0\nchunks = 1\nprove = 2\n[zzz]\n[watch]\nsettle = 'x'\n"
    told = complaint(file, text, WARMD_MEMORY_LIMIT="lots").split("\n")
    assert told == [
        "FILE: [warm] concurrency: expected at least 1, found 0",
        "FILE: [warm] chunks: unknown key; there are concurrency, chunk_seconds, chunk_tokens, live_share, "
        "max_pause, timeout, prove, rewarms_per_hour, checkpoint_tokens, checkpoint_max_bytes",
        f"FILE: unknown section [zzz]; there are {SECTIONS}",
        "FILE: [watch] settle: expected a number, found text",
        "WARMD_MEMORY_LIMIT: expected auto or a size such as 12GB or 800MiB, found 'lots'",
    ]


def test_other_programs_variables_are_left_alone(file: Path) -> None:
    assert Settings() == load(file, "", WARM="1", XWARMD_WARM="1", warmd_warm_concurrency="7")


def test_a_file_that_is_not_utf_8_is_an_error(file: Path) -> None:
    file.write_bytes(b"# \xff\n")
    with pytest.raises(UsageError) as caught:
        load_settings({"WARMD_CONFIG": str(file)})
    assert f"{file}: expected UTF-8, found another encoding at byte 2" == str(caught.value)


def test_every_setting_has_a_help_text() -> None:
    settings = Settings()
    sections = [getattr(settings, section.name) for section in fields(settings)]
    assert [item.name for part in sections for item in fields(part) if not item.metadata["help"]] == []


def test_the_sample_holds_every_setting_at_its_default() -> None:
    assert asdict(Settings()) == tomllib.loads(SAMPLE.read_text("utf-8"))


def test_the_sample_loads_as_the_defaults() -> None:
    assert Settings() == load_settings({"WARMD_CONFIG": str(SAMPLE)})


def test_every_setting_of_the_sample_is_explained_by_its_help_text() -> None:
    blocks = SAMPLE.read_text("utf-8").lower().split("\n\n")
    settings = Settings()
    unexplained = [
        item.name
        for section in fields(settings)
        for item in fields(getattr(settings, section.name))
        if not any(item.metadata["help"].lower() in b and f"\n{item.name} = " in b for b in blocks)
    ]
    assert unexplained == []
