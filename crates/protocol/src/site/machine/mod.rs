//! The state machine: applies commands to the state and answers queries from it.
