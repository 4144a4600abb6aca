"""Between topics of the broker and topics of Kafka, both ways, each publication once.

    lake ──by position──▶ outbound ──transaction: records and position──▶ Kafka
    Kafka ──by offset──▶ inbound ──QoS 2, the packet identifier is the offset──▶ broker

How far a route has come is a record of a compacted topic of Kafka, its *position*. Towards Kafka
it is written in the transaction that writes the records, so that both count or neither. Towards
the broker it is written when the broker has the publications on disk, and before they are
released; what is published again after a kill has the packet identifiers that it had, so the
broker knows it. `docs/bridge.md` says what that promises, and where it ends.

`routes`, `translation` and `batches` are the core, without I/O.
"""
