"""A network of brokers: who is there, the shortest ways, and streams of bytes along them.

`graph` holds what every broker has announced and finds the shortest ways. `messages` turns what
neighbours say into bytes and back. `clocks` measures how far two clocks are apart. `links` is one
connection to a neighbour, `tunnels` are the ordered streams between any two brokers, and `node`
puts all of them behind one class without I/O, `MeshNode`.
"""
