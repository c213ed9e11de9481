"""Checks and downloads of the set-up, with stand-ins for `java` and `python3` on PATH."""

import os
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.longest_files import LONGEST, TESTS
from feed_assets_tests.support.servers import FETCHED, fetched

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "scripts"
FETCH = SCRIPTS / "fetch_servers.py"
IVY = """
pattern=; for pattern; do :; done
touch "${pattern%/*}/a-1.jar" "${pattern%/*}/b-2.jar"
echo called >> "$CALLS"
"""


def program(path, body):
    """Write an executable shell script; return its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path.parent


def run(*command, path="/usr/bin:/bin", **environment):
    return subprocess.run(
        [str(word) for word in command],
        env={"PATH": str(path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def check_java(tmp_path, said, code=0):
    """Run the check with a JAVA_HOME whose java prints this on stderr."""
    program(tmp_path / "jdk" / "bin" / "java", f"cat >&2 <<'END'\n{said}\nEND\nexit {code}")
    return run("/bin/sh", SCRIPTS / "check_java.sh", JAVA_HOME=str(tmp_path / "jdk"))


@pytest.mark.parametrize(
    "said",
    [
        'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)',
        'openjdk version "21" 2023-09-19',
        'java version "25-ea" 2025-09-16',
        'Picked up JAVA_TOOL_OPTIONS: -Dname="1.8"\nopenjdk version "17.0.2" 2022-01-18',
    ],
)
def test_java_17_or_newer_passes_in_silence(tmp_path, said):
    done = check_java(tmp_path, said)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("said", "code", "found"),
    [
        ('java version "1.8.0_402"', 0, "found 1.8.0_402 in JAVA_HOME"),
        ('openjdk version "11.0.22" 2024-01-16', 0, "found 11.0.22 in JAVA_HOME"),
        ("something else", 0, "names no version"),
        ("cannot run", 1, "fails"),
    ],
)
def test_a_wrong_java_is_one_line_with_the_version_to_install(tmp_path, said, code, found):
    done = check_java(tmp_path, said, code)
    assert done.returncode == 1
    assert found in done.stderr
    assert "install a Java 17" in done.stderr
    assert done.stderr.count("\n") == 1


def tools(tmp_path):
    """Return a PATH with the tools that the scripts call, without java and python3."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in ("sh", "sed", "head", "cat"):
        (folder / name).symlink_to(f"/bin/{name}" if Path(f"/bin/{name}").exists() else f"/usr/bin/{name}")
    return folder


def test_a_missing_java_is_one_line(tmp_path):
    done = run("/bin/sh", SCRIPTS / "check_java.sh", path=tools(tmp_path))
    assert done.returncode == 1
    assert "found none on PATH" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_first_suitable_python_is_used(tmp_path):
    path = tools(tmp_path)
    program(path / "python3", "echo 3.14 /usr/bin/python3")
    program(path / "python3.13", "exit 127")
    program(path / "python3.12", "echo 3.12 '/with space/python3.12'")
    done = run("/bin/sh", SCRIPTS / "find_python.sh", path=path)
    assert (done.returncode, done.stdout) == (0, "/with space/python3.12\n")


def test_a_missing_python_is_one_line(tmp_path):
    path = tools(tmp_path)
    program(path / "python3", "echo 3.9 /usr/bin/python3")
    done = run("/bin/sh", SCRIPTS / "find_python.sh", path=path)
    assert done.returncode == 1
    assert "found python3 is 3.9; install one" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.fixture
def fetch(tmp_path):
    """Fetch the group s3a into a separate cache with a stand-in for Ivy, which records its calls in `calls`."""

    def call(ivy=IVY):
        program(tmp_path / "jdk" / "bin" / "java", ivy)
        calls = tmp_path / "calls"
        done = run(
            *(sys.executable, FETCH, "--cache", tmp_path / "cache", "s3a"),
            JAVA_HOME=str(tmp_path / "jdk"),
            CALLS=str(calls),
        )
        return done, calls.read_text().count("called") if calls.exists() else 0

    return call


def jars(tmp_path):
    return sorted(path.name for path in (tmp_path / "cache" / "jars" / "s3a").glob("*"))


def test_a_whole_group_is_fetched_once(fetch, tmp_path):
    assert [fetch()[1], fetch()[1]] == [1, 1]
    assert jars(tmp_path) == ["a-1.jar", "b-2.jar"]


@pytest.mark.parametrize("damage", ["lost jar", "cut jar", "foreign jar", "no receipt"])
def test_a_damaged_group_is_fetched_again(fetch, tmp_path, damage):
    fetch()
    folder = tmp_path / "cache" / "jars" / "s3a"
    {
        "lost jar": lambda: (folder / "a-1.jar").unlink(),
        "cut jar": lambda: (folder / "a-1.jar").write_text("x"),
        "foreign jar": lambda: (folder / "c-3.jar").touch(),
        "no receipt": lambda: (folder.parent / ".s3a.json").unlink(),
    }[damage]()
    assert fetch()[1] == 2
    assert jars(tmp_path) == ["a-1.jar", "b-2.jar"]


def test_a_failed_fetch_shows_ivys_last_lines_and_leaves_no_group(fetch, tmp_path):
    done, _ = fetch("echo ':: UNRESOLVED DEPENDENCIES'; exit 1")
    assert done.returncode == 1
    assert "could not fetch s3a from Maven Central (Ivy's exit code 1):\n:: UNRESOLVED DEPENDENCIES" in done.stderr
    assert jars(tmp_path) == []
    assert fetch()[0].returncode == 0


def test_a_fetch_that_was_killed_is_repaired(fetch, tmp_path):
    fetch(IVY + "kill -9 $PPID")
    assert jars(tmp_path) == []
    assert fetch()[0].returncode == 0
    assert jars(tmp_path) == ["a-1.jar", "b-2.jar"]


def fetch_servers():
    spec = spec_from_file_location("fetch_servers", FETCH)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@each_case("group", FETCHED)
def test_a_server_group_for_a_test_is_fetched_completely(group):
    module = fetch_servers()
    folder = fetched(group)
    assert folder == module.CACHE / module.GROUPS[group]
    assert module.is_whole(folder)


def test_make_keeps_bytecode_even_if_an_image_disables_it():
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = ["make", "-f", ROOT / "Makefile", "-f", "-", "shown"]
    done = subprocess.run(
        command, input="shown: ; @env", env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    assert "PATH=" in done.stdout
    assert "PYTHONDONTWRITEBYTECODE" not in done.stdout


def test_make_says_how_long_each_set_of_tests_takes_as_the_docs_do():
    printed = subprocess.run(
        ["make", "--no-print-directory", "minutes"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    minutes = dict(re.findall(r"make (test[-a-z]*) about (\d+)", printed))
    assert [*minutes] == ["test-fast", "test", "test-rest", "test-all"]
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    assert {
        name: re.search(rf"^\| `make {name}` .*\| about (\d+) minutes \|$", page, re.M)[1] for name in minutes
    } == minutes
    assert f"| `make test` | about {minutes['test']} minutes on two cores:" in (ROOT / "README.md").read_text(
        encoding="utf-8"
    )


def test_make_test_says_first_how_long_it_takes():
    rule = subprocess.run(
        ["make", "--no-print-directory", "-n", "test"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert rule.startswith('echo "On two idle cores:')


def test_every_test_runs_in_ci_and_the_closing_line_of_tests_is_the_last():
    commands = (ROOT / ".ci" / "run").read_text().splitlines()
    assert commands[-3:] == ["scripts/try_wheel.sh", "make test", "make test-rest"]
    assert "make check" in commands[:-3]  # which sets uv up


def test_a_wheel_without_uv_is_one_line_that_says_what_to_do(tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "try_wheel.sh").write_bytes((SCRIPTS / "try_wheel.sh").read_bytes())
    done = run("/bin/bash", tmp_path / "scripts" / "try_wheel.sh")
    assert done.returncode == 1
    assert done.stderr == "wheel: found no uv in .cache: expected that of the Makefile. Run `make check` first.\n"


def test_the_size_of_what_is_installed_is_told_with_the_largest():
    done = run(sys.executable, "-I", SCRIPTS / "installed_size.py")
    assert re.match(r"installed: \d{3,4} MB in \d+ packages \(pyspark \d+, pyarrow \d+, ", done.stdout)


def test_the_files_that_run_first_exist():
    assert [name for name in LONGEST if not (TESTS / name).is_file()] == []


def chromium(tmp_path, **environment):
    """Run the script on a machine with only the tools that it calls."""
    path = tools(tmp_path)
    for name in ("id", "grep", "mktemp", "rm", "tail", "timeout"):
        (path / name).symlink_to(f"/usr/bin/{name}" if Path(f"/usr/bin/{name}").exists() else f"/bin/{name}")
    for name, body in environment.items():
        program(path / name, body)
    return run("/bin/sh", SCRIPTS / "get_chromium.sh", path=path, PLAYWRIGHT=str(path / "playwright"))


def test_an_existing_chromium_is_named_and_nothing_is_fetched(tmp_path):
    done = chromium(tmp_path, chromium="exit 0", playwright="exit 9")
    assert (done.returncode, done.stdout) == (0, f"chromium: {tmp_path}/tools/chromium\n")


def test_a_missing_chromium_is_fetched_by_playwright(tmp_path):
    done = chromium(tmp_path, playwright='test "$1" = install')
    assert (done.returncode, done.stdout) == (0, "chromium: installed\n")


def test_a_chromium_that_cannot_be_fetched_is_reported_without_an_error(tmp_path):
    done = chromium(tmp_path, playwright="echo no route to the host; exit 1")
    assert done.returncode == 0
    assert "no route to the host\nchromium: could not be installed" in done.stdout
