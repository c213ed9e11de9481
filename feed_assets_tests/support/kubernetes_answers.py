"""Objects of Kubernetes, with the fields that `kubectl get -o json --show-managed-fields` prints for a node and a pod.

Written after the API reference of Kubernetes 1.34.
"""

from collections.abc import Callable
from typing import Any

MANAGED = [
    {
        "manager": "kubelet",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-01-05T11:58:21Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:status": {"f:conditions": {'k:{"type":"Ready"}': {".": {}, "f:lastHeartbeatTime": {}}}}},
        "subresource": "status",
    }
]


def as_list(kind: str, *items: dict, more: str = "") -> dict:
    """Return a list of objects. `more` is the token for the next page."""
    metadata = {"resourceVersion": "755", **({"continue": more} if more else {})}
    return {"kind": f"{kind}List", "apiVersion": "v1", "metadata": metadata, "items": [*items]}


def in_pages(kind: str, *items: dict) -> Callable[[dict[str, str]], dict]:
    """Return an answer that has at most `limit` of the items, and the token for the rest."""

    def answer(query: dict[str, str]) -> dict:
        begin = int(query.get("continue", "0"))
        end = begin + int(query.get("limit", len(items)))
        return as_list(kind, *items[begin:end], more=str(end) if end < len(items) else "")

    return answer


NO_QUOTAS = as_list("ResourceQuota")


def quota(hard: dict[str, str], used: dict[str, str], **spec: Any) -> dict:
    """Return a quota of a namespace."""
    return {
        "metadata": {
            "name": "compute-resources",
            "namespace": "etl",
            "uid": "d1c0e2f4-7b7e-4a3b-9d0e-3f1f0a5b6c7d",
            "resourceVersion": "754",
            "creationTimestamp": "2026-01-05T11:00:00Z",
            "managedFields": MANAGED,
        },
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used},
    }


def node(
    cpu: str = "4", memory: str = "16393492Ki", *, name: str = "n", ready: str = "True", effect: str | None = None
) -> dict:
    """Return a node. `effect` is that of a taint: a cordoned node has NoSchedule."""
    taints = [{"key": "node.kubernetes.io/unschedulable", "effect": effect, "timeAdded": "2026-01-05T11:30:00Z"}]
    return {
        "metadata": {
            "name": name,
            "uid": "8d2b1c34-5a7f-4f39-9a51-2a9f4f1c7e10",
            "resourceVersion": "731",
            "creationTimestamp": "2026-01-05T10:00:00Z",
            "labels": {"kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
            "managedFields": MANAGED,
        },
        "spec": {
            "podCIDR": "10.244.0.0/24",
            "podCIDRs": ["10.244.0.0/24"],
            "providerID": f"kind://docker/kind/{name}",
            **({"taints": taints} if effect else {}),
        },
        "status": {
            "capacity": {"cpu": "9", "ephemeral-storage": "61202244Ki", "hugepages-2Mi": "0", "memory": "99Gi"},
            "allocatable": {"cpu": cpu, "ephemeral-storage": "61202244Ki", "memory": memory, "pods": "110"},
            "conditions": [
                _of_node("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                _of_node("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                _of_node("PIDPressure", "False", "KubeletHasSufficientPID"),
                _of_node("Ready", ready, "KubeletReady"),
            ],
            "addresses": [{"type": "InternalIP", "address": "172.18.0.2"}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {"architecture": "amd64", "kubeletVersion": "v1.34.0", "swap": {"capacity": 0}},
            "images": [{"names": ["docker.io/library/spark:4.1.0"], "sizeBytes": 1042321459}],
            "runtimeHandlers": [{"features": {"recursiveReadOnlyMounts": True, "userNamespaces": False}, "name": ""}],
        },
    }


def _of_node(kind: str, status: str, reason: str) -> dict[str, str]:
    times = {"lastHeartbeatTime": "2026-01-05T11:58:21Z", "lastTransitionTime": "2026-01-05T10:00:30Z"}
    return {"type": kind, "status": status, **times, "reason": reason, "message": f"kubelet: {reason}"}


def _of_pod(kind: str) -> dict[str, Any]:
    times = {"lastProbeTime": None, "lastTransitionTime": "2026-01-05T11:57:02Z"}
    return {"type": kind, "status": "True", **times, "observedGeneration": 1}


def container(requests: dict[str, str], **more: Any) -> dict:
    """Return a container that requests resources."""
    return {
        "name": "spark-kubernetes-executor",
        "image": "spark:4.1.0",
        "args": ["executor"],
        "env": [{"name": "SPARK_EXECUTOR_POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1"}}}],
        "imagePullPolicy": "IfNotPresent",
        "ports": [{"containerPort": 7079, "name": "blockmanager", "protocol": "TCP"}],
        "resources": {"requests": requests, "limits": requests} if requests else {},
        "securityContext": {},
        "terminationMessagePath": "/dev/termination-log",
        "volumeMounts": [{"mountPath": "/var/data/spark-1", "name": "spark-local-dir-1"}],
        **more,
    }


def pod(*requests: dict[str, str], on: str = "n", phase: str = "Running", **spec: Any) -> dict:
    """Return a pod with a container for each of these requests, on a node."""
    return {
        "metadata": {
            "name": "feed-assets-1f2e3d4c-exec-1",
            "namespace": "etl",
            "uid": "0b9a1c2d-3e4f-4a5b-8c6d-7e8f9a0b1c2d",
            "resourceVersion": "744",
            "generation": 1,
            "creationTimestamp": "2026-01-05T11:57:00Z",
            "labels": {"spark-exec-id": "1", "spark-role": "executor"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": "1", "controller": True}],
            "managedFields": MANAGED,
        },
        "spec": {
            "containers": [container(each) for each in requests],
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": True,
            **({"nodeName": on} if on else {}),
            "preemptionPolicy": "PreemptLowerPriority",
            "priority": 0,
            "restartPolicy": "Never",
            "securityContext": {"fsGroup": 185},
            "terminationGracePeriodSeconds": 30,
            "tolerations": [{"effect": "NoExecute", "key": "node.kubernetes.io/not-ready", "tolerationSeconds": 300}],
            "volumes": [{"emptyDir": {}, "name": "spark-local-dir-1"}],
            **spec,
        },
        "status": {
            "conditions": [_of_pod(each) for each in ("PodScheduled", "Initialized", "ContainersReady", "Ready")],
            "containerStatuses": [{"name": "spark-kubernetes-executor", "lastState": {}, "restartCount": 0}],
            "observedGeneration": 1,
            "phase": phase,
            "podIP": "10.244.0.7",
            "podIPs": [{"ip": "10.244.0.7"}],
            "qosClass": "Guaranteed",
            "startTime": "2026-01-05T11:57:00Z",
        },
    }
