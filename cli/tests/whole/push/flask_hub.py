"""The hub of Flask-WebSub on loopback, without Celery: its tasks run on threads of this process.

Usage: flask_hub.py PORT STORE. Prints a line when it listens.
"""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from flask import Flask
from flask_websub.hub import Hub, SQLite3HubStorage
from werkzeug.serving import WSGIRequestHandler, make_server

POOL = ThreadPoolExecutor(16)
# The store is one SQLite file.
LOCK = threading.Lock()


class Request:
    """What a bound task knows of its call."""

    retries = 0


class Task:
    """A task of Celery, as far as the hub uses one."""

    request = Request()

    def __init__(self, run, bind):
        self.run, self.bind = run, bind

    def delay(self, *arguments):
        POOL.submit(self.call, arguments)

    def call(self, arguments):
        try:
            # A bound task of the hub takes itself as its first argument.
            self.run(*((self, *arguments) if self.bind else arguments))
        except Exception as error:
            print(f"a task failed: {error!r}", file=sys.stderr)

    def retry(self, countdown):
        print(f"not delivered; would be retried in {countdown:.0f} s", file=sys.stderr)


class Tasks:
    """Celery, as far as the hub uses it."""

    @staticmethod
    def task(bind=False, **_):
        return lambda run: Task(run, bind)


class Storage(SQLite3HubStorage):
    """One thread at a time."""

    def __setitem__(self, key, value):
        with LOCK:
            super().__setitem__(key, value)

    def __delitem__(self, key):
        with LOCK:
            super().__delitem__(key)

    def get_callbacks(self, topic_url):
        with LOCK:
            return list(super().get_callbacks(topic_url))


class Quiet(WSGIRequestHandler):
    """Logs no requests."""

    def log_request(self, *_):
        pass


def main():
    port, store = int(sys.argv[1]), sys.argv[2]
    hub = Hub(Storage(store), Tasks(), REQUEST_TIMEOUT=5)
    app = Flask(__name__)
    app.config["PUBLISH_SUPPORTED"] = True
    app.register_blueprint(hub.build_blueprint(url_prefix="/hub"))
    server = make_server("127.0.0.1", port, app, threaded=True, request_handler=Quiet)
    print("listening", flush=True)
    server.serve_forever()


main()
