"""The check of `feed-assets doctor` for the output of runs that Dagster keeps in an object store."""

from pathlib import Path
from typing import Any
from uuid import uuid4

from feed_assets.cli.queue_looks import Doubtful

PROBE = b"probe"


def look_at_compute_logs(folder: Path) -> str:
    """Return where the instance in `folder` keeps the output of runs. If that is a store, test it.

    The test writes, reads and deletes an object. Only the class that `dagster.yaml` names is loaded, so dagster-aws is
    imported only if the home uses it.
    """
    import dagster as dg

    if not (folder / "dagster.yaml").exists():
        raise Doubtful("there is no dagster.yaml yet: the output of runs will be kept in the home.")
    with dg.DagsterInstance.from_config(str(folder)) as instance:
        manager: Any = instance.compute_log_manager
        if not hasattr(manager, "cloud_storage_has_logs"):
            return f"{type(manager).__name__}: no object store"
        return _look_at_store(manager)


def _look_at_store(manager: Any) -> str:
    from dagster._core.storage.compute_log_manager import ComputeIOType

    key = ["feed_assets_doctor", uuid4().hex]
    try:
        with manager.open_log_stream(key, ComputeIOType.STDERR) as stream:
            stream.write(PROBE.decode())
        place, read = manager.display_path_for_type(key, ComputeIOType.STDERR), manager.get_log_data(key).stderr
    finally:
        manager.delete_logs(log_key=key)
    if read != PROBE:
        raise Doubtful(f"{place}: a written log could not be read as expected.")
    copy = Path(manager.local_manager.get_captured_local_path(key, "err"))
    if not any(each.is_dir() and not each.stat().st_mode & 0o077 for each in copy.parents):
        raise Doubtful(
            f"{place}: a log was written, read and deleted. But other users can read the output of a run in "
            f"{copy.parents[1]} while it runs: set local_dir of compute_logs in dagster.yaml to the home's `storage`."
        )
    return f"{place.rpartition('/' + key[0])[0]}: a log was written, read and deleted"
