export { Cluster, type PlacedClusterOptions } from "./cluster.js";
export type { Placement, Stats } from "./placement.js";
