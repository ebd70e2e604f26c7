"""A subscriber of Flask-WebSub: subscribes, prints what it gets, renews, and obeys the orders on standard input."""

import sys
import threading

from flask import Flask
from flask_websub.subscriber import SQLite3SubscriberStorage, SQLite3TempSubscriberStorage, Subscriber

port, hub, topic = int(sys.argv[1]), sys.argv[2], sys.argv[3]
app = Flask(__name__)
app.config["SERVER_NAME"] = f"127.0.0.1:{port}"
subscriber = Subscriber(SQLite3SubscriberStorage("subscriber.db"), SQLite3TempSubscriberStorage("requests.db"))
app.register_blueprint(subscriber.build_blueprint(url_prefix="/callbacks"))


def tell(*words):
    print(*words, flush=True)


@subscriber.add_success_handler
def on_success(topic_url, callback_id, mode):
    tell(mode, callback_id)


@subscriber.add_error_handler
def on_error(topic_url, callback_id, reason):
    tell("error", reason)


@subscriber.add_listener
def on_notification(topic_url, callback_id, body):
    tell("got", body.count(b"<entry>"), topic_url)


def obey():
    callback = None
    for line in sys.stdin:
        with app.app_context():
            if line == "subscribe\n":
                callback = subscriber.subscribe(topic_url=topic, hub_url=hub, lease_seconds=60)
            elif line == "renew\n":
                subscriber.renew_close_to_expiration(margin_in_seconds=3600)
            else:
                subscriber.unsubscribe(callback)


threading.Thread(target=obey, daemon=True).start()
app.run(port=port, threaded=True)
