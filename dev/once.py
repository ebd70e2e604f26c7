#!/usr/bin/env python3
"""Measures `run --once` over known feeds. Called by dev/bench once.

    dev/once.py PROGRAM [FEEDS [ROUNDS]]

Polls FEEDS (2,000) feeds, each at its own loopback address, with `PROGRAM run --once`, and then ROUNDS (5) times again when all are
due; the server answers 304. Prints seconds and CPU seconds of each round and the medians. Exits with 1 if the median exceeds
ONCE_SECONDS (0.6).
"""
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

PORT = 8125
SECONDS = float(os.environ.get("ONCE_SECONDS", 0.6))
CLASSES = "".join(f'[policy.category.{name}]\nmin = "10s"\nmax = "10s"\ninterval = "10s"\n' for name in "cd")
CONFIG = f"""
[api]
listen = "127.0.0.1:0"
[fetch]
allow_networks = ["127.0.0.0/8"]
allow_ports = ["{PORT}"]
[policy]
hot_minutes = false
min_interval = "10s"
default_interval = "10s"
{CLASSES}"""
FEED = b"<rss version='2.0'><channel><title>a feed</title><item><guid>0</guid><title>an entry</title></item></channel></rss>"
FULL = b'HTTP/1.1 200 OK\r\nContent-Type: application/rss+xml\r\nETag: "1"\r\nContent-Length: %d\r\n\r\n%s' % (len(FEED), FEED)
UNCHANGED = b'HTTP/1.1 304 Not Modified\r\nETag: "1"\r\n\r\n'


class Origin:
    """Serves one feed at every path of every loopback address; counts its answers."""

    def __init__(self):
        self.full, self.unchanged = 0, 0
        ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self.serve(ready)), daemon=True).start()
        ready.wait()

    async def serve(self, ready):
        server = await asyncio.start_server(self.answer, "0.0.0.0", PORT, backlog=4096)
        ready.set()
        await server.serve_forever()

    async def answer(self, reader, writer):
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                known = b"if-none-match" in head.lower()
                self.unchanged += known
                self.full += not known
                writer.write(UNCHANGED if known else FULL)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def once(program, folder):
    """Runs it; returns its seconds and CPU seconds."""
    begun = time.monotonic()
    command = [program, "run", "--once", "--config", "config.toml", "--data", "data", "urls"]
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = process.stderr.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, said
    return time.monotonic() - begun, used.ru_utime + used.ru_stime


def main():
    program, feeds, rounds, *_ = sys.argv[1:] + ["2000", "5"][len(sys.argv) - 2:]
    program, feeds, origin, measured = os.path.abspath(program), int(feeds), Origin(), []
    with tempfile.TemporaryDirectory(prefix="feedfleet-once-") as folder:
        with open(os.path.join(folder, "config.toml"), "w") as file:
            file.write(CONFIG)
        with open(os.path.join(folder, "urls"), "w") as file:
            file.writelines(f"http://127.2.{number // 250}.{number % 250 + 1}:{PORT}/{number}\n" for number in range(feeds))
        took, cpu = once(program, folder)
        assert origin.full == feeds, f"{origin.full} of {feeds} feeds were polled"
        print(f"{feeds} new feeds: {took:.2f} s, {cpu:.2f} s CPU", flush=True)
        for number in range(int(rounds)):
            time.sleep(15)
            measured.append(once(program, folder))
            assert origin.unchanged == feeds * (number + 1), f"{origin.unchanged} answers with 304 after {number + 1} rounds"
            print(f"{feeds} known feeds: {measured[-1][0]:.2f} s, {measured[-1][1]:.2f} s CPU", flush=True)
    wall, cpu = (statistics.median(values) for values in zip(*measured))
    print(f"median: {wall:.2f} s (at most {SECONDS:.1f}), {cpu:.2f} s CPU")
    sys.exit(wall > SECONDS)


main()
