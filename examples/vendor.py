"""What the vendor of the devices lays down: names of topics, the format of messages, and how to reach a cluster."""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Callable
from typing import Any

import paho.mqtt.client as mqtt

# Numbers that one request may name.
NUMBERS_MAX = 500
# Seconds between two attempts to connect.
PAUSE = 0.3


def temperature(house: str) -> str:
    """Where the values of a house are published; `+` for all houses."""
    return f"greenhouse/{house}/temperature"


def again(house: str) -> str:
    """Where values are asked for that somebody has missed."""
    return f"greenhouse/{house}/again"


def fan(house: str) -> str:
    """Where the fan of a house is switched."""
    return f"greenhouse/{house}/fan"


def house_of(topic: str) -> str:
    """The house that a topic is about."""
    return topic.split("/")[1]


def read(payload: bytes) -> dict[str, Any]:
    """A message; an empty one if it is not in the format, whoever has sent it."""
    try:
        found = json.loads(payload)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


class Link:
    """A connection to any node of a cluster, which goes to the next address when it is lost."""

    def __init__(self, name: str, addresses: list[str], on_connect: Callable[[], None], on_message: Callable[[mqtt.MQTTMessage], None]) -> None:
        self.addresses = [(host or "127.0.0.1", int(port)) for host, _, port in (one.rpartition(":") for one in addresses)]
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=name, protocol=mqtt.MQTTv5)
        self.client.on_connect = lambda _client, _data, _flags, reason, _properties: None if reason.is_failure else on_connect()
        self.client.on_message = lambda _client, _data, message: on_message(message)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Connects, and stays connected."""
        self._thread.start()

    def _run(self) -> None:
        turn = 0
        while not self._ends.is_set():
            host, port = self.addresses[turn % len(self.addresses)]
            try:
                self.client.connect(host, port, keepalive=5)
                while self.client.loop(0.2) == mqtt.MQTT_ERR_SUCCESS and not self._ends.is_set():
                    pass
            except OSError:
                pass
            turn += 1
            self._ends.wait(PAUSE)

    def send(self, topic: str, message: dict[str, Any] | str, qos: int = 0, retain: bool = False, answer_to: str = "") -> None:
        """Publishes a message."""
        properties = mqtt.Properties(mqtt.PacketTypes.PUBLISH)
        if answer_to:
            properties.ResponseTopic = answer_to
        text = message if isinstance(message, str) else json.dumps(message)
        self.client.publish(topic, text, qos, retain, properties)

    def stop(self) -> None:
        """Says good-bye."""
        self._ends.set()
        self._thread.join(5)
        self.client.disconnect()


def arguments(about: str | None) -> argparse.ArgumentParser:
    """The flags that all programs have."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--at", action="append", metavar="HOST:PORT", help="a node, or several: the next one is taken when one is gone (127.0.0.1:1883)")
    return parser


def addresses(given: list[str] | None) -> list[str]:
    """Where the nodes are."""
    return given or ["127.0.0.1:1883"]
