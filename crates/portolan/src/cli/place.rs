//! `place`: where the slots of an unmodified Redis or Valkey Cluster are, and moving them.

mod windows;

use super::failed::Failed;
use super::show::{self, Length, Table, length};
use clap::{ArgGroup, Args};
use indicatif::{BinaryBytes, ProgressBar, ProgressStyle};
use model::{Slot, SlotSet};
use place::cluster::{Access, Cluster, ClusterError};
use place::connection::CallError;
use place::mover::{Event, Mover, Outcome, Picture, inspect};
use place::plan::Step;
use place::tls::Tls;
use place::view::NodeId;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use windows::Windows;

/// Move the slots of a Redis or Valkey Cluster to their users; its servers stay as they are
#[derive(Args)]
#[command(group = ArgGroup::new("order"))]
#[command(after_help = "Examples:
  portolan place redis://10.0.0.1:6379 --advise      what moving slots to their users would bring
  portolan place redis://10.0.0.1:6379               move them, window by window
  portolan place redis://10.0.0.1:6379 --explain {user7}:cart --windows 1
  portolan place redis://10.0.0.1:6379 --status      what every server reports, changing nothing
  portolan place redis://10.0.0.1:6379 --resume      finish the moves that something has interrupted
  portolan place redis://10.0.0.1:6379 --move 0-99 --to 10.0.0.2:6379

Clients send what they see to --listen: see docs/placement.md.

It may be stopped at any moment (Ctrl-C, kill -9) and run again: it first finishes what is open. What it
cannot explain (keys at a server that does not own their slot, two owners, a server that does not answer)
it reports and leaves. It ends with 0 when nothing is left, else with 1.")]
pub(crate) struct Place {
    /// Some of the cluster's servers: redis://[USER[:PASSWORD]@]HOST:PORT,HOST:PORT,… (rediss://
    /// for TLS); the user and the password are percent-encoded
    cluster: String,
    /// Print the moves, what they save and what they cost; move nothing
    #[arg(long, group = "order")]
    advise: bool,
    /// Print who uses the slot of this key, what each master would cost and why it is where it is;
    /// move nothing
    #[arg(long, group = "order", value_name = "KEY")]
    explain: Option<String>,
    /// Print servers, open slots and what a person has to look at; change nothing
    #[arg(long, group = "order")]
    status: bool,
    /// Finish or close what earlier moves left open
    #[arg(long, group = "order")]
    resume: bool,
    /// Move these slots (0-99,105 or all), after --resume's work
    #[arg(long = "move", group = "order", requires = "to", value_name = "SLOTS")]
    slots: Option<SlotSet>,
    /// The server that gets them: HOST:PORT (its IP address or its hostname), or the beginning of
    /// its id
    #[arg(long, value_name = "SERVER", requires = "slots")]
    to: Option<String>,
    #[command(flatten)]
    windows: Windows,
    /// Pause after each step, as a brake
    #[arg(long, value_name = "TIME", value_parser = length)]
    pace: Option<Length>,
    /// Move key by key even where the server has a command that moves whole slots
    #[arg(long)]
    by_key: bool,
    /// How long a server may take to answer; a key that could stop it for longer does not move
    #[arg(long, value_name = "TIME", value_parser = length, default_value = "5s")]
    timeout: Length,
    /// The password, for a URL without one: with or without a user (redis://ann@…)
    #[arg(long, env = "PORTOLAN_REDIS_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// The CA (PEM) that has signed the servers' certificates, for rediss://
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// The certificate (PEM) to show, for servers that ask for one (tls-auth-clients, their
    /// default)
    #[arg(long, value_name = "FILE", requires = "tls_key", requires = "tls_ca")]
    tls_cert: Option<PathBuf>,
    /// The private key (PEM) of --tls-cert
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Print each step on the standard error
    #[arg(long)]
    steps: bool,
    /// Print what came of it as JSON
    #[arg(long)]
    json: bool,
}

impl Place {
    pub(crate) fn run(self) -> Result<(), Failed> {
        let mut access = Access::parse(&self.cluster, self.timeout.0).map_err(Failed::usage)?;
        if let Some(password) = &self.password {
            let login = access.credentials.get_or_insert_default();
            if login.password.is_empty() {
                login.password.clone_from(password);
            }
        }
        access.tls = match (access.is_secret, &self.tls_ca) {
            (true, Some(ca)) => {
                let identity = self.tls_cert.as_deref().zip(self.tls_key.as_deref());
                Some(Tls::new(ca, identity).map_err(Failed::usage)?)
            }
            (true, None) => {
                return Err(Failed::usage("rediss:// needs --tls-ca, the CA of the servers"));
            }
            (false, Some(_)) => {
                return Err(Failed::usage("--tls-ca is for rediss://; redis:// is not encrypted"));
            }
            (false, None) => None,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Failed::cannot_serve)?;
        runtime.block_on(async {
            if self.status {
                return self.show(&inspect(&mut Cluster::to_look_at(access)).await?);
            }
            let mut cluster = match self.only_looks() {
                true => Cluster::to_look_at(access),
                false => Cluster::new(access),
            };
            match (&self.slots, &self.to) {
                (Some(slots), Some(to)) => {
                    let to = find(&cluster.survey().await?, to)?;
                    let goals: Vec<_> = slots.iter().map(|slot| (slot, to.clone())).collect();
                    self.perform(&mut cluster, &goals).await
                }
                _ if self.resume => self.perform(&mut cluster, &[]).await,
                _ => self.windows.run(&self, &mut cluster).await,
            }
        })
    }

    /// Whether windows are shown and nothing moves.
    fn only_looks(&self) -> bool {
        self.advise || self.explain.is_some()
    }

    async fn perform(&self, cluster: &mut Cluster, goals: &[(Slot, NodeId)]) -> Result<(), Failed> {
        let mut outcome = Outcome::default();
        let done = self.moved(cluster, goals, &SlotSet::default(), &mut outcome).await;
        if done.is_err() && outcome == Outcome::default() {
            return Ok(done?);
        }
        let reported = self.report(&outcome);
        done?;
        reported
    }

    /// Resumes what was interrupted, and moves slots to their goals, with progress on the standard
    /// error. What comes of it is added to `outcome`, also before an error.
    async fn moved(
        &self,
        cluster: &mut Cluster,
        goals: &[(Slot, NodeId)],
        except: &SlotSet,
        outcome: &mut Outcome,
    ) -> Result<(), ClusterError> {
        let mut progress = Progress::new(self.steps);
        let mut report = |event: Event<'_>| progress.take(&event);
        let pace = self.pace.map_or(Duration::ZERO, |pace| pace.0);
        let mover = Mover::new(cluster, &mut report).pace(pace).atomic(!self.by_key);
        let done = mover.except(except.clone()).run(goals, outcome).await;
        progress.bar.finish_and_clear();
        done
    }

    fn show(&self, picture: &Picture) -> Result<(), Failed> {
        let survey = &picture.survey;
        let mut keys: BTreeMap<&NodeId, u64> = BTreeMap::new();
        for (id, count) in picture.keys.values().flatten() {
            *keys.entry(id).or_default() += count;
        }
        let troubles = picture.troubles.iter().map(|(slot, trouble)| {
            let why = trouble.named(|id| survey.shown(id));
            (*slot, why)
        });
        let troubles: Vec<(Slot, String)> = troubles.collect();
        if self.json {
            let masters = survey.masters().map(|(id, view)| {
                let slots = view.peers[id].slots.to_string();
                json!({
                    "id": id.as_str(), "address": survey.shown(id), "slots": slots,
                    "keys": keys.get(id).copied().unwrap_or_default(),
                })
            });
            let masters: Vec<_> = masters.collect();
            let absent: BTreeMap<_, _> =
                survey.absent.iter().map(|(id, why)| (survey.shown(id), why)).collect();
            let troubles: Vec<_> = troubles
                .iter()
                .map(|(slot, why)| json!({ "slot": slot.number(), "why": why }))
                .collect();
            let open = listed(&picture.open);
            show::print_json(&json!({
                "masters": masters, "absent": absent, "open": open, "troubles": troubles,
            }))?;
        } else {
            let mut table = Table::new(["master", "id", ">slots", ">keys"]);
            for (id, view) in survey.masters() {
                let slots = view.peers[id].slots.len().to_string();
                let keys = keys.get(id).copied().unwrap_or_default().to_string();
                table.row([survey.shown(id), id.to_string(), slots, keys]);
            }
            show::print(&table)?;
            for (id, why) in &survey.absent {
                show::print(format_args!("{} does not answer: {why}", survey.shown(id)))?;
            }
            match picture.open.is_empty() {
                true => show::print("no slot is open")?,
                false => show::print(format_args!(
                    "{} slots are open (--resume closes them): {}",
                    picture.open.len(),
                    picture.open
                ))?,
            }
            for (slots, why) in grouped(&troubles) {
                show::print(format_args!("look at slots {slots}: {why}"))?;
            }
        }
        match picture.open.is_empty() && troubles.is_empty() {
            true => Ok(()),
            false => Err(Failed::no(None)),
        }
    }

    fn report(&self, outcome: &Outcome) -> Result<(), Failed> {
        let Outcome { arrived, left, keys, bytes, untried: _ } = outcome;
        if self.json {
            let left: Vec<_> = left
                .iter()
                .map(|(slot, why)| json!({ "slot": slot.number(), "why": why }))
                .collect();
            show::print_json(&json!({
                "arrived": listed(arrived), "left": left, "keys": keys, "bytes": bytes,
            }))?;
        } else {
            let slots = match arrived.is_empty() {
                true => "no slot had to move".to_owned(),
                false => format!("{} slots arrived ({arrived})", arrived.len()),
            };
            let bytes = BinaryBytes(*bytes);
            show::print(match keys {
                0 => slots,
                keys => format!("{slots}; {keys} keys copied, {bytes} in memory"),
            })?;
            let left: Vec<(Slot, String)> =
                left.iter().map(|(slot, why)| (*slot, why.clone())).collect();
            for (slots, why) in grouped(&left) {
                show::print(format_args!("left slots {slots}: {why}"))?;
            }
        }
        match left.is_empty() {
            true => Ok(()),
            false => Err(Failed::no(Some(format!("{} slots are left as they were", left.len())))),
        }
    }
}

fn listed(slots: &SlotSet) -> String {
    if slots.is_empty() { String::new() } else { slots.to_string() }
}

/// Slots by what is reported of them.
fn grouped(slots: &[(Slot, String)]) -> Vec<(SlotSet, &str)> {
    let mut by_why: BTreeMap<&str, SlotSet> = BTreeMap::new();
    for (slot, why) in slots {
        by_why.entry(why).or_default().insert(*slot);
    }
    by_why.into_iter().map(|(why, slots)| (slots, why)).collect()
}

/// The master that is meant.
fn find(survey: &place::cluster::Survey, name: &str) -> Result<NodeId, Failed> {
    let by_address = survey.masters_by_address();
    let named = name.parse().ok().and_then(|address| by_address.get(&address));
    let is_it = |id: &&NodeId| Some(*id) == named || id.as_str().starts_with(name);
    let found: Vec<&NodeId> = survey.masters().map(|(id, _)| id).filter(is_it).collect();
    match found[..] {
        [one] => Ok(one.clone()),
        [] => Err(Failed::usage(format!("--to {name}: no master that answers has this name"))),
        _ => Err(Failed::usage(format!("--to {name}: several masters have this name"))),
    }
}

/// What is shown while slots move.
struct Progress {
    bar: ProgressBar,
    steps: bool,
    arrived: u64,
    left: u64,
    keys: u64,
    bytes: u64,
}

impl Progress {
    fn new(steps: bool) -> Progress {
        let style = ProgressStyle::with_template("{spinner} {msg}").expect("a template");
        let bar = if steps { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        Progress { bar: bar.with_style(style), steps, arrived: 0, left: 0, keys: 0, bytes: 0 }
    }

    fn take(&mut self, event: &Event<'_>) {
        let mut doing = String::new();
        match event {
            Event::Done { slot, step, survey } => {
                if self.steps {
                    eprintln!("slot {slot}: {}", described(step, |id| survey.shown(id)));
                }
            }
            Event::Copied { keys, bytes, .. } => {
                self.keys += keys;
                self.bytes += bytes;
            }
            Event::Arrived(slot) => {
                self.arrived += 1;
                if self.steps {
                    eprintln!("slot {slot}: arrived");
                }
            }
            Event::Left(slot, why) => {
                self.left += 1;
                if self.steps {
                    eprintln!("slot {slot}: left as it is: {why}");
                }
            }
            Event::Waiting(slots) => doing = format!(", a server moves {slots}"),
        }
        let Progress { arrived, left, keys, .. } = self;
        let bytes = BinaryBytes(self.bytes);
        self.bar.set_message(format!(
            "{arrived} slots arrived, {left} left; {keys} keys, {bytes}{doing}"
        ));
        self.bar.tick();
    }
}

fn described(step: &Step, shown: impl Fn(&NodeId) -> String) -> String {
    match step {
        Step::Import { at, from } => format!("importing at {} from {}", shown(at), shown(from)),
        Step::Migrate { at, to } => format!("migrating at {} to {}", shown(at), shown(to)),
        Step::Copy { from, to } => format!("keys from {} to {}", shown(from), shown(to)),
        Step::Assign { at, owner } => format!("assigned at {} to {}", shown(at), shown(owner)),
        Step::Stable { at } => format!("mark taken away at {}", shown(at)),
    }
}

impl From<ClusterError> for Failed {
    fn from(error: ClusterError) -> Failed {
        match error {
            ClusterError::Unreachable(_)
            | ClusterError::Silent(_)
            | ClusterError::Call { error: CallError::Lost(_), .. } => Failed::unavailable(error),
            ClusterError::Busy(_) | ClusterError::Call { .. } | ClusterError::Malformed { .. } => {
                Failed::refused(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_with_the_same_trouble_are_one_line() {
        let slot = |n| Slot::new(n).unwrap();
        let troubles = [(slot(1), "x".to_owned()), (slot(2), "x".into()), (slot(9), "y".into())];
        let lines: Vec<String> =
            grouped(&troubles).into_iter().map(|(slots, why)| format!("{slots} {why}")).collect();
        assert_eq!(lines, ["1-2 x", "9 y"]);
    }
}
