//! Two contracts: the log of a replica and its ordered state; a real engine and an in-memory one of each.
