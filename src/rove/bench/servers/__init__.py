"""Servers that benchmarks and tests start on loopback: brokers, Kafka, S3 and Spark."""
