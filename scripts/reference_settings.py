"""Settings of the reference, from the pydantic models: variable, type, default and description."""

import ast
import inspect
import re
from typing import Any

from pydantic import Secret, SecretStr
from reference_text import item, paragraphs

from feed_assets import settings as module
from feed_assets.settings import PREFIX, Settings

_TYPES = {
    "Boards": "JSON object (secret)",
    "Conf": "JSON object (secret)",
    "DataCenters": "JSON object (secret)",
    "Database": "SQLAlchemy URL (secret)",
    "Endpoint": "URL",
    "Master": "URL of Spark's master",
    "Order": "`oldest` or `newest`",
    "Profiles": "JSON object (secret)",
    "Queue": "URL",
    "Registry": "URL (secret)",
    "Remote": "URL (secret)",
    "SecretStr": "text (secret)",
    "Sinks": "list (secret), comma-separated",
    "Smtp": "URL (secret)",
    "Store": "URL",
    "Targets": "JSON object (secret)",
    "Times": "number",
    "UiToken": "text (secret)",
    "MaskKey": "text (secret)",
    "Warehouses": "JSON object (secret)",
    "Webhook": "URL (secret)",
    "Words": "list, comma-separated",
    "float": "number",
    "int": "whole number",
    "str": "text",
}
_DEFAULTS = {
    "blackboard": "`blackboard` under the home folder",
    "ledger": "`ledger.db` under the home folder (SQLite)",
}
_PAGES = {
    "blackboard": "operations.md#s3",
    "blackboard_queue": "operations.md#a-bucket-that-tells",
    "blackboards": "operations.md#blackboards-of-others",
    "data_centers": "replication.md",
    "spark_jars": "operations.md#secrets-that-aws-keeps",
    "spark_master": "spark.md#the-session",
    "spark_remote": "spark.md#the-session",
    "spark_profiles": "spark.md#profiles",
    "ledger": "operations.md#the-ledger",
    "partitions_per_run": "automation.md#one-run-for-many-partitions",
    "history_days": "automation.md#history",
    "run_wait_seconds": "automation.md#two-runs-of-one-partition",
    "tick_seconds": "automation.md#a-tick",
    "run_cost": "late-data.md#how-it-is-weighed",
    "log_days": "operations.md#the-ledger-itself",
    "slower_factor": "operations.md#alerts",
    "alert_webhook": "operations.md#alerts",
    "alert_smtp": "operations.md#alerts",
    "alert_apprise": "operations.md#alerts",
    "events_to": "events.md",
    "receiver_flush_seconds": "receiver.md",
    "kafka": "kafka.md",
    "warehouses": "warehouse.md",
    "targets": "resources.md",
    "ui_token": "operations.md#an-installation",
    "logs": "operations.md#log-lines",
}
"""Pages that explain a setting."""


def settings() -> str:
    """Return a section for each setting."""
    texts, types = {}, {}
    for model in reversed(ast.parse(inspect.getsource(module)).body):
        if isinstance(model, ast.ClassDef) and model.name in {"Settings", "Declaring"}:
            for field, text in zip(model.body, model.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    texts[field.target.id] = ast.literal_eval(text.value) if isinstance(text, ast.Expr) else ""
                    types[field.target.id] = ast.unparse(field.annotation)
    names = Settings.model_fields
    return "\n\n".join(_section(name, types[name], texts[name]) for name in names)


def _section(name: str, annotation: str, text: str) -> str:
    facts = [item(f"Type: {_type(name, annotation)}."), item(f"Default: {_default(name)}.")]
    if page := _PAGES.get(name):
        facts.append(item(f"See [{_title(page)}](../{page})."))
    return f"## `{PREFIX}{name.upper()}`\n\n{paragraphs(text)}\n\n" + "\n".join(facts)


def _title(link: str) -> str:
    page, _, place = link.partition("#")
    return (place or page.removesuffix(".md")).replace("-", " ").capitalize()


def _type(name: str, annotation: str) -> str:
    """Return a type in words, with its bounds. Raise KeyError if it has no words here."""
    if literal := re.fullmatch(r"Literal\[(.+)\]", annotation):
        return " or ".join(f"`{ast.literal_eval(each)}`" for each in literal[1].split(", "))
    bounds = [_bound(each) for each in Settings.model_fields[name].metadata]
    return ", ".join([_TYPES[annotation.removesuffix(" | None")], *filter(None, bounds)])


def _bound(constraint: Any) -> str:
    kind = type(constraint).__name__
    words = {"Ge": "at least", "Gt": "more than", "Le": "at most"}.get(kind)
    return f"{words} {getattr(constraint, kind.lower()):,}" if words else ""


def _default(name: str) -> str:
    if name in _DEFAULTS:
        return _DEFAULTS[name]
    value = Settings.model_fields[name].default
    if isinstance(value, Secret | SecretStr):
        value = value.get_secret_value()
    if value is None or value == ():
        return "none"
    return f"`{','.join(value) if isinstance(value, tuple) else value}`"
