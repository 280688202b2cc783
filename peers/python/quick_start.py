"""Publishes an event, receives it and acknowledges it, with the CloudEvents SDK for Python.

    quick_start.py http://127.0.0.1:10105
"""

import json
import sys

import requests
from cloudevents.core.bindings import http
from cloudevents.core.v1.event import CloudEvent

MESH = sys.argv[1]

subscription = {"clientId": "python", "topic": "python", "mode": "LOAD_BALANCE", "group": "python"}
requests.post(f"{MESH}/events/subscribe", json=subscription, timeout=30).raise_for_status()

event = CloudEvent({"source": "/shop", "type": "order.placed", "datacontenttype": "application/json"}, {"total": 42})
message = http.to_structured_event(event)
answer = requests.post(
    f"{MESH}/events/publish?topic=python", data=message.body, headers=message.headers, timeout=30
)
answer.raise_for_status()

polled = requests.get(f"{MESH}/events/poll", params={"clientId": "python", "timeoutMs": 20000}, timeout=40)
polled.raise_for_status()
for delivery in polled.json():
    body = json.dumps(delivery["event"]).encode()
    received = http.from_http_event(http.HTTPMessage({"content-type": "application/cloudevents+json"}, body))
    print(f"received {received.get_type()}: {received.get_data()}")
    ack = {"deliveryId": delivery["deliveryId"]}
    requests.post(f"{MESH}/events/ack", json=ack, timeout=30).raise_for_status()
