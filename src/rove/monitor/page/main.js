/**
 * Boot: make the app, draw the frame, ask who is there.
 *
 * Views are loaded when they are first shown. That keeps the first paint short, and a view that
 * cannot be loaded is an error in its place instead of a white page.
 */
import { createApp } from "./app.js";
import { Frame } from "./frame.js";
import { html, render } from "./vendor/preact.js";

const app = createApp();
const place = document.getElementById("page");
place.replaceChildren();
render(html`<${Frame} app=${app} />`, place);
app.start();
