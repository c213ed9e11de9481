"""The layout of deploy/processes.toml: the processes of an installation, as the files of deploy/ are made of it."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
HEAD = "# Made of processes.toml by scripts/deployment.py: change it there.\n"
ANYWHERE, LOOPBACK = "0.0.0.0", "127.0.0.1"  # noqa: S104 (compose publishes the ports on loopback)
BASE_CONFIG = "feed-assets.env"


@dataclass(frozen=True)
class Service:
    """A process of an installation, as processes.toml describes it. `status` is the port of Spark's status page."""

    name: str
    ready: tuple[str, ...]
    memory: str
    command: tuple[str, ...] = ()
    about: str = ""
    image: str = ""
    data: str = ""
    port: int = 0
    status: int = 0
    published: bool = False
    profile: str = ""
    volume: str = "home"
    has_runs: bool = False
    needs: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def is_ours(self) -> bool:
        """Return whether the service runs from our image."""
        return not self.image


@dataclass(frozen=True)
class Layout:
    """All services with what they share. `private` has the services that get a setting which the others do not."""

    image: str
    dockerfile: str
    module: str
    home: str
    folder: str
    private: Mapping[str, list[str]]
    services: Mapping[str, Service]

    def filled(self, words: tuple[str, ...], places: "Places") -> list[str]:
        """Return a command whose placeholders have values. Raise KeyError for an unknown one."""
        return [re.sub(r"\{(\w+)(?::([\w-]+))?\}", lambda found: self._value(found, places), word) for word in words]

    def environment(self, service: Service, places: "Places") -> dict[str, str]:
        """Return the environment that a service has beside the settings that all share."""
        return {name: self.filled((value,), places)[0] for name, value in service.environment}

    def withheld(self, service: Service) -> list[str]:
        """Return the settings of the shared file that a service must not get."""
        return [name for name, holders in self.private.items() if service.name not in holders]

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
    held = tomllib.loads((DEPLOY / "processes.toml").read_text(encoding="utf-8"))
    services = {name: _service(name, each) for name, each in held.pop("services").items()}
    return Layout(**held, services=services)


def _service(name: str, held: Mapping[str, Any]) -> Service:
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in held.items()}
    return Service(name, **{**values, "environment": tuple(held.get("environment", {}).items())})
