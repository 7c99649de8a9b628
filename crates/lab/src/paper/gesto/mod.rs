//! The evaluation of Gesto (Afonso, Bravo and Rodrigues, *Combining high throughput and low
//! migration latency for consistent data storage on the edge*, ICCCN 2020; here by the extended
//! abstract of Afonso's dissertation, §VIII), run again in virtual time.
//!
//! *What is modelled.* Seven places with the delays of its Table I, a datacenter with the broker in
//! Lyon, cloudlets that hold a part of the keys, clients beside their sites that ask without a
//! pause, its workloads W1 and W2, and the five stores as [`crate::baselines`] has them. Latencies
//! are of links and of processors with the stated costs ([`crate::baselines::Costs`]).
//!
//! *What is not.* The machines and the Erlang program of the evaluation: a rate is of operations of
//! this model, in its time and for each second that one of its cores is busy. Its runs took two
//! minutes; these take four seconds, or less than one, without what is left out of the beginning. The paper prints
//! plots without numbers but for those in its text, so what is compared is what the text states.
//! How many sites hold a key is not stated: here they are the datacenter and three cloudlets, and
//! 100 of 10,000 keys are everywhere.
//!
//! | file | its one idea |
//! | --- | --- |
//! | [`experiment`] | which runs make which figure |
//! | [`goals`] | what Portolan's own causal keys are to reach |
//! | [`own`] | Portolan's own causal keys, as one of the stores |
//! | [`real`] | throughput of the five stores in real time |
//! | [`result`] | what came out, beside what was published |
//! | [`report`] | all of it as a page and as JSON |

pub mod experiment;
pub mod goals;
pub mod own;
pub mod real;
pub mod report;
pub mod result;

pub use self::experiment::{Point, Results, System};

/// How much is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Size {
    /// As many clients and sites as in the paper, and more.
    Paper,
    /// Little of it: to see that everything works.
    Quick,
}
