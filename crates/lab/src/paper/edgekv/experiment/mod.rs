//! Which runs make which figure.
//!
//! | file | its one idea |
//! | --- | --- |
//! | [`point`] | one run: which setting, which load |
//! | [`figure`] | which points make which figure |
//! | [`copies`] | what copies of remote keys are good for |
//! | [`hops`] | ways through rings of up to 10,000 gateways |
//! | [`real`] | throughput in real time, measured outside the lab |

pub mod copies;
pub mod figure;
pub mod hops;
pub mod point;
pub mod real;
