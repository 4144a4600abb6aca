"""Operations: who is connected, who wants what, and why something did not arrive."""

from __future__ import annotations

import re
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from playwright.sync_api import expect

from rove.pipeline.jobs.status import Reporter, StepReport, held
from tests.interop.conftest import RunningBroker
from tests.page.conftest import PATIENCE_MS, RunningMonitor, Shot, Watched, faults_of
from tests.page.plain_monitor import PlainMonitor
from tests.serve.conftest import QUIET, three_matchers, three_policies

expect.set_options(timeout=PATIENCE_MS)

HOSTILE = '<img src=x onerror="window.hacked=1">'
TOPIC = "x/<script>window.hacked=1</script>/y"


class Visitors:
    """Clients of the broker: a hostile one, one that is away, one that publishes all the time."""

    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker
        self._done = threading.Event()
        self._clients = [self._client(HOSTILE), self._client("publisher")]
        self._clients[0].subscribe(TOPIC, 1)
        self.number = self.ask("/sessions/away/subscriptions", {"topic": "air/#", "filter": FILTER})
        self._thread = threading.Thread(target=self._publish)
        self._thread.start()

    def _client(self, name: str) -> mqtt.Client:
        one = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=mqtt.MQTTv5)
        one.connect("127.0.0.1", self._broker.port)
        one.loop_start()
        return one

    def _publish(self) -> None:
        while not self._done.wait(0.1):
            self._clients[1].publish("air/1", b'{"NO2": 45, "wind": 3}', 1)

    def ask(self, path: str, body: object) -> Any:
        """Ask the broker's own HTTP interface."""
        address = f"http://127.0.0.1:{self._broker.http_port}{path}"
        with urllib.request.urlopen(address, msgspec.json.encode(body)) as answer:
            return msgspec.json.decode(answer.read())

    def close(self) -> None:
        self._done.set()
        self._thread.join()
        for one in self._clients:
            one.disconnect()
            one.loop_stop()


FILTER = "NO2 > 40 AND wind < 5"


@pytest.fixture(scope="module")
def visitors(monitor: RunningMonitor) -> Iterator[Visitors]:
    one = Visitors(monitor.broker)
    yield one
    one.close()


@pytest.fixture
def operations(watched: Watched, visitors: Visitors) -> Any:
    """The view, once the broker has answered."""
    return opened(watched)


def opened(watched: Watched, **context: Any) -> Any:
    page = watched.open("/#operations", **context)
    expect(panel(page, "Clients").get_by_text("publisher", exact=True)).to_be_visible()
    return page


def panel(page: Any, title: str) -> Any:
    return page.locator("section.panel", has=page.get_by_role("heading", name=title, exact=True))


def figure(page: Any, name: str) -> Any:
    """A number of the summary."""
    of = page.locator(".ops-figures > div", has=page.get_by_text(name, exact=True))
    return of.locator("dd").first


def column(page: Any, title: str, number: int) -> list[str]:
    cells: list[str] = panel(page, title).locator(f"tbody td:nth-child({number})").all_inner_texts()
    return [cell.strip() for cell in cells]


# --- panels ---------------------------------------------------------------------------------------


@pytest.mark.soak
def test_only_parts_that_exist_have_panels(operations: Any) -> None:
    titles = ["Broker", "Clients", "Subscriptions", "Why, or why not?", "Timeline"]
    titles += ["Queues", "Slow consumers", "Matchers", "Policies"]
    expect(operations.locator(".ops .panel h2")).to_have_text(titles)


def test_the_summary_tells_health_and_rates(operations: Any) -> None:
    summary = panel(operations, "Broker")
    expect(summary).to_contain_text("✔ well")
    expect(figure(operations, "Connections")).to_have_text(re.compile(r"^[2-9]"))
    expect(figure(operations, "Publications in")).to_have_text(re.compile(r"^[1-9]\d*(\.\d)?/s$"))
    expect(figure(operations, "Delay")).to_have_text(re.compile(r"ms$"))
    expect(figure(operations, "Publishers")).to_have_text("flowing")


def test_names_of_clients_and_topics_are_text(operations: Any) -> None:
    expect(panel(operations, "Clients").get_by_text(HOSTILE, exact=True)).to_be_visible()
    expect(panel(operations, "Subscriptions").get_by_text(TOPIC, exact=True)).to_be_visible()
    assert operations.evaluate("window.hacked") is None
    assert operations.locator("main img, main script").count() == 0


@pytest.mark.soak
def test_tables_are_sorted_with_the_keyboard(operations: Any) -> None:
    head = panel(operations, "Clients").get_by_role("button", name="Client")
    head.focus()
    operations.keyboard.press("Enter")
    sorted_head = panel(operations, "Clients").locator("th[aria-sort]").first
    expect(sorted_head).to_have_attribute("aria-sort", "ascending")
    rising = column(operations, "Clients", 1)
    operations.keyboard.press("Enter")
    expect(sorted_head).to_have_attribute("aria-sort", "descending")
    assert column(operations, "Clients", 1) == rising[::-1]


@pytest.mark.soak
def test_queues_and_slow_consumers_say_why(operations: Any) -> None:
    expect(panel(operations, "Queues").get_by_text("away").first).to_be_visible()
    slow = panel(operations, "Slow consumers").locator("tbody tr", has_text="away")
    expect(slow).to_contain_text(re.compile(r"it is away for .* notifications wait"))


# --- subscriptions --------------------------------------------------------------------------------


@pytest.mark.soak
def test_subscriptions_are_searched(operations: Any) -> None:
    subscriptions = panel(operations, "Subscriptions")
    search = operations.get_by_label("Search subscriptions")
    where = operations.get_by_label("Where")
    for place, text, topic in (("any", "WIND <", "air/#"), ("topic", "script", TOPIC)):
        where.select_option(place)
        search.fill(text)
        expect(subscriptions.locator("tbody tr")).to_have_count(1)
        expect(subscriptions.locator("tbody tr")).to_contain_text(topic)
    where.select_option("client")
    expect(subscriptions).to_contain_text("No subscription matches")
    search.fill("onerror")
    expect(subscriptions.locator("tbody tr")).to_contain_text(TOPIC)


def explain(page: Any, publication: str, who: str | None = None, topic: str | None = None) -> Any:
    """Ask, and the panel."""
    found = panel(page, "Why, or why not?")
    found.get_by_label("Publication").fill(publication)
    if topic is not None:
        found.get_by_label("Its topic").fill(topic)
    if who is not None:
        found.get_by_label("Subscription: its number").fill(who)
    found.get_by_role("button", name="Explain").click()
    return found


@pytest.mark.soak
def test_why_not_is_explained_predicate_by_predicate(operations: Any, visitors: Visitors) -> None:
    number = visitors.number["number"]
    operations.get_by_role("button", name=f"Explain subscription {number}").click()
    expect(operations.get_by_label("Publication")).to_be_focused()
    found = explain(operations, '{"NO2": 45, "wind": 7}', topic="air/1")
    expect(found).to_contain_text("It does not reach the subscription.")
    expect(found.locator("li", has_text="topic")).to_contain_text("✔")
    lines = found.locator(".ops-checks .ops-checks .ops-checks > li")
    expect(lines).to_have_text([re.compile("✔.*NO2 > 40.*45"), re.compile("✘.*wind < 5.*7")])
    found = explain(operations, '{"NO2": 45, "wind": 4}')
    expect(found).to_contain_text("It reaches the subscription.")


@pytest.mark.soak
def test_a_publication_that_came_is_explained_by_its_id(
    operations: Any, visitors: Visitors
) -> None:
    visitors.ask("/publish?topic=air/1&id=reading-7", {"NO2": 39, "wind": 1})
    found = explain(operations, "reading-7", who="away")
    expect(found).to_contain_text(re.compile(r"reading-7 on air/1, published .* ago"))
    expect(found).to_contain_text("It does not reach the subscription.")


@pytest.mark.soak
def test_what_cannot_be_explained_is_told(operations: Any, watched: Watched) -> None:
    watched.expected.append("status of 404")
    found = explain(operations, "{no JSON", who="away", topic="air/1")
    expect(found.get_by_role("alert")).to_contain_text("This is no JSON")
    found = explain(operations, "nobody-knows")
    expect(found.get_by_role("alert")).to_contain_text("no publication 'nobody-knows'")


# --- what happens ---------------------------------------------------------------------------------


@pytest.mark.soak
def test_the_timeline_tells_what_has_happened(operations: Any) -> None:
    timeline = panel(operations, "Timeline")
    line = operations.get_by_role("combobox", name="Command")
    for engine in ("tile", "object"):
        line.fill(f"engine {engine}")
        line.press("Enter")
        expect(timeline.locator("li", has_text=f"engine: {engine} is live").first).to_be_visible()
    operations.get_by_label("Which events").select_option("engine")
    kinds = timeline.locator("li").evaluate_all("(items) => items.map((item) => item.className)")
    assert set(kinds) == {"is-engine"}


def test_the_timeline_tells_of_a_client_that_did_not_come_back(
    operations: Any, visitors: Visitors
) -> None:
    visitors.ask("/sessions/gone/subscriptions", {"topic": "air/1", "session_expiry_s": 1})
    line = panel(operations, "Timeline").locator("li.is-session").first
    expect(line).to_contain_text("gone did not come back within 1.0 s: its session ended")
    expect(line).to_contain_text("notifications were lost")


@pytest.mark.soak
def test_old_figures_do_not_pass_for_new_ones(operations: Any, watched: Watched) -> None:
    watched.expected.append("status of 502")
    fault = '{"error": "the broker does not answer", "hint": "is it up?"}'
    operations.route("**/api/broker/*", lambda route: route.fulfill(status=502, body=fault))
    clients = panel(operations, "Clients")
    expect(clients.locator(".badge")).to_have_text(re.compile(r"from \d\d:\d\d:\d\d"))
    expect(clients).to_contain_text("the broker does not answer")
    expect(clients.get_by_text("publisher", exact=True)).to_be_visible()
    operations.unroute("**/api/broker/*")
    expect(clients.locator(".badge")).to_have_count(0)


# --- matchers -------------------------------------------------------------------------------------


CLOCK = re.compile(r"^\d\d:\d\d:\d\d$")


def with_matchers(
    watched: Watched, monitor: RunningMonitor, *, is_admin: bool = True, **context: Any
) -> Any:
    """The view beside a broker that tells of matchers that were put together by hand."""
    view = three_matchers()
    view.reconfigurations[1].reason = HOSTILE
    page = watched.open("", url="about:blank", **context)

    def hello(route: Any) -> None:
        route.fulfill(json={**route.fetch().json(), "admin": is_admin})

    told = msgspec.json.encode(view).decode()
    page.route("**/api/hello", hello)
    page.route("**/api/broker/matchers", lambda route: route.fulfill(body=told))
    page.goto(f"{monitor.url}/#operations")
    expect(table(page, "Who matches")).to_have_count(3)
    return page


def table(page: Any, caption: str) -> Any:
    return page.get_by_role("region", name=caption).locator("tbody tr")


@pytest.mark.soak
def test_matchers_and_what_was_rearranged(watched: Watched, monitor: RunningMonitor) -> None:
    page = with_matchers(watched, monitor, is_admin=False)
    assert panel(page, "Matchers").locator(".panel-note").inner_text() == "partitioned"
    assert page.get_by_role("form", name="Rearrange").count() == 0, "who may only look"
    first = table(page, "Who matches").first
    expect(first.locator("td")).to_have_text(
        ["1", "member", "15 %", "60,000", "2,401/s", "480,000", "2", "101"]
    )
    share = first.get_by_role("progressbar", name="Matcher 1: share of time in which it is idle")
    assert share.evaluate("(bar) => bar.value") == 0.15
    given_up, split, out = table(page, "What was rearranged").all()
    why = "given up: matcher 3 has died (idle 75 % of the last 10 s, more than 70 %)"
    expect(given_up.locator("td")).to_have_text([CLOCK, "✘ merge", why, "1.5 s", "0", "3"])
    expect(split.locator("td")).to_have_text([CLOCK, "split", HOSTILE, "250 ms", "40,000", "3"])
    expect(out).to_contain_text("100,000")
    page.get_by_label("Which events").select_option("matchers")
    lines = panel(page, "Timeline").locator("li")
    expect(lines).to_have_count(3)
    expect(lines.first).to_contain_text("matchers: merge: given up: matcher 3 has died")
    expect(lines.nth(1)).to_contain_text(
        f"matchers: split: {HOSTILE}; took 250 ms, processes then: 3"
    )
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img").count() == 0


@pytest.mark.soak
def test_matchers_are_rearranged_with_the_keyboard(
    watched: Watched, monitor: RunningMonitor
) -> None:
    watched.expected.append("status of 409")
    page = with_matchers(watched, monitor)
    asked: list[tuple[str, Any]] = []

    def answer(route: Any) -> None:
        asked.append((route.request.url.rpartition("/")[2], route.request.post_data_json))
        if asked[-1][0] == "merge":
            route.fulfill(status=409, json={"error": "there is <i>nobody</i> to merge with"})
        else:
            route.fulfill(status=202, json={"asked": asked[-1][0]})

    page.route("**/api/broker/matchers/*", answer)
    form = page.get_by_role("form", name="Rearrange")
    switch = form.get_by_role("button", name="Switch")
    expect(switch).to_be_disabled()
    form.get_by_label("Layout").focus()
    page.keyboard.press("h")
    page.keyboard.press("Tab")
    expect(switch).to_be_focused()
    page.keyboard.press("Enter")
    expect(switch).to_be_disabled()
    for name in ("Split", "Merge"):
        button = form.get_by_role("button", name=name)
        # While the broker is asked for one thing, nothing else can be asked for.
        expect(button).to_be_enabled()
        button.press("Enter")
    expect(form.get_by_role("alert")).to_have_text("there is <i>nobody</i> to merge with")
    assert asked == [("layout", {"layout": "hierarchical"}), ("split", {}), ("merge", {})]


@pytest.mark.soak
def test_a_process_takes_over_and_gives_back(operations: Any) -> None:
    matchers = panel(operations, "Matchers")
    expect(matchers).to_contain_text("0, the broker")
    matchers.get_by_role("button", name="Split").click()
    role = table(operations, "Who matches").locator("td:nth-child(2)")
    expect(role).to_have_text(["member"])
    expect(figure(operations, "Publications in")).to_have_text(re.compile(r"^[1-9]"))
    matchers.get_by_role("button", name="Merge").click()
    expect(role).to_have_text(["broker"])
    kinds = table(operations, "What was rearranged").locator("td:nth-child(2)")
    expect(kinds).to_have_text(["in", "out"])
    timeline = panel(operations, "Timeline")
    expect(timeline.locator("li.is-matchers").first).to_contain_text("in: it was asked for")


@pytest.mark.soak
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 360)])
def test_matchers_are_accessible(
    watched: Watched, monitor: RunningMonitor, axe: str, shot: Shot, scheme: str, width: int
) -> None:
    size = {"width": width, "height": 740}
    page = with_matchers(watched, monitor, color_scheme=scheme, viewport=size)
    panel(page, "Matchers").scroll_into_view_if_needed()
    shot(page, f"matchers-{scheme}")
    assert page.evaluate("document.querySelector('.main').scrollWidth") <= width
    assert faults_of(page, axe) == []


# --- policies -------------------------------------------------------------------------------------


def with_policies(watched: Watched, monitor: RunningMonitor, **context: Any) -> Any:
    """The view beside a broker that tells of policies that were put together by hand."""
    view = three_policies()
    view.policies[2].client_id, view.policies[2].last_trouble = HOSTILE, f"line 1: {HOSTILE}"
    view.policies[2].text = f"# {HOSTILE}\n{QUIET}"
    asked: list[str] = []

    def policies(route: Any) -> None:
        asked.append(route.request.url)
        route.fulfill(body=msgspec.json.encode(view).decode())

    variables = {"manual": {"name": HOSTILE}, "automatic": {"battery": 0.2, "connected": True}}
    page = watched.open("", url="about:blank", **context)
    page.route("**/api/broker/policies?*", policies)
    page.route("**/api/broker/variables?*", lambda route: route.fulfill(json=variables))
    page.goto(f"{monitor.url}/#operations")
    expect(table(page, "Policies at work")).to_have_count(3)
    assert all("short=true" in url for url in asked)
    return page


@pytest.mark.soak
def test_policies_and_what_they_decide(watched: Watched, monitor: RunningMonitor) -> None:
    page = with_policies(watched, monitor)
    suspended, phone, tablet = table(page, "Policies at work").all()
    left = re.compile(r"^✘ suspended, [1-4]\.\d min left")
    expect(suspended.locator("td").nth(2)).to_have_text(left)
    counted = ["1,200", "700", "300", "200", "0", "2.5 MB", "640.0 kB", "30 ms"]
    named = ["phone", "the session", "at work"]
    since = re.compile(r"[1-4]\.\d min")
    expect(phone.locator("td")).to_have_text([*named, *counted, since, "Show"])
    expect(tablet.locator("td").nth(1)).to_have_text("icu/+ identifier 12")
    expect(tablet.locator("td").nth(2)).to_have_text("at work, 4 wait")
    totals = {
        "At work": ["3", "1 suspended"],
        "Stopped": ["6", "5 steps, 1 error"],
        "While suspended": ["7"],
        "Bytes out": ["1.1 MB", "of 6.6 MB in"],
        "Jobs in workers": ["1", "3 waiting, 36 done, 1 lost"],
    }
    figures = panel(page, "Policies").locator(".ops-figures > div")
    for name, texts in totals.items():
        of = figures.filter(has=page.get_by_text(name, exact=True))
        expect(of.locator("dd")).to_have_text(texts)
    search = page.get_by_label("Search policies")
    search.fill("ICU")
    expect(table(page, "Policies at work")).to_have_count(1)
    search.fill("nobody")
    expect(panel(page, "Policies")).to_contain_text("No policy matches")


@pytest.mark.soak
def test_among_many_policies_those_of_a_client_are_asked_for(
    watched: Watched, monitor: RunningMonitor
) -> None:
    page = with_policies(watched, monitor)
    view, asked = three_policies(), []
    view.count, view.isolation = 5000, "process"

    def policies(route: Any) -> None:
        if "client=c4711" in route.request.url:
            asked.append(route.request.url)
            view.count, view.policies = 1, view.policies[:1]
            view.policies[0].client_id = "c4711"
        route.fulfill(body=msgspec.json.encode(view).decode())

    page.route("**/api/broker/policies?*", policies)
    found = panel(page, "Policies")
    expect(found).to_contain_text("looked for among the first 3")
    expect(found.locator(".panel-note")).to_have_text("in worker processes only")
    page.get_by_label("Search policies").fill("c4711")
    found.get_by_role("button", name="Ask for the client of this name").press("Enter")
    expect(table(page, "Policies at work").locator("td").first).to_have_text("c4711")
    assert asked


@pytest.mark.soak
def test_the_text_of_a_policy_is_text(watched: Watched, monitor: RunningMonitor) -> None:
    page = with_policies(watched, monitor)
    show = page.get_by_role("button", name=f"Show the policy of {HOSTILE}")
    show.press("Enter")
    head = page.get_by_role("heading", name=f"Policy of {HOSTILE}")
    expect(head).to_be_focused()
    lines = page.get_by_role("region", name="Text of the policy").locator(".ops-line")
    expect(lines).to_have_text([f"# {HOSTILE}", *(line for line in QUIET.splitlines())])
    chosen = page.locator(".ops-chosen")
    expect(chosen).to_contain_text(f"Stopped: 5 steps, 1 error. The last time: line 1: {HOSTILE}")
    variables = table(page, "Variables of")
    expect(variables.locator("td:nth-child(1)")).to_have_text(["name", "battery", "connected"])
    values = [msgspec.json.encode(HOSTILE).decode(), "0.2", "true"]
    expect(variables.locator("td:nth-child(2)")).to_have_text(values)
    expect(variables.locator("td:nth-child(3)")).to_have_text(["manual", "automatic", "automatic"])
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img").count() == 0
    chosen.get_by_role("button", name="Close").press("Enter")
    expect(chosen).to_have_count(0)
    expect(show).to_be_focused()


@pytest.mark.soak
def test_a_policy_at_work_is_seen(operations: Any, monitor: RunningMonitor) -> None:
    text = b"def arrived(m, me):\n    me.seen = get('seen', 0) + 1\n    return keep(m, 'NO2')\n"
    address = f"http://127.0.0.1:{monitor.broker.http_port}/sessions/away/policy"
    with urllib.request.urlopen(urllib.request.Request(address, text, method="PUT")) as answer:
        assert answer.status == 200
    row = table(operations, "Policies at work").filter(has_text="away")
    expect(row.locator("td").nth(5)).to_have_text(re.compile(r"^[1-9]"))  # changed
    row.get_by_role("button", name="Show the policy of away, the session").click()
    expect(operations.locator(".ops-line")).to_have_text(text.decode().splitlines())
    seen = table(operations, "Variables of away").filter(has_text="seen")
    expect(seen.locator("td")).to_have_text(["seen", re.compile(r"^[1-9]"), "manual"])
    with urllib.request.urlopen(urllib.request.Request(address, method="DELETE")) as answer:
        assert answer.status == 200
    expect(operations.locator(".ops-chosen")).to_contain_text("This policy is there no more.")
    expect(panel(operations, "Policies")).to_contain_text("No policies")


@pytest.mark.soak
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 360)])
def test_policies_are_accessible(
    watched: Watched, monitor: RunningMonitor, axe: str, shot: Shot, scheme: str, width: int
) -> None:
    size = {"width": width, "height": 740}
    page = with_policies(watched, monitor, color_scheme=scheme, viewport=size)
    page.get_by_role("button", name="Show the policy of phone").click()
    expect(table(page, "Variables of phone")).to_have_count(3)
    shot(page, f"policies-{scheme}")
    assert page.evaluate("document.querySelector('.main').scrollWidth") <= width
    assert faults_of(page, axe) == []


# --- a pipeline and channels ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PlainMonitor, Path]]:
    """A monitor without a world, beside a broker with a channel and the jobs of a pipeline."""
    folder = tmp_path_factory.mktemp("elsewhere")
    channels = '[{ name = "<i>air</i>", topics = ["air/#"], keep = ["publications"] }]'
    broker = RunningBroker(folder / "broker", ROVE_LAKE__CHANNELS=channels)
    broker.start()
    address = f"http://127.0.0.1:{broker.http_port}"
    one = PlainMonitor(folder, "--pipeline", str(folder / "jobs"), "--broker", address)
    one.start()
    yield one, folder / "jobs"
    one.stop()
    broker.kill()


@pytest.mark.soak
def test_jobs_and_channels(watched: Watched, elsewhere: tuple[PlainMonitor, Path]) -> None:
    monitor, jobs = elsewhere
    for name in ("match", "deliver"):
        (jobs / name).mkdir(parents=True)
        reporter = Reporter(jobs / name, name)
        reporter.progress(StepReport(position=49, rows_in=40, rows_out=4, at=1.0, batch=7))
        reporter.look(lake_position=99)
        if name == "match":
            reporter.end("failed", "the lake is on fire")
    page = watched.open("/#operations", url=monitor.url)
    with held(jobs / "deliver", "deliver"):
        expect(panel(page, "Pipeline jobs").locator("tbody tr")).to_have_count(2)
        match = panel(page, "Pipeline jobs").locator("tbody tr", has_text="match")
        expect(match).to_contain_text("✘ failed")
        expect(match).to_contain_text("50.0 %")
        expect(match).to_contain_text("50 rows")
        expect(match).to_contain_text("the lake is on fire")
        expect(panel(page, "Pipeline jobs").get_by_text("starting")).to_be_visible()
    expect(panel(page, "Pipeline jobs").get_by_text("✘ killed")).to_be_visible()
    channel = panel(page, "Channels").locator("tbody tr")
    expect(channel.locator("td")).to_have_text(["<i>air</i>", "air/#", "publications"])


# --- for everybody --------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.soak)])
def test_operations_are_accessible(
    watched: Watched, visitors: Visitors, axe: str, shot: Shot, scheme: str
) -> None:
    page = opened(watched, color_scheme=scheme)
    expect(panel(page, "Queues").get_by_text("away").first).to_be_visible()
    explain(page, '{"NO2": 45}', who="away", topic="air/1")
    expect(panel(page, "Why, or why not?")).to_contain_text("Subscription")
    expect(figure(page, "Publications in")).to_have_text(re.compile(r"^[1-9]"))
    page.locator(".main").evaluate("(main) => main.scrollTo(0, 0)")
    shot(page, f"operations-{scheme}")
    assert faults_of(page, axe) == []


@pytest.mark.soak
def test_a_telephone_shows_operations(watched: Watched, visitors: Visitors) -> None:
    page = opened(watched, viewport={"width": 360, "height": 740})
    assert page.evaluate("document.querySelector('.main').scrollWidth") <= 360
