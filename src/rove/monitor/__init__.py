"""The monitor: a page that shows a world, its engines and a broker, live.

It is a process of its own, so that pages cost the broker's loop nothing. It queries the broker over
HTTP, reads the metrics database, and plays a world in a further process. `application` has the
routes, `live_updates` the WebSockets of pages, `world_process` and `world_worker` the two ends of
the pipe to the world.
"""
