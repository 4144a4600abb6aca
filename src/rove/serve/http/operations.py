"""The table of all routes of the HTTP interface.

The router, the OpenAPI document and the page for people are made from it. The key of an entry is
the method of `rove.serve.http.routes.Interface` that handles it. If two paths fit, the first
counts.
"""

from __future__ import annotations

from rove.serve.http.openapi import Operation, Parameter
from rove.serve.http.requests import USER_PREFIX

REFUSALS = (
    (400, "the request is invalid; the error says why"),
    (401, "user or password are missing or wrong"),
    (403, "not allowed"),
)
BUSY = ((429, "too many requests, or a quota is used up"), (503, "overload or shutdown"))
AFTER = Parameter("after", "`next` of the page before", "integer")
LIMIT = Parameter("limit", "how many at most; 100", "integer")
ITEMS = '{"items": […], "next": `after` of the next page, or null}'
CLIENT = Parameter("client", "the client id", in_path=True)
TOPIC_FILTERS = Parameter("topic", "a topic filter, `air/#`; several times for several")
TEXT = Parameter("filter", "a filter expression, `NO2 > 40`")
EVOLVE = Parameter("evolve", "how moving bounds are updated: exact, pes 1s, lees, clees 500ms")
NO_MATCHERS = (404, "this broker may have no matchers")
NO_MESH = (404, "this broker is in no network")
BEGUN = (202, '{"asked": "layout", "split" or "merge"}; `/matchers` shows the result')
NOT_NOW = (409, "impossible at the moment; the error says why")
POLICY = Parameter("policy", "a policy of this subscription, instead of its session's")
OF_SUBSCRIPTION = Parameter(
    "subscription", "the identifier of a subscription: its policy, not the session's", "integer"
)
NO_POLICIES = (404, "this broker runs no policies")
ENGINE = Parameter("engine", "who matches: broker, or spark (seconds later)")

OPERATIONS: dict[str, Operation] = {
    "front": Operation(
        "GET",
        "/",
        "An overview.",
        answers=((200, "a page"),),
        answer_type="text/html",
        access="open",
    ),
    "publish": Operation(
        "POST",
        "/publish",
        "Publish. The response follows the broker's acknowledgement; with QoS 1 and 2 the "
        "publication is on disk by then.",
        (
            Parameter("topic", "the topic", required=True),
            Parameter("qos", "0, 1 or 2; 1 unless given", "integer"),
            Parameter("retain", "whether it is the retained publication of its topic", "boolean"),
            Parameter("id", "its id; chosen by the broker if missing"),
            Parameter("valid-for", "seconds, or `forever`: kept for later subscriptions"),
            Parameter("expiry", "seconds after which it is not delivered any more", "integer"),
            Parameter(USER_PREFIX, "`user.NAME=VALUE`: a user property, which is an attribute"),
        ),
        "the payload, any bytes; members of a JSON object are attributes",
        "application/octet-stream",
        (
            (200, '{"id": …, "matched": whether any subscription matched; null for QoS 0}'),
            *REFUSALS,
            (413, "too large"),
            *BUSY,
        ),
    ),
    "unpublish": Operation(
        "DELETE",
        "/publications/{id:path}",
        "Withdraw a publication that the same user has published and that is still valid, retained "
        "or queued.",
        (Parameter("id", "its id", in_path=True),),
        answers=((200, '{"id": …, "withdrawn": true}'), *REFUSALS, (404, "no such publication")),
    ),
    "subscribe": Operation(
        "GET",
        "/subscribe",
        "Subscribe, and receive notifications as server-sent events while the connection is open.",
        (
            TOPIC_FILTERS,
            TEXT,
            EVOLVE,
            ENGINE,
            POLICY,
            Parameter("qos", "0 or 1; 0 unless there is a session", "integer"),
            Parameter("me", "a JSON object: the subscriber's `me.` variables"),
            Parameter("session", "a client id: notifications queue while the stream is closed"),
            Parameter("session-expiry", "for how many seconds; a day", "integer"),
        ),
        answers=((200, "events"), *REFUSALS, *BUSY),
        answer_type="text/event-stream",
        takes=True,
    ),
    "subscriptions": Operation(
        "GET",
        "/subscriptions",
        "Subscriptions, by number: all for administrators, for others their own.",
        (Parameter("client", "only those of this client"), AFTER, LIMIT),
        answers=((200, ITEMS), *REFUSALS),
    ),
    "add_subscription": Operation(
        "POST",
        "/sessions/{client:path}/subscriptions",
        "Add a subscription to a session, which is made if there is none. Its "
        "notifications queue until that client connects, by MQTT or by /subscribe?session=.",
        (CLIENT,),
        '{"topic": …, "filter": …, "evolve": …, "engine": …, "policy": …, "qos": 1, '
        '"identifier": 0, "session_expiry_s": …}; all but the topic may be left out',
        answers=((201, "the subscription"), *REFUSALS, (409, "connected by MQTT"), *BUSY),
    ),
    "remove_subscription": Operation(
        "DELETE",
        "/sessions/{client:path}/subscriptions/{number}",
        "End a subscription of a session.",
        (CLIENT, Parameter("number", "of the subscription", "integer", in_path=True)),
        answers=(
            (200, '{"number": …, "ended": true}'),
            *REFUSALS,
            (404, "no such session or subscription"),
            (409, "connected by MQTT"),
        ),
    ),
    "set_policy": Operation(
        "PUT",
        "/sessions/{client:path}/policy",
        "Give a session, which is made if there is none, or one of its subscriptions a policy: a "
        "few lines of code that decide what it gets.",
        (CLIENT, OF_SUBSCRIPTION),
        "the code of the policy",
        "text/plain",
        answers=(
            (200, '{"client": …, "subscription": …, "set": true}'),
            *REFUSALS,
            (404, "no such subscription"),
            (409, "connected by MQTT"),
            *BUSY,
        ),
    ),
    "remove_policy": Operation(
        "DELETE",
        "/sessions/{client:path}/policy",
        "Remove the policy; everything is sent again.",
        (CLIENT, OF_SUBSCRIPTION),
        answers=(
            (200, '{"client": …, "subscription": …, "removed": true}'),
            *REFUSALS,
            (404, "no such session or subscription"),
            (409, "connected by MQTT"),
        ),
    ),
    "variables": Operation(
        "GET",
        "/sessions/{client:path}/variables",
        "The `me.` variables of a subscriber: for administrators and the user of the session.",
        (CLIENT,),
        answers=(
            (200, '{"manual": {…}, "automatic": {…}}'),
            *REFUSALS,
            (404, "no such session"),
        ),
    ),
    "end_session": Operation(
        "DELETE",
        "/sessions/{client:path}",
        "End a session, with its subscriptions and its queue; its client is disconnected.",
        (CLIENT,),
        answers=((200, '{"client": …, "ended": true}'), *REFUSALS, (404, "no such session")),
    ),
    "clients": Operation(
        "GET",
        "/clients",
        "Sessions, of clients that are connected and of those away.",
        (AFTER, LIMIT),
        answers=((200, ITEMS), *REFUSALS),
        access="admin",
    ),
    "queues": Operation(
        "GET",
        "/queues",
        "Queues of notifications, the longest first.",
        (LIMIT,),
        answers=((200, '{"items": […]}'), *REFUSALS),
        access="admin",
    ),
    "expired": Operation(
        "GET",
        "/expired",
        "The last 100 sessions that ended because their clients did not come back, oldest first.",
        answers=((200, '{"items": [{"client", "user", "at", "expiry_s", "dropped"}]}'), *REFUSALS),
        access="admin",
    ),
    "channels": Operation(
        "GET",
        "/channels",
        "Channels of the lake: their topics, and what is kept of them.",
        answers=((200, '{"items": [{"name", "topics", "keeps"}]}'), *REFUSALS),
        access="admin",
    ),
    "matchers": Operation(
        "GET",
        "/matchers",
        "Matchers, including the broker itself: how busy each is, and past reconfigurations, with "
        "time, reason and duration.",
        answers=(
            (200, '{"layout": …, "matchers": […], "reconfigurations": […], …}'),
            *REFUSALS,
            NO_MATCHERS,
        ),
    ),
    "switch_layout": Operation(
        "POST",
        "/matchers/layout",
        "Distribute the subscriptions over the matchers in another way.",
        (),
        '{"layout": "partitioned", "replicated" or "hierarchical"}',
        answers=(BEGUN, *REFUSALS, NO_MATCHERS, NOT_NOW),
        access="admin",
    ),
    "split_matcher": Operation(
        "POST",
        "/matchers/split",
        "Start another process now, which takes over work from the busiest.",
        answers=(BEGUN, *REFUSALS, NO_MATCHERS, NOT_NOW),
        access="admin",
    ),
    "merge_matchers": Operation(
        "POST",
        "/matchers/merge",
        "End a process now; the others, or the broker itself, take over its work.",
        answers=(BEGUN, *REFUSALS, NO_MATCHERS, NOT_NOW),
        access="admin",
    ),
    "mesh": Operation(
        "GET",
        "/mesh",
        "The network of brokers, as this one sees it: every other broker, and the links to "
        "neighbours.",
        answers=(
            (200, '{"name": …, "brokers": […], "links": […], "joins": […], …}'),
            *REFUSALS,
            NO_MESH,
        ),
    ),
    "join_broker": Operation(
        "POST",
        "/mesh/links",
        "Join another broker now, and again whenever the link is lost, until this broker stops.",
        (),
        '{"url": "host:port", "mqtt://user@host:port" or "mqtts://…"}',
        answers=((202, '{"joins": the address}; `/mesh` shows the result'), *REFUSALS, NO_MESH),
        access="admin",
    ),
    "leave_broker": Operation(
        "DELETE",
        "/mesh/links/{name:path}",
        "Close the link to a neighbour, and let it join no more until it is joined from here.",
        (Parameter("name", "of the broker, or the address where it is joined", in_path=True),),
        answers=(
            (200, '{"name": …, "disconnected": true}'),
            *REFUSALS,
            (404, "there is no such neighbour, or no network"),
        ),
        access="admin",
    ),
    "policies": Operation(
        "GET",
        "/policies",
        "Active policies, their decisions and their use of resources: all for administrators, for "
        "others their own.",
        (
            Parameter("client", "only those of this client"),
            Parameter("limit", "how many at most; 100", "integer"),
            Parameter("short", "without the code of policies", "boolean"),
        ),
        answers=(
            (200, '{"count": …, "suspended": …, "total": {…}, "policies": […], …}'),
            *REFUSALS,
            NO_POLICIES,
        ),
    ),
    "explain": Operation(
        "POST",
        "/explain",
        "Why does a publication reach a subscription, or why not?",
        (),
        '{"publication": an id or a JSON object, "topic": of a JSON object, "subscription": a '
        'number or {"topic", "filter", "me"}, "client": instead, all subscriptions of it, "at": '
        "seconds since 1970}",
        answers=(
            (200, '{"publication": …, "subscriptions": [{"reaches": …, "checks": […]}]}'),
            *REFUSALS,
            (404, "no such publication or subscription"),
        ),
    ),
    "healthz": Operation(
        "GET",
        "/healthz",
        "Whether the broker is healthy.",
        answers=((200, '{"status": "ok"}'), (503, '{"status": "ill", "reasons": […]}')),
        access="open",
    ),
    "metrics": Operation(
        "GET", "/metrics", "Counters and gauges for Prometheus.", answer_type="text/plain"
    ),
    "docs": Operation(
        "GET",
        "/docs",
        "This interface, for people.",
        answers=((200, "a page"),),
        answer_type="text/html",
        access="open",
    ),
    "openapi": Operation("GET", "/openapi.json", "This interface, for programs.", access="open"),
}
