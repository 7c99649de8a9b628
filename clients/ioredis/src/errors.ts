// What a session with causal keyspaces fails with, and what the application can do about it.

/** A site lacks what the session has seen or written. Nothing was done. `code` is the case. */
export class SessionError extends Error {
  override name = "SessionError";
  constructor(
    /**
     * - `BEHIND`: the sites that answer have the order up to a lower position than the session has seen. Call
     *   again, `moveTo` a site that has it, or `beginAnew`.
     * - `UNORDERED`: what the session wrote at the site that it came from has no place in the order yet. Call
     *   again, which goes back to that site when it answers; or `beginAnew`, without that write.
     * - `LOST`: the site that it wrote at is gone for good, with that write: `beginAnew`.
     * - `BADTOKEN`: the token is of another deployment, another secret or a newer version: `beginAnew`.
     */
    readonly code: "BEHIND" | "UNORDERED" | "LOST" | "BADTOKEN",
    message: string,
  ) {
    super(message);
  }
}

/** No site answered within the deadline. Nothing was done; the session is kept: call again. */
export class NoSite extends Error {
  override name = "NoSite";
}

/**
 * A write was sent and its answer is lost: it may have been made, or not, or may be made yet. It is not
 * repeated, as no site has a record of what another was asked (of a put with `elsewhere`: no site could answer for
 * it within the deadline, or none may be asked, see the README). The session goes on without it. A site that has
 * it and failed brings it when it is back, over what was written meanwhile. Read what it was to change, and write
 * again if a second time does no harm.
 */
export class UnknownOutcome extends Error {
  override name = "UnknownOutcome";
}

/** A server's error by its code, if it is of a session; otherwise as it is. */
export function named(error: Error): Error {
  const code = /^[A-Z]+/.exec(error.message)?.[0];
  switch (code) {
    case "BEHIND":
    case "UNORDERED":
    case "LOST":
    case "BADTOKEN":
      return new SessionError(code, error.message);
    case "UNKNOWN":
      return new UnknownOutcome(error.message);
    default:
      return error;
  }
}
