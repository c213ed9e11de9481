"""Write the files in deploy/ that follow from deploy/processes.toml.

Usage: .venv/bin/python scripts/deployment.py [--check]
"""

import sys
from pathlib import Path
from typing import Any

import yaml
from deployment_helm import helm
from deployment_layout import ANYWHERE, BASE_CONFIG, DEPLOY, HEAD, LOOPBACK, ROOT, Layout, Places, Service, layout
from deployment_units import target, unit

STORAGE = """# Several processes: Dagster's storage is PostgreSQL, postgresql+psycopg2://…, never written in this file.
storage:
  postgres:
    postgres_url: {env: DAGSTER_POSTGRES_URL}
"""


def compose(described: Layout) -> str:
    """Return compose.yaml: each service in a container, with ports on the machine's loopback alone."""
    services = {name: _container(described, each) for name, each in described.services.items()}
    volumes: dict[str, dict[str, str]] = {_volume(each): {} for each in described.services.values()}
    document = {"name": "feed_assets", "services": services, "volumes": volumes}
    return HEAD + yaml.safe_dump(document, sort_keys=False, width=150)


_OURS: dict[str, Any] = {
    "env_file": [{"path": BASE_CONFIG, "format": "raw"}],  # compose replaces no `$` in it, as systemd does not
    "init": True,
    "read_only": True,
    "tmpfs": ["/tmp:exec,mode=1777,size=1g"],  # noqa: S108 (in a container of its own)
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
}
"""Options of all containers of our image. A JVM loads libraries that it has unpacked into /tmp: hence `exec`."""


def _container(described: Layout, service: Service) -> dict[str, Any]:
    own = service.data or described.home
    places = Places(ANYWHERE, {name: name for name in described.services}, own, {})
    made: dict[str, Any] = {"image": service.image or described.image}
    if service.is_ours:  # a stable name: the next container of a service knows the processes of the last one as dead
        made |= {"build": {"context": "..", "dockerfile": described.dockerfile}, "hostname": service.name}
    if words := described.filled(service.command, places):
        made |= {"entrypoint": words[:1], "command": words[1:]}  # images of others have entrypoints of their own
    if service.profile:
        made["profiles"] = [service.profile]
    if values := _environment(described, service, places):
        made["environment"] = values
    if service.published:
        made["ports"] = [f"{LOOPBACK}:{service.port}:{service.port}"]
    made["volumes"] = _volumes(described, service)
    probe = {"interval": "30s", "timeout": "20s", "retries": 3, "start_period": "180s", "start_interval": "5s"}
    made["healthcheck"] = {"test": ["CMD", *described.filled(service.ready, places)], **probe}
    if service.needs:
        made["depends_on"] = {name: {"condition": "service_healthy"} for name in service.needs}
    made |= {"restart": "unless-stopped", "stop_grace_period": "60s", "mem_limit": service.memory}
    return {**made, **(_OURS if service.is_ours else {})}


def _environment(described: Layout, service: Service, places: Places) -> dict[str, str]:
    """Return the environment of a container beside the shared file. An empty value counts as not set."""
    withheld = described.withheld(service) if service.is_ours else []
    secrets = {name: f"${{{name}:?set it in .env}}" for name in service.secrets}
    return {**dict.fromkeys(withheld, ""), **described.environment(service, places), **secrets}


def _volume(service: Service) -> str:
    return service.volume if service.is_ours else service.name


def _volumes(described: Layout, service: Service) -> list[str]:
    """Return the volume of a service, and the files of deploy/ that it reads."""
    if not service.is_ours:
        sql = ["./databases.sql:/docker-entrypoint-initdb.d/databases.sql:ro"] if service.name == "postgres" else []
        return [f"{service.name}:{service.data}", *sql]
    shared = {"dagster.yaml": described.home}
    files = [f"./{name}:{shared.get(name, described.folder)}/{name}:ro" for name in service.files]
    return [f"{service.volume}:{described.home}", *files]


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
        DEPLOY / "helm-values.yaml": helm(described, yaml.safe_load(dagster_yaml())),
        DEPLOY / "workspace.yaml": HEAD + workspace(described, "code"),
        DEPLOY / "dagster.yaml": dagster_yaml(),
        DEPLOY / "systemd" / "feed-assets.target": target(described),
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
