"""`warmd check --model` tells the plan in bytes, of real models whose weights stay on the disk."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten
from mlx_lm import server, utils
from mlx_lm.models import llama
from mlx_lm.models.cache import KVCache

from tests.commands.terminal import outcome, warmd
from tests.toys import make_model
from warmd.cli import main, make_parser
from warmd.commands.check import check_file
from warmd.commands.check_report import print_report, to_json
from warmd.commands.options import with_memory_limit
from warmd.commands.rendered import render_document
from warmd.config import load_settings
from warmd.engines.mlx_lm.estimate import estimate
from warmd.memory.fake import FakeMeter
from warmd.settings import Settings

TEXT = "You are a careful reviewer of code. Answer briefly."
ENTRIES: list[dict[str, Any]] = [
    {"name": "long", "messages": [{"role": "system", "content": TEXT + " Don't guess." * 60}]},
    {"name": "first", "priority": 1, "messages": [{"role": "system", "content": TEXT}]},
]
FLAGS = Namespace(
    adapter_path=None,
    draft_model=None,
    kv_bits=None,
    kv_group_size=64,
    quantized_kv_start=5000,
    prefill_step_size=2048,
)
PROCESS = 80_000_000
ROW = 2 * 2 * 32 * 4
"""Bytes a token of the toys' state: 2 layers, keys and values, one head of 32 float32."""


@pytest.fixture(autouse=True)
def _no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("WARMD_MEMORY_LIMIT", "100GB")
    monkeypatch.setenv("WARMD_MEMORY_RESERVE", "1MB")
    monkeypatch.delenv("WARMD_CONFIG", raising=False)


class Checked:
    """What came of one check.

    Attributes:
        code: Exit code.
        out: On standard output.
        err: On standard error.
    """

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def report(self) -> Any:
        return json.loads(self.out if self.out.startswith("{") else self.err)

    def of_entries(self, key: str) -> list[Any]:
        return [entry[key] for entry in self.report["entries"]]


class Checker:
    """Runs checks of `ENTRIES`."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = folder / "p.json"
        self.path.write_text(json.dumps(ENTRIES))
        self._capsys = capsys

    def text(self, model: Path | str, *args: str) -> Checked:
        code = main(["check", str(self.path), "--model", str(model), *args])
        return Checked(code, *self._capsys.readouterr())

    def json(self, model: Path | str, *args: str) -> Checked:
        return self.text(model, "--json", *args)

    def limited(self, model: Path, limit: int) -> Checked:
        """Check under a limit, in a process that takes `PROCESS` bytes; both forms of the report."""
        meter = FakeMeter(active=0, footprint=PROCESS)
        settings = with_memory_limit(load_settings(), str(limit))
        report = check_file(self.path, settings.prompts.max_bytes)
        assert report.document is not None
        rendering = render_document(report.document, str(model), settings, FLAGS, {}, meter)
        report = replace(report, rendering=rendering)
        print_report(report)
        return Checked(0 if report.is_ok else 1, self._capsys.readouterr().out, json.dumps(to_json(report)))


@pytest.fixture
def check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Checker:
    return Checker(tmp_path, capsys)


def weights_of(model: Path) -> int:
    """Bytes of a model's weights, in its file."""
    weights: Any = mx.load(str(model / "model.safetensors"))
    return sum(int(array.nbytes) for array in weights.values())


def quantise(model: Path) -> Path:
    """Quantise a model's weights in place, as mlx-lm's converter does."""
    loaded, config = utils.load_model(model)
    nn.quantize(loaded, group_size=32, bits=4)
    mx.save_safetensors(str(model / "model.safetensors"), dict(tree_flatten(loaded.parameters())))
    config |= {"quantization": {"group_size": 32, "bits": 4}}
    (model / "config.json").write_text(json.dumps(config))
    return model


# --- the numbers ---------------------------------------------------------------------------------


def test_the_plan_in_bytes(models: dict[str, Path], check: Checker) -> None:
    checked = check.json(models["llama"])
    (long, first), own = checked.of_entries("tokens"), checked.of_entries("own_tokens")
    assert (checked.code, checked.report["ok"]) == (0, True)
    # "first" comes first, by its priority, and "long" begins like it.
    assert own[1] == first
    assert long - first <= own[0] < long
    assert checked.of_entries("shared_tokens") == [long - own[0], 0]
    assert checked.of_entries("kv_bytes") == [own[0] * ROW, first * ROW]
    assert checked.of_entries("fits") == [True, True]
    memory = checked.report["memory"]
    assert memory.pop("process_bytes") > 10_000_000
    assert memory == {
        "limit": 100_000_000_000,
        "reserve": 1_000_000,
        "model_bytes": weights_of(models["llama"]),
        "kv_bytes": sum(own) * ROW,
        "fits": 2,
        "problem": None,
    }


def test_the_plan_for_people(models: dict[str, Path], check: Checker) -> None:
    checked = check.text(models["llama"])
    lines = checked.out.splitlines()
    assert (checked.code, checked.err) == (0, "")
    assert lines[2].split() == [
        *("name", "priority", "messages", "tools", "tokens", "own", "shared", "KV", "bytes", "fits")
    ]
    rows = [line.split() for line in lines[3:6]]
    assert [row[0] for row in rows] == ["long", "first", "total"]
    assert [row[-1] for row in rows[:2]] == ["yes", "yes"]
    sums = [sum(int(row[column]) for row in rows[:2]) for column in (4, 5, 6)]
    assert [int(cell) for cell in rows[2][1:4]] == sums
    assert lines[6] == ""
    assert lines[7].startswith("memory: 597 KB model + ")
    assert "(2 of 2 entries) + 1 MB reserve + about " in lines[7]
    assert " MB of the process itself = " in lines[7] or " GB of the process itself = " in lines[7]
    assert lines[7].endswith(" of 100 GB")
    assert len(lines) == 8


def test_an_entry_for_another_model_waits_as_in_the_daemon_and_counts_for_nothing(
    models: dict[str, Path], check: Checker
) -> None:
    reason = "it is for the model 'other/model', which is not loaded"
    of_all = check.json(models["llama"]).report
    check.path.write_text(json.dumps([*ENTRIES, {**ENTRIES[0], "name": "far", "model": "other/model"}]))
    checked = check.json(models["llama"])
    *near, far = checked.report["entries"]
    assert (checked.code, near) == (0, of_all["entries"])
    numbers = ("tokens", "own_tokens", "shared_tokens", "kv_bytes", "fits", "problem")
    assert [far[key] for key in numbers] == [None] * 6
    assert far["reason"] == reason
    for key in ("kv_bytes", "fits"):
        assert checked.report["memory"][key] == of_all["memory"][key]
    lines = check.text(models["llama"]).out.splitlines()
    assert lines[5].endswith(f"-  {reason}")
    assert "(2 of 2 entries)" in lines[-1]


def test_an_entry_for_this_model_by_the_last_part_of_its_name_counts(
    models: dict[str, Path], check: Checker
) -> None:
    check.path.write_text(json.dumps([{**ENTRIES[0], "model": models["llama"].name}]))
    assert check.json(models["llama"]).of_entries("fits") == [True]
    check.path.write_text(json.dumps([{**ENTRIES[0], "model": "other"}]))
    assert check.text(models["llama"]).out.splitlines()[-1] == "no entry is for this model"


def test_of_entries_that_cannot_be_rendered_it_is_said_how_many_there_are(
    models: dict[str, Path], check: Checker
) -> None:
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    check.path.write_text(json.dumps([[image], [image]]))
    checked = check.text(models["llama"])
    assert checked.code == 1
    assert "+ 0 B KV state (0 of 2 entries) + " in checked.out


@pytest.mark.parametrize("architecture", ["gemma3_text", "granitemoehybrid"])
def test_state_that_cannot_be_cut_is_held_for_each_entry(
    architecture: str, models: dict[str, Path], check: Checker
) -> None:
    checked = check.json(models[architecture])
    cost = estimate(str(models[architecture]), Settings().warm.chunk_tokens, FLAGS).cost
    both = zip(checked.of_entries("own_tokens"), checked.of_entries("tokens"), strict=True)
    expected = [cost.kept(own, tokens) for own, tokens in both]
    assert checked.of_entries("kv_bytes") == expected
    assert min(expected) > cost.snapshot(1) > 0


def test_auto_is_what_the_machine_has(models: dict[str, Path], check: Checker) -> None:
    memory = check.json(models["llama"], "--memory-limit", "auto").report["memory"]
    assert memory["limit"] > 0
    assert memory["limit"] != 100_000_000_000


# --- the weights stay on the disk ----------------------------------------------------------------


@pytest.mark.parametrize("is_quantised", [False, True], ids=["float32", "4 bits"])
def test_no_weights_are_read(is_quantised: bool, tmp_path: Path) -> None:
    folder = make_model(tmp_path / "toy", hidden_size=512, intermediate_size=2048, num_hidden_layers=8)
    folder = quantise(folder) if is_quantised else folder
    size = weights_of(folder)
    assert size > 15_000_000
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    found = estimate(str(folder), 256, FLAGS)
    assert mx.get_peak_memory() - before < 100_000
    assert (found.model_bytes, found.cost.row_bytes) == (size, 8 * 2 * 32 * 4)


def test_quantised_weights_cost_less_and_their_state_the_same(
    tmp_path: Path, models: dict[str, Path], check: Checker
) -> None:
    small = check.json(quantise(make_model(tmp_path / "toy")))
    large = check.json(models["llama"])
    assert small.of_entries("tokens") == large.of_entries("tokens")
    assert small.of_entries("kv_bytes") == large.of_entries("kv_bytes")
    assert small.report["memory"]["model_bytes"] < large.report["memory"]["model_bytes"] / 3


# --- what the server is started with -------------------------------------------------------------


def test_flags_have_the_servers_names_and_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    monkeypatch.setattr(server, "ModelProvider", lambda args: SimpleNamespace(cli_args=args))
    monkeypatch.setattr(server, "run", lambda host, port, provider: found.append(provider.cli_args))
    monkeypatch.setattr(sys, "argv", ["server"])
    server.main()
    args = make_parser().parse_args(["check"])
    names = [*vars(FLAGS), "kv_bits"]
    assert {name: getattr(args, name) for name in names} == {name: getattr(found[0], name) for name in names}


def test_a_draft_models_weights_and_state_come_on_top(models: dict[str, Path], check: Checker) -> None:
    alone = check.json(models["llama"])
    both = check.json(models["llama"], "--draft-model", str(models["llama"]))
    for key in ("model_bytes", "kv_bytes"):
        assert both.report["memory"][key] == 2 * alone.report["memory"][key]


def test_quantised_state_costs_less_from_where_the_server_quantises(
    models: dict[str, Path], check: Checker
) -> None:
    flags = ["--kv-bits", "8", "--kv-group-size", "32", "--quantized-kv-start", "0"]
    quantised = check.json(models["llama"], *flags, "--prefill-step-size", "64")
    long, first = quantised.of_entries("tokens")
    assert first < 64 < long
    # A byte a number, and a float32 scale and bias for each group of 32.
    expected = [
        own * bytes_ for own, bytes_ in zip(quantised.of_entries("own_tokens"), [160, ROW], strict=True)
    ]
    assert quantised.of_entries("kv_bytes") == expected


def test_an_adapter_counts_as_part_of_the_model(
    tmp_path: Path, models: dict[str, Path], check: Checker
) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    parameters = {"rank": 4, "scale": 1.0, "dropout": 0.0, "keys": ["self_attn.q_proj"]}
    config = {"fine_tune_type": "lora", "num_layers": 1, "lora_parameters": parameters}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    weights = {"lora_a": mx.zeros((64, 4)), "lora_b": mx.zeros((4, 64))}
    names = {f"model.layers.1.self_attn.q_proj.{name}": array for name, array in weights.items()}
    mx.save_safetensors(str(adapter / "adapters.safetensors"), names)
    alone = check.json(models["llama"]).report["memory"]
    adapted = check.json(models["llama"], "--adapter-path", str(adapter)).report["memory"]
    assert adapted["model_bytes"] == alone["model_bytes"] + 2 * 4 * 64 * 4
    assert adapted["kv_bytes"] == alone["kv_bytes"]


def test_flags_that_do_not_go_with_the_model_are_told(models: dict[str, Path], check: Checker) -> None:
    # Its heads are 32 wide.
    checked = check.text(models["llama"], "--kv-bits", "8", "--kv-group-size", "64")
    last = checked.out.splitlines()[-1]
    assert checked.code == 1
    assert "cannot be quantised as --kv-bits and --kv-group-size say" in last


@pytest.mark.parametrize(("flag", "value"), [("--kv-bits", "7"), ("--kv-group-size", "48")])
def test_what_mlx_cannot_quantise_is_a_usage_error_for_check_and_serve(
    models: dict[str, Path], tmp_path: Path, flag: str, value: str
) -> None:
    (tmp_path / "p.json").write_text("[]")
    flags = ["--kv-bits", "8", "--quantized-kv-start", "0", flag, value]
    for command in (["check", "p.json"], ["serve", "--prompts", "p.json"]):
        done = warmd(*command, "--model", str(models["llama"]), *flags, cwd=tmp_path)
        code, out, err = outcome(done)
        assert (code, out) == (2, "")
        assert f"{flag} {value}" in err
        assert "not supported" in err.splitlines()[-1]


@pytest.mark.parametrize("value", ["0", "-1", "x", "1.5"])
def test_a_number_of_bits_that_makes_no_sense_is_a_usage_error(value: str, tmp_path: Path) -> None:
    code, out, err = outcome(warmd("check", "p.json", f"--kv-bits={value}", cwd=tmp_path))
    assert (code, out) == (2, "")
    assert "argument --kv-bits: " in err.splitlines()[-1]


# --- the limit -----------------------------------------------------------------------------------


def test_what_does_not_fit_is_told_in_the_daemons_words_and_is_no_error(
    models: dict[str, Path], check: Checker
) -> None:
    # Room for "first", not for the block of 256 tokens that "long" ends in.
    limit = PROCESS + weights_of(models["llama"]) + 1_000_000 + 300_000
    checked = check.limited(models["llama"], limit)
    assert (checked.code, checked.report["memory"]["fits"]) == (0, 1)
    assert checked.report["memory"]["process_bytes"] == PROCESS
    assert checked.of_entries("fits") == [False, True]
    reason, nothing = checked.of_entries("reason")
    assert nothing is None
    assert reason.startswith("can never fit under the limit of 81.9 MB: needs ")
    assert checked.report["memory"]["kv_bytes"] == checked.of_entries("kv_bytes")[1]
    rows = checked.out.splitlines()[3:]
    assert rows[0].endswith(f"  no  {reason}")
    assert rows[1].endswith("  yes")
    assert "(1 of 2 entries) + 1 MB reserve + about 80 MB of the process itself = " in rows[-1]


def test_what_is_wrong_for_all_entries_is_told_once(models: dict[str, Path], check: Checker) -> None:
    checked = check.limited(models["llama"], PROCESS + weights_of(models["llama"]) + 1_000_000)
    assert [line.split()[-1] for line in checked.out.splitlines()[3:5]] == ["no", "no"]
    assert checked.out.splitlines()[-1].startswith(
        "nothing fits beside the model of 597 KB and about 80 MB of the process itself: the memory limit of "
        "81.6 MB leaves no room: 80.6 MB are taken without any warm prefix, "
    )


@pytest.mark.parametrize(("limit", "shown"), [(1_000_000, "1 MB"), (80_100_000, "80.1 MB")])
def test_a_limit_below_model_and_process_is_one_line_with_all_numbers(
    limit: int, shown: str, models: dict[str, Path], check: Checker
) -> None:
    checked = check.limited(models["llama"], limit)
    *rows, empty, last = checked.out.splitlines()[3:]
    expected = (
        f"nothing fits: the memory limit of {shown} is smaller than the model of 597 KB and about 80 MB of "
        "the process itself"
    )
    assert (checked.code, empty, last) == (0, "", expected)
    assert [row.split()[-1] for row in rows[:2]] == ["no", "no"]


@pytest.mark.parametrize("limit", ["lots", "-1GB", "0", "12", "12KB", "", "12 apples"])
@pytest.mark.parametrize("command", ["check", "serve"])
def test_a_limit_that_makes_no_sense_is_one_line(command: str, limit: str, tmp_path: Path) -> None:
    args = [command, "--model", "m", f"--memory-limit={limit}"]
    code, out, err = outcome(warmd(*args, cwd=tmp_path))
    assert (code, out) == (2, "")
    assert err.startswith("warmd: --memory-limit: expected auto or a size")
    assert err.count("\n") == 1


def test_so_is_one_in_the_settings(tmp_path: Path) -> None:
    expected = "expected auto or a size such as 12GB or 800MiB, found 'lots'\n"
    done = warmd("check", "p.json", cwd=tmp_path, WARMD_MEMORY_LIMIT="lots")
    assert outcome(done) == (2, "", f"warmd: WARMD_MEMORY_LIMIT: {expected}")
    config = tmp_path / "warmd.toml"
    config.write_text('[memory]\nlimit = "lots"\n')
    done = warmd("check", "p.json", cwd=tmp_path, WARMD_CONFIG=str(config))
    assert outcome(done) == (2, "", f"warmd: {config}: [memory] limit: {expected}")


# --- models that say less ------------------------------------------------------------------------


def rewrite_config(model: Path, **changes: Any) -> Path:
    """Change a model's configuration; None takes a key out."""
    config = json.loads((model / "config.json").read_text()) | changes
    kept = {key: value for key, value in config.items() if value is not None}
    (model / "config.json").write_text(json.dumps(kept))
    return model


def assert_only_tokens(checked: Checked, problem: str) -> None:
    """Exit code 0, tokens, and one line that says why there are no bytes."""
    lines = checked.out.splitlines()
    assert (checked.code, checked.err) == (0, "")
    assert lines[2].split()[4:] == ["tokens", "own", "shared"]
    assert lines[-2:] == ["", f"{problem}: bytes unknown"]


def test_an_architecture_that_mlx_lm_does_not_know(tmp_path: Path, check: Checker) -> None:
    folder = rewrite_config(make_model(tmp_path / "toy"), model_type="llama7")
    assert_only_tokens(check.text(folder), "mlx-lm does not know the architecture 'llama7'")


def test_a_model_with_code_of_its_own_is_not_run(tmp_path: Path, check: Checker) -> None:
    folder = rewrite_config(make_model(tmp_path / "toy"), model_file="model.py")
    (folder / "model.py").write_text("raise SystemExit(77)")
    assert_only_tokens(check.text(folder), "the model brings code of its own, which is not run here")


def test_a_hub_name_whose_weights_are_not_in_the_cache(
    tmp_path: Path, check: Checker, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "hub" / "models--some--model"
    make_model(repository / "snapshots" / "abc")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    assert check.json("some/model").report["memory"]["fits"] == 2
    (repository / "snapshots" / "abc" / "model.safetensors").unlink()
    assert_only_tokens(check.text("some/model"), "weights not found")


def test_a_draft_model_without_weights(tmp_path: Path, models: dict[str, Path], check: Checker) -> None:
    draft = make_model(tmp_path / "draft")
    (draft / "model.safetensors").unlink()
    checked = check.text(models["llama"], "--draft-model", str(draft))
    assert_only_tokens(checked, "the draft model's weights not found")


class Stubborn(KVCache):  # type: ignore[misc] # mlx-lm has no type information
    """A cache that cannot be copied."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("no")


class StubbornModel(llama.Model):  # type: ignore[misc] # as above
    """A model with such caches."""

    def make_cache(self) -> list[Any]:
        return [Stubborn() for _ in self.layers]


def test_state_that_cannot_be_kept_fails_the_check(
    tmp_path: Path, check: Checker, monkeypatch: pytest.MonkeyPatch
) -> None:
    architecture = ModuleType("mlx_lm.models.stubborn")
    architecture.__dict__.update(Model=StubbornModel, ModelArgs=llama.ModelArgs)
    monkeypatch.setitem(sys.modules, architecture.__name__, architecture)
    folder = rewrite_config(make_model(tmp_path / "toy"), model_type="stubborn")
    reason = f"its state cannot be kept warm: {__name__}.Stubborn cannot be copied (TypeError)"
    text, report = check.text(folder), check.json(folder)
    assert (text.code, text.out.splitlines()[-1]) == (1, f"the model is unwarmable: {reason}")
    assert (report.code, report.report["ok"], report.report["memory"]["problem"]) == (1, False, reason)
    assert all(count > 0 for count in report.of_entries("tokens"))
    check.path.write_text("[]")
    empty = check.text(folder)
    assert (empty.code, empty.out.splitlines()[1:]) == (1, [f"the model is unwarmable: {reason}"])


# --- models that cannot be loaded ----------------------------------------------------------------

_BROKEN = {
    "half": ("{", "config.json is not valid JSON: Expecting property name"),
    "list": ("[]", "config.json: expected a JSON object, found a list"),
    "latin-1": ('{"ä": 1}', "config.json: expected UTF-8, found another encoding at byte 2"),
    "deep": ("[" * 100_000, "config.json is nested too deeply"),
    "empty": ("{}", "ValueError: config.json has no model_type"),
    "sizes": ('{"model_type": "llama"}', "TypeError: "),
}


@pytest.mark.parametrize("name", _BROKEN)
def test_a_corrupt_config_is_one_line(name: str, tmp_path: Path, check: Checker) -> None:
    text, expected = _BROKEN[name]
    folder = make_model(tmp_path / "toy")
    (folder / "config.json").write_text(text, encoding="latin-1")
    checked = check.text(folder)
    assert (checked.code, checked.out, checked.err.count("\n")) == (3, "", 1)
    assert checked.err.startswith(f"warmd: cannot load the model '{folder}': {expected}")


@pytest.mark.parametrize("kept", [0, 1000, 100_000])
def test_weights_of_which_a_part_is_missing_are_one_line(kept: int, tmp_path: Path, check: Checker) -> None:
    folder = make_model(tmp_path / "toy")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:kept])
    checked = check.text(folder)
    assert (checked.code, checked.out, checked.err.count("\n")) == (3, "", 1)
    assert checked.err.startswith(f"warmd: cannot load the model '{folder}': RuntimeError: ")


@pytest.mark.parametrize("flag", ["--adapter-path", "--draft-model"])
def test_an_adapter_or_draft_model_that_is_not_there_is_named(
    flag: str, models: dict[str, Path], tmp_path: Path, check: Checker
) -> None:
    missing = str(tmp_path / "nothing")
    checked = check.text(models["llama"], flag, missing)
    assert (checked.code, checked.out, checked.err.count("\n")) == (3, "", 1)
    assert f"'{missing}'" in checked.err
