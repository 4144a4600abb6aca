"""The broker's decisions: sessions, subscriptions, queues, validity and delivery.

Packets and moments come in, packets to send and rows to keep come out; no sockets, files,
threads or clocks. `broker.Broker` is the one door.
"""
