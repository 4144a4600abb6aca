"""The monitor: a page that shows a world, its engines and a broker, live.

A process of its own, so that pages cost the broker's loop nothing: it asks the broker over HTTP,
reads the metrics database, and plays a world on a stage, which is a process again. `application`
has the routes, `live` the one WebSocket of a page, `stage` and `playing` the two ends of the stage.
"""
