"""A node of the network: what it does with links, and whole networks in random lives."""

from __future__ import annotations

from rove.testing.mesh_links import SimulatedMesh


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
