/**
 * Operations: what an operator asks when something does not arrive, or before it does not.
 *
 * Only parts that this monitor has are drawn. Panels ask by themselves every two seconds while the
 * page is visible; twenty pages cost the broker one request a second for each route, since the
 * monitor answers them from one.
 */
import { useAnswer } from "../ui.js";
import { html, useState } from "../vendor/preact.js";
import { EVERY_S } from "./answer_panel.js";
import { Clients, Queues, SlowConsumers } from "./clients.js";
import { Explain } from "./explain.js";
import { Channels, Jobs } from "./jobs.js";
import { Matchers } from "./matchers.js";
import { Policies } from "./policies.js";
import { Subscriptions } from "./subscriptions.js";
import { Summary } from "./summary.js";
import { Timeline } from "./timeline.js";

/** @param {{app: import("../app.js").App}} props */
export function OperationsView({ app }) {
  const { parts } = app;
  const [asked, setAsked] = useState(null);
  const matchers = useAnswer(app, "/api/broker/matchers", {}, { every_s: EVERY_S, is_on: Boolean(parts.matchers) });
  return html`<div class="ops">
    ${parts.broker && html`<${Summary} app=${app} />`}
    ${parts.broker && html`<${Clients} app=${app} />`}
    ${parts.broker && html`<${Subscriptions} app=${app} onExplain=${setAsked} />`}
    ${parts.broker && html`<${Explain} app=${app} asked=${asked} />`}
    <${Timeline} app=${app} matchers=${matchers.data} />
    ${parts.broker && html`<${Queues} app=${app} />`}
    ${parts.broker && html`<${SlowConsumers} app=${app} />`}
    ${parts.matchers && html`<${Matchers} app=${app} answer=${matchers} />`}
    ${parts.policies && html`<${Policies} app=${app} />`}
    ${parts.channels && html`<${Channels} app=${app} />`}
    ${parts.pipeline && html`<${Jobs} app=${app} />`}
  </div>`;
}
