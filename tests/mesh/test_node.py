"""A node of the network: what it does with links, and what others can do to it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from rove.mesh.graph import Edge, Record
from rove.mesh.limits import MeshLimits
from rove.mesh.messages import (
    Digest,
    Hello,
    MeshError,
    Open,
    Ping,
    Taken,
    Welcome,
    encode,
    encode_frame,
    encode_open,
)
from rove.mesh.node import MeshNode
from rove.testing.mesh_links import SimulatedMesh, SimulatedNode
from tests.effort import share


def three(delay_s: float = 0.01) -> SimulatedMesh:
    """b1, b2 and b3 in a triangle."""
    mesh = SimulatedMesh(seed=1)
    for number, name in enumerate(("b1", "b2", "b3")):
        mesh.start(name, clock_s=number * 0.5)
    for one, other in (("b1", "b2"), ("b2", "b3"), ("b3", "b1")):
        mesh.wire(one, other, delay_s)
    mesh.run(1.0)
    return mesh


def test_every_two_brokers_have_a_tunnel() -> None:
    mesh = three()
    for name, node in mesh.nodes.items():
        assert node.tunnels.keys() == mesh.nodes.keys() - {name}
    mesh.send("b1", ["b2", "b3"], b"body", b"prefix ")
    mesh.run(0.1)
    assert mesh.nodes["b2"].streams["b1"] == b"prefix body"
    assert mesh.nodes["b3"].streams["b1"] == b"prefix body"


def test_a_way_around_a_cut_link_is_taken_without_a_reset_if_nothing_is_under_way() -> None:
    mesh = three()
    before = dict(mesh.nodes["b1"].tunnels)
    mesh.wires[0].cut()
    mesh.run(0.1)
    mesh.send("b1", ["b2"], b"around")
    mesh.run(0.1)
    assert mesh.nodes["b2"].streams["b1"] == b"around"
    assert mesh.nodes["b1"].tunnels == before


# -- the beginning of a link -----------------------------------------------------------------------


def core(name: str = "b1", *, epoch: int = 1, version: str = "1.0") -> MeshNode:
    return MeshNode(name, epoch, f"{name} {epoch}".encode(), version=version)


def introduce(one: MeshNode, other: MeshNode, link: int = 1, now_s: float = 0.0) -> list[str]:
    """Connect two nodes and let them talk; with what reason each has closed the link."""
    one.link_opened(link, now_s, outgoing=True)
    other.link_opened(link, now_s, outgoing=False)
    reasons = {}
    for _ in range(10):
        for here, there in ((one, other), (other, one)):
            output = here.take()
            for closed in output.closed:
                reasons[here] = closed.reason
            if link in output.data:
                there.received(link, output.data[link], now_s)
    return [reasons[node] for node in (one, other) if node in reasons]


def test_a_broker_does_not_join_itself() -> None:
    reasons = introduce(core(), core())
    assert reasons[0] == "b1 cannot join itself"
    assert reasons[1] == "b1 cannot join itself"


def test_another_major_version_is_refused_and_both_sides_say_why() -> None:
    reasons = introduce(core(), core("b2", version="2.1"))
    assert len(reasons) == 2
    for reason in reasons:
        assert "is Rove '" in reason
        assert reason.endswith(": brokers of one network need the same major version")


def test_a_name_that_a_live_broker_has_is_refused_wherever_it_is() -> None:
    mesh = three()
    other = core("b3", epoch=9)
    hello = introduce(mesh.nodes["b1"].core, other, link=99, now_s=mesh.now_s)
    taken = "another broker of this network is called b3; choose another name"
    assert hello == [taken, f"b1 closed it: {taken}"]
    same = introduce(mesh.nodes["b2"].core, core("b2", epoch=9), 99, mesh.now_s + 0.5)
    assert "called b2" in same[0]


def test_a_broker_may_only_have_the_name_that_it_has_authenticated_as() -> None:
    one, other = core(), core("b2")
    one.link_opened(1, 0.0, outgoing=False, expected="b3")
    other.link_opened(1, 0.0, outgoing=True)
    one.received(1, other.take().data[1], 0.0)
    (closed,) = one.take().closed
    assert closed.reason == "b2 has authenticated as b3, and may have no other name"


@pytest.mark.parametrize("name", ["", "b 1", "b" * 65])
def test_a_broker_must_have_a_name_that_can_be_typed(name: str) -> None:
    with pytest.raises(MeshError, match="a broker cannot be called"):
        core(name)


def test_a_link_too_many_is_refused() -> None:
    node = MeshNode("b1", 1, b"x", version="1.0", limits=MeshLimits(links_max=1))
    node.link_opened(1, 0.0, outgoing=False)
    node.link_opened(2, 0.0, outgoing=False)
    closed = node.take().closed
    assert [each.reason for each in closed] == ["b1 has 1 links already"]


@pytest.mark.parametrize("delays_s", [(0.01, 0.01), (0.01, 0.001), (0.001, 0.01)])
def test_of_two_links_between_two_brokers_one_stays(delays_s: tuple[float, float]) -> None:
    mesh = SimulatedMesh(seed=2)
    mesh.start("b1")
    mesh.start("b2")
    mesh.wire("b1", "b2", delays_s[0])
    mesh.wire("b2", "b1", delays_s[1])
    mesh.run(10.0)
    for node in mesh.nodes.values():
        view = node.core.view
        assert sum(link.state == "joined" for link in view.links) == 1
        assert view.tunnels[0].opened_count == 1
        assert node.refusals == []


def test_a_link_that_a_person_closes_says_why_on_both_sides() -> None:
    mesh = three()
    node = mesh.nodes["b1"]
    node.core.close_link(node.neighbours["b2"], node.clock(mesh.now_s), "rove mesh disconnect")
    mesh.carry_out("b1", node)
    mesh.run(0.1)
    assert node.refusals[0].reason == "rove mesh disconnect"
    assert mesh.nodes["b2"].refusals[0].reason == "b1 closed it: rove mesh disconnect"


# -- what may happen to a network ----------------------------------------------------------------


def test_a_restarted_broker_is_closed_and_opened() -> None:
    mesh = three()
    before = mesh.nodes["b1"].tunnels["b3"]
    mesh.kill("b3")
    mesh.run(0.2)
    assert "b3" not in mesh.nodes["b1"].tunnels
    mesh.start("b3")
    mesh.run(0.2)
    assert mesh.nodes["b1"].tunnels["b3"] > before
    mesh.send("b3", ["b1"], b"back")
    mesh.run(0.1)
    assert mesh.nodes["b1"].streams["b3"] == b"back"


def test_a_broker_that_comes_back_before_its_old_link_is_noticed_may_join() -> None:
    mesh = SimulatedMesh(seed=3)
    mesh.start("b1")
    mesh.start("b2")
    wire = mesh.wire("b2", "b1", 0.01)
    mesh.run(1.0)
    wire.silent |= {"b1", "b2"}
    mesh.nodes["b2"].is_alive = False  # its machine is gone, and nobody hears of it
    mesh.run(2.0)
    assert mesh.nodes["b1"].tunnels.keys() == {"b2"}
    mesh.start("b2")
    mesh.wire("b2", "b1", 0.01)
    mesh.run(0.5)
    assert mesh.nodes["b2"].tunnels.keys() == {"b1"}
    assert "has come back over another link" in mesh.nodes["b1"].refusals[0].reason


def test_a_link_that_is_silent_in_one_direction_is_noticed_and_avoided() -> None:
    mesh = three()
    mesh.wires[0].silent.add("b1")
    mesh.run(7.0)
    assert mesh.nodes["b1"].neighbours.keys() == {"b3"}
    assert mesh.nodes["b2"].neighbours.keys() == {"b3"}
    mesh.send("b1", ["b2"], b"around")
    mesh.run(0.1)
    assert mesh.nodes["b2"].streams["b1"] == b"around"


def test_a_process_that_stood_still_closes_nothing() -> None:
    mesh = SimulatedMesh(seed=4)
    one, other = mesh.start("b1"), mesh.start("b2")
    mesh.wire("b1", "b2", 0.01)
    mesh.run(2.0)
    one.clock_s += 3_600.0
    mesh.run(3.0)
    one.clock_s -= 7_200.0
    one.wakes_at_s = mesh.now_s
    mesh.later(0.0, mesh._tick, "b1", one, mesh.now_s)
    mesh.run(10.0)
    assert one.refusals == other.refusals == []
    offset = other.core.offset("b1")
    assert offset is not None
    assert abs(offset[0] + 3_600.0) <= offset[1]


def test_clocks_are_known_along_the_way() -> None:
    mesh = SimulatedMesh(seed=5)
    names = [f"b{number}" for number in range(6)]
    for number, name in enumerate(names):
        mesh.start(name, clock_s=number * number * 1.5, drift=(number - 3) * 1e-5)
    for one, other in pairwise(names):
        mesh.wire(one, other, 0.02)
    mesh.run(60.0)
    for one, node in mesh.nodes.items():
        for other, there in mesh.nodes.items():
            if one != other:
                known = node.core.offset(other)
                assert known is not None
                truth_s = there.clock(mesh.now_s) - node.clock(mesh.now_s)
                assert abs(known[0] - truth_s) <= known[1] < 0.3


def test_each_link_carries_one_copy_however_many_targets_lie_beyond_it() -> None:
    for seed in range(share(150)):
        mesh = SimulatedMesh(seed)
        names = [f"b{number}" for number in range(mesh.random.randint(2, 20))]
        for number, name in enumerate(names):
            mesh.start(name)
            if number:
                mesh.wire(name, mesh.random.choice(names[:number]), 0.01)
        for _ in range(mesh.random.randrange(len(names))):
            one, other = mesh.random.sample(names, 2)
            mesh.wire(one, other, 0.01)
        mesh.run(5.0)
        for wire in mesh.wires:
            wire.logs = {}
        body = mesh.random.randbytes(16)
        mesh.send(names[0], names, body, b"to you: ")
        mesh.run(1.0)
        logs = [bytes(log) for wire in mesh.wires for log in (wire.logs or {}).values()]
        assert sum(log.count(body) for log in logs) == len(names) - 1  # a tree
        assert all(log.count(body) <= 1 for log in logs)
        for name in names[1:]:
            assert mesh.nodes[name].streams[names[0]] == b"to you: " + body


def test_a_broker_shows_its_network() -> None:
    mesh = three()
    view = mesh.nodes["b1"].core.view
    assert {broker.name for broker in view.brokers if broker.is_reachable} == {"b1", "b2", "b3"}
    assert {link.name: link.state for link in view.links} == {"b2": "joined", "b3": "joined"}
    assert {tunnel.name: tunnel.via for tunnel in view.tunnels} == {"b2": "b2", "b3": "b3"}
    assert view.conflicts == []


def test_two_networks_with_the_same_name_show_the_conflict() -> None:
    mesh = SimulatedMesh(seed=6)
    mesh.start("b1")
    mesh.start("b2")
    mesh.wire("b1", "b2")
    twin = core("b1", epoch=7)
    mesh.run(1.0)
    mesh.nodes["twin"] = SimulatedNode(twin, 0.0, 0.0, mesh.now_s)
    mesh.start("b3")
    mesh.wire("twin", "b3")
    mesh.run(1.0)
    mesh.wire("b2", "b3")
    mesh.run(1.0)
    assert mesh.nodes["b2"].core.view.conflicts == ["b1"]
    assert mesh.nodes["b1"].core.view.conflicts == ["b1"]
    # Who had the name keeps it.
    mesh.send("b2", ["b1"], b"to the first")
    mesh.send("b3", ["b1"], b"to the twin")
    mesh.run(1.0)
    assert mesh.nodes["b1"].streams["b2"] == b"to the first"
    assert mesh.nodes["twin"].streams["b3"] == b"to the twin"


# -- a hostile neighbour ---------------------------------------------------------------------------


class Hostile:
    """A neighbour of b1 that has been let in and then also says what it likes."""

    def __init__(self, mesh: SimulatedMesh) -> None:
        self.mesh = mesh
        self.victim = mesh.nodes["b1"]
        self.core = core("evil")
        mesh.nodes["evil"] = SimulatedNode(self.core, 0.0, 0.0, mesh.now_s)
        self.wire = mesh.wire("evil", "b1", 0.001)
        mesh.run(1.0)
        assert "evil" in self.victim.neighbours

    def say(self, data: bytes) -> str | None:
        """Send this to b1; why it closed the link, if it did."""
        self.core.links[self.wire.link].sent_bytes += len(data)
        self.wire.transmit(self.wire.link, "evil", data)
        self.mesh.run(0.01)
        return self.victim.refusals[0].reason if self.victim.refusals else None


def node_of(mesh: SimulatedMesh, name: str) -> int:
    return mesh.nodes[name].core.node


def still_works(mesh: SimulatedMesh) -> None:
    before = {name: dict(node.tunnels) for name, node in mesh.nodes.items()}
    mesh.run(2.0)
    for one in ("b1", "b2", "b3"):
        for other in {"b1", "b2", "b3"} - {one}:
            old = bytes(mesh.nodes[other].streams[one])
            mesh.send(one, [other], b"still here")
            mesh.run(0.2)
            assert mesh.nodes[other].streams[one] == old + b"still here"
            assert mesh.nodes[one].tunnels[other] == before[one][other], "it was reset"


def test_a_hostile_neighbour_cannot_write_into_a_stream_that_does_not_pass_it() -> None:
    mesh = three()
    hostile = Hostile(mesh)
    for incarnation in (0, 1, (1 << 32) + 1, 2**64 - 1):
        for position in (0, 1, 2**63):
            for origin in ("b2", "b3"):
                for target in ("b1", "b2", "b3"):
                    head = (node_of(mesh, target), incarnation, position, 2**64 - 1, 0)
                    assert hostile.say(encode_frame(node_of(mesh, origin), [head], b"evil")) is None
                    for number in (0, 1, 2**32 - 1):
                        ends = node_of(mesh, origin), node_of(mesh, target)
                        opening = Open(64, *ends, number, number, 255)
                        assert hostile.say(encode_open(opening)) is None
    heads = [(node_of(mesh, name), 1, 1, 1, 1) for name in ("b1", "b2", "b3")] * 20
    assert hostile.say(encode_frame(node_of(mesh, "b3"), heads, b"e" * 100)) is None
    assert hostile.victim.core.links[hostile.wire.link].frames_refused > 0
    still_works(mesh)


def test_a_hostile_neighbour_cannot_take_the_name_of_a_live_broker() -> None:
    mesh = three()
    hostile = Hostile(mesh)
    evil = hostile.core.node
    phantom = Record(12345, "b3", 2**63 - 1, 1, (Edge(evil, 1, 0, 0, 0),))
    claims = Record(
        evil, "evil", 1, 1_000, (Edge(12345, 1, 0, 0, 0), Edge(node_of(mesh, "b1"), 1, 0, 0, 0))
    )
    assert hostile.say(encode(phantom)) is None
    assert hostile.say(encode(claims)) is None
    still_works(mesh)


def test_a_live_broker_outdoes_records_that_are_forged_in_its_name() -> None:
    mesh = three()
    hostile = Hostile(mesh)
    victim = mesh.nodes["b3"].core
    for step in (1, 1_000, 1 << 20, 1 << 40, 2**62):
        number = min(victim.graph.own.number + step, 2**63 - 1)
        hostile.say(encode(Record(victim.node, "b3", victim.epoch, number)))
        mesh.run(1.5)
    for name, node in mesh.nodes.items():
        assert node.tunnels.keys() >= {"b1", "b2", "b3"} - {name}
    assert victim.graph.own.number < 1 << 22


def test_a_broker_is_not_led_to_numbers_that_others_would_not_believe() -> None:
    mesh = three()
    hostile = Hostile(mesh)
    own = hostile.victim.core
    for number in (own.graph.own.number + 5, 2**62, 2**63 - 1):
        assert hostile.say(encode(Digest({own.node: number}))) is None
        assert hostile.say(encode(Record(own.node, "b1", own.epoch, number))) is None
        mesh.run(1.5)
    mesh.wires[0].cut()
    still_works(mesh)
    assert own.graph.own.number < 100


def test_a_tunnel_recovers_when_somebody_who_forged_its_opening_is_avoided() -> None:
    mesh = SimulatedMesh(seed=8)
    for name in ("b1", "evil", "b2"):
        mesh.start(name)
    mesh.wire("b1", "evil", 0.001)
    wire = mesh.wire("evil", "b2", 0.001)
    mesh.run(1.0)
    link = mesh.nodes["evil"].core.links[wire.link]
    link.write(encode_open(Open(64, node_of(mesh, "b1"), node_of(mesh, "b2"), 2**32 - 1, 0, 1)))
    mesh.run(3.0)
    assert "b1" not in mesh.nodes["b2"].tunnels
    mesh.wire("b1", "b2", 0.001)
    mesh.run(1.0)
    assert "b1" in mesh.nodes["b2"].tunnels


def test_a_hostile_neighbour_cannot_fill_the_memory() -> None:
    mesh = three()
    hostile = Hostile(mesh)
    core = hostile.victim.core
    records = [Record(10_000 + number, f"x{number}", 1, 1) for number in range(20_000)]
    assert hostile.say(b"".join(map(encode, records))) is None
    assert hostile.say(b"".join(map(encode, records))) is None
    for node in mesh.nodes.values():
        assert node.refusals == []
    assert len(core.graph.records) <= core.limits.brokers_max
    still_works(mesh)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff" * 100, "a message of the unknown type 255; known are 1 to 10"),
        (encode(Welcome(1)), "WELCOME on a link that is in use"),
        (encode(Taken(2**63)), "it took 9223372036854775808 bytes, and only"),
        (encode(Ping(1.0, 2**64 - 1)), "it took 18446744073709551615 bytes, and only"),
    ],
)
def test_a_neighbour_that_breaks_the_rules_is_refused(data: bytes, reason: str) -> None:
    mesh = three()
    said = Hostile(mesh).say(data)
    assert said is not None
    assert said.startswith(reason)
    still_works(mesh)


def test_nobody_may_speak_before_hello() -> None:
    node = core()
    node.link_opened(1, 0.0, outgoing=False)
    node.received(1, b"GET / HTTP/1.1\r\n\r\n", 0.0)
    (closed,) = node.take().closed
    assert closed.reason.startswith("this is no link of a broker: it begins with b'GET / HTTP")
    node.link_opened(2, 0.0, outgoing=False)
    hello = encode(Hello(1, "1.0", "b2", 1, 5, 0.0))
    frame = encode_frame(1, [(node.node, 1, 1, 1, 0)], b"x")
    node.received(2, hello + frame, 0.0)
    (closed,) = node.take().closed
    assert closed.reason == "FRAME before the link was agreed upon"
