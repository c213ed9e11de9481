"""Values for Dagster's Helm chart: code location, daemon and web server from our image."""

from typing import Any

import yaml
from deployment_layout import HEAD, Layout

HELM_HEAD = """# The chart starts Dagster's own web server, which has no login: make no ingress, and a network
# policy of your own that keeps other pods away. Reach it with `kubectl port-forward`, or by a proxy that authenticates.
# The secret `dagster-postgresql` has the password of Dagster's storage as `postgresql-password`.
# The secret `feed-assets` is the environment of all pods: each setting of feed-assets.env.example is a key of it.
"""

UID = 10001
SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": UID,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}


def helm(described: Layout, instance: dict[str, Any]) -> str:
    """Return values for the chart. The rules for runs are those of `instance`, our dagster.yaml."""
    name, _, tag = described.image.partition(":")
    image = {"repository": name, "tag": tag, "pullPolicy": "IfNotPresent"}
    shared = {"image": image, "envSecrets": [{"name": "feed-assets"}], "securityContext": SECURITY, **_home(described)}
    code = described.services["code"]
    deployment = {
        "name": "feed-assets",
        "codeServerArgs": ["--module-name", described.module, "--location-name", "feed_assets"],
        "port": code.port,
        "resources": _resources(described, "code"),
        **shared,
    }
    web = {
        "service": {"type": "ClusterIP", "port": described.services["web"].port},
        "resources": _resources(described, "web"),
        **shared,
    }
    values = {
        "dagster-user-deployments": {"enabled": True, "deployments": [deployment]},
        "dagsterWebserver": web,
        "dagsterDaemon": {**_rules(instance), "resources": _resources(described, "daemon"), **shared},
        "concurrency": _concurrency(instance["concurrency"]),
        "additionalInstanceConfig": {"nux": instance["nux"]},
        "runLauncher": {"type": "CustomRunLauncher", "config": {"customRunLauncher": _class(instance["run_launcher"])}},
        "postgresql": _postgresql(dict(described.services["postgres"].environment)["POSTGRES_USER"]),
        "generatePostgresqlPasswordSecret": False,
        "global": {"postgresqlSecretName": "dagster-postgresql", "dagsterHome": described.home},
        "ingress": {"enabled": False},
        "telemetry": instance["telemetry"],
    }
    return HEAD + HELM_HEAD + yaml.safe_dump(values, sort_keys=False, width=150)


def _home(described: Layout) -> dict[str, Any]:
    """Return a home folder that the user of the image may write, as long as the pod lives."""
    return {
        "podSecurityContext": {"fsGroup": UID},
        "volumes": [{"name": "home", "emptyDir": {}}],
        "volumeMounts": [{"name": "home", "mountPath": described.home}],
    }


def _resources(described: Layout, name: str) -> dict[str, Any]:
    """Return the most memory of a pod, in Kubernetes' unit. Without a request, Kubernetes would reserve all of it."""
    limit = f"{described.services[name].memory.removesuffix('g')}Gi"
    return {"requests": {"memory": "1Gi"}, "limits": {"memory": limit}}


def _postgresql(user: str) -> dict[str, Any]:
    """Return the address of Dagster's storage. Its driver must be named: SQLAlchemy's default one cannot NOTIFY."""
    names = {"postgresqlHost": "postgres", "postgresqlUsername": user, "postgresqlDatabase": "dagster"}
    return {"enabled": False, **names, "postgresqlScheme": "postgresql+psycopg2"}


def _rules(instance: dict[str, Any]) -> dict[str, Any]:
    """Return how the daemon queues, watches and evaluates. The chart's own queue has no value for our retries."""
    monitoring, sensors = instance["run_monitoring"], instance["sensors"]
    return {
        "runCoordinator": {
            "enabled": True,
            "type": "CustomRunCoordinator",
            "config": {"customRunCoordinator": _class(instance["run_coordinator"])},
        },
        "runMonitoring": {
            "enabled": monitoring["enabled"],
            "startTimeoutSeconds": monitoring["start_timeout_seconds"],
            "cancelTimeoutSeconds": monitoring["cancel_timeout_seconds"],
            "pollIntervalSeconds": monitoring["poll_interval_seconds"],
        },
        "sensors": {"useThreads": sensors["use_threads"], "numWorkers": sensors["num_workers"]},
    }


def _class(held: dict[str, Any]) -> dict[str, Any]:
    return {"module": held["module"], "class": held["class"], "config": held.get("config", {})}


def _concurrency(held: dict[str, Any]) -> dict[str, Any]:
    limits = {"tagConcurrencyLimits": held["runs"]["tag_concurrency_limits"]}
    return {"enabled": True, "pools": {"granularity": held["pools"]["granularity"]}, "runs": limits}
