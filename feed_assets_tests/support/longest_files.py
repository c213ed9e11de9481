"""Test files that take longest."""

from pathlib import Path

TESTS = Path(__file__).parents[1]
LONGEST = (
    "integration/test_demo.py",
    "defs/test_retail.py",
    "deploy/test_installation.py",
    "faults/test_spark_targets.py",
    "integration/test_web_ui.py",
    "soak/test_killed_runs.py",
    "soak/test_soak.py",
    "faults/test_stopped.py",
    "faults/test_spark_cluster.py",
    "integration/test_planted_secrets.py",
    "faults/test_many_waiting.py",
    "ledger/test_allocations.py",
    "runs/test_build.py",
    "cli/test_run.py",
    "orchestration/test_attempts.py",
    "integration/test_policies.py",
    "spark/test_connect.py",
    "defs/test_effectiveness.py",
    "runs/test_killed.py",
    "soak/test_interleavings.py",
    "test_tutorial.py",
    "spark/test_written_frame.py",
    "spark/test_read_csv.py",
    "spark/test_digest.py",
)
"""Files in order of their measured time, longest first; `pytest --durations=0` measures again."""
