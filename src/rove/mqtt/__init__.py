"""MQTT on the wire: packets to bytes and back, versions 5 and 3.1.1, and what topics may look like.

Does no I/O and knows nobody. `packets` has the packets, `reading` turns bytes into them,
`writing` turns them into bytes, `topics` knows names and filters.
"""
