"""Validates each document against the schema of its kind, field by field. Unknown fields are errors."""

import kubernetes_validate
from cloudcoil.models.keda import v1alpha1 as keda
from cloudcoil.models.prometheus_operator import v1 as prometheus_operator
from jsonschema import Draft202012Validator

from .manifests import Doc, title

# The oldest and the newest Kubernetes that are supported (docs/operations.md).
VERSIONS = ("1.29", "1.37")

# Kinds of operators, as types generated from the operators' CRDs: a round trip drops fields that the type does not know.
TYPED = {
    ("keda.sh/v1alpha1", "ScaledObject"): keda.ScaledObject,
    ("monitoring.coreos.com/v1", "PodMonitor"): prometheus_operator.PodMonitor,
    ("monitoring.coreos.com/v1", "PrometheusRule"): prometheus_operator.PrometheusRule,
}

# No package contains the CRD of the RabbitMQ cluster operator. These are its fields, from its API reference
# (rabbitmq.com/v1beta1), without `override`, which takes a whole pod and should not be needed. `resources` and `affinity`
# are validated as those of a pod.
RABBITMQ_CLUSTER = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": "rabbitmq.com/v1beta1"},
        "kind": {"const": "RabbitmqCluster"},
        "metadata": {"type": "object"},
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "replicas": {"type": "integer", "minimum": 0},
                "image": {"type": "string"},
                "imagePullSecrets": {"type": "array"},
                "delayStartSeconds": {"type": "integer", "minimum": 0},
                "terminationGracePeriodSeconds": {"type": "integer", "minimum": 0},
                "skipPostDeploySteps": {"type": "boolean"},
                "service": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "type": {"enum": ["ClusterIP", "LoadBalancer", "NodePort"]},
                        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
                    },
                },
                "persistence": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "storageClassName": {"type": "string"},
                        "storage": {"type": "string", "pattern": "^[0-9]+(Mi|Gi|Ti)$"},
                    },
                },
                "rabbitmq": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "additionalPlugins": {"type": "array", "maxItems": 100, "items": {"pattern": "^\\w+$"}},
                        "additionalConfig": {"type": "string", "maxLength": 2000},
                        "advancedConfig": {"type": "string", "maxLength": 100000},
                        "envConfig": {"type": "string", "maxLength": 100000},
                    },
                },
                "tls": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "secretName": {"type": "string"},
                        "caSecretName": {"type": "string"},
                        "disableNonTLSListeners": {"type": "boolean"},
                    },
                },
                "tolerations": {"type": "array"},
                "affinity": {"type": "object"},
                "resources": {"type": "object"},
            },
        },
    },
}


def _object(required: dict[str, object], optional: dict[str, object] | None = None) -> dict[str, object]:
    """Returns the schema of an object with these fields and no others."""
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": required | (optional or {})}


def _kind(api: str, kind: str, spec: dict[str, object]) -> dict[str, object]:
    return _object({"apiVersion": {"const": api}, "kind": {"const": kind}, "metadata": {"type": "object"}, "spec": spec})


TEXT = {"type": "string", "minLength": 1}
NAMED = _object({"name": TEXT}, {"namespace": TEXT})
# The kinds of RabbitMQ's messaging topology operator and of the Gateway API that are used here, from their API references: no package
# contains those CRDs either.
USER = _kind("rabbitmq.com/v1beta1", "User", _object(
    {"rabbitmqClusterReference": NAMED},
    {"tags": {"type": "array", "items": {"enum": ["management", "policymaker", "monitoring", "administrator"]}},
     "importCredentialsSecret": _object({"name": TEXT})}))
PERMISSION = _kind("rabbitmq.com/v1beta1", "Permission", _object(
    {"vhost": TEXT, "permissions": _object({}, {"configure": TEXT, "write": TEXT, "read": TEXT}), "rabbitmqClusterReference": NAMED},
    {"user": TEXT, "userReference": _object({"name": TEXT})}))
HTTP_ROUTE = _kind("gateway.networking.k8s.io/v1", "HTTPRoute", _object(
    {"parentRefs": {"type": "array", "minItems": 1, "items": _object({"name": TEXT}, {"namespace": TEXT, "sectionName": TEXT})},
     "rules": {"type": "array", "maxItems": 16, "items": _object({
         "matches": {"type": "array", "maxItems": 64, "items": _object({"path": _object({
             "type": {"enum": ["Exact", "PathPrefix", "RegularExpression"]}, "value": {"type": "string", "pattern": "^/"}})})},
         "backendRefs": {"type": "array", "items": _object({"name": TEXT, "port": {"type": "integer"}})}})}},
    {"hostnames": {"type": "array", "items": TEXT}}))
OWN = {schema["properties"]["kind"]["const"]: schema for schema in (USER, PERMISSION, HTTP_ROUTE)}


def problems(docs: list[Doc]) -> list[str]:
    """Returns a sentence for each fault."""
    found = []
    for doc in docs:
        typed = TYPED.get((doc["apiVersion"], doc["kind"]))
        if typed:
            found += [f"{title(doc)}: {fault}" for fault in _typed_problems(typed, doc)]
        elif doc["kind"] == "RabbitmqCluster":
            found += [f"{title(doc)}: {fault}" for fault in _rabbitmq_problems(doc)]
        elif doc["kind"] in OWN:
            found += [f"{title(doc)}: {'.'.join(map(str, error.path))}: {error.message}"
                      for error in Draft202012Validator(OWN[doc["kind"]]).iter_errors(doc)]
        else:
            found += [f"{title(doc)}: {fault}" for fault in _core_problems(doc)]
    return found


def _core_problems(doc: Doc) -> list[str]:
    found = []
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(doc, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            found.append(f"{version}: {'.'.join(str(step) for step in error.path)}: {error.message}")
        except kubernetes_validate.SchemaNotFoundError as error:
            found.append(f"{version}: nothing is known about this kind: {error}")
    return found


def _typed_problems(typed: type, doc: Doc) -> list[str]:
    try:
        understood = typed.model_validate(doc).model_dump(by_alias=True, exclude_none=True, mode="json")
    except ValueError as error:
        return [str(error)]
    return [f"{path} is unknown" for path in _lost(doc, understood)]


def _lost(before: object, after: object, path: str = "") -> list[str]:
    """Returns the paths that are in `before` but not in `after`."""
    if isinstance(before, dict):
        if not isinstance(after, dict):
            return [path]
        return [lost for key, value in before.items() for lost in
                (_lost(value, after[key], f"{path}.{key}") if key in after else [f"{path}.{key}"])]
    if isinstance(before, list):
        if not isinstance(after, list) or len(before) != len(after):
            return [path]
        return [lost for at, (one, other) in enumerate(zip(before, after)) for lost in _lost(one, other, f"{path}[{at}]")]
    return [] if str(before) == str(after) else [path]


def _rabbitmq_problems(doc: Doc) -> list[str]:
    found = [f"{'.'.join(map(str, error.path))}: {error.message}"
             for error in Draft202012Validator(RABBITMQ_CLUSTER).iter_errors(doc)]
    spec = doc.get("spec", {})
    as_pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": doc["metadata"],
        "spec": {
            "containers": [{"name": "rabbitmq", "image": "rabbitmq", "resources": spec.get("resources", {})}],
            "affinity": spec.get("affinity", {}),
            "tolerations": spec.get("tolerations", []),
        },
    }
    return found + _core_problems(as_pod)
