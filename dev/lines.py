#!/usr/bin/env python3
"""Deletes each line of the Lua or SQL of a crate, one at a time, and runs the tests that should notice it. Called by dev/mutants.

    dev/lines.py PACKAGE SUFFIX FOLDER FILTERS... [-- SKIPPED...]

The files are part of the test program, so a line is overwritten with blanks there: nothing is compiled again. The tests are
those whose names contain one of FILTERS and none of SKIPPED. A Lua line whose deletion leaves no valid chunk is not tried. Ends with an error
if there are lines that no test noticed, and prints each.

FEEDFLEET_LINES=N/M tries every Mth line, beginning with the Nth.
"""
import functools
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

# A test that waits for something that never happens has noticed it too. Seconds; three times what all tests take if that is longer.
SHORTEST_LIMIT = 40
FIRST_LIMIT = 600


def built(package):
    """Builds the unit tests of a package, and returns the path of the program."""
    command = ["cargo", "test", "--locked", "--package", package, "--lib", "--no-run", "--message-format=json"]
    for line in subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["profile"]["test"]:
            return message["executable"]
    sys.exit(f"cargo built no tests of {package}")


def is_chunk(text):
    """Returns whether Lua can read a text, as Redis does."""
    reads = "return loadstring(ARGV[1]) and 1 or 0"
    url = os.environ["FEEDFLEET_TEST_REDIS"]
    asked = subprocess.run(["redis-cli", "-u", url, "EVAL", reads, "0", text], capture_output=True, check=True, text=True)
    return asked.stdout.strip() == "1"


def lines_of(path, is_lua):
    """Yields number and text of each line to delete, and the file before and after, as bytes of one length."""
    before = open(path, "rb").read()
    start = 0
    for number, line in enumerate(before.splitlines(keepends=True), 1):
        text = line.decode().strip()
        after = before[:start] + b" " * len(line.rstrip(b"\n")) + before[start + len(line.rstrip(b"\n")):]
        start += len(line)
        if text and not text.startswith("--") and (not is_lua or is_chunk(after.decode())):
            yield number, text, before, after


def passes(program, tests, folder, limit):
    """Returns whether the tests of a program pass, and there are some. Stops it, and the servers that it started, when one does not."""
    command = [program, "--test-threads", "8", *tests]
    # What killed tests leave behind is in a folder of this run alone.
    temporary = tempfile.TemporaryDirectory(prefix="feedfleet-lines-", ignore_cleanup_errors=True)
    os.chmod(temporary.name, 0o755)
    running = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
                               env={**os.environ, "TMPDIR": temporary.name})
    stop = functools.partial(os.killpg, running.pid, signal.SIGKILL)
    timer = threading.Timer(limit, stop)
    timer.start()
    with temporary, running:
        for line in running.stdout:
            if line.startswith("test result: ok."):
                timer.cancel()
                return " 0 passed" not in line
            if line.rstrip().endswith("FAILED"):
                timer.cancel()
                stop()
    timer.cancel()
    return False


def main():
    arguments = sys.argv[1:]
    skipped = arguments[arguments.index("--") + 1:] if "--" in arguments else []
    package, suffix, root, *filters = arguments[:arguments.index("--")] if skipped else arguments
    tests = filters + [argument for name in skipped for argument in ("--skip", name)]
    first, step = map(int, os.environ.get("FEEDFLEET_LINES", "1/1").split("/"))
    program = built(package)
    folder = os.path.dirname(root.split("src/")[0]) or "."
    os.makedirs("target/mutants", exist_ok=True)
    mutant = os.path.abspath(f"target/mutants/{package}-{suffix}")
    shutil.copy2(program, mutant)
    whole = open(mutant, "rb").read()
    begun = time.monotonic()
    if not passes(mutant, tests, folder, FIRST_LIMIT):
        sys.exit("the tests fail, or there are none, before anything is deleted")
    limit = max(SHORTEST_LIMIT, 3 * (time.monotonic() - begun))
    tried, missed = 0, []
    paths = sorted(glob.glob(f"{root}/**/*.{suffix}", recursive=True))
    lines = [(path, *line) for path in paths for line in lines_of(path, suffix == "lua")][first - 1::step]
    for path, number, text, before, after in lines:
        changed = whole.replace(before, after)
        if changed == whole:
            sys.exit(f"{path} is not in the tests of {package}")
        os.unlink(mutant)
        with open(mutant, "wb") as file:
            file.write(changed)
        os.chmod(mutant, 0o755)
        tried += 1
        if passes(mutant, tests, folder, limit):
            missed.append(f"{path}:{number}: {text}")
            print(f"NOT NOTICED {missed[-1]}", flush=True)
        if tried % 20 == 0:
            print(f"{tried} of {len(lines)} lines, {len(missed)} not noticed", flush=True)
    os.unlink(mutant)
    print(f"{tried} lines deleted, {tried - len(missed)} noticed, {len(missed)} not noticed")
    sys.exit(bool(missed))


main()
