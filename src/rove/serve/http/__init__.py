"""The HTTP interface and MQTT over WebSocket."""
