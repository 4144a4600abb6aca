"""docs/protocol.md tells the truth: its bytes are sent to a broker, its answers come back.

The examples of the page are one conversation. What a client says there is given to a broker in
memory; what the broker is said to answer has to be what it answers, byte by byte, and nothing
besides. What stands beside the bytes is compared with what our codec reads in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rove.broker.context import Settings
from rove.broker.counters import Counters
from rove.broker.limits import Limits
from rove.mqtt.decoder import PacketDecoder
from rove.mqtt.encoder import encode
from rove.mqtt.packets import V5, V311, Malformed, Packet, Reason
from rove.testing.mqtt import SimulatedBroker, SimulatedClient

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"
VERSIONS = {"anna": V5, "bea": V5, "carl": V311}
ROW = re.compile(r"((?:[0-9a-f]{2} )*[0-9a-f]{2})(?: +(\S.*))?")


class Row(NamedTuple):
    """Some bytes, and what the page says of them."""

    data: bytes
    words: str


class Example(NamedTuple):
    """One packet of the conversation."""

    sender: str
    receiver: str
    rows: tuple[Row, ...]

    @property
    def client(self) -> str:
        return self.receiver if self.sender == "broker" else self.sender

    @property
    def data(self) -> bytes:
        return b"".join(row.data for row in self.rows)

    def packet(self) -> Packet:
        """As our codec reads it."""
        from_server = self.sender == "broker"
        # A server's reader learns the version from CONNECT.
        is_first = self.data[0] >> 4 == 1
        version = None if is_first else VERSIONS[self.client]
        [packet] = PacketDecoder(version=version, from_server=from_server).feed(self.data)
        assert not isinstance(packet, Malformed), packet.text
        return packet


def examples(page: str) -> Iterator[Example]:
    for block in re.findall(r"```mqtt\n(.*?)```", page, re.DOTALL):
        title, *lines = block.splitlines()
        sender, receiver = title.split(" → ")
        rows: list[Row] = []
        for line in lines:
            found = ROW.fullmatch(line)
            assert found is not None, f"cannot be read: {line}"
            data, words = bytes.fromhex(found[1]), found[2]
            if words is None:
                rows[-1] = Row(rows[-1].data + data, rows[-1].words)
            else:
                rows.append(Row(data, words))
        yield Example(sender, receiver, tuple(rows))


EXAMPLES = tuple(examples(PAGE.read_text(encoding="utf-8")))


class Listener(SimulatedClient):
    """Keeps the bytes that it is sent as they are."""

    def __init__(self, world: SimulatedBroker, name: str) -> None:
        super().__init__(world, name, VERSIONS[name])
        self.unheard = b""

    def was_sent(self, data: bytes) -> None:
        self.unheard += data


def test_the_conversation_goes_as_the_page_says() -> None:
    world = SimulatedBroker(settings=Settings(version="0.1.0", topic_text=True))
    clients = {name: Listener(world, name) for name in VERSIONS}
    for client in clients.values():
        client.open()
    for example in EXAMPLES:
        client = clients[example.client]
        if example.sender == "broker":
            assert client.unheard.startswith(example.data), example
            client.unheard = client.unheard.removeprefix(example.data)
        else:
            assert not any(one.unheard for one in clients.values()), f"unsaid before {example}"
            client.say(example.data)
            world.turn()
    assert {name: client.unheard for name, client in clients.items()} == dict.fromkeys(clients, b"")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.rows[0].words.split(",")[0])
def test_the_words_beside_the_bytes_are_right(example: Example) -> None:
    packet = example.packet()
    assert encode(packet, VERSIONS[example.client]) == example.data
    kind, *_, length = example.rows[0].words.split(", ")
    assert kind == type(packet).__name__.upper()
    assert length == f"{len(example.data) - len(example.rows[0].data)} bytes follow"
    for data, words in example.rows[1:]:
        for quoted in re.findall(r'"(.*?)"', words.removeprefix("payload ")):
            assert quoted.encode() in data, words
        if number := re.fullmatch(r"[\w ,]+(?::| identifier) (\d+)", words):
            assert is_in(int(number[1]), data), words
        if reason := re.fullmatch(r"reason 0x(..): .*", words):
            assert data == bytes.fromhex(reason[1])


def is_in(number: int, data: bytes) -> bool:
    """Whether a row ends with the number, as one, two or four bytes or of variable length."""
    written = [number.to_bytes(size, "big") for size in (1, 2, 4) if number < 1 << (8 * size)]
    if 0x80 <= number < 0x4000:
        written.append(bytes((number & 0x7F | 0x80, number >> 7)))
    return data.endswith(tuple(written))


def test_every_kind_of_example_is_there() -> None:
    kinds = {(example.sender == "broker", type(example.packet()).__name__) for example in EXAMPLES}
    assert {name for is_answer, name in kinds if not is_answer} >= {
        "Connect", "Subscribe", "Unsubscribe", "Publish", "Puback",
    }  # fmt: skip
    assert {name for is_answer, name in kinds if is_answer} >= {
        "Connack", "Suback", "Unsuback", "Publish", "Puback",
    }  # fmt: skip


def test_reason_codes_and_limits_exist() -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = page[page.index("## Reason codes") :]
    for code in re.findall(r"^\| (0x.*?) \|", table, re.MULTILINE):
        for each in code.split(", "):
            assert int(each, 16) in set(Reason), each
    names = re.findall(r"`(\w+_(?:max|per_s|overflow|s))`", page)
    assert len(names) > 5
    assert set(names) <= set(Limits.__struct_fields__)
    counted = re.findall(r"`rove_(\w+)_total`", page)
    assert counted
    assert set(counted) <= set(Counters.HELP)


def test_a_wrong_byte_would_be_seen() -> None:
    [example] = examples('```mqtt\nanna → broker\n40 02  PUBACK, 2 bytes follow\n00 01  x "y"\n```')
    with pytest.raises(AssertionError):
        test_the_words_beside_the_bytes_are_right(example)
