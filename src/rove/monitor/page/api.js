/**
 * Questions to the monitor's HTTP interface, and its refusals as errors that can be shown.
 *
 * Addresses are relative to the page, so that the monitor also works behind a prefix. A refusal has
 * what was wrong and what would be right, as the server says it; a monitor that cannot be reached
 * at all is an error of the same kind, with status 0, so that views have one thing to handle.
 */

/** A question that was refused, or not answered at all (status 0). */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {string} error what was wrong
   * @param {string} [hint] what would be right
   */
  constructor(status, error, hint = "") {
    super(error);
    this.name = "ApiError";
    this.status = status;
    this.error = error;
    this.hint = hint;
  }
}

/**
 * @typedef {object} Api
 * @property {(path: string, params?: Record<string, unknown>, options?: {signal?: AbortSignal}) => Promise<any>} get
 * @property {(path: string, body?: unknown) => Promise<any>} post
 */

/**
 * @param {() => void} onLoggedOut called when an answer says that somebody has to log in
 * @returns {Api}
 */
export function createApi(onLoggedOut = () => {}) {
  async function ask(path, params, init) {
    const address = addressOf(path, params);
    let response;
    try {
      response = await fetch(address, { credentials: "same-origin", ...init });
    } catch (fault) {
      if (fault.name === "AbortError") throw fault;
      throw new ApiError(0, "The monitor cannot be reached.", "Is it still running? The page tries again by itself.");
    }
    const answer = await response.json().catch(() => null);
    if (response.ok) return answer;
    if (response.status === 401) onLoggedOut();
    throw new ApiError(
      response.status,
      answer?.error ?? `The monitor answered ${response.status} ${response.statusText}`.trim(),
      answer?.hint ?? "",
    );
  }
  return {
    get: (path, params = {}, options = {}) => ask(path, params, options),
    post: (path, body = {}) =>
      ask(path, {}, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(body),
      }),
  };
}

/**
 * The address of a path such as `/api/runs`, relative to where the page is; parameters that are
 * undefined or null are left out.
 * @param {string} path
 * @param {Record<string, unknown>} [params]
 * @returns {URL}
 */
export function addressOf(path, params = {}) {
  const address = new URL(path.replace(/^\//, ""), document.baseURI);
  address.hash = "";
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== null) address.searchParams.set(name, String(value));
  }
  return address;
}
