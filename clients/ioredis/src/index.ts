export { Cluster, type PlacedClusterOptions } from "./cluster.js";
export { NoSite, SessionError, UnknownOutcome } from "./errors.js";
export type { Placement, Stats } from "./placement.js";
export { type Addresses, type LinkOptions, type Roaming, Sites } from "./roaming.js";
export { Session, type SessionOptions, type SessionStats } from "./session.js";
