"""Publishes with the CloudEvents SDK for Python and parses what is delivered with it.

    cloudevents_sdk.py http://127.0.0.1:10105

Every event goes in structured, in binary and within a batch; what comes back must be equal in every
attribute, every extension and the data. Exits with 1 and says what differs otherwise.
"""

import sys
from datetime import datetime, timezone

import requests
from cloudevents.core.bindings import http
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

TOPIC = "python-sdk"
MESH = sys.argv[1]


def event(name, data, content_type, **more):
    return CloudEvent(
        {
            "id": f"{name} ü",
            "source": "/shop/ümläut?a=b#c",
            "type": "com.example.order.placed",
            "time": datetime(2026, 2, 3, 4, 5, 6, 789012, tzinfo=timezone.utc),
            "datacontenttype": content_type,
            **more,
        },
        data,
    )


def events():
    extensions = {"tone": "dürr %41 \"quoted\"", "partitionkey": "customer 7", "traceparent": "00-" + "a" * 32}
    yield event(
        "json",
        {"total": 42.5, "lines": [1, None, True, "ü"], "deep": {"a": {}}},
        "application/json",
        subject="orders/42",
        dataschema="https://example.com/schema",
        **extensions,
    )
    yield event("suffix", {"x": 1}, "application/vnd.example+json")
    yield event("text", "first line\nsecond line ü", "text/plain; charset=utf-8", **extensions)
    yield event("xml", "<a>1 &lt; 2</a>", "text/xml")
    yield event("bytes", bytes(range(256)), "application/octet-stream", **extensions)
    yield event("none", None, "application/json")


def subscribe():
    body = {"clientId": "python", "topic": TOPIC, "mode": "LOAD_BALANCE"}
    requests.post(f"{MESH}/events/subscribe", json=body, timeout=20).raise_for_status()


def publish(path, message):
    answer = requests.post(
        f"{MESH}/events/{path}?topic={TOPIC}", data=message.body, headers=message.headers, timeout=20
    )
    assert answer.status_code == 202, (answer.status_code, answer.text, message)


def receive(count):
    """The next events, each parsed by the SDK, acknowledged."""
    received = []
    while len(received) < count:
        answer = requests.get(
            f"{MESH}/events/poll", params={"clientId": "python", "timeoutMs": 20000}, timeout=40
        )
        answer.raise_for_status()
        assert answer.json(), f"{count - len(received)} events did not come"
        for delivery in answer.json():
            message = http.HTTPMessage(
                {"content-type": "application/cloudevents+json"}, requests.compat.json.dumps(delivery["event"]).encode()
            )
            received.append(http.from_http_event(message))
            acked = requests.post(f"{MESH}/events/ack", json={"deliveryId": delivery["deliveryId"]}, timeout=20)
            acked.raise_for_status()
    return received


def compare(how, sent, got):
    """A batch of unordered events against what came."""
    by_id = {event.get_id(): event for event in got}
    assert len(by_id) == len(sent), (how, sorted(by_id))
    for event in sent:
        back = by_id[event.get_id()]
        assert back.get_attributes() == event.get_attributes(), (
            how, event.get_attributes(), back.get_attributes())
        assert back.get_data() == event.get_data(), (how, event.get_id(), event.get_data(), back.get_data())
        assert type(back.get_data()) is type(event.get_data()), (how, event.get_id())


def main():
    subscribe()
    # An Integer and a Boolean are text in headers and themselves in JSON.
    typed = event("typed", {"x": 1}, "application/json", weight=7, urgent=True)

    sent = [*events(), typed]
    for one in sent:
        publish("publish", http.to_structured_event(one))
    compare("structured", sent, receive(len(sent)))

    sent = list(events())
    for one in sent:
        publish("publish", http.to_binary_event(one))
    compare("binary", sent, receive(len(sent)))

    # The SDK has no batches: they are arrays of what it writes for each event.
    sent = [*events(), typed]
    elements = b",".join(JSONFormat().write(one) for one in sent)
    headers = {"content-type": "application/cloudevents-batch+json"}
    publish("publish-batch", http.HTTPMessage(headers, b"[" + elements + b"]"))
    compare("batch", sent, receive(len(sent)))
    print("all events came back equal")


main()
