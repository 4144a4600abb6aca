"""MQTT on the wire, versions 5 and 3.1.1: packets to bytes and back, topic names and filters.

Does no I/O and imports no other room. `packets` has the packets, `decoder` reads them from bytes,
`encoder` writes them, `topics` checks names and filters, and `topic_trees` finds what fits them.
"""
