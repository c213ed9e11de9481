"""Files of deploy/: they are what the one layout gives, valid for those who read them, and without secrets."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft7Validator, Draft202012Validator

from feed_assets.settings import Settings
from feed_assets_tests.support.deployment_files import deployment
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.servers import ROOT

SCHEMAS = Path(__file__).parent / "schemas"
script = deployment()
LAYOUT = script.layout()
OURS = [each for each in LAYOUT.services.values() if each.is_ours]
UNITS = sorted((script.DEPLOY / "systemd").glob("*.service"))
STARTS_RUNS = {"code", "daemon"}
SPARK = {"spark-master", "spark-worker-1", "spark-worker-2"}


def compose():
    return yaml.safe_load((script.DEPLOY / "compose.yaml").read_text())


def helm_values():
    return yaml.safe_load((script.DEPLOY / "helm-values.yaml").read_text())


def rules():
    return yaml.safe_load((script.DEPLOY / "dagster.yaml").read_text())


def merged(base, own):
    """Return Helm's merge of a chart's values and ours."""
    both = {key: merged(base[key], value) for key, value in own.items() if isinstance(base.get(key), dict)}
    return {**base, **own, **both} if isinstance(own, dict) else own


def strangers(base, own, path=""):
    """Return the paths of our values that the chart's do not have, as far as those are described there."""
    return [
        place
        for key, value in own.items()
        for place in (
            [f"{path}{key}"]
            if key not in base
            else strangers(base[key], value, f"{path}{key}.")
            if isinstance(value, dict) and isinstance(base[key], dict) and base[key]
            else []
        )
    ]


def sections(unit):
    """Return the options of a unit by section, each with its values."""
    held = {}
    for line in unit.read_text().splitlines():
        if line.startswith("["):
            options = held.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            name, _, value = line.partition("=")
            options.setdefault(name, []).append(value)
    return held


def test_what_is_checked_in_is_what_the_layout_gives():
    made = script.files()
    assert {path: path.read_text() for path in made} == made
    assert {*(script.DEPLOY / "systemd").iterdir()} == {*UNITS, script.DEPLOY / "systemd" / "feed-assets.target"}
    assert {*UNITS} <= {*made}


def test_compose_is_valid_by_the_specification_and_listens_on_loopback_alone():
    schema = json.loads((SCHEMAS / "compose-spec.json").read_text())
    held = compose()
    assert [error.message for error in Draft7Validator(schema).iter_errors(held)] == []
    ports = [port for each in held["services"].values() for port in each.get("ports", ())]
    assert sorted(ports) == ["127.0.0.1:3000:3000", "127.0.0.1:8080:8080", "127.0.0.1:9464:9464"]
    assert [error.message for error in Draft7Validator(schema).iter_errors({**held, "servces": {}})] != []


def test_every_container_has_a_health_check_and_ours_have_no_rights_to_spare():
    services = compose()["services"]
    assert {*services} == {*LAYOUT.services}
    assert [name for name, each in services.items() if not each["healthcheck"]["test"][1:]] == []
    for service in OURS:
        held = services[service.name]
        assert (held["cap_drop"], held["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
        assert held["read_only"] is True
        assert held["hostname"] == service.name, "a new container knows the processes of the last one as dead"
    depends = {name: each.get("depends_on", {}) for name, each in services.items()}
    assert {need["condition"] for each in depends.values() for need in each.values()} == {"service_healthy"}
    assert {name for each in depends.values() for name in each} <= {*services}


def test_containers_have_a_limit_of_memory_and_room_for_what_spark_unpacks_and_shuffles():
    services = compose()["services"]
    assert [name for name, each in services.items() if not re.fullmatch(r"[1-9]\d*g", each.get("mem_limit", ""))] == []
    for service in OURS:
        (tmp,) = services[service.name]["tmpfs"]
        assert {"exec", "mode=1777"} <= {*tmp.partition(":")[2].split(",")}, "Docker's default is noexec"
    homes = {name: each["volumes"][0] for name, each in services.items()}
    assert {homes[name] for name in SPARK} == {f"{name}:{LAYOUT.home}" for name in SPARK}, "functions run there"
    for name in SPARK - {"spark-master"}:
        folder = f"{LAYOUT.home}/{name}"
        environment = services[name]["environment"]
        assert (environment["SPARK_LOCAL_DIRS"], environment["LOCAL_DIRS"]) == (folder, folder)


def test_compose_passes_settings_on_as_they_are():
    held = [compose()["services"][each.name]["env_file"] for each in OURS]
    assert held == [[{"path": "feed-assets.env", "format": "raw"}]] * len(OURS), "else it replaces `$`"


def test_only_services_that_need_a_secret_get_it():
    services = compose()["services"]
    files = {each.name: {one.split(":")[0] for one in services[each.name]["volumes"]} for each in OURS}
    assert {name for name, held in files.items() if "./spark.conf" in held} == SPARK
    units = {each.stem.removeprefix("feed-assets-"): sections(each)["Service"] for each in UNITS}
    private = {"FEED_ASSETS_SPARK_CONF": {"code"}, "FEED_ASSETS_MASK_KEY": {"code", "connector"}}
    for each in OURS:
        withheld = {name for name, holders in private.items() if each.name not in holders}
        environment = services[each.name].get("environment", {})
        assert {name for name in private if environment.get(name) == ""} == withheld
        assert {*" ".join(units[each.name].get("UnsetEnvironment", [])).split()} == withheld
        assert private.keys() & environment.keys() == withheld


def test_helm_values_are_valid_by_the_chart_and_name_nothing_that_it_does_not_have():
    schema = json.loads((SCHEMAS / "dagster-values.schema.json").read_text())
    base = yaml.safe_load((SCHEMAS / "dagster-values.yaml").read_text())
    own = helm_values()
    validator = Draft202012Validator(schema)
    assert [error.message for error in validator.iter_errors(merged(base, own))] == []
    assert strangers(base, own) == [
        "dagsterDaemon.runCoordinator.config.customRunCoordinator",
        "dagsterDaemon.runMonitoring.cancelTimeoutSeconds",
        "runLauncher.config.customRunLauncher",
    ], "which the chart describes in comments"
    wrong = merged(base, {"dagsterWebserver": {"service": {"type": 3}}})
    assert [error.message for error in validator.iter_errors(wrong)] != []
    assert own["ingress"] == {"enabled": False}


def test_helm_values_have_the_rules_of_dagster_yaml_and_a_storage_that_works():
    own, held = helm_values(), rules()
    daemon = own["dagsterDaemon"]
    assert daemon["runCoordinator"]["config"]["customRunCoordinator"] == held["run_coordinator"]
    assert own["runLauncher"]["config"]["customRunLauncher"] == {**held["run_launcher"], "config": {}}
    monitoring = {re.sub("[A-Z]", lambda one: f"_{one[0].lower()}", k): v for k, v in daemon["runMonitoring"].items()}
    assert monitoring == held["run_monitoring"]
    limits = {"tag_concurrency_limits": own["concurrency"]["runs"]["tagConcurrencyLimits"]}
    assert {"runs": limits, "pools": own["concurrency"]["pools"]} == held["concurrency"]
    assert own["concurrency"]["enabled"] is True
    assert own["additionalInstanceConfig"] == {"nux": held["nux"]}
    storage = own["postgresql"]
    assert storage["postgresqlUsername"] == dict(LAYOUT.services["postgres"].environment)["POSTGRES_USER"]
    assert f"CREATE DATABASE {storage['postgresqlDatabase']};" in (script.DEPLOY / "databases.sql").read_text()
    assert storage["postgresqlScheme"] == "postgresql+psycopg2"


def test_pods_have_a_home_that_their_user_writes_and_settings_from_a_secret_alone():
    own = helm_values()
    assert own["global"]["dagsterHome"] == LAYOUT.home
    for pod in (*own["dagster-user-deployments"]["deployments"], own["dagsterWebserver"], own["dagsterDaemon"]):
        assert pod["podSecurityContext"] == {"fsGroup": pod["securityContext"]["runAsUser"]}
        assert pod["volumeMounts"] == [{"name": pod["volumes"][0]["name"], "mountPath": LAYOUT.home}]
        assert (pod["envSecrets"], pod.get("envConfigMaps")) == ([{"name": "feed-assets"}], None)
        assert pod["resources"]["limits"]["memory"].endswith("Gi")
    assert own["dagsterWebserver"]["service"]["port"] >= 1024, "its user may not listen below"


@each_case("unit", UNITS)
def test_a_unit_is_hardened_and_starts_again(unit):
    held = sections(unit)
    assert [*held] == ["Unit", "Service", "Install"]
    service = held["Service"]
    wanted = {"NoNewPrivileges": "yes", "UMask": "0077", "Restart": "always", "User": "feed_assets"}
    assert {name: service[name] for name in wanted} == {name: [value] for name, value in wanted.items()}
    assert service["EnvironmentFile"][0] == "/etc/feed_assets/feed-assets.env"
    (command,) = service["ExecStart"]
    assert command.startswith("/opt/feed_assets/bin/")
    assert "{" not in command
    assert script.ANYWHERE not in unit.read_text(), "on one machine all listen on loopback"
    runs_go_on = unit.stem.removeprefix("feed-assets-") in STARTS_RUNS
    assert service["KillMode"] == ["process" if runs_go_on else "mixed"]
    assert ("PrivateTmp" in service) is not runs_go_on, "a stop empties it while runs go on"
    assert ("TemporaryFileSystem" in service) is runs_go_on
    assert service["OOMPolicy"] == ["continue"], "a run that takes too much ends alone"
    assert re.fullmatch(r"[1-9]\d*G", *service["MemoryMax"])


def test_one_target_starts_all_services_that_every_installation_has():
    held = sections(script.DEPLOY / "systemd" / "feed-assets.target")
    wanted = {f"feed-assets-{each.name}.service" for each in OURS if not each.profile}
    assert {*held["Unit"]["Wants"][0].split()} == wanted
    assert held["Install"]["WantedBy"] == ["multi-user.target"]
    for unit in UNITS:
        parts = sections(unit)
        assert (parts["Unit"]["PartOf"], parts["Install"]["WantedBy"]) == (["feed-assets.target"],) * 2


def test_units_are_verified_by_systemd(tmp_path):
    if (verify := shutil.which("systemd-analyze")) is None:
        pytest.skip("no systemd-analyze here: units are parsed alone")
    for unit in UNITS:  # systemd looks for the program, which is installed on no machine of the tests
        text = unit.read_text().replace("/opt/feed_assets/bin/", "/bin/true ")
        (tmp_path / unit.name).write_text(re.sub(r"ExecStart=/bin/true .*", "ExecStart=/bin/true", text))
    shutil.copy(script.DEPLOY / "systemd" / "feed-assets.target", tmp_path)

    def verified():
        command = [verify, "verify", "--man=no", *map(str, sorted(tmp_path.glob("feed-*")))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, [line for line in done.stderr.splitlines() if "feed-assets" in line]

    assert verified() == (0, [])
    first = tmp_path / UNITS[0].name
    first.write_text(first.read_text().replace("Restart=always", "Restart=sometimes"))
    assert verified()[1] != []


def test_the_examples_name_settings_and_have_no_secret():
    lines = [
        line
        for name in ("feed-assets.env.example", "secrets.env.example")
        for line in (script.DEPLOY / name).read_text().splitlines()
        if line and not line.startswith("#")
    ]
    values = dict(line.split("=", 1) for line in lines)
    ours = {name.removeprefix("FEED_ASSETS_").lower() for name in values if name.startswith("FEED_ASSETS_")}
    assert ours <= {*Settings.model_fields}
    assert {*values} >= {name for each in LAYOUT.services.values() for name in each.secrets}
    secret = re.compile("PASSWORD|SECRET|TOKEN|ACCESS_KEY|LEDGER|POSTGRES_URL|_CONF|KAFKA|WAREHOUSES")
    assert {name: value for name, value in values.items() if secret.search(name) and value} == {}
    jars = re.search(r"FEED_ASSETS_SPARK_JARS=(\S+)", (script.DEPLOY / "Dockerfile").read_text())[1]
    assert values["FEED_ASSETS_SPARK_JARS"] == jars, "the example is read in the image, too"
    assert "FEED_ASSETS_TARGETS" in values
    conf = (script.DEPLOY / "spark.conf.example").read_text().splitlines()
    options = dict([*line.split(" ", 1), ""][:2] for line in conf if not line.startswith("#"))
    assert options == {
        "spark.authenticate": "true",
        "spark.authenticate.secret": "",
        "spark.master.rest.enabled": "false",
        "spark.ui.killEnabled": "false",
        "spark.deploy.recoveryMode": "FILESYSTEM",
        "spark.deploy.recoveryDirectory": f"{LAYOUT.home}/spark-recovery",
        "spark.worker.cleanup.enabled": "true",
        "spark.worker.cleanup.appDataTtl": "3600",
    }
    ignored = (script.DEPLOY / ".gitignore").read_text().split()
    assert ignored == ["*.env", ".env", "spark.conf"]


def test_the_image_is_of_the_lock_file_and_its_user_is_not_root():
    text = (script.DEPLOY / "Dockerfile").read_text()
    _, build, last = text.split("\nFROM ")
    assert "uv sync" in build
    assert not re.search(r"\buv\b", last), "the image that runs has no installer"
    assert re.search(r"^USER 10001$", last, re.MULTILINE)
    assert all("--frozen" in line for line in text.splitlines() if "uv sync" in line)
    version = re.search(r"UV_VERSION := (\S+)", (ROOT / "Makefile").read_text())[1]
    assert f"uv=={version}" in text
    assert helm_values()["dagsterDaemon"]["securityContext"]["runAsUser"] == 10001
    assert 'ENTRYPOINT ["/usr/bin/tini", "--"]' in last, "a first process that ends what runs leave"
    assert all("--all-extras" in line for line in text.splitlines() if "uv sync" in line)
