"""The shell around the broker: sockets, disk, threads, time, TLS and HTTP.

Everything that waits is here and nothing that decides: bytes and moments go into
`rove.broker`, and what comes out is sent and kept. `store` keeps the rows that have to survive,
`lake` turns what a channel keeps into files for others to read.
"""
