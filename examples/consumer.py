#!/usr/bin/env python3
"""Data consumer: shows temperatures, switches fans, and asks again for values that it has missed."""

from __future__ import annotations

import secrets
import sys
import threading
import time
from typing import Any

import vendor
from interest import Interest
from paho.mqtt.client import MQTTMessage
from vendor import NUMBERS_MAX, Link

HOT = 25.0
COOL = 23.0
# Seconds after which values are asked for once more.
PATIENCE = 1.0
# Values before the last one that are asked for, as many as a producer keeps.
GAP_MAX = 1_000
# Values of one house that are remembered.
VALUES_MAX = 100_000


class House:
    """What is known of one house."""

    def __init__(self, life: str, number: int) -> None:
        self.life, self.next = life, number
        self.values: dict[int, float] = {}
        self.missing: set[int] = set()
        self.asked_at = 0.0
        self.fan = ""


class Consumer:
    """A device that watches over greenhouses."""

    def __init__(self, interest: Interest, addresses: list[str], name: str = "", shows: bool = True) -> None:
        self.interest, self.shows = interest, shows
        self.houses: dict[str, House] = {}
        self.recovered = 0
        self.lock = threading.RLock()
        name = name or f"consumer-{secrets.token_hex(4)}"
        self.answers = f"greenhouse-answers/{name}/"
        self.link = Link(name, addresses, self.connected, self.comes)
        interest.attach(self.link)
        self.link.start()

    def connected(self) -> None:
        """Answers come to a topic of its own."""
        self.link.client.subscribe(f"{self.answers}+", 0)
        self.interest.subscribe_all()

    def comes(self, message: MQTTMessage) -> None:
        """A value, for the first time or again."""
        is_answer = message.topic.startswith(self.answers)
        name = message.topic.removeprefix(self.answers) if is_answer else vendor.house_of(message.topic)
        value = vendor.read(message.payload)
        number, life, celsius = value.get("number"), value.get("life"), value.get("celsius")
        if not isinstance(number, int) or number < 0 or not isinstance(life, str) or not isinstance(celsius, (int, float)):
            return
        with self.lock:
            house = self.houses.get(name)
            if house is None or (house.life != life and not is_answer):
                # What a producer has sent before it is heard for the first time is none of ours.
                house = self.houses[name] = House(life, number)
            if house.life == life:
                self.takes(name, house, number, float(celsius))

    def takes(self, name: str, house: House, number: int, celsius: float) -> None:
        """Notes the value, and which ones are missing before it."""
        if number in house.values:
            return
        if number in house.missing:
            house.missing.discard(number)
            self.recovered += 1
        house.missing.update(range(max(house.next, number - GAP_MAX), number))
        house.values[number] = celsius
        if len(house.values) > VALUES_MAX:
            del house.values[next(iter(house.values))]
        if number >= house.next:
            house.next = number + 1
            self.acts(name, house, celsius)
            self.show(name, house, number, celsius)
        self.ask(name, house)

    def ask(self, name: str, house: House) -> None:
        """Asks the producer for what is missing, not too often."""
        if not house.missing or time.monotonic() - house.asked_at < PATIENCE:
            return
        house.asked_at = time.monotonic()
        request: dict[str, Any] = {"life": house.life, "numbers": sorted(house.missing)[:NUMBERS_MAX]}
        self.link.send(vendor.again(name), request, qos=1, answer_to=f"{self.answers}{name}")

    def acts(self, name: str, house: House, celsius: float) -> None:
        """Switches the fan, once for each change."""
        wanted = "on" if celsius > HOT else "off" if celsius < COOL else house.fan
        if wanted and wanted != house.fan:
            house.fan = wanted
            self.link.send(vendor.fan(name), wanted, qos=1, retain=True)

    def show(self, name: str, house: House, number: int, celsius: float) -> None:
        """One line for each value."""
        if self.shows:
            gap = f"  {len(house.missing)} missing" if house.missing else ""
            print(f"{name:>8} {number:>6} {celsius:5.1f} °C  fan {house.fan or '-':<3} {'#' * max(0, round(celsius))}{gap}", flush=True)

    def summary(self) -> str:
        """How many values have come, and how many of them again."""
        with self.lock:
            values = sum(len(house.values) for house in self.houses.values())
            missing = sum(len(house.missing) for house in self.houses.values())
        return f"{values} values of {len(self.houses)} houses, {self.recovered} of them after a gap, {missing} missing"


def main() -> None:
    """Runs until it is interrupted; lines of the terminal change what it cares for."""
    parser = vendor.arguments(__doc__)
    parser.add_argument("house", nargs="+", help="greenhouses to begin with")
    given = parser.parse_args()
    interest = Interest(given.house)
    consumer = Consumer(interest, vendor.addresses(given.at))
    try:
        for line in sys.stdin:
            if not interest.told(line):
                print('write "+ HOUSE" to watch a house, "- HOUSE" to watch it no more', file=sys.stderr)
        threading.Event().wait()
    except KeyboardInterrupt:
        consumer.link.stop()
        print(consumer.summary())


if __name__ == "__main__":
    main()
