"""Checks that the documents are consistent with each other and with the program. Each function returns a sentence per fault."""

import ipaddress
import re
import urllib.parse
from typing import Any

from . import program
from .manifests import (Doc, K8S, ROLES, container, matches, named, of_kind, pod, role, role_of, secret_references, selected,
                        title, workloads)

# Secrets that both roles may read: the key that signs requests, and the authorities of the servers, which are public.
FOR_BOTH = {"feedfleet-bot-key", "feedfleet-servers-ca"}
# The keys of secrets by their type.
KEYS_OF_TYPES = {"tls": {"tls.crt", "tls.key"}, "docker-registry": {".dockerconfigjson"}}
# What the world may see: docs/operations.md lists the same paths.
PUBLIC = {"/status", "/assets", "/ping", "/RPC2", "/websub", "/rsscloud", "/hub", "/.well-known/http-message-signatures-directory"}
# What the program says of a file that a secret is mounted as.
MOUNTED = re.compile(r"/etc/feedfleet-(tls|client|bot)/\S+, which cannot be read")
# Secrets that people create before `apply`, with the commands in k8s/README.md.
GIVEN = re.compile(r"kubectl create secret ([\w-]+) ([\w-]+)(.*?)(?=\n\n|```|\n *kubectl)", re.DOTALL)


def problems(docs: list[Doc]) -> list[str]:
    checks = (selectors, references, secrets, users, addresses, environment, probes, stopping, hardening, resources, spreading, network,
              scaling, versions, published, priorities)
    return [problem for check in checks for problem in check(docs)]


# ------------------------------------------------------------------------------------------------ labels and selectors

def selectors(docs: list[Doc]) -> list[str]:
    found = []
    for workload in workloads(docs):
        labels = workload["spec"]["template"]["metadata"]["labels"]
        if not matches(workload["spec"]["selector"], labels):
            found.append(f"{title(workload)} does not select its own pods")
    for service in of_kind(docs, "Service"):
        behind = selected(docs, {"matchLabels": service["spec"]["selector"]})
        if len(behind) != 1:
            found.append(f"{title(service)} selects {len(behind)} workloads")
        for port in service["spec"]["ports"]:
            for workload in behind:
                if port["targetPort"] not in port_names(workload):
                    found.append(f"{title(service)}: {title(workload)} has no port {port['targetPort']}")
    for doc in of_kind(docs, "PodDisruptionBudget", "PodMonitor"):
        if not selected(docs, doc["spec"]["selector"]) and not operator_run(docs, doc["spec"]["selector"]):
            found.append(f"{title(doc)} selects nothing")
    for policy in of_kind(docs, "NetworkPolicy"):
        if not selected(docs, policy["spec"]["podSelector"]) and not operator_run(docs, policy["spec"]["podSelector"]):
            found.append(f"{title(policy)} selects nothing")
    for monitor in of_kind(docs, "PodMonitor"):
        for endpoint in monitor["spec"]["podMetricsEndpoints"]:
            for workload in selected(docs, monitor["spec"]["selector"]):
                if endpoint["port"] not in port_names(workload):
                    found.append(f"{title(monitor)}: {title(workload)} has no port {endpoint['port']}")
            if endpoint["path"] != "/metrics":
                found.append(f"{title(monitor)} reads {endpoint['path']}")
    for name in ROLES:
        budgets = [doc for doc in of_kind(docs, "PodDisruptionBudget") if role(docs, name) in selected(docs, doc["spec"]["selector"])]
        if len(budgets) != 1:
            found.append(f"{len(budgets)} PodDisruptionBudgets select the {name}")
    return found


def port_names(workload: Doc) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container(workload)["ports"]}


def operator_run(docs: list[Doc], selector: Doc) -> bool:
    """Returns whether these are the pods of the RabbitMQ operator, which labels them with the cluster's name and `rabbitmq`."""
    return bool(of_kind(docs, "RabbitmqCluster")) and selector["matchLabels"].get("app.kubernetes.io/component") == "rabbitmq"


# --------------------------------------------------------------------------------------- what is referred to is there

def references(docs: list[Doc]) -> list[str]:
    found = []
    names = {kind: {doc["metadata"]["name"] for doc in of_kind(docs, kind)}
             for kind in ("ConfigMap", "ServiceAccount", "Service", "Deployment")}
    for workload in workloads(docs):
        for volume in pod(workload).get("volumes", []):
            if "configMap" in volume and volume["configMap"]["name"] not in names["ConfigMap"]:
                found.append(f"{title(workload)}: there is no ConfigMap {volume['configMap']['name']}")
        mounted = {mount["name"] for mount in container(workload).get("volumeMounts", [])}
        claimed = {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])}
        for name in mounted ^ ({volume["name"] for volume in pod(workload).get("volumes", [])} | claimed):
            found.append(f"{title(workload)}: volume {name} is either not mounted or not there")
        account = pod(workload).get("serviceAccountName")
        if role_of(workload) and account not in names["ServiceAccount"]:
            found.append(f"{title(workload)}: there is no ServiceAccount {account}")
        if pod(workload).get("automountServiceAccountToken") is not False:
            found.append(f"{title(workload)} is given a token of Kubernetes")
        image = container(workload)["image"]
        digest = re.search(r"@sha256:[0-9a-f]{64}$", image)
        if ":" not in image.rsplit("/", 1)[-1] or image.endswith(":latest"):
            found.append(f"{title(workload)}: the image {image} has no version")
        if role_of(workload) and not digest and not image.endswith(f":{program.workspace_version()}"):
            found.append(f"{title(workload)}: the image {image} is not of this version, {program.workspace_version()}")
    for account in of_kind(docs, "ServiceAccount"):
        if account.get("automountServiceAccountToken") is not False:
            found.append(f"{title(account)} gives out tokens")
    for ingress in of_kind(docs, "Ingress"):
        for rule in ingress["spec"]["rules"]:
            for path in rule["http"]["paths"]:
                service = path["backend"]["service"]
                if service["name"] not in names["Service"]:
                    found.append(f"{title(ingress)}: there is no Service {service['name']}")
                elif service["port"]["name"] not in {port["name"] for port in named(docs, "Service", service["name"])["spec"]["ports"]}:
                    found.append(f"{title(ingress)}: {service['name']} has no port {service['port']['name']}")
    for route in of_kind(docs, "HTTPRoute"):
        for backend in (backend for rule in route["spec"]["rules"] for backend in rule["backendRefs"]):
            offered = {(doc["metadata"]["name"], port["port"]) for doc in of_kind(docs, "Service") for port in doc["spec"]["ports"]}
            if (backend["name"], backend["port"]) not in offered:
                found.append(f"{title(route)}: there is no Service {backend['name']} with port {backend['port']}")
    return found


def secrets(docs: list[Doc]) -> list[str]:
    known = {doc["metadata"]["name"]: set(doc.get("stringData", {})) | set(doc.get("data", {})) for doc in of_kind(docs, "Secret")}
    for user in of_kind(docs, "User"):
        # The topology operator writes them.
        known[f"{user['metadata']['name']}-user-credentials"] = {"username", "password"}
    if not of_kind(docs, "Secret"):
        known |= given_by_hand()
        # The README's sentence about your own RabbitMQ.
        if not of_kind(docs, "RabbitmqCluster") and "`--from-literal=queue-url=" in (K8S / "README.md").read_text():
            for name in ROLES:
                known[f"feedfleet-{name}"].add("queue-url")
    found = []
    for workload in workloads(docs):
        for name, key in secret_references(workload):
            if name not in known:
                found.append(f"{title(workload)}: there is no Secret {name}")
            elif key is not None and key not in known[name]:
                found.append(f"{title(workload)}: Secret {name} has no {key}")
    worker = role(docs, "worker")
    schedulers = {name for name, _ in secret_references(role(docs, "scheduler"))}
    shared = ({name for name, _ in secret_references(worker)} & schedulers) - FOR_BOTH
    if shared:
        found.append(f"{title(worker)} reads the schedulers' secret {', '.join(shared)}")
    for variable in container(worker).get("env", []):
        if variable["name"].startswith(("FEEDFLEET_STORE", "FEEDFLEET_SCHEDULE", "FEEDFLEET_API")):
            found.append(f"{title(worker)} is given {variable['name']}")
        if "store-url" in str(variable) or "postgres" in str(variable):
            found.append(f"{title(worker)} is given a secret of the database: {variable['name']}")
    if container(worker).get("envFrom"):
        found.append(f"{title(worker)} is given a whole secret")
    return found


def given_by_hand() -> dict[str, set[str]]:
    """Returns the secrets that the README's commands create, with their keys."""
    commands = GIVEN.findall((K8S / "README.md").read_text())
    assert commands
    return {name: KEYS_OF_TYPES.get(kind, set()) | set(re.findall(r"--from-(?:literal|file)=([\w.-]+)=", rest))
            for kind, name, rest in commands}


def example_values() -> dict[str, dict[str, str]]:
    """Returns the URLs in the README's commands, by secret and key. That of RabbitMQ is for both roles."""
    readme = (K8S / "README.md").read_text()
    url = re.compile(r"--from-literal=([\w-]+)='(\w+://[^']*)'")
    queue = {key: value for key, value in url.findall(readme) if key == "queue-url"}
    assert queue
    return {name: queue | dict(url.findall(rest)) for _, name, rest in GIVEN.findall(readme)}


def users(docs: list[Doc]) -> list[str]:
    """Checks that each role has its own user of RabbitMQ, no administrator, and that a worker's can neither declare nor read reports."""
    found = [f"{title(workload)} is given RabbitMQ's default user, an administrator" for workload in workloads(docs)
             for name, _ in secret_references(workload) if name.endswith("-default-user")]
    for user in of_kind(docs, "User"):
        if user["spec"].get("tags"):
            found.append(f"{title(user)} has the tags {user['spec']['tags']}")
        owned = [doc for doc in of_kind(docs, "Permission") if doc["spec"].get("userReference", {}).get("name") == user["metadata"]["name"]]
        if len(owned) != 1:
            found.append(f"{title(user)} has {len(owned)} permissions")
        for permission in owned if user["metadata"]["name"].endswith("-worker") else []:
            patterns = permission["spec"]["permissions"]
            if patterns.get("configure") != "^$":
                found.append(f"{title(permission)} lets a worker declare")
            reads_logins = any(variable["name"] == "FEEDFLEET_SECRETS__KEY" for variable in container(role(docs, "worker"))["env"])
            if reads_logins and not re.search(patterns.get("read", ""), "feedfleet.jobs.logins"):
                found.append(f"{title(permission)} lets a worker with the key not read feedfleet.jobs.logins")
            for right, queue in (("read", "feedfleet.reports"), ("write", "feedfleet.jobs"), ("write", "amq.default"), ("read", "feedfleet.jobs.dead")):
                if re.search(patterns.get(right, ""), queue):
                    found.append(f"{title(permission)} lets a worker {right} {queue}")
    names = {name: {secret for secret, key in secret_references(role(docs, name)) if key == "username"} for name in ROLES}
    if names["scheduler"] & names["worker"]:
        found.append("both roles use the same user of RabbitMQ")
    return found


# ------------------------------------------------------------------------------------------- which servers are spoken to

def addresses(docs: list[Doc]) -> list[str]:
    """Checks that each URL of a server inside the cluster names an existing Service, and that the network policies allow the connection."""
    found = []
    for name in ROLES:
        workload = role(docs, name)
        values, faults = resolved(docs, workload)
        found += [f"{title(workload)}: {fault}" for fault in faults]
        for variable, value in values.items():
            host, port = (lambda url: (url.hostname or "", url.port))(urllib.parse.urlsplit(value if "://" in value else ""))
            if not host or "." in host:
                continue
            server = served(docs, host, port)
            if server is None:
                found.append(f"{title(workload)}: {variable} leads to {host}:{port}, where nothing is")
                continue
            pods, ports = server
            for own, other, direction in ((labels(workload), pods, "Egress"), (pods, labels(workload), "Ingress")):
                if not opened(docs, own, other, direction, ports):
                    found.append(f"{title(workload)}: no policy opens the {direction} of {variable}, {host}:{port}")
    return found


def labels(workload: Doc) -> dict[str, str]:
    return workload["spec"]["template"]["metadata"]["labels"]


def resolved(docs: list[Doc], workload: Doc) -> tuple[dict[str, str], list[str]]:
    """Returns the variables with known values, and their faults; `$(X)` refers to an earlier variable."""
    known = {doc["metadata"]["name"]: doc.get("stringData", {}) for doc in of_kind(docs, "Secret")} or example_values()
    values, faults, before = {}, [], set()
    for variable in container(workload).get("env", []):
        reference = variable.get("valueFrom", {}).get("secretKeyRef", {})
        value = variable.get("value", known.get(reference.get("name"), {}).get(reference.get("key"), ""))
        for other in set(re.findall(r"\$\((\w+)\)", value)) - before:
            faults.append(f"{variable['name']} is made of {other}, which does not stand before it")
        before.add(variable["name"])
        values[variable["name"]] = re.sub(r"\$\((\w+)\)", "x", value)
    return values, faults


def served(docs: list[Doc], host: str, port: int | None) -> tuple[dict[str, str], set[int | str]] | None:
    """Returns the labels of the pods behind an address, and their port by number and name."""
    if host in {doc["metadata"]["name"] for doc in of_kind(docs, "RabbitmqCluster")}:
        return ({"app.kubernetes.io/name": host, "app.kubernetes.io/component": "rabbitmq"}, {5672}) if port == 5672 else None
    for service in of_kind(docs, "Service"):
        for offered in service["spec"]["ports"]:
            behind = selected(docs, {"matchLabels": service["spec"]["selector"]})
            if (service["metadata"]["name"], offered["port"]) == (host, port) and behind:
                target = offered["targetPort"]
                return labels(behind[0]), {target, port_names(behind[0]).get(target, target)}
    return None


def opened(docs: list[Doc], own: dict[str, str], other: dict[str, str], direction: str, ports: set[int | str]) -> bool:
    policies = [policy["spec"] for policy in of_kind(docs, "NetworkPolicy")
                if direction in policy["spec"]["policyTypes"] and matches(policy["spec"]["podSelector"], own)]
    return not policies or any(
        any(set(peer) == {"podSelector"} and matches(peer["podSelector"], other) for peer in rule["to" if direction == "Egress" else "from"])
        and any(port["port"] in ports for port in rule["ports"])
        for policy in policies for rule in policy.get(direction.lower(), []))


# ---------------------------------------------------------------------------------- what the program understands of it

def environment(docs: list[Doc]) -> list[str]:
    known, found = program.configuration_of(""), []
    for name in ROLES:
        workload = role(docs, name)
        for variable in container(workload).get("env", []):
            if not variable["name"].startswith("FEEDFLEET_"):
                continue
            key = program.key_of(variable["name"])
            if key not in known:
                found.append(f"{title(workload)}: {variable['name']} is not a key of the configuration")
        for file, text in config_files(docs, workload).items():
            found += [f"{title(workload)}: {file}: {fault}" for fault in config_problems(text, workload_environment(docs, workload))]
        arguments = container(workload)["args"]
        if arguments[0] != name:
            found.append(f"{title(workload)} runs {arguments[0]}")
        flags = program.flags(name)
        for flag in (argument for argument in arguments if argument.startswith("--")):
            if flag.split("=")[0] not in flags:
                found.append(f"{title(workload)}: `feedfleet {name}` has no flag {flag}")
        mounted = {file for file in config_files(docs, workload)}
        given = value_after(arguments, "--config")
        if given not in mounted:
            found.append(f"{title(workload)}: nothing is mounted at {given}")
    return found


def value_after(arguments: list[str], flag: str) -> str | None:
    return arguments[arguments.index(flag) + 1] if flag in arguments else None


def config_files(docs: list[Doc], workload: Doc) -> dict[str, str]:
    """Returns the paths of ConfigMaps' files in the container, with their texts."""
    paths = {mount["name"]: mount["mountPath"] for mount in container(workload).get("volumeMounts", [])}
    maps = {doc["metadata"]["name"]: doc["data"] for doc in of_kind(docs, "ConfigMap")}
    return {f"{paths.get(volume['name'])}/{file}": text for volume in pod(workload).get("volumes", []) if "configMap" in volume
            for file, text in maps.get(volume["configMap"]["name"], {}).items()}


def workload_environment(docs: list[Doc], workload: Doc) -> tuple[tuple[str, str], ...]:
    """Returns the variables of the configuration with known values: those of secrets that people create are the README's examples."""
    values, _ = resolved(docs, workload)
    return tuple((name, value) for name, value in values.items() if name.startswith("FEEDFLEET_") and value)


def config_problems(text: str, env: tuple[tuple[str, str], ...] = ()) -> list[str]:
    ran = program.with_file(text, "config", "check", env=env)
    # The files of secrets are in the cluster only.
    faults = [line for line in ran.stderr.strip().splitlines() if not MOUNTED.search(line)]
    return [] if ran.returncode == 0 else faults


def effective(docs: list[Doc], workload: Doc) -> dict[str, Any]:
    """Returns the role's configuration, without servers' addresses."""
    text = config_files(docs, workload).get(value_after(container(workload)["args"], "--config") or "", "")
    # `environment` reports what is wrong with the file.
    return program.configuration_of("" if config_problems(text) else text)


def probes(docs: list[Doc]) -> list[str]:
    found = []
    for name in ROLES:
        workload = role(docs, name)
        address, _, port = (value_after(container(workload)["args"], "--listen") or "").rpartition(":")
        # [::] is all addresses, of IPv4 too; 0.0.0.0 is nothing in a cluster that has IPv6 alone.
        if address != "[::]":
            found.append(f"{title(workload)} listens on {address}, where nobody reaches it")
        if port_names(workload).get("http") != int(port or 0):
            found.append(f"{title(workload)} listens on port {port}, but its port http is {port_names(workload).get('http')}")
        ready = "/readyz/api" if name == "scheduler" else "/readyz"
        for probe, path in (("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", ready)):
            asked = container(workload).get(probe, {}).get("httpGet", {})
            if asked.get("path") != path:
                found.append(f"{title(workload)}: {probe} asks {asked.get('path')}, not {path}")
            if asked.get("port") not in port_names(workload):
                found.append(f"{title(workload)}: {probe} asks port {asked.get('port')}, which is not declared")
    return found


def stopping(docs: list[Doc]) -> list[str]:
    """Checks that Kubernetes kills a worker only some seconds after the worker's own deadline."""
    worker = role(docs, "worker")
    timeout = seconds(effective(docs, worker)["fetch.timeout"])
    # What it takes on top of a fetch, for the last reports.
    reports = seconds(program.grace_of_a_worker()) - seconds(program.configuration_of("")["fetch.timeout"])
    grace = pod(worker)["terminationGracePeriodSeconds"]
    needed = timeout + reports + 5
    found = [] if grace >= needed else [f"{title(worker)} has {grace} s to stop and needs {needed:g} s"]
    scheduler = role(docs, "scheduler")
    probe, drain = container(scheduler).get("readinessProbe", {}), seconds(effective(docs, scheduler)["api.drain"])
    # Kubernetes removes the endpoint on deletion; other load balancers look at readiness.
    if drain < probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3):
        found.append(f"{title(scheduler)} drains for {drain:g} s, which is less than readiness takes to fail")
    grace = pod(scheduler)["terminationGracePeriodSeconds"]
    if grace < drain + 30:
        found.append(f"{title(scheduler)} has {grace} s to stop and needs {drain + 30:g} s")
    return found


def seconds(text: str) -> float:
    units = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "days": 86400, "day": 86400, "d": 86400}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)\s*([a-z]+)", text))


# -------------------------------------------------------------------------------------------------- how it is confined

def hardening(docs: list[Doc]) -> list[str]:
    found = []
    for workload in workloads(docs):
        whole, own = pod(workload).get("securityContext", {}), container(workload).get("securityContext", {})
        wanted = {
            "runs as root": whole.get("runAsNonRoot") is True and whole.get("runAsUser", 0) > 0,
            "has no seccomp profile": whole.get("seccompProfile") == {"type": "RuntimeDefault"},
            "may gain privileges": own.get("allowPrivilegeEscalation") is False,
            "keeps capabilities": own.get("capabilities") == {"drop": ["ALL"]},
        }
        if role_of(workload):
            wanted["may write to its root"] = own.get("readOnlyRootFilesystem") is True
        found += [f"{title(workload)} {fault}" for fault, held in wanted.items() if not held]
    return found


def resources(docs: list[Doc]) -> list[str]:
    found = []
    for workload in workloads(docs):
        # A limit of CPU throttles, and is not wanted for the roles.
        for part, wanted in (("requests", {"cpu", "memory"}), ("limits", {"memory"})):
            given = container(workload).get("resources", {}).get(part, {})
            if missing := wanted - set(given):
                found.append(f"{title(workload)} has no {part} of {', '.join(sorted(missing))}")
            if role_of(workload) and part == "limits" and "cpu" in given:
                found.append(f"{title(workload)} is throttled by a limit of CPU")
        if role_of(workload) and "TOKIO_WORKER_THREADS" not in {variable["name"] for variable in container(workload)["env"]}:
            found.append(f"{title(workload)} starts a thread for each core of its node")
    return found


def spreading(docs: list[Doc]) -> list[str]:
    found = []
    for name in ROLES:
        workload = role(docs, name)
        spread = pod(workload).get("topologySpreadConstraints", [])
        keys = {constraint["topologyKey"] for constraint in spread}
        if keys != {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}:
            found.append(f"{title(workload)} is not spread over zones and machines")
        for constraint in spread:
            if not matches(constraint["labelSelector"], workload["spec"]["template"]["metadata"]["labels"]):
                found.append(f"{title(workload)}: a spread constraint counts others' pods")
            if constraint.get("matchLabelKeys") != ["pod-template-hash"]:
                found.append(f"{title(workload)}: a spread constraint counts the pods of the revision that is being replaced")
    return found


def network(docs: list[Doc]) -> list[str]:
    """Checks that everything is denied except what is listed, and that a worker's list contains no private network."""
    found = []
    for name in ROLES:
        policies = [policy for policy in of_kind(docs, "NetworkPolicy") if role(docs, name) in selected(docs, policy["spec"]["podSelector"])]
        silent = [policy for policy in policies if not policy["spec"].get("ingress") and not policy["spec"].get("egress")]
        if not any(set(policy["spec"]["policyTypes"]) == {"Ingress", "Egress"} for policy in silent):
            found.append(f"nothing refuses the {name} what is not listed")
        egress = [rule for policy in policies for rule in policy["spec"].get("egress", [])]
        ports = {port["port"] for rule in egress for port in rule["ports"]}
        wanted = {53, 5353, 5672, 6379} | ({5671} if of_kind(docs, "ScaledObject", "HorizontalPodAutoscaler") else set()) | ({5432} if name == "scheduler" else set()) | {80, 443, 8000}
        if ports != wanted:
            found.append(f"the {name} reaches the ports {sorted(ports)}, and should {sorted(wanted)}")
        found += internet(name, egress, effective(docs, role(docs, name)))
    return found


def internet(name: str, egress: list[Doc], configuration: dict[str, Any]) -> list[str]:
    """Feeds for workers, targets of subscriptions and hubs for schedulers: no private network, except servers' own addresses."""
    servers = {6379, 5671, 5672} | ({5432} if name == "scheduler" else set())
    blocks = [(peer["ipBlock"], rule["ports"]) for rule in egress for peer in rule["to"] if "ipBlock" in peer]
    wide = [(block, ports) for block, ports in blocks if ipaddress.ip_network(block["cidr"]).prefixlen < 24]
    found = []
    for block, ports in blocks:
        # The name cache of a node answers names alone, at the address that Kubernetes documents.
        allowed = {53} if block["cidr"] == "169.254.20.10/32" else servers
        if (block, ports) not in wide and not {port["port"] for port in ports} <= allowed:
            found.append(f"the {name} reaches {block['cidr']} on other ports than those of its servers")
    if {block["cidr"] for block, _ in wide} != {"0.0.0.0/0", "2000::/3"}:
        found.append(f"the {name} reaches {[block['cidr'] for block, _ in wide]} instead of the Internet")
    excepted = {network for block, _ in wide for network in block.get("except", [])}
    for network in guarded() - excepted:
        found.append(f"the {name} reaches {network}, which its own guard refuses")
    for network in excepted - guarded():
        # Addresses of the cluster itself, which the program cannot know.
        if ipaddress.ip_network(network).prefixlen < 24:
            found.append(f"the worker's guard does not refuse {network}, the policy does")
    for _, ports in wide:
        dialled = {f"{port['port']}-{port['endPort']}" if "endPort" in port else str(port["port"]) for port in ports}
        if dialled != set(configuration["fetch.allow_ports"]):
            found.append(f"the policy opens the ports {sorted(dialled)}, fetch.allow_ports is {configuration['fetch.allow_ports']}")
    return found


def guarded() -> set[str]:
    """Returns the networks that the worker's source denies."""
    source = (program.ROOT / "worker/src/address.rs").read_text()
    four = re.findall(r"^ +v4\((\d+), (\d+), (\d+), (\d+), (\d+)\)", source, re.MULTILINE)
    six = re.findall(r"^ +v6\((0x[0-9a-f]+), (0x[0-9a-f]+|0), (0x[0-9a-f]+|0), (\d+)\)", source, re.MULTILINE)
    assert len(four) > 10 and len(six) > 3, "the lists in address.rs look otherwise now"
    return {"{}.{}.{}.{}/{}".format(*parts) for parts in four} | {
        str(ipaddress.ip_network(f"{int(a, 16):x}:{int(b, 16):x}:{int(c, 16):x}::/{prefix}")) for a, b, c, prefix in six}


def scaling(docs: list[Doc]) -> list[str]:
    found = []
    scalers = of_kind(docs, "ScaledObject", "HorizontalPodAutoscaler")
    if len(scalers) > 1:
        found.append("two scalers set the same number")
    for scaler in scalers:
        target = scaler["spec"]["scaleTargetRef"]["name"]
        if target not in {doc["metadata"]["name"] for doc in of_kind(docs, "Deployment")}:
            found.append(f"{title(scaler)}: there is no Deployment {target}")
        elif "replicas" in named(docs, "Deployment", target)["spec"]:
            found.append(f"{title(scaler)}: each `apply` would set back the replicas of {target}")
        namespace = scaler["metadata"]["namespace"]
        for trigger in scaler["spec"].get("triggers", []):
            query = trigger["metadata"]["query"]
            if set(re.findall(r'namespace="([^"]*)"', query)) != {namespace}:
                found.append(f"{title(scaler)}: a query looks at another namespace than {namespace}: {query}")
    return found


# ------------------------------------------------------------------------------------------ versions, what the world sees

def versions(docs: list[Doc]) -> list[str]:
    found, version = [], program.workspace_version()
    for name in ROLES:
        workload = role(docs, name)
        for where, carries in (("itself", workload["metadata"]["labels"]), ("its pods", labels(workload))):
            if carries.get("app.kubernetes.io/version") != version:
                found.append(f"{title(workload)}: the label app.kubernetes.io/version of {where} is not {version}")
        if "app.kubernetes.io/version" in workload["spec"]["selector"]["matchLabels"]:
            found.append(f"{title(workload)}: its selector contains the version, and cannot be upgraded")
    return found


def published(docs: list[Doc]) -> list[str]:
    """Checks that the world sees what docs/operations.md says, and nothing else."""
    found, text = [], (program.ROOT / "docs" / "operations.md").read_text()
    paths = {}
    for ingress in of_kind(docs, "Ingress"):
        if not ingress["spec"].get("ingressClassName"):
            found.append(f"{title(ingress)} has no class")
        paths[title(ingress)] = {path["path"] for rule in ingress["spec"]["rules"] for path in rule["http"]["paths"]}
    for route in of_kind(docs, "HTTPRoute"):
        paths[title(route)] = {match["path"]["value"] for rule in route["spec"]["rules"] for match in rule["matches"]}
    for where, shown in paths.items():
        found += [f"{where} shows {path} to the world" for path in sorted(shown - PUBLIC)]
        found += [f"{where} does not show {path}" for path in sorted(PUBLIC - shown)]
    found += [f"docs/operations.md does not name {path} as public" for path in sorted(PUBLIC) if f"| `{path}" not in text]
    for rules in of_kind(docs, "PrometheusRule"):
        for rule in (rule for group in rules["spec"]["groups"] for rule in group["rules"] if "alert" in rule):
            if not rule["annotations"]["runbook_url"].startswith("https://"):
                found.append(f"{rule['alert']}: its runbook has no absolute address")
    return found


def priorities(docs: list[Doc]) -> list[str]:
    known = {doc["metadata"]["name"] for doc in of_kind(docs, "PriorityClass")}
    return [f"{title(workload)}: there is no PriorityClass {name}" for workload in workloads(docs)
            if (name := pod(workload).get("priorityClassName")) and name not in known]
