"""The Prometheus queries of dashboards, alerts and scalers."""

import importlib.util
import json
import re
from typing import Any

import yaml

from .manifests import Doc, K8S, of_kind

FOLDER = K8S / "components" / "monitoring"
ALERTS = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
# Grafana's $__rate_interval if Prometheus scrapes once a second, unless the machine is busy.
RATE_INTERVAL = "1m"
NAME = re.compile(r"\b(?:feedfleet|process)_[a-z_]+\b")


def generator() -> Any:
    """Returns the module that generates the dashboards."""
    spec = importlib.util.spec_from_file_location("dashboards", FOLDER / "dashboards.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def dashboards() -> dict[str, Doc]:
    return {file.stem: json.loads(file.read_text()) for file in sorted((FOLDER / "dashboards").glob("*.json"))}


def panels() -> list[tuple[str, Doc]]:
    return [(slug, panel) for slug, board in dashboards().items() for panel in board["panels"]]


def panel_expressions() -> list[tuple[str, str]]:
    """Yields (dashboard: panel, expression), with Grafana's variables replaced."""
    return [(f"{slug}: {panel['title']}", filled(target["expr"])) for slug, panel in panels() for target in panel["targets"]]


def filled(expression: str) -> str:
    return expression.replace("$__rate_interval", RATE_INTERVAL).replace("$namespace", "feedfleet")


def rules() -> list[Doc]:
    """Returns the alerts."""
    return [rule for group in ALERTS["spec"]["groups"] for rule in group["rules"] if "alert" in rule]


def recorded() -> list[Doc]:
    """Returns the recording rules."""
    return [rule for group in ALERTS["spec"]["groups"] for rule in group["rules"] if "record" in rule]


def scaler_queries(docs: list[Doc]) -> list[str]:
    return [trigger["metadata"]["query"] for scaler in of_kind(docs, "ScaledObject") for trigger in scaler["spec"]["triggers"]]


def families(exposition: str) -> dict[str, str]:
    """Returns each exported metric's name and type."""
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", exposition, re.MULTILINE))


def names(expression: str, exported: dict[str, str]) -> set[str]:
    """Returns the metrics that an expression uses; a histogram's parts count as the histogram."""
    found = set()
    for name in NAME.findall(expression):
        base = re.sub(r"_(bucket|count|sum)$", "", name)
        found.add(base if exported.get(base) == "histogram" else name)
    return found


def problems(exposition: str, asked: dict[str, str], panels_only: dict[str, str]) -> list[str]:
    """Returns the queried metrics that are not exported, and the exported metrics without a panel. Both map places to expressions."""
    exported = families(exposition)
    found = [f"{where} asks for {name}, which is not exported"
             for where, expression in asked.items() for name in sorted(names(expression, exported) - set(exported))]
    shown = {name for expression in panels_only.values() for name in names(expression, exported)}
    found += [f"{name} is on no panel" for name in sorted(exported) if name.startswith("feedfleet_") and name not in shown]
    return found
