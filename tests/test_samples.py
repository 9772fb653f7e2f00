"""The samples for collectors and dashboards name only what exists."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.reference import metric_names
from warmd.events import CATALOGUE
from warmd.logfile import FILE_NAME
from warmd.web.metrics import DISK

CONFIG = Path(__file__).parents[1] / "config"
VECTOR = CONFIG / "vector.toml"
DASHBOARD: dict[str, Any] = json.loads((CONFIG / "grafana-dashboard.json").read_text("utf-8"))


def expressions() -> Iterator[str]:
    """Every PromQL expression of the dashboard."""
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    names = {name for expression in expressions() for name in re.findall(r"\bwarmd_\w+", expression)}
    assert sorted(names - set(metric_names())) == []
    assert len(names) > 20


def test_the_dashboard_takes_rates_of_counters_only_and_of_all_it_draws_over_time() -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            counters = re.findall(r"\bwarmd_\w+_total\b", target["expr"])
            rated = re.findall(r"\b(?:rate|increase)\((warmd_\w+)\[\w+\]\)", target["expr"])
            assert sorted(counters) == sorted(rated) or panel["type"] == "table", target["expr"]


def test_the_dashboards_panels_fit_the_grid_and_do_not_overlap() -> None:
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for position in [panel["gridPos"]]
        for x in range(position["x"], position["x"] + position["w"])
        for y in range(position["y"], position["y"] + position["h"])
    ]
    assert len(cells) == len(set(cells))
    assert {x for x, _ in cells} == set(range(24))


def test_the_dashboards_panels_are_complete() -> None:
    panels = DASHBOARD["panels"]
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
    variable = DASHBOARD["templating"]["list"][0]["name"]
    source = {"type": "prometheus", "uid": f"${{{variable}}}"}
    assert all(panel["title"] and panel["datasource"] == source for panel in panels)
    assert all(target["datasource"] == source for panel in panels for target in panel["targets"])


def test_the_dashboard_shows_every_metric_of_the_disk() -> None:
    shown = "\n".join(expressions())
    assert [measure.name for measure in DISK if measure.name not in shown] == []


def test_the_collectors_parts_are_connected() -> None:
    found = tomllib.loads(VECTOR.read_text("utf-8"))
    sources, transforms, sinks = (found[kind] for kind in ("sources", "transforms", "sinks"))
    known = {*sources, *transforms}
    inputs = {name for part in (*transforms.values(), *sinks.values()) for name in part["inputs"]}
    assert inputs == known
    assert [Path(path).name for path in sources["warmd_log"]["include"]] == [FILE_NAME]
    assert [url.rpartition("/")[2] for url in sources["warmd_metrics"]["endpoints"]] == ["metrics"]


def test_the_collector_looks_for_events_that_exist() -> None:
    found = tomllib.loads(VECTOR.read_text("utf-8"))
    names = re.findall(r'"([a-z]+\.[a-z_]+)"', found["transforms"]["warmd_alerts"]["condition"])
    assert [name for name in names if name not in CATALOGUE] == []
    assert len(names) == 5


def test_the_collector_takes_its_configuration() -> None:
    if shutil.which("vector") is None:
        pytest.skip("vector is not installed")
    done = subprocess.run(
        ["vector", "validate", "--no-environment", str(VECTOR)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
