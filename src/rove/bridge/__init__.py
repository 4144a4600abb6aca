"""Routes between topics of the broker and topics of Kafka, both ways, each publication once.

    lake ──by position──▶ outbound ──transaction: records and position──▶ Kafka
    Kafka ──by offset──▶ inbound ──QoS 2, the packet identifier is the offset──▶ broker

The progress of a route, its *position*, is a record of a compacted topic of Kafka. Towards Kafka it
is written in the transaction that writes the records, so that both count or neither. Towards the
broker it is written when the broker has the publications on disk, and before they are released. A
publication that is repeated after a kill has the same packet identifier, by which the broker
recognises it. `docs/bridge.md` has the guarantees and their limits.

`routes`, `translation` and the first part of `session` do no I/O.
"""
