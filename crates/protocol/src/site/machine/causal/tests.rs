//! Causal keys in the state, from outside: commands in, records out.
