"""The systemd units: systemd understands them, they are confined, and the program understands their commands."""

import pathlib
import re
import subprocess
import tempfile
import unittest

from . import program
from .meaning import seconds, value_after

UNITS = {name: (program.ROOT / "dev" / "package" / "systemd" / f"{name}.service").read_text()
         for name in ("feedfleet", "feedfleet-scheduler", "feedfleet-worker")}
# systemd's measure of what a service may do, from 0 to 10 (times ten here); docs/cluster.md has the figure.
EXPOSURE = 12


def analyzed(name, text, *arguments):
    """Returns systemd-analyze's exit code and output about a unit."""
    with tempfile.TemporaryDirectory() as folder:
        unit = pathlib.Path(folder) / f"{name}.service"
        # The program is not installed here, and systemd looks for it.
        unit.write_text(re.sub(r"^ExecStart=feedfleet ", "ExecStart=/bin/true ", text, flags=re.MULTILINE))
        ran = subprocess.run(["systemd-analyze", *arguments, unit], capture_output=True, text=True, check=False)
        return ran.returncode, ran.stdout + ran.stderr


def verified(name, text):
    return analyzed(name, text, "verify", "--man=no")


def exposed(name, text):
    return analyzed(name, text, "security", "--offline=true", f"--threshold={EXPOSURE}", "--no-pager")


def setting(text, key):
    return re.search(rf"^{key}=(.*)$", text, re.MULTILINE).group(1)


class Units(unittest.TestCase):
    def test_systemd_understands_them(self):
        for name, text in UNITS.items():
            self.assertEqual(verified(name, text), (0, ""), name)

    def test_they_are_confined(self):
        for name, text in UNITS.items():
            code, report = exposed(name, text)
            self.assertEqual(code, 0, f"{name}: {report[-500:]}")

    def test_what_is_planted_is_found(self):
        text = UNITS["feedfleet-worker"]
        self.assertIn("Unknown key", verified("feedfleet-worker", text.replace("RestartSec=", "RestartSecs="))[1])
        for confinement in ("PrivateUsers=yes\n", "CapabilityBoundingSet=\n", "SystemCallFilter=@system-service\n", "RestrictNamespaces=yes\n"):
            self.assertIn(confinement, text)
            self.assertNotEqual(exposed("feedfleet-worker", text.replace(confinement, ""))[0], 0, confinement)

    def test_the_program_understands_their_commands(self):
        for name, text in UNITS.items():
            words = setting(text, "ExecStart").split()
            role = name.partition("-")[2] or "run"
            self.assertEqual(words[:2], ["feedfleet", role])
            self.assertLessEqual({word for word in words if word.startswith("--")}, program.flags(role))
            self.assertEqual(value_after(words, "--config"), "/etc/feedfleet/config.toml")

    def test_they_stay_down_when_starting_again_does_not_help(self):
        # A wrong configuration, or a database of a newer version.
        self.assertEqual({setting(text, "RestartPreventExitStatus") for text in UNITS.values()}, {"2"})

    def test_roles_have_time_to_stop_and_separate_secrets(self):
        files = {setting(UNITS[f"feedfleet-{role}"], "EnvironmentFile") for role in ("scheduler", "worker")}
        self.assertEqual(len(files), 2)
        for role in ("scheduler", "worker"):
            self.assertEqual(setting(UNITS[f"feedfleet-{role}"], "DynamicUser"), "yes")
        needed = seconds(program.grace_of_a_worker()) + 5
        self.assertGreaterEqual(seconds(setting(UNITS["feedfleet-worker"], "TimeoutStopSec")), needed)
        drain = seconds(program.configuration_of("")["api.drain"])
        self.assertGreaterEqual(seconds(setting(UNITS["feedfleet-scheduler"], "TimeoutStopSec")), drain + 30)

    def test_one_machine_can_run_both_roles(self):
        ports = {value_after(setting(UNITS["feedfleet-worker"], "ExecStart").split(), "--listen"), program.configuration_of("")["api.listen"]}
        self.assertEqual(len(ports), 2)
