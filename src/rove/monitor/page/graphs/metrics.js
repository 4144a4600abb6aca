/**
 * What a metric is called, in which unit it is drawn, and which charts there are at first.
 *
 * A chart is drawn from metrics of the database, but nobody wants to read
 * `rove_world_subscribes_total` beside an axis. What Rove records has a title here; of any other
 * metric title and unit are read from its name, which carries the unit last.
 */
const TOTAL = /_total$/;
const WORLD = /^rove_world_(.+?)(_total)?$/;

/**
 * @typedef {object} Meaning
 * @property {string} title what is drawn
 * @property {string} unit of the axis
 * @property {number} factor what a recorded value is multiplied with
 * @property {boolean} is_rate whether totals are drawn as increases per second
 * @property {string} [about] one sentence
 * @property {string} [counted] the noun of a comparison
 * @property {string} [verb] what an engine does with them
 */

/** @type {Record<string, Partial<Meaning>>} */
const KNOWN = {
  rove_world_subscriptions: {
    title: "Subscriptions",
    unit: "subscriptions",
    about: "How many each engine holds now.",
    verb: "holds",
  },
  rove_world_subscribers: { title: "Subscribers", unit: "subscribers", verb: "has" },
  rove_world_subscribes_total: {
    title: "Subscribe operations",
    unit: "operations/s",
    counted: "subscribe operations",
    about: "How often clients have subscribed.",
  },
  rove_world_unsubscribes_total: {
    title: "Unsubscribe operations",
    unit: "operations/s",
    counted: "unsubscribe operations",
  },
  rove_world_publications_total: {
    title: "Publications",
    unit: "publications/s",
    verb: "makes",
    about: "A message is published once, however many receive it.",
  },
  rove_world_requests_total: { title: "Requests", unit: "requests/s", verb: "makes" },
  rove_world_replica_messages_total: {
    title: "Replica messages",
    unit: "messages/s",
    counted: "replica messages",
    verb: "sends",
    about: "Whole copies of objects, for clients that see them for the first time.",
  },
  rove_world_update_notifications_total: {
    title: "Update notifications",
    unit: "notifications/s",
    counted: "update notifications",
    verb: "sends",
    about: "News of objects that clients know already.",
  },
  rove_world_deliveries_total: { title: "Deliveries", unit: "messages/s", verb: "makes" },
  rove_world_published_bytes_total: {
    title: "Bytes published",
    unit: "B/s",
    counted: "bytes published",
    verb: "has",
  },
  rove_world_replica_bytes_total: {
    title: "Bytes of replica messages",
    unit: "B/s",
    counted: "bytes of replica messages",
    verb: "sends",
  },
  rove_world_update_bytes_total: {
    title: "Bytes of update notifications",
    unit: "B/s",
    counted: "bytes of update notifications",
    verb: "sends",
  },
  rove_world_delivered_bytes_total: {
    title: "Bytes delivered",
    unit: "B/s",
    counted: "bytes delivered",
    verb: "has",
    about: "Topics and payloads of everything that reached a receiver.",
  },
  rove_world_matching_s_total: {
    title: "Matching time",
    unit: "ms/s",
    factor: 1000,
    counted: "matching time",
    about: "Time spent on finding receivers, in every second.",
  },
  rove_world_missing_s_total: {
    title: "Missing replicas",
    unit: "replica-s/s",
    counted: "missing replicas",
    verb: "has",
    about: "Replicas that clients ought to have and have not.",
  },
  rove_world_stale_s_total: {
    title: "Stale replicas",
    unit: "replica-s/s",
    counted: "stale replicas",
    verb: "has",
    about: "Replicas that are older than their engine promises.",
  },
  rove_world_extra_s_total: {
    title: "Extra replicas",
    unit: "replica-s/s",
    counted: "superfluous replicas",
    verb: "has",
  },
  rove_delay_mean_seconds: {
    title: "Delay in the broker",
    unit: "ms",
    factor: 1000,
    about: "From the receipt of publications until all was sent, or kept on disk.",
  },
  rove_delay_max_seconds: { title: "Longest delay in the broker", unit: "ms", factor: 1000 },
  rove_publications_received_total: {
    title: "Publications received",
    unit: "publications/s",
    about: "What clients have published to the broker.",
  },
  rove_notifications_sent_total: {
    title: "Notifications sent",
    unit: "notifications/s",
    about: "What the broker has sent to subscribers.",
  },
  rove_queued_messages: {
    title: "Notifications that wait",
    unit: "notifications",
    about: "In queues of clients that are slow or away.",
  },
  rove_matchers: {
    title: "Matchers",
    unit: "processes",
    about: "Processes that match for the broker; without any it matches by itself.",
  },
  rove_matcher_idle_share: {
    title: "Idle share of matchers",
    unit: "%",
    factor: 100,
    about: "Where little is left a matcher is split, where much is left two are merged; 0 is the broker.",
  },
  rove_matcher_messages_per_second: { title: "Messages of matchers", unit: "messages/s" },
  rove_policies: { title: "Policies", unit: "policies", about: "Policies of subscribers at work." },
  rove_policies_suspended: {
    title: "Suspended policies",
    unit: "policies",
    about: "Stopped so often that they are not called for a while.",
  },
  rove_policy_calls_total: { title: "Calls of policies", unit: "calls/s", about: "Messages that came to policies of subscribers." },
  rove_policy_verdicts_total: {
    title: "Verdicts of policies",
    unit: "messages/s",
    about: "What policies let pass, changed or dropped, and what was stopped or came while they were suspended.",
  },
  rove_policy_cpu_seconds_total: {
    title: "Processor time of policies",
    unit: "%",
    factor: 100,
    about: "Of one core, in the broker and in workers.",
  },
  rove_bytes_sent_total: { title: "Bytes sent", unit: "B/s", about: "To all clients of the broker." },
};

const UNITS = [
  [/_bytes$/, "B"],
  [/_(s|seconds)$/, "s"],
  [/_ms$/, "ms"],
  [/_us$/, "µs"],
  [/_(share|ratio)$/, "share"],
];

/**
 * Title and unit of any metric.
 * @param {string} metric
 * @returns {Meaning}
 */
export function meaningOf(metric) {
  const is_rate = TOTAL.test(metric);
  const bare = metric.replace(TOTAL, "");
  const words = bare.replace(/^rove_/, "").replaceAll("_", " ");
  const unit = UNITS.find(([ending]) => ending.test(bare))?.[1];
  const counted = unit ? words : words.split(" ").pop();
  return {
    title: words.charAt(0).toUpperCase() + words.slice(1),
    unit: is_rate ? `${unit ?? counted}/s` : (unit ?? "number"),
    factor: 1,
    is_rate,
    counted: (KNOWN[metric]?.title ?? words).toLowerCase(),
    verb: "needs",
    ...KNOWN[metric],
  };
}

/**
 * The figure of a world that a metric records: `subscribes` of `rove_world_subscribes_total`.
 * @param {string} metric
 * @returns {{figure: string, is_rate: boolean} | null}
 */
export function figureOf(metric) {
  const found = WORLD.exec(metric);
  return found && { figure: found[1], is_rate: found[2] !== undefined };
}

/**
 * @typedef {object} ChartSpec
 * @property {string} id
 * @property {string[]} metrics what is drawn; of several, the sum
 * @property {Record<string, string>} labels only series that carry them
 * @property {string} [title]
 * @property {boolean} wide two columns
 * @property {boolean} log
 * @property {boolean} zero whether the axis begins at zero
 * @property {boolean} table
 */

/**
 * A chart with what is usual.
 * @param {string[]} metrics
 * @param {Partial<ChartSpec>} [more]
 * @returns {ChartSpec}
 */
export function chartOf(metrics, more = {}) {
  return {
    id: metrics.join("+"),
    metrics,
    labels: {},
    wide: false,
    log: false,
    zero: true,
    table: false,
    ...more,
  };
}

const OPERATIONS = ["rove_world_subscribes_total", "rove_world_unsubscribes_total"];
const OF_THE_WORLD = [
  ["rove_world_subscriptions"],
  OPERATIONS,
  ["rove_world_publications_total"],
  ["rove_world_replica_messages_total"],
  ["rove_world_update_notifications_total"],
  ["rove_world_delivered_bytes_total"],
  ["rove_world_matching_s_total"],
  ["rove_world_missing_s_total"],
  ["rove_world_stale_s_total"],
];
const OF_THE_BROKER = [["rove_delay_mean_seconds"], ["rove_notifications_sent_total"]];
const OF_A_BROKER_ALONE = [
  ["rove_publications_received_total"],
  ["rove_queued_messages"],
  ["rove_bytes_sent_total"],
];

/**
 * The charts of somebody who has not chosen any.
 * @param {{world?: boolean, broker?: boolean, metrics?: boolean}} parts
 * @returns {ChartSpec[]}
 */
export function defaultCharts(parts) {
  const has_world = parts.world || !parts.broker;
  const chosen = has_world ? [...OF_THE_WORLD] : [];
  if (parts.broker) chosen.push(...OF_THE_BROKER, ...(has_world ? [] : OF_A_BROKER_ALONE));
  return chosen.map((metrics) => chartOf(metrics));
}

/**
 * What a chart draws; several metrics have one title and one unit.
 * @param {ChartSpec} spec
 * @returns {Meaning}
 */
export function meaningOfChart(spec) {
  const first = meaningOf(spec.metrics[0]);
  if (spec.metrics.length === 1) return spec.title ? { ...first, title: spec.title } : first;
  if (spec.metrics.join() === OPERATIONS.join()) {
    const about = "How often interest has changed; to replace an area is one of each.";
    return { ...first, title: "Subscribe and unsubscribe operations", about };
  }
  const titles = spec.metrics.map((metric) => meaningOf(metric).title);
  return { ...first, title: spec.title ?? titles.join(" + ") };
}

const PREFIXES = [
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

/**
 * A number for people: three significant digits, thousands as k.
 * @param {number | null | undefined} value
 * @returns {string}
 */
export function shortValue(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  for (const [scale, prefix] of PREFIXES) {
    if (size >= scale * 0.9995) return `${digits(value / scale)} ${prefix}`;
  }
  return digits(value);
}

function digits(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 0.001) return value.toExponential(1).replaceAll("-", "−");
  return String(Number(value.toPrecision(3))).replace("-", "−");
}
