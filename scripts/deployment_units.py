"""The systemd units of an installation: one for each service of ours, and a target that starts them."""

from deployment_layout import BASE_CONFIG, HEAD, LOOPBACK, Layout, Places, Service

HARDENING = (
    "UMask=0077",
    "StateDirectory=feed_assets",
    "StateDirectoryMode=0700",
    "NoNewPrivileges=yes",
    "CapabilityBoundingSet=",
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

TARGET = "feed-assets.target"

RUNS_GO_ON = ("KillMode=process", "TemporaryFileSystem=/tmp:mode=1777 /var/tmp:mode=1777")
"""Options of the services that start runs. Runs outlive the service.

systemd empties a private /tmp when a service stops. A mounted one stays until the last run of it ends.
"""
ALL_ENDS = ("KillMode=mixed", "PrivateTmp=yes")


def unit(described: Layout, service: Service) -> str:
    """Return the systemd unit of one of our services. It listens on loopback alone."""
    places = Places(LOOPBACK, dict.fromkeys(described.services, LOOPBACK), described.home, {})
    ours = [f"feed-assets-{name}.service" for name in service.needs if described.services[name].is_ours]
    others = ["postgresql.service"] if "postgres" in service.needs else []
    words = described.filled(service.command, places)
    # Each service waits for a missing neighbour itself: so `Wants` is enough, and a restart of one ends no other.
    return "\n".join(
        [
            HEAD.strip(),
            "[Unit]",
            f"Description={service.about}",
            f"Wants={' '.join(['network-online.target', *ours])}",
            f"After={' '.join(['network-online.target', *ours, *others])}",
            f"PartOf={TARGET}",
            "",
            "[Service]",
            "User=feed_assets",
            f"WorkingDirectory={described.folder}",
            *_environment(described, service, places),
            f"ExecStart=/opt/feed_assets/bin/{' '.join(words)}",
            "Restart=always",
            "RestartSec=5",
            "TimeoutStopSec=60",
            f"MemoryMax={service.memory.upper()}",
            "OOMPolicy=continue",
            *(RUNS_GO_ON if service.has_runs else ALL_ENDS),
            *HARDENING,
            "",
            "[Install]",
            f"WantedBy={TARGET}",
            "",
        ]
    )


def _environment(described: Layout, service: Service, places: Places) -> list[str]:
    """Return the lines that make the environment of a service. What is withheld is removed last."""
    own = [f"Environment={name}={value}" for name, value in described.environment(service, places).items()]
    withheld = described.withheld(service)
    return [
        f"Environment=DAGSTER_HOME={described.home} SPARK_LOCAL_IP={LOOPBACK}",
        "Environment=PATH=/opt/feed_assets/bin:/usr/bin:/bin",
        *own,
        f"EnvironmentFile={described.folder}/{BASE_CONFIG}",
        *([f"EnvironmentFile={described.folder}/{service.name}.env"] if service.secrets else []),
        *([f"UnsetEnvironment={' '.join(withheld)}"] if withheld else []),
    ]


def target(described: Layout) -> str:
    """Return the unit that starts all services which every installation has, now and at boot."""
    ours = [each for each in described.services.values() if each.is_ours and not each.profile]
    return "\n".join(
        [
            HEAD.strip(),
            "[Unit]",
            "Description=feed_assets",
            f"Wants={' '.join(f'feed-assets-{each.name}.service' for each in ours)}",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
            "",
        ]
    )
