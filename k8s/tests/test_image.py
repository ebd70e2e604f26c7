"""The Dockerfile: hadolint reports nothing, and it is consistent with the program and the manifests. dev/image builds and starts it."""

import pathlib
import re
import subprocess
import sys
import tomllib
import unittest

from . import program
from .manifests import ROLES, container, pod, role
from .test_manifests import OVERLAYS

DOCKERFILE = (program.ROOT / "Dockerfile").read_text()


def hadolint(text):
    """Returns hadolint's report on a Dockerfile; empty if there is none."""
    lint = pathlib.Path(sys.executable).parent / "hadolint"
    ran = subprocess.run([lint, "--failure-threshold", "style", "-"], input=text, capture_output=True, text=True, check=False)
    assert (ran.returncode == 0) == (ran.stdout == ""), ran.stdout + ran.stderr
    return ran.stdout


class Image(unittest.TestCase):
    def test_hadolint_finds_nothing(self):
        self.assertEqual(hadolint(DOCKERFILE), "")

    def test_hadolint_finds_what_is_planted(self):
        self.assertIn("DL3007", hadolint(DOCKERFILE.replace("rust:1.95-slim-bookworm", "rust:latest").replace("FROM ${BASE}", "FROM rust:latest")))
        self.assertIn("DL3002", hadolint(DOCKERFILE.replace("USER 65532:65532", "USER root")))

    def test_it_builds_with_the_toolchain_of_the_workspace(self):
        wanted = tomllib.loads((program.ROOT / "Cargo.toml").read_text())["workspace"]["package"]["rust-version"]
        self.assertIn(f"ARG BASE=docker.io/library/rust:{wanted}-slim-", DOCKERFILE)

    def test_it_runs_as_the_user_of_the_manifests(self):
        user = re.search(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE).groups()
        for docs in OVERLAYS.values():
            for name in ROLES:
                context = pod(role(docs, name))["securityContext"]
                self.assertEqual((str(context["runAsUser"]), str(context["runAsGroup"])), user)
                self.assertNotIn("command", container(role(docs, name)), "the image's entry point is the program")

    def test_its_health_check_is_a_command_of_the_program_at_its_usual_port(self):
        check = re.search(r'^HEALTHCHECK .* CMD \["/feedfleet", "(\w+)"\]$', DOCKERFILE, re.MULTILINE).group(1)
        self.assertIn("--server", program.flags(check))
        self.assertIn("ENTRYPOINT [\"/feedfleet\"]", DOCKERFILE)
        listens = program.configuration_of("")["api.listen"]
        self.assertIn(f"EXPOSE {listens.rsplit(':', 1)[1]}\n", DOCKERFILE)
