"""Declaration of compute targets: where Spark runs, and the configuration that gives a run its resources there."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from feed_assets.core.resources import Amount, Resources, bytes_of
from feed_assets.core.target_types import Conf, ConfWithDriver, Cores, Labels, Master, Memory, Remote, Web

_OVERHEAD = 384 << 20
"""Spark's least overhead: bytes beside the heap of an executor or application master, on YARN and Kubernetes."""

_OVERHEAD_SHARE = 10
"""Spark's overhead is the heap divided by this number, but at least `_OVERHEAD`."""

_MASTER_OF_YARN = (512 << 20) + _OVERHEAD
"""Bytes of the application master in YARN's client mode, with Spark's defaults. It has one core."""


class _Target(BaseModel):
    """A place where Spark runs.

    Attributes:
        labels: Labels by which datasets choose a target, such as `gpu`.
        conf: Further Spark configuration of runs on this target, such as the image of executors on Kubernetes. Keys
            that would change a run's place or resources are refused.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    labels: Labels = ()
    conf: Conf = Field(default_factory=dict[str, str])

    def needs(self, resources: Resources) -> Amount:
        """Return the cores and the memory that a run takes on this target."""
        return resources.amount


class _Sized(_Target):
    """A target that does not report its size, so the settings declare the size.

    Attributes:
        cores: Its cores, for all runs together.
        memory: Its memory, such as `16g`.
    """

    cores: Cores
    memory: Memory

    @property
    def total(self) -> Amount:
        """Return the size of the target."""
        return Amount(self.cores, bytes_of(self.memory))


class Local(_Sized):
    """The machine of the run's own process."""

    kind: Literal["local"]
    conf: ConfWithDriver = Field(default_factory=dict[str, str])

    def spark(self, resources: Resources) -> dict[str, str]:
        """Return the Spark configuration of a run."""
        return {"spark.master": f"local[{resources.cores}]", "spark.driver.memory": resources.memory}


class Standalone(_Target):
    """A standalone Spark cluster.

    Attributes:
        master: The master, `spark://host:7077`.
        url: The URL of the master's web UI, `http://host:8080`. Its page `/json/` reports the free resources.
    """

    kind: Literal["standalone"]
    master: Master
    url: Web

    def spark(self, resources: Resources) -> dict[str, str]:
        """Return the Spark configuration of a run."""
        return {"spark.master": self.master, "spark.cores.max": str(resources.cores), **_executors(resources)}


class Connect(_Sized):
    """A Spark Connect server that all runs share.

    Attributes:
        remote: Its URL, `sc://host:15002`.
    """

    kind: Literal["connect"]
    remote: Remote

    def spark(self, resources: Resources) -> dict[str, str]:  # noqa: ARG002  The server has its own size.
        """Return the Spark configuration of a run."""
        return {}


class Yarn(_Target):
    """A YARN cluster.

    Attributes:
        url: The URL of the ResourceManager, `http://host:8088`.
        queue: The queue of the runs.
        step: YARN's `yarn.scheduler.minimum-allocation-mb`. The memory of each container is a multiple of this.
    """

    kind: Literal["yarn"]
    url: Web
    queue: Annotated[str, StringConstraints(pattern=r"^[\w.-]+$")] = "default"
    step: Memory = "1g"

    def needs(self, resources: Resources) -> Amount:
        """Return the cores and memory of the executors' and the application master's containers, rounded as in YARN."""
        executors = resources.cores * self._container(with_overhead(_heap(resources)))
        return Amount(resources.cores + 1, executors + self._container(_MASTER_OF_YARN))

    def _container(self, memory: int) -> int:
        step = bytes_of(self.step)
        return -(-memory // step) * step

    def spark(self, resources: Resources) -> dict[str, str]:
        """Return the Spark configuration of a run."""
        sizes = {**_executors(resources), **_overhead(resources)}
        return {"spark.master": "yarn", "spark.yarn.queue": self.queue, **_fixed_number(resources), **sizes}


class Kubernetes(_Target):
    """A namespace of a Kubernetes cluster.

    Attributes:
        url: The URL of the API server, `https://host:6443`.
        namespace: The namespace of the executors.
        token_file: A file with the token of a service account that may read pods, nodes and quotas, and make pods.
        ca_file: A file with the certificate of the cluster's authority.
    """

    kind: Literal["kubernetes"]
    url: Web
    namespace: Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+$")] = "default"
    token_file: Path | None = None
    ca_file: Path | None = None

    @model_validator(mode="after")
    def _check_token(self) -> Self:
        if self.token_file and not self.url.startswith("https://"):
            raise ValueError("a token is sent to https:// only: expected such a url, or no token_file")
        return self

    def needs(self, resources: Resources) -> Amount:
        """Return the cores and the memory of the executors, with their overhead."""
        return _with_overhead(resources)

    def spark(self, resources: Resources) -> dict[str, str]:
        """Return the Spark configuration of a run."""
        values = {"spark.master": f"k8s://{self.url}", "spark.kubernetes.namespace": self.namespace}
        files = {"oauthTokenFile": self.token_file, "caCertFile": self.ca_file}
        values |= {f"spark.kubernetes.authenticate.{name}": str(path) for name, path in files.items() if path}
        return {**values, **_fixed_number(resources), **_executors(resources), **_overhead(resources)}


class EmrServerless(_Target):
    """An application of EMR Serverless. A run's rows are computed by a job there, with the driver in AWS.

    Attributes:
        application_id: The application. Its maximumCapacity is the size of the target.
        execution_role_arn: The role of the job, which reads and writes the blackboard.
        bucket: A bucket in which Dagster and the job exchange messages (Dagster Pipes).
        entry_point: The script of the job, on `s3://`, or `local://` in the application's image.
        module: The module with the Dagster definitions, as it is installed for the job.
        region: The region. The default is boto3's region.
    """

    kind: Literal["emr-serverless"]
    conf: ConfWithDriver = Field(default_factory=dict[str, str])
    application_id: Annotated[str, StringConstraints(pattern=r"^[0-9a-z]{1,64}$")]
    execution_role_arn: Annotated[str, StringConstraints(pattern=r"^arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+$")]
    bucket: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")]
    entry_point: Annotated[str, StringConstraints(pattern=r"^(s3|local)://[^\s?#]+$")]
    module: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")]
    region: Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+$")] | None = None

    def needs(self, resources: Resources) -> Amount:
        """Return the cores and the memory of all executors' workers, plus the driver's worker."""
        worker = _executor_of_emr(resources)
        return Amount(resources.cores * worker.cores, resources.cores * worker.memory) + _DRIVER_OF_EMR

    def spark(self, resources: Resources) -> dict[str, str]:
        """Return the Spark configuration of a run's job. `spark.master` is only a name, because AWS sets it."""
        worker = _executor_of_emr(resources)
        executors = {**_fixed_number(resources), **_executors(resources), "spark.executor.cores": str(worker.cores)}
        driver = {"spark.driver.cores": "1", "spark.driver.memory": _DRIVER_HEAP_OF_EMR}
        return {"spark.master": f"emr-serverless:{self.application_id}", **driver, **executors}


_WORKERS_OF_EMR = ((1, 2, 8, 1), (2, 4, 16, 1), (4, 8, 30, 1), (8, 16, 60, 4), (16, 32, 120, 8))
"""Sizes of workers: vCPUs, then least memory, most memory and memory step, in GiB (EMR Serverless User Guide)."""


def worker_of_emr(cores: int, memory: int) -> Amount:
    """Return the smallest worker with at least these cores and bytes, or the largest worker if none has them."""
    gib = -(-memory >> 30)
    for vcpus, least, most, step in _WORKERS_OF_EMR:
        if cores <= vcpus and gib <= most:
            return Amount(vcpus, max(least, -(-gib // step) * step) << 30)
    return Amount(16, 120 << 30)


def with_overhead(heap: int) -> int:
    """Return the bytes of a heap plus the bytes that Spark needs beside it."""
    return heap + max(_OVERHEAD, heap // _OVERHEAD_SHARE)


def _executor_of_emr(resources: Resources) -> Amount:
    return worker_of_emr(1, with_overhead(_heap(resources)))


_DRIVER_HEAP_OF_EMR = "4g"
_DRIVER_OF_EMR = worker_of_emr(1, with_overhead(bytes_of(_DRIVER_HEAP_OF_EMR)))


ComputeTarget = Local | Standalone | Connect | Yarn | Kubernetes | EmrServerless
Target = Annotated[ComputeTarget, Field(discriminator="kind")]


def _fixed_number(resources: Resources) -> dict[str, str]:
    """Return the configuration for one executor per core, without dynamic allocation, which would add executors."""
    return {"spark.dynamicAllocation.enabled": "false", "spark.executor.instances": str(resources.cores)}


def _executors(resources: Resources) -> dict[str, str]:
    """Return the configuration of executors with one core each. So a run fits wherever enough cores are free."""
    return {"spark.executor.cores": "1", "spark.executor.memory": f"{_heap(resources) >> 20}m"}


def _heap(resources: Resources) -> int:
    return resources.amount.memory // resources.cores


def _beside_the_heap(resources: Resources) -> int:
    return with_overhead(_heap(resources)) - _heap(resources)


def _overhead(resources: Resources) -> dict[str, str]:
    return {"spark.executor.memoryOverhead": f"{_beside_the_heap(resources) >> 20}m"}


def _with_overhead(resources: Resources) -> Amount:
    return resources.amount + Amount(0, resources.cores * _beside_the_heap(resources))
