"""Every overlay renders, matches the schemas, and is consistent with itself and the program. Each check finds planted faults."""

import re
import unittest

import yaml

from . import manifests, meaning, schemas
from .manifests import container, copied, kustomize, named, of_kind, pod, role

OVERLAYS = manifests.overlays()


def worker_env(name, **source):
    def plant(docs):
        container(role(docs, "worker"))["env"].append({"name": name, **source})
    return plant


def secret_key(name, key):
    return {"valueFrom": {"secretKeyRef": {"name": name, "key": key}}}


def moved(holder, old, new):
    holder[new] = holder.pop(old)


def without(docs, kind, name):
    docs.remove(named(docs, kind, name))


def scheduler(docs):
    return container(role(docs, "scheduler"))


def worker(docs):
    return container(role(docs, "worker"))


def secret(docs, role_name):
    return named(docs, "Secret", f"feedfleet-{role_name}")["stringData"]


def config_map(docs):
    return next(doc for doc in of_kind(docs, "ConfigMap") if "feedfleet.toml" in doc["data"])


def internet(docs):
    return named(docs, "NetworkPolicy", "feedfleet-internet")["spec"]["egress"][0]


# The planted faults, and words that the reported problem must contain.
FOREIGN_TO_SCHEMAS = {
    "a misspelt probe": (lambda d: moved(worker(d), "readinessProbe", "readinesProbe"), "readinesProbe"),
    "a port that is not a number": (lambda d: scheduler(d)["ports"][0].update(containerPort="http"), "is not of type 'integer'"),
    "a field of another kind": (lambda d: named(d, "Service", "feedfleet")["spec"].update(replicas=2), "replicas"),
    "a kind that is none": (lambda d: named(d, "Service", "feedfleet").update(kind="Servce"), "nothing is known"),
    "a misspelt metric type": (lambda d: moved(of_kind(d, "ScaledObject")[0]["spec"]["triggers"][0], "metricType", "metricsType"),
                               "metricsType is unknown"),
    "a scaler of nothing": (lambda d: of_kind(d, "ScaledObject")[0]["spec"].pop("scaleTargetRef"), "scaleTargetRef"),
    "a misspelt scrape interval": (lambda d: moved(of_kind(d, "PodMonitor")[0]["spec"]["podMetricsEndpoints"][0], "interval", "intervall"),
                                   "intervall is unknown"),
    "an alert's misspelt labels": (lambda d: moved(of_kind(d, "PrometheusRule")[0]["spec"]["groups"][1]["rules"][0], "labels", "label"),
                                   "label is unknown"),
    "a user's misspelt cluster": (lambda d: moved(of_kind(d, "User")[0]["spec"], "rabbitmqClusterReference", "rabbitmqCluster"), "rabbitmqCluster"),
    "a permission's misspelt right": (lambda d: moved(of_kind(d, "Permission")[0]["spec"]["permissions"], "read", "reads"), "reads"),
    "a misspelt broker setting": (lambda d: moved(of_kind(d, "RabbitmqCluster")[0]["spec"]["rabbitmq"], "additionalConfig", "extraConfig"),
                                  "extraConfig"),
    "a misspelt resource of the broker": (lambda d: moved(of_kind(d, "RabbitmqCluster")[0]["spec"]["resources"], "requests", "request"),
                                          "request"),
}

FOREIGN_TO_MEANING = {
    "a wrong target port": (lambda d: named(d, "Service", "feedfleet")["spec"]["ports"][0].update(targetPort="web"), "has no port web"),
    "a wrong container port": (lambda d: scheduler(d)["ports"][0].update(containerPort=7879), "listens on port 7878, but"),
    "a probe of a path that is none": (lambda d: worker(d)["livenessProbe"]["httpGet"].update(path="/health"), "asks /health, not"),
    "a probe of a port that is none": (lambda d: worker(d)["livenessProbe"]["httpGet"].update(port="web"), "asks port web"),
    "liveness that depends on servers": (lambda d: scheduler(d)["livenessProbe"]["httpGet"].update(path="/readyz"), "livenessProbe asks /readyz"),
    "an address that nobody reaches": (lambda d: worker(d).update(args=["worker", "--listen", "127.0.0.1:7878"]), "where nobody reaches it"),
    "a flag that is none": (lambda d: worker(d)["args"].append("--threads=4"), "has no flag --threads"),
    "another role": (lambda d: worker(d).update(args=["scheduler", *worker(d)["args"][1:]]), "runs scheduler"),
    "an unknown key": (worker_env("FEEDFLEET_WORKER__CONCURENCY", value="9"), "is not a key of the configuration"),
    "an unknown key in the file": (lambda d: config_map(d)["data"].update({"feedfleet.toml": "[log]\nformt = 'json'"}), "log.formt"),
    "a value that is refused": (lambda d: config_map(d)["data"].update({"feedfleet.toml": "[host]\nburst = 0"}), "host.burst"),
    "a secret that is none": (worker_env("FEEDFLEET_GATE__URL", **secret_key("feedfleet-workr", "redis-url")), "no Secret feedfleet-workr"),
    "a key that the secret lacks": (worker_env("FEEDFLEET_GATE__URL", **secret_key("feedfleet-worker", "redis")), "has no redis"),
    "a database secret for the worker": (worker_env("FEEDFLEET_STORE__URL", **secret_key("feedfleet-scheduler", "store-url")),
                                         "secret of the database"),
    "the schedulers' Redis user for the worker": (worker_env("FEEDFLEET_GATE__URL", **secret_key("feedfleet-scheduler", "redis-url")),
                                                  "reads the schedulers' secret"),
    "a selector of others": (lambda d: named(d, "Deployment", "feedfleet-worker")["spec"]["selector"]["matchLabels"].update(tier="x"),
                             "does not select its own pods"),
    "a budget of nobody": (lambda d: named(d, "PodDisruptionBudget", "feedfleet-worker")["spec"]["selector"]["matchLabels"].update(tier="x"),
                           "PodDisruptionBudget feedfleet-worker selects nothing"),
    "a config map that is none": (lambda d: pod(role(d, "worker"))["volumes"][0]["configMap"].update(name="config"), "no ConfigMap config"),
    "an account that is none": (lambda d: without(d, "ServiceAccount", "feedfleet-worker"), "no ServiceAccount feedfleet-worker"),
    "a token of Kubernetes": (lambda d: pod(role(d, "worker")).pop("automountServiceAccountToken"), "is given a token"),
    "a scheduler that is unready without Redis": (lambda d: scheduler(d)["readinessProbe"]["httpGet"].update(path="/readyz"),
                                                  "asks /readyz, not /readyz/api"),
    "no time to drain": (lambda d: config_map(d)["data"].update({"feedfleet.toml": "[api]\ndrain = '1s'"}), "drains for 1 s"),
    "a drain as long as the grace": (lambda d: config_map(d)["data"].update({"feedfleet.toml": "[api]\ndrain = '50s'"}), "needs 80 s"),
    "the administrator of RabbitMQ": (worker_env("RABBITMQ_PASSWORD", **secret_key("feedfleet-rabbitmq-default-user", "password")),
                                      "RabbitMQ's default user, an administrator"),
    "a worker that declares": (lambda d: named(d, "Permission", "feedfleet-worker")["spec"]["permissions"].update(configure=".*"),
                               "lets a worker declare"),
    "a worker that publishes anywhere": (lambda d: named(d, "Permission", "feedfleet-worker")["spec"]["permissions"].update(
        write=r"^(feedfleet\.reports|amq\.default)$"), "lets a worker write amq.default"),
    "a user with a tag": (lambda d: named(d, "User", "feedfleet-worker")["spec"].update(tags=["management"]), "has the tags"),
    "a spread over two revisions": (lambda d: pod(role(d, "scheduler"))["topologySpreadConstraints"][0].pop("matchLabelKeys"),
                                    "counts the pods of the revision"),
    "a limit of CPU": (lambda d: worker(d)["resources"]["limits"].update(cpu="2"), "is throttled"),
    "a priority that is none": (lambda d: pod(role(d, "worker")).update(priorityClassName="high"), "no PriorityClass high"),
    "another version's label": (lambda d: role(d, "worker")["metadata"]["labels"].update({"app.kubernetes.io/version": "0.1.0"}),
                                "app.kubernetes.io/version of itself is not"),
    "an ingress without a class": (lambda d: of_kind(d, "Ingress")[0]["spec"].pop("ingressClassName"), "has no class"),
    "a public API": (lambda d: of_kind(d, "Ingress")[0]["spec"]["rules"][0]["http"]["paths"][0].update(path="/api/v1"), "shows /api/v1 to the world"),
    "a runbook in a file": (lambda d: of_kind(d, "PrometheusRule")[0]["spec"]["groups"][1]["rules"][0]["annotations"].update(
        runbook_url="docs/operations.md#x"), "has no absolute address"),
    "a minute less to stop": (lambda d: pod(role(d, "worker")).update(terminationGracePeriodSeconds=30), "has 30 s to stop"),
    "a longer fetch": (lambda d: config_map(d)["data"].update({"feedfleet.toml": "[fetch]\ntimeout = '50s'"}), "needs 65 s"),
    "root": (lambda d: pod(role(d, "worker"))["securityContext"].update(runAsUser=0), "runs as root"),
    "a root that is written to": (lambda d: worker(d)["securityContext"].update(readOnlyRootFilesystem=False), "may write to its root"),
    "capabilities": (lambda d: worker(d)["securityContext"].pop("capabilities"), "keeps capabilities"),
    "no security context": (lambda d: scheduler(d).pop("securityContext"), "Deployment feedfleet-scheduler may gain privileges"),
    "no probe": (lambda d: scheduler(d).pop("readinessProbe"), "readinessProbe asks None"),
    "a policy of nobody": (lambda d: named(d, "NetworkPolicy", "feedfleet-metrics")["spec"]["podSelector"]["matchLabels"].update(
        tier="x"), "NetworkPolicy feedfleet-metrics selects nothing"),
    "no seccomp": (lambda d: pod(role(d, "worker"))["securityContext"].pop("seccompProfile"), "no seccomp profile"),
    "no limit of memory": (lambda d: worker(d)["resources"]["limits"].pop("memory"), "no limits of memory"),
    "no spreading": (lambda d: pod(role(d, "worker")).pop("topologySpreadConstraints"), "is not spread"),
    "the latest image": (lambda d: worker(d).update(image="registry.example/feedfleet:latest"), "has no version"),
    "another version's image": (lambda d: worker(d).update(image="registry.example/feedfleet:0.0.9"), "is not of this version"),
    "an open private network": (lambda d: internet(d)["to"][0]["ipBlock"]["except"].remove("10.0.0.0/8"), "10.0.0.0/8, which its own guard"),
    "an address of IPv4 alone": (lambda d: worker(d).update(args=["worker", "--listen", "0.0.0.0:7878"]), "where nobody reaches it"),
    "an open metadata address": (lambda d: internet(d)["to"][0]["ipBlock"]["except"].remove("169.254.0.0/16"), "169.254.0.0/16"),
    "a worker that reaches the database": (lambda d: internet(d)["ports"].append({"protocol": "TCP", "port": 5432}), "5432"),
    "a worker that reaches a private server": (lambda d: internet(d)["to"].append({"ipBlock": {"cidr": "10.0.0.7/32"}}), "reaches 10.0.0.7/32"),
    "a private authority for a RabbitMQ without TLS": (worker_env("FEEDFLEET_QUEUE__CA_FILE", value="/etc/feedfleet-tls/ca.crt"),
                                                       "queue.ca_file"),
    "logins that no worker gets": (lambda d: named(d, "Permission", "feedfleet-worker")["spec"]["permissions"].update(
        read=r"^feedfleet\.jobs$"), "not read feedfleet.jobs.logins"),
    "a scheduler that reaches no hub": (lambda d: named(d, "NetworkPolicy", "feedfleet-internet")["spec"]["podSelector"]["matchLabels"].update(
        {"app.kubernetes.io/component": "worker"}), "the scheduler reaches the ports"),
    "an address of variables that come later": (lambda d: worker(d)["env"].reverse(), "is made of RABBITMQ_"),
    "another broker": (lambda d: of_kind(d, "RabbitmqCluster")[0]["metadata"].update(name="broker"), "feedfleet-rabbitmq:5672, where nothing is"),
    "a port that the worker does not dial": (lambda d: internet(d)["ports"].pop(), "fetch.allow_ports"),
    "nothing refused": (lambda d: without(d, "NetworkPolicy", "feedfleet-nothing-else"), "nothing refuses the worker"),
    "an ingress to nobody": (lambda d: of_kind(d, "Ingress")[0]["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"].update(name="x"),
                             "no Service x"),
    "a scaler that `apply` fights": (lambda d: named(d, "Deployment", "feedfleet-worker")["spec"].update(replicas=3), "set back the replicas"),
    "a scaler of another": (lambda d: of_kind(d, "ScaledObject")[0]["spec"]["scaleTargetRef"].update(name="workers"), "no Deployment workers"),
    "a scaler that looks elsewhere": (lambda d: of_kind(d, "ScaledObject")[0]["spec"]["triggers"][0]["metadata"].update(
        query='max(feedfleet_due_feeds{namespace="default"})'), "another namespace"),
    "a monitor of another port": (lambda d: of_kind(d, "PodMonitor")[0]["spec"]["podMetricsEndpoints"][0].update(port="metrics"),
                                  "has no port metrics"),
}


# The same for the overlay that includes its servers.
FOREIGN_TO_DEV = {
    "a server that is none": (lambda d: secret(d, "worker").update({"redis-url": "redis://worker:x@cache:6379/0"}), "cache:6379, where nothing is"),
    "a server's wrong port": (lambda d: secret(d, "scheduler").update({"store-url": "postgres://x:y@postgres:5433/x"}), "postgres:5433, where"),
    "a service of nobody": (lambda d: named(d, "Service", "redis")["spec"]["selector"].update(tier="x"), "redis:6379, where nothing is"),
    "no way to a server": (lambda d: named(d, "NetworkPolicy", "feedfleet-servers")["spec"]["egress"].pop(), "Egress of FEEDFLEET_QUEUE__URL"),
    "a server that lets nobody in": (lambda d: named(d, "NetworkPolicy", "redis")["spec"].pop("ingress"), "Ingress of FEEDFLEET_GATE__URL"),
}


class Manifests(unittest.TestCase):
    maxDiff = None

    def test_what_does_not_render_is_an_error(self):
        with copied() as root:
            (root / "base" / "worker.yaml").unlink()
            self.assertRaises(manifests.RenderError, kustomize, root / "overlays" / "dev")

    def test_every_overlay_is_what_the_schemas_allow(self):
        for name, docs in OVERLAYS.items():
            with self.subTest(overlay=name):
                self.assertGreater(len(docs), 15)
                self.assertEqual(schemas.problems(docs), [])

    def test_every_overlay_fits_itself_and_the_program(self):
        for name, docs in OVERLAYS.items():
            with self.subTest(overlay=name):
                self.assertEqual(meaning.problems(docs), [])

    def test_settings_reach_every_place_that_needs_them(self):
        values = {"host": "fleet.test", "ingress-class": "our-class", "gateway": "our-gateway", "ingress-namespace": "our-ingress",
                  "prometheus": "http://our-prometheus:9090", "prometheus-namespace": "our-monitoring", "runbooks": "https://our.test/operations"}
        text = (manifests.K8S / "overlays" / "prod" / "settings.yaml").read_text()
        written = dict(re.findall(r"^  ([a-z-]+): (\S+)$", text.partition("\ndata:\n")[2], re.MULTILINE))
        self.assertEqual(set(written), set(values))
        settings = [(f"  {key}: {old}\n", f"  {key}: {values[key]}\n") for key, old in written.items()]
        docs = manifests.variant(settings, "overlays/prod/settings.yaml")
        self.assertEqual([doc for doc in of_kind(docs, "ConfigMap") if doc["metadata"]["name"] == "settings"], [])
        everything = yaml.safe_dump_all(doc for doc in docs if doc["kind"] != "ConfigMap")
        for key in set(values) - {"gateway"}:
            self.assertIn(values[key], everything, key)
        # What the tests of single components know by its old name.
        for old in (written["host"], written["prometheus"], f"metadata.name: {written['prometheus-namespace']}"):
            self.assertNotIn(old, everything)
        route = manifests.variant([("components/ingress", "components/gateway"), ("namespace: feedfleet", "namespace: ours")])
        route = of_kind(route, "HTTPRoute")[0]["spec"]
        self.assertEqual((route["parentRefs"], route["hostnames"]), ([{"name": "public", "namespace": "ingress"}], ["feedfleet.example.com"]))

    def test_another_namespace_reaches_the_scaler(self):
        docs = manifests.variant([("namespace: feedfleet", "namespace: ours")])
        queries = [trigger["metadata"]["query"] for trigger in of_kind(docs, "ScaledObject")[0]["spec"]["triggers"]]
        self.assertTrue(all('{namespace="ours"}' in query for query in queries), queries)

    def test_deleting_an_overlay_keeps_namespace_and_secrets(self):
        self.assertEqual(of_kind(OVERLAYS["prod"], "Namespace", "Secret"), [])
        self.assertEqual(of_kind(OVERLAYS["dev"], "Namespace"), [])
        namespace = yaml.safe_load((manifests.K8S / "namespace.yaml").read_text())
        self.assertEqual(schemas.problems([namespace]), [])
        self.assertEqual({doc["metadata"].get("namespace") for doc in OVERLAYS["prod"]} - {None}, {namespace["metadata"]["name"]})

    def test_workers_do_not_reach_the_clusters_own_addresses(self):
        for name, docs in OVERLAYS.items():
            if name != "dev":
                self.assertIn("203.0.113.10/32", internet(docs)["to"][0]["ipBlock"]["except"], name)

    def test_prod_has_three_schedulers_and_3_to_50_workers(self):
        self.assertEqual(named(OVERLAYS["prod"], "Deployment", "feedfleet-scheduler")["spec"]["replicas"], 3)
        for overlay, kind, least, most in (("prod", "ScaledObject", "minReplicaCount", "maxReplicaCount"),
                                           ("prod with hpa", "HorizontalPodAutoscaler", "minReplicas", "maxReplicas")):
            spec = of_kind(OVERLAYS[overlay], kind)[0]["spec"]
            self.assertEqual((spec[least], spec[most]), (3, 50))

    def test_schema_checks_find_what_is_planted(self):
        for fault, (plant, words) in FOREIGN_TO_SCHEMAS.items():
            with self.subTest(fault=fault):
                # Only changed documents: the rest is checked above.
                docs = manifests.changed(OVERLAYS["prod"], plant)
                found = schemas.problems([doc for doc in docs if doc not in OVERLAYS["prod"]])
                self.assertTrue(any(words in problem for problem in found), found)

    def test_checks_of_meaning_find_what_is_planted(self):
        for overlay, faults in (("prod", FOREIGN_TO_MEANING), ("dev", FOREIGN_TO_DEV)):
            for fault, (plant, words) in faults.items():
                with self.subTest(overlay=overlay, fault=fault):
                    found = meaning.problems(manifests.changed(OVERLAYS[overlay], plant))
                    self.assertTrue(any(words in problem for problem in found), found)
