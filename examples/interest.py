"""Interest handler: turns what a device cares for into SUBSCRIBE and UNSUBSCRIBE."""

from __future__ import annotations

import threading

import vendor
from vendor import Link


class Interest:
    """The houses that somebody cares for, on a connection that may be lost and come back."""

    def __init__(self, houses: list[str]) -> None:
        self.houses = set(houses)
        self.link: Link | None = None
        self.lock = threading.Lock()

    def attach(self, link: Link) -> None:
        """Changes from here on go over this connection."""
        self.link = link

    def subscribe_all(self) -> None:
        """There is a new connection: the node knows nothing of what is wanted."""
        with self.lock:
            filters = [(vendor.temperature(house), 0) for house in sorted(self.houses)]
        if self.link and filters:
            self.link.client.subscribe(filters)

    def wants(self, house: str) -> None:
        """From now on the device cares for this house."""
        with self.lock:
            is_new = house not in self.houses
            self.houses.add(house)
        if self.link and is_new:
            self.link.client.subscribe(vendor.temperature(house), 0)

    def drops(self, house: str) -> None:
        """The device leaves this house alone."""
        with self.lock:
            was_there = house in self.houses
            self.houses.discard(house)
        if self.link and was_there:
            self.link.client.unsubscribe(vendor.temperature(house))

    def told(self, line: str) -> bool:
        """`+ HOUSE` or `- HOUSE`, as a person types it; whether it was one of both."""
        sign, _, house = line.strip().partition(" ")
        house = house.strip()
        if sign not in ("+", "-") or not house or any(one in house for one in "+#/"):
            return False
        (self.wants if sign == "+" else self.drops)(house)
        return True
