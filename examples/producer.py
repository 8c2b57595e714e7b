#!/usr/bin/env python3
"""Data producer: sends the temperature of one greenhouse, and again what somebody has missed."""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections import OrderedDict
from typing import Any

import vendor
from paho.mqtt.client import MQTTMessage
from vendor import NUMBERS_MAX, Link

# Values that are kept for who has missed them.
KEPT_MAX = 1_000


class Producer:
    """One sensor."""

    def __init__(self, house: str, addresses: list[str], name: str = "") -> None:
        self.house, self.number = house, 0
        # Numbers begin anew with the program: the consumer tells one life from the next.
        self.life = secrets.token_hex(4)
        self.kept: OrderedDict[int, dict[str, Any]] = OrderedDict()
        self.lock = threading.Lock()
        self.fan = "off"
        self.link = Link(name or f"producer-{house}", addresses, self.connected, self.asked)
        self.link.start()  # not before it has a name here: it may be connected at once

    def connected(self) -> None:
        """Requests and the fan's switch are for this sensor."""
        self.link.client.subscribe([(vendor.again(self.house), 1), (vendor.fan(self.house), 1)])

    def asked(self, message: MQTTMessage) -> None:
        """Somebody wants values again, or the fan is switched."""
        if message.topic == vendor.fan(self.house):
            self.fan = message.payload.decode(errors="replace")
            return
        request = vendor.read(message.payload)
        answer_to = getattr(message.properties, "ResponseTopic", "")
        numbers = request.get("numbers")
        if request.get("life") != self.life or not answer_to or not isinstance(numbers, list):
            return
        with self.lock:
            found = [self.kept[number] for number in numbers[:NUMBERS_MAX] if isinstance(number, int) and number in self.kept]
        for value in found:
            self.link.send(answer_to, value)

    def measure(self, celsius: float | None = None) -> None:
        """Sends one value; of a greenhouse on a quick day, if none is given."""
        if celsius is None:
            celsius = round(22 + 6 * math.sin(time.monotonic() / 3) - (3 if self.fan == "on" else 0), 1)
        value = {"number": self.number, "life": self.life, "celsius": celsius}
        with self.lock:
            self.kept[self.number] = value
            if len(self.kept) > KEPT_MAX:
                self.kept.popitem(last=False)
            self.number += 1
        self.link.send(vendor.temperature(self.house), value)


def main() -> None:
    """Runs until it is interrupted."""
    parser = vendor.arguments(__doc__)
    parser.add_argument("house", help="name of the greenhouse")
    parser.add_argument("--every", type=float, default=0.1, help="seconds between two values (0.1)")
    given = parser.parse_args()
    producer = Producer(given.house, vendor.addresses(given.at))
    try:
        while True:
            producer.measure()
            time.sleep(given.every)
    except KeyboardInterrupt:
        producer.link.stop()


if __name__ == "__main__":
    main()
