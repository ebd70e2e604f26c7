"""Renders overlays with kustomize, and searches the result."""

import copy
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import yaml

K8S = pathlib.Path(__file__).resolve().parent.parent
ROLES = ("scheduler", "worker")
Doc = dict[str, Any]


class RenderError(Exception):
    """The error output of kustomize."""


def kustomize(folder: pathlib.Path) -> list[Doc]:
    """Returns the documents that `kubectl apply -k` would send, in order."""
    kubectl = os.environ.get("KUBECTL", "kubectl")
    ran = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RenderError(ran.stderr)
    if ran.stderr:
        raise RenderError(f"warnings are errors here: {ran.stderr}")
    return [doc for doc in yaml.safe_load_all(ran.stdout) if doc]


def overlays() -> dict[str, list[Doc]]:
    """Renders everything: each overlay, and prod with each of the components that it leaves out."""
    found = {folder.name: kustomize(folder) for folder in sorted((K8S / "overlays").iterdir())}
    with copied() as root:
        prod = root / "overlays" / "prod" / "kustomization.yaml"
        prod.write_text(prod.read_text().replace("components/keda", "components/hpa"))
        found["prod with hpa"] = kustomize(prod.parent)
        prod.write_text(prod.read_text().replace("  - ../../components/ingress", "  - ../../components/ingress\n  - ../../components/signed-requests"))
        settings = prod.parent / "feedfleet.toml"
        settings.write_text(settings.read_text().replace("[api]\n", '[api]\npublic_url = "https://feedfleet.example.com"\n'))
        found["prod with hpa and signed requests"] = kustomize(prod.parent)
    found["prod with gateway, certificates, a private registry and a digest"] = variant([
        ("components/ingress", "\n  - ../../components/".join(
            ["components/gateway", "private-ca", "client-certificates", "pull-secret"])),
        ("newTag: 0.2.0", f"digest: sha256:{'0123456789abcdef' * 4}")])
    found["prod with an own RabbitMQ"] = variant([("  - ../../components/rabbitmq-operator\n", "")])
    found["prod with an own RabbitMQ and certificates"] = variant([
        ("components/rabbitmq-operator", "\n  - ../../components/".join(
            ["components/private-ca", "client-certificates", "private-ca-rabbitmq", "client-certificates-rabbitmq"]))])
    return found


def variant(changes: list[tuple[str, str]], file: str = "overlays/prod/kustomization.yaml") -> list[Doc]:
    """Renders overlays/prod with a file changed."""
    with copied() as root:
        text = (root / file).read_text()
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new)
        (root / file).write_text(text)
        return kustomize(root / "overlays" / "prod")


class copied:
    """A copy of the folder k8s that a test may change."""

    def __enter__(self) -> pathlib.Path:
        self.folder = tempfile.mkdtemp(prefix="feedfleet-k8s.")
        return pathlib.Path(shutil.copytree(K8S, pathlib.Path(self.folder) / "k8s"))

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder)


def of_kind(docs: list[Doc], *kinds: str) -> list[Doc]:
    return [doc for doc in docs if doc["kind"] in kinds]


def named(docs: list[Doc], kind: str, name: str) -> Doc:
    found = [doc for doc in of_kind(docs, kind) if doc["metadata"]["name"] == name]
    assert len(found) == 1, f"{len(found)} documents are {kind} {name}"
    return found[0]


def workloads(docs: list[Doc]) -> list[Doc]:
    return of_kind(docs, "Deployment", "StatefulSet", "Job")


def role_of(workload: Doc) -> str | None:
    """Returns the role that a workload runs; none for the bundled servers."""
    labels = workload["spec"]["template"]["metadata"]["labels"]
    return labels.get("app.kubernetes.io/component") if labels.get("app.kubernetes.io/name") == "feedfleet" else None


def pod(workload: Doc) -> Doc:
    return workload["spec"]["template"]["spec"]


def container(workload: Doc) -> Doc:
    containers = pod(workload)["containers"]
    assert len(containers) == 1, workload["metadata"]["name"]
    return containers[0]


def role(docs: list[Doc], name: str) -> Doc:
    return next(workload for workload in workloads(docs) if role_of(workload) == name)


def title(doc: Doc) -> str:
    return f"{doc['kind']} {doc['metadata']['name']}"


def matches(selector: Doc, labels: dict[str, str]) -> bool:
    """Supports matchLabels only: nothing else is used here, and anything else must fail."""
    assert set(selector) <= {"matchLabels"}, selector
    wanted = selector.get("matchLabels", {})
    return all(labels.get(key) == value for key, value in wanted.items())


def selected(docs: list[Doc], selector: Doc) -> list[Doc]:
    return [workload for workload in workloads(docs)
            if matches(selector, workload["spec"]["template"]["metadata"]["labels"])]


def changed(docs: list[Doc], change: Callable[[list[Doc]], None]) -> list[Doc]:
    """Returns a copy with a fault."""
    copy_of_all = copy.deepcopy(docs)
    change(copy_of_all)
    assert copy_of_all != docs, "the fault changes nothing"
    return copy_of_all


def secret_references(workload: Doc) -> Iterator[tuple[str, str | None]]:
    """Returns each secret's name and the key that is read, None for all keys."""
    for variable in container(workload).get("env", []):
        reference = variable.get("valueFrom", {}).get("secretKeyRef")
        if reference and not reference.get("optional"):
            yield reference["name"], reference["key"]
    for source in container(workload).get("envFrom", []):
        if "secretRef" in source:
            yield source["secretRef"]["name"], None
    for volume in pod(workload).get("volumes", []):
        if "secret" in volume:
            yield volume["secret"]["secretName"], None
