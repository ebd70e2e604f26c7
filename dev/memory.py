#!/usr/bin/env python3
"""Measures the memory of a first import. Called by dev/bench memory.

    dev/memory.py PROGRAM [FEEDS [IDLE]]

Starts `PROGRAM run` with a new folder, imports FEEDS (2,000) feeds of 30 KB, each at its own loopback address and due at once,
and waits until all are stored. Prints the peak of the process's memory, what it uses IDLE (30) seconds later, the CPU time, and
what a new process on the same data uses. Exits with 1 if the peak exceeds MEMORY_PEAK (150) MB or the idle memory
MEMORY_IDLE (110) MB.
"""
import asyncio
import os
import re
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
from fleet import Fleet, busy, most_memory

PORT = 8124
PEAK, KEPT = (float(os.environ.get(name, default)) for name, default in (("MEMORY_PEAK", 150), ("MEMORY_IDLE", 110)))
CONFIG = f"""
[policy]
hot_minutes = false
import_spread = "0s"
[fetch]
allow_networks = ["127.0.0.0/8"]
allow_ports = ["{PORT}"]
"""


def document(path):
    items = "".join(
        f"<item><title>{path} number {number}</title><link>http://example.org{path}/{number}</link><guid>{path}-{number}</guid>"
        f"<description>{'Words of an entry. ' * 72}</description></item>"
        for number in range(20)
    )
    return f"<rss version='2.0'><channel><title>{path}</title>{items}</channel></rss>".encode()


def serve():
    """Serves a feed at every path of every loopback address, from a thread."""

    async def answer(reader, writer):
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                body = document(head.split(b" ", 2)[1].decode())
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/rss+xml\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def forever():
        server = await asyncio.start_server(answer, "0.0.0.0", PORT, backlog=4096)
        ready.set()
        await server.serve_forever()

    ready = threading.Event()
    threading.Thread(target=lambda: asyncio.run(forever()), daemon=True).start()
    ready.wait()


def resident(process):
    """Returns the memory that a process uses now, in MB."""
    with open(f"/proc/{process.pid}/status") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1]) / 1024


def stored(fleet):
    return fleet.call("GET", "/api/v1/stats")["entries"]


def measure(program, folder, feeds, idle):
    source = os.path.join(folder, "urls")
    with open(source, "w") as file:
        file.writelines(f"http://127.1.{number // 250}.{number % 250 + 1}:{PORT}/{number}\n" for number in range(feeds))
    fleet = Fleet(program, folder, CONFIG)
    process = fleet.processes[0]
    empty = resident(process)
    begun = time.monotonic()
    fleet.command("import", source)
    while (entries := stored(fleet)) < 20 * feeds:
        assert time.monotonic() - begun < 600, f"only {entries} entries are stored"
        time.sleep(0.1)
    took, cpu, peak = time.monotonic() - begun, busy(process), most_memory(process)
    time.sleep(idle)
    peak, kept = max(peak, most_memory(process)), resident(process)
    print(f"{feeds} feeds of {len(document('/1000')) / 1000:.0f} KB: {took:.1f} s, {cpu:.1f} s CPU; memory {empty:.0f} MB before, "
          f"peak {peak:.0f} MB (at most {PEAK:.0f}), {kept:.0f} MB after {idle:.0f} s (at most {KEPT:.0f})", flush=True)
    fleet.stop()
    data = os.path.join(fleet.data, "feedfleet.toml")
    again = fleet.start(["run", "--data", fleet.data], data, 1, False)
    fleet.processes.append(again)
    fleet.until_ready(1)
    time.sleep(min(idle, 5))
    print(f"a new process on the same data: {resident(again):.0f} MB, peak {most_memory(again):.0f} MB", flush=True)
    again.terminate()
    again.wait()
    return peak <= PEAK and kept <= KEPT


def main():
    program, feeds, idle, *_ = sys.argv[1:] + ["2000", "30"][len(sys.argv) - 2:]
    serve()
    with tempfile.TemporaryDirectory(prefix="feedfleet-memory-") as folder:
        sys.exit(not measure(program, folder, int(feeds), float(idle)))


main()
