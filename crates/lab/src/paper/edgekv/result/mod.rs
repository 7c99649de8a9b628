//! What came out, beside what was published.
//!
//! | file | its one idea |
//! | --- | --- |
//! | [`measured`] | what a run came to, from its history |
//! | [`findings`] | what was published about it, what came out, and whether that is the same |
//! | [`constants`] | which findings hang on the model's own constant |
//! | [`bars`] | what has been set as a goal, and what came out |

pub mod bars;
pub mod constants;
pub mod findings;
pub mod measured;
