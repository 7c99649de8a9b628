//! The doors of a site: Redis, gRPC, admin HTTP.
