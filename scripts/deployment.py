"""Write the files in deploy/ that follow from deploy/processes.toml.

Usage: .venv/bin/python scripts/deployment.py [--check]
"""

import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
LAYOUT = DEPLOY / "processes.toml"
ANYWHERE, LOOPBACK = "0.0.0.0", "127.0.0.1"  # noqa: S104 (compose publishes the ports on loopback)
HEAD = "# Made of processes.toml by scripts/deployment.py: change it there.\n"
STORAGE = """# Several processes: Dagster's storage is PostgreSQL, postgresql+psycopg2://…, never written in this file.
storage:
  postgres:
    postgres_url: {env: DAGSTER_POSTGRES_URL}
"""
_BASE_CONFIG = "feed-assets.env"


@dataclass(frozen=True)
class Service:
    """A process of an installation, as processes.toml describes it. `status` is the port of Spark's status page."""

    name: str
    ready: tuple[str, ...]
    command: tuple[str, ...] = ()
    about: str = ""
    image: str = ""
    data: str = ""
    port: int = 0
    status: int = 0
    published: bool = False
    profile: str = ""
    needs: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def is_ours(self) -> bool:
        """Return whether the service runs from our image."""
        return not self.image


@dataclass(frozen=True)
class Layout:
    """All services with what they share."""

    image: str
    module: str
    home: str
    folder: str
    services: Mapping[str, Service]

    def filled(self, words: tuple[str, ...], places: "Places") -> list[str]:
        """Return a command whose placeholders have values. Raise KeyError for an unknown one."""
        return [re.sub(r"\{(\w+)(?::([\w-]+))?\}", lambda found: self._value(found, places), word) for word in words]

    def _value(self, found: re.Match[str], places: "Places") -> str:
        what, name = found[1], found[2] or ""
        if what in ("port", "status"):
            return str(places.ports.get((what, name)) or getattr(self.services[name], what))
        if what == "host":
            return places.hosts[name]
        return {"listen": places.listen, "module": self.module, "data": places.data}[what]


@dataclass(frozen=True)
class Places:
    """Addresses and folders of one kind of installation. `ports` has those that differ from the layout's."""

    listen: str
    hosts: Mapping[str, str]
    data: str
    ports: Mapping[tuple[str, str], int]


def layout() -> Layout:
    """Return the layout of processes.toml."""
    held = tomllib.loads(LAYOUT.read_text(encoding="utf-8"))
    services = {name: _service(name, each) for name, each in held.pop("services").items()}
    return Layout(**held, services=services)


def _service(name: str, held: Mapping[str, Any]) -> Service:
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in held.items()}
    return Service(name, **{**values, "environment": tuple(held.get("environment", {}).items())})


def compose(described: Layout) -> str:
    """Return compose.yaml: each service in a container, with ports on the machine's loopback alone."""
    services = {name: _container(described, each) for name, each in described.services.items()}
    volumes: dict[str, dict[str, str]] = {name: {} for name, each in described.services.items() if each.data}
    document = {"name": "feed_assets", "services": services, "volumes": {**volumes, "home": {}}}
    return HEAD + yaml.safe_dump(document, sort_keys=False, width=150)


_OURS: dict[str, Any] = {
    "build": {"context": "..", "dockerfile": "deploy/Dockerfile"},
    "env_file": [_BASE_CONFIG],
    "init": True,
    "read_only": True,
    "tmpfs": ["/tmp"],  # noqa: S108 (in a container of its own)
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
}
"""What all containers of our image have."""


def _container(described: Layout, service: Service) -> dict[str, Any]:
    own = service.data or described.home
    places = Places(ANYWHERE, {name: name for name in described.services}, own, {})
    made: dict[str, Any] = {"image": service.image or described.image}
    if words := described.filled(service.command, places):
        made |= {"entrypoint": words[:1], "command": words[1:]}  # images of others have entrypoints of their own
    if service.profile:
        made["profiles"] = [service.profile]
    values = {**dict(service.environment), **{name: f"${{{name}:?set it in .env}}" for name in service.secrets}}
    if values:
        made["environment"] = values
    if service.published:
        made["ports"] = [f"{LOOPBACK}:{service.port}:{service.port}"]
    made["volumes"] = _volumes(described, service)
    probe = {"interval": "30s", "timeout": "20s", "retries": 3, "start_period": "180s", "start_interval": "5s"}
    made["healthcheck"] = {"test": ["CMD", *described.filled(service.ready, places)], **probe}
    if service.needs:
        made["depends_on"] = {name: {"condition": "service_healthy"} for name in service.needs}
    made |= {"restart": "unless-stopped", "stop_grace_period": "60s"}
    return {**made, **(_OURS if service.is_ours else {})}


def _volumes(described: Layout, service: Service) -> list[str]:
    """Return the volume of a service, and the files of deploy/ that it reads."""
    if not service.is_ours:
        sql = ["./databases.sql:/docker-entrypoint-initdb.d/databases.sql:ro"] if service.name == "postgres" else []
        return [f"{service.name}:{service.data}", *sql]
    files = [f"./{name}:{described.folder}/{name}:ro" for name in ("workspace.yaml", "spark.conf")]
    return [f"home:{described.home}", *files, f"./dagster.yaml:{described.home}/dagster.yaml:ro"]


def unit(described: Layout, service: Service) -> str:
    """Return the systemd unit of one of our services. It listens on loopback alone."""
    places = Places(LOOPBACK, dict.fromkeys(described.services, LOOPBACK), described.home, {})
    words = described.filled(service.command, places)
    ours = [f"feed-assets-{name}.service" for name in service.needs if described.services[name].is_ours]
    others = ["postgresql.service"] if "postgres" in service.needs else []
    secrets = [f"EnvironmentFile={described.folder}/{service.name}.env"] if service.secrets else []
    after = " ".join(["network-online.target", *ours, *others])
    # Each service waits for a missing neighbour itself: so `Wants` is enough, and a restart of one ends no other.
    return "\n".join(
        [
            HEAD.strip(),
            "[Unit]",
            f"Description={service.about}",
            "Wants=" + " ".join(["network-online.target", *ours]),
            f"After={after}",
            "",
            "[Service]",
            "User=feed_assets",
            f"WorkingDirectory={described.folder}",
            f"Environment=DAGSTER_HOME={described.home} SPARK_LOCAL_IP={LOOPBACK}",
            "Environment=PATH=/opt/feed_assets/bin:/usr/bin:/bin",
            f"EnvironmentFile={described.folder}/{_BASE_CONFIG}",
            *secrets,
            f"ExecStart=/opt/feed_assets/bin/{' '.join(words)}",
            "Restart=always",
            "RestartSec=5",
            "TimeoutStopSec=60",
            "KillMode=mixed",
            *HARDENING,
            "",
            "[Install]",
            "WantedBy=multi-user.target",
            "",
        ]
    )


HARDENING = (
    "UMask=0077",
    "StateDirectory=feed_assets",
    "StateDirectoryMode=0700",
    "NoNewPrivileges=yes",
    "CapabilityBoundingSet=",
    "PrivateTmp=yes",
    "PrivateDevices=yes",
    "ProtectSystem=strict",
    "ProtectHome=yes",
    "ProtectKernelTunables=yes",
    "ProtectKernelModules=yes",
    "ProtectControlGroups=yes",
    "ProtectClock=yes",
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK",
    "RestrictNamespaces=yes",
    "RestrictSUIDSGID=yes",
    "LockPersonality=yes",
)
"""Options of all units. Memory that is written and executed stays allowed, because a JVM compiles into it."""


def helm(described: Layout) -> str:
    """Return values for Dagster's Helm chart: code location, daemon and web server from our image."""
    name, _, tag = described.image.partition(":")
    image = {"repository": name, "tag": tag, "pullPolicy": "IfNotPresent"}
    code = described.services["code"]
    shared = {"envConfigMaps": [{"name": "feed-assets"}], "envSecrets": [{"name": "feed-assets"}]}
    secure = {"securityContext": SECURITY}
    deployment = {
        "name": "feed-assets",
        "image": image,
        "codeServerArgs": ["--module-name", described.module, "--location-name", "feed_assets"],
        "port": code.port,
        **shared,
        **secure,
    }
    values = {
        "dagster-user-deployments": {"enabled": True, "deployments": [deployment]},
        "dagsterWebserver": {"image": image, "service": {"type": "ClusterIP", "port": 80}, **shared, **secure},
        "dagsterDaemon": {"image": image, "sensors": {"useThreads": True, "numWorkers": 8}, **shared, **secure},
        "runLauncher": {"type": "CustomRunLauncher", "config": {"customRunLauncher": LAUNCHER}},
        "postgresql": {"enabled": False, "postgresqlHost": "postgres", "postgresqlDatabase": "dagster"},
        "generatePostgresqlPasswordSecret": False,
        "global": {"postgresqlSecretName": "dagster-postgresql"},
        "ingress": {"enabled": False},
        "telemetry": {"enabled": False},
    }
    return HEAD + HELM_HEAD + yaml.safe_dump(values, sort_keys=False, width=150)


SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": 10001,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
LAUNCHER = {"module": "feed_assets.orchestration.launcher.warm", "class": "WarmRunLauncher", "config": {}}
"""The launcher of runs: they begin in the code location's pod, and their data are on Spark's workers."""

HELM_HEAD = """# The chart starts Dagster's own web server, which has no login: no ingress, and a network policy that
# keeps other pods away. Reach it with `kubectl port-forward`, or by a proxy that authenticates.
# The config map `feed-assets` has feed-assets.env, the secret `feed-assets` has what .env has for compose.
"""


def workspace(described: Layout, host: str, port: int | None = None) -> str:
    """Return workspace.yaml with the code server at a host."""
    server = {"host": host, "port": port or described.services["code"].port, "location_name": "feed_assets"}
    return yaml.safe_dump({"load_from": [{"grpc_server": server}]}, sort_keys=False)


def dagster_yaml() -> str:
    """Return our dagster.yaml with PostgreSQL instead of SQLite."""
    text = (ROOT / "dagster.yaml").read_text(encoding="utf-8")
    return HEAD + STORAGE + text[text.index("\nrun_coordinator:") :]


def files() -> dict[Path, str]:
    """Return the text of each file that follows from the layout."""
    described = layout()
    ours = [each for each in described.services.values() if each.is_ours]
    units = {DEPLOY / "systemd" / f"feed-assets-{each.name}.service": unit(described, each) for each in ours}
    return {
        DEPLOY / "compose.yaml": compose(described),
        DEPLOY / "helm-values.yaml": helm(described),
        DEPLOY / "workspace.yaml": HEAD + workspace(described, "code"),
        DEPLOY / "dagster.yaml": dagster_yaml(),
        **units,
    }


def main() -> None:
    """Write the files, or with --check end with 1 if one differs."""
    made = files()
    different = [each for each, text in made.items() if not each.exists() or each.read_text(encoding="utf-8") != text]
    extra = sorted({*(DEPLOY / "systemd").glob("*")} - {*made})
    if "--check" in sys.argv:
        sys.exit(f"run scripts/deployment.py: {[*different, *extra]} differ" if different or extra else 0)
    for each in different:
        each.parent.mkdir(parents=True, exist_ok=True)
        each.write_text(made[each], encoding="utf-8")
    for each in extra:
        each.unlink()


if __name__ == "__main__":
    main()
