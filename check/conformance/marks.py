"""Short forms of the markers. `@v3("3.1.2-4")` says: this test checks statement MQTT-3.1.2-4 of MQTT 3.1.1."""

from __future__ import annotations

import pytest

from mqttwire import V5, V311


def v3(*numbers: str) -> pytest.MarkDecorator:
    """Statements of MQTT 3.1.1."""
    return pytest.mark.mqtt(*(f"MQTT-{number}" for number in numbers), version="3.1.1")


def v5(*numbers: str) -> pytest.MarkDecorator:
    """Statements of MQTT 5.0."""
    return pytest.mark.mqtt(*(f"MQTT-{number}" for number in numbers), version="5.0")


both = pytest.mark.parametrize("version", [V311, V5], ids=["v311", "v5"])
each_qos = pytest.mark.parametrize("qos", [0, 1, 2], ids=["qos0", "qos1", "qos2"])
acked_qos = pytest.mark.parametrize("qos", [1, 2], ids=["qos1", "qos2"])
timed = pytest.mark.timed
expects_reason = pytest.mark.expects_reason
