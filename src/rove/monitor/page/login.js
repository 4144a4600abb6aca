/**
 * The form for those who have to say who they are. Who that is and what they may, the broker knows;
 * the page keeps nothing but the server's cookie, which scripts cannot read.
 */
import { html, useEffect, useRef, useState } from "./vendor/preact.js";

/** @param {{app: import("./app.js").App}} props */
export function Login({ app }) {
  const [error, setError] = useState(null);
  const [is_busy, setBusy] = useState(false);
  const user = useRef(null);
  useEffect(() => user.current.focus(), []);
  const submit = async (event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    setBusy(true);
    setError(null);
    try {
      await app.api.post("/api/login", { user: form.get("user"), password: form.get("password") });
      await app.refresh();
    } catch (refusal) {
      setError(refusal);
      user.current?.focus();
    }
    setBusy(false);
  };
  return html`<main class="alone">
    <form class="login panel" onSubmit=${submit} aria-labelledby="login-title">
      <h1 id="login-title"><span class="brand-mark" aria-hidden="true"></span>Rove monitor</h1>
      <p class="quiet">Log in with your name and password for the broker, or with the key that the monitor was started with as the password.</p>
      <label class="field"><span>Name</span><input class="input" name="user" autocomplete="username" ref=${user} /></label>
      <label class="field"><span>Password</span><input class="input" name="password" type="password" autocomplete="current-password" required /></label>
      ${error && html`<p class="refusal" role="alert">${error.message}${error.hint ? ` ${error.hint}` : ""}</p>`}
      <button class="button primary" disabled=${is_busy}>${is_busy ? "Logging in…" : "Log in"}</button>
    </form>
  </main>`;
}
