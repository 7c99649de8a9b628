//! Window by window: sketches in, moves out.

use super::super::failed::Failed;
use super::super::show::{self, Length, Table, length};
use super::Place;
use clap::{Args, ValueEnum};
use indicatif::BinaryBytes;
use model::{Slot, SlotSet};
use place::clients::Dropped;
use place::cluster::{Cluster, ClusterError, Survey};
use place::decide::{Budget, Decider, Decision, Explained, Move, Objective, Options, Weights};
use place::left::LeftSlots;
use place::listen::{Access, Inbox};
use place::mover::Outcome;
use place::view::NodeId;
use place::window;
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::net::TcpListener;

/// How often, how much, and where sketches come from.
#[derive(Args)]
pub(super) struct Windows {
    /// Read sketches from these files, one in JSON a line; decide once, then end
    #[arg(long, value_name = "FILE", num_args = 1..)]
    sketches: Vec<PathBuf>,
    /// Where clients send sketches
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7390")]
    listen: SocketAddr,
    /// What clients must send as their bearer token; needed where other machines reach --listen
    #[arg(long, env = "PORTOLAN_SKETCH_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<String>,
    /// A file with a token for each client, one client a line: its name and its token. A client sends
    /// sketches under its own name only; in place of --token
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// How often moves are decided
    #[arg(long, value_name = "TIME", value_parser = length, default_value = "10s")]
    window: Length,
    /// End after so many windows
    #[arg(long, value_name = "COUNT")]
    windows: Option<u64>,
    /// At most so many moves a window
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    max_moves: usize,
    /// At most so many MiB copied a window
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    max_mib: u64,
    /// Give no slot to a server that then uses more than so many MiB; nine tenths of its maxmemory
    /// are a bound anyway
    #[arg(long, value_name = "MIB")]
    max_server_mib: Option<u64>,
    /// What is to be least: the mean latency, or a quantile of all uses (p95)
    #[arg(long, value_name = "mean|pNN", default_value_t = Objective::Mean)]
    objective: Objective,
    /// What counts where a slot has several clients
    #[arg(long, value_enum, default_value = "uses")]
    weights: Counted,
    /// Slots that stay where they are (0-99,105)
    #[arg(long, value_name = "SLOTS")]
    keep: Option<SlotSet>,
}

/// What counts.
#[derive(Clone, Copy, ValueEnum)]
enum Counted {
    /// Each use
    Uses,
    /// Each client as much as any other: no client moves a slot away from as many others
    Clients,
}

/// For how long advice assumes that clients go on as in the window: a move must be worth its cost
/// by then.
const ADVICE_S: f32 = 60.0;

impl Windows {
    pub(super) async fn run(&self, place: &Place, cluster: &mut Cluster) -> Result<(), Failed> {
        if !self.sketches.is_empty() {
            return self.once(place, cluster).await;
        }
        let access = self.access()?;
        if !self.listen.ip().is_loopback() && matches!(access, Access::Open) {
            return Err(Failed::usage(
                "--listen: other machines reach this address: give a --token, or --tokens",
            ));
        }
        let listener = TcpListener::bind(self.listen).await;
        let listener =
            listener.map_err(|e| Failed::cannot_serve(format!("{}: {e}", self.listen)))?;
        let inbox = Inbox::new(access);
        tokio::spawn(inbox.clone().serve(listener));
        eprintln!("portolan: sketches are taken at http://{}/v1/sketches", self.listen);
        let mut memory =
            Memory { decider: Decider::new(self.options()), left: LeftSlots::default() };
        if !place.only_looks() {
            memory.moved(place, cluster, &[]).await?;
        }
        let mut windows = 0;
        while self.windows.is_none_or(|most| windows < most) {
            windows += 1;
            tokio::time::sleep(self.window.0).await;
            memory.left.next_window();
            let done = self.decide(place, cluster, &inbox, Some(&mut memory)).await;
            match done {
                Ok(()) => {}
                // It may be there again in the next window.
                Err(
                    error @ (ClusterError::Unreachable(_)
                    | ClusterError::Silent(_)
                    | ClusterError::Call { .. }),
                ) => eprintln!("portolan: {error}"),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// From files.
    async fn once(&self, place: &Place, cluster: &mut Cluster) -> Result<(), Failed> {
        let inbox = Inbox::new(Access::Open);
        for path in &self.sketches {
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|e| Failed::usage(format!("{}: {e}", path.display())))?;
            for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
                let taken = inbox.with(|sketches, now| sketches.take(line.as_bytes(), now));
                if let Err(refused) = taken {
                    eprintln!("portolan: {}:{}: {refused}", path.display(), number + 1);
                }
            }
        }
        Ok(self.decide(place, cluster, &inbox, None).await?)
    }

    fn access(&self) -> Result<Access, Failed> {
        if let Some(path) = &self.tokens {
            let wrong = |why| Failed::usage(format!("--tokens: {}: {why}", path.display()));
            let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
            return Access::by_client(&text).map_err(wrong);
        }
        Ok(self.token.clone().map_or(Access::Open, Access::Shared))
    }

    fn options(&self) -> Options {
        Options {
            objective: self.objective,
            weights: match self.weights {
                Counted::Uses => Weights::Uses,
                Counted::Clients => Weights::Clients,
            },
            keep: self.keep.clone().unwrap_or_default(),
            budget: Budget { moves: self.max_moves, bytes: self.max_mib << 20 },
        }
    }

    async fn decide(
        &self,
        place: &Place,
        cluster: &mut Cluster,
        inbox: &Inbox,
        memory: Option<&mut Memory>,
    ) -> Result<(), ClusterError> {
        let survey = cluster.survey().await?;
        let masters = survey.masters_by_address();
        let (names, clients, dropped) = inbox.with(|sketches, now| {
            sketches.forget(now, self.window.0);
            let (names, clients) = sketches.clients(&masters).into_iter().unzip();
            let (names, clients): (Vec<String>, Vec<_>) = (names, clients);
            (names, clients, sketches.dropped)
        });
        // Advice has no memory: it is what one window shows.
        let mut fresh =
            Memory { decider: Decider::new(self.options()), left: LeftSlots::default() };
        let (memory, window_s) = match memory.filter(|_| !place.only_looks()) {
            Some(memory) => (memory, self.window.0.as_secs_f32()),
            None => (&mut fresh, ADVICE_S),
        };
        let (most, waiting) = (self.max_server_mib.map(|mib| mib << 20), memory.left.waiting());
        let decider = &mut memory.decider;
        let decision =
            window::decide(decider, cluster, &survey, &clients, most, &waiting, window_s).await?;
        let printed = match &place.explain {
            Some(key) => {
                let slot = Slot::of_key(key.as_bytes());
                let explained = decider.explain(slot, |id| survey.shown(id));
                explain(place, (key, slot), explained, &names, &survey)
            }
            None => self.print(place, (clients.len(), dropped), &decision, &survey),
        };
        if let Err(error) = printed {
            eprintln!("portolan: cannot write the output: {error}");
        }
        // A slot that an earlier window left open is closed whether others move or not.
        let has_open = survey.open().iter().any(|slot| !waiting.contains(slot));
        if place.only_looks() || (decision.moves.is_empty() && !has_open) {
            return Ok(());
        }
        let goals = decision.moves.iter().map(|one| (one.slot, one.to.clone()));
        let goals: Vec<_> = goals.collect();
        memory.moved(place, cluster, &goals).await
    }

    fn print(
        &self,
        place: &Place,
        (clients, dropped): (usize, Dropped),
        decision: &Decision,
        survey: &Survey,
    ) -> std::io::Result<()> {
        let Decision { moves, left, now_ms, after_ms, best_ms, bound_ms, ended } = decision;
        // The sum of nothing is -0.
        let sum = |of: fn(&Move) -> f64| moves.iter().map(of).sum::<f64>() + 0.0;
        let (gain, apart) = (sum(|one| one.gain), sum(|one| one.gain_apart));
        let bytes: u64 = moves.iter().map(|one| one.bytes).sum();
        if place.json {
            let listed = moves.iter().map(|one| {
                json!({
                    "slot": one.slot.number(), "from": survey.shown(&one.from),
                    "to": survey.shown(&one.to), "gain_ms_per_s": one.gain,
                    "gain_apart_ms_per_s": one.gain_apart, "bytes": one.bytes,
                })
            });
            let ended = ended.map(|window| {
                json!({
                    "number": window.number, "moves": window.moves, "bytes": window.bytes,
                    "expected_ms_per_s": window.expected_ms_per_s,
                    "saved_ms": window.saved_ms, "cost_ms": window.paused_ms,
                })
            });
            return show::print_json(&json!({
                "clients": clients, "moves": listed.collect::<Vec<_>>(), "left": left,
                "gain_ms_per_s": gain, "gain_apart_ms_per_s": apart, "bytes": bytes,
                "objective": self.objective.to_string(), "now_ms": now_ms,
                "after_ms": after_ms, "best_ms": best_ms, "bound_ms": bound_ms,
                "last_window": ended,
                "malformed_sketches": dropped.malformed,
                "unknown_servers": dropped.unknown_servers,
                "absurd_latencies": dropped.absurd_latencies,
                "refused_clients": dropped.clients,
                "refused_names": dropped.other_names,
            }));
        }
        if place.advise && !moves.is_empty() {
            let mut table = Table::new([">slot", "from", "to", ">saves ms/s", ">bytes", ">lost %"]);
            for one in moves {
                table.row([
                    one.slot.to_string(),
                    survey.shown(&one.from),
                    survey.shown(&one.to),
                    format!("{:.1}", one.gain),
                    BinaryBytes(one.bytes).to_string(),
                    format!("{:.0}", lost(one.gain, one.gain_apart)),
                ]);
            }
            show::print(&table)?;
        }
        if let Some(window) = ended.filter(|window| window.saved_ms != 0.0 || window.moves > 0) {
            show::print(format_args!(
                "in the last window the moves of the last six have saved {:.0} ms of waiting; its {} \
                 moves ({}) cost about {:.0} ms",
                window.saved_ms,
                window.moves,
                BinaryBytes(window.bytes),
                window.paused_ms,
            ))?;
        }
        show::print(format_args!(
            "{clients} clients; {} moves save {gain:.1} ms/s for {}; {left} more wait; {:.0} % of the gain is \
             lost as slots have several users",
            moves.len(),
            BinaryBytes(bytes),
            lost(gain, apart),
        ))?;
        let [now, then, best] = [now_ms, after_ms, best_ms].map(|known| ms(*known));
        let objective = self.objective;
        let bound =
            bound_ms.map(|bound| format!("; with the servers' room no less than {bound:.1} ms"));
        let bound = bound.unwrap_or_default();
        show::print(format_args!("{objective}: {now} now, {then} then, {best} at best{bound}"))?;
        let Dropped { malformed, clients, other_names, unknown_servers, absurd_latencies } =
            dropped;
        let sketches = malformed + clients + other_names;
        if sketches + unknown_servers + absurd_latencies > 0 {
            show::print(format_args!(
                "dropped: {sketches} sketches, {unknown_servers} servers, {absurd_latencies} latencies"
            ))?;
        }
        Ok(())
    }
}

/// What windows remember.
struct Memory {
    decider: Decider,
    left: LeftSlots,
}

impl Memory {
    /// Closes what is open and moves slots, but for those that wait. What is left is printed: other
    /// slots go on following their users, and a later window tries again.
    async fn moved(
        &mut self,
        place: &Place,
        cluster: &mut Cluster,
        goals: &[(Slot, NodeId)],
    ) -> Result<(), ClusterError> {
        let mut outcome = Outcome::default();
        let done = place.moved(cluster, goals, &self.left.waiting(), &mut outcome).await;
        self.left.take(&outcome);
        let is_known = done.is_ok() || outcome != Outcome::default();
        if let Some(Err(failed)) = is_known.then(|| place.report(&outcome)) {
            failed.report();
        }
        done
    }
}

/// Milliseconds, or that they are not known.
fn ms(known: Option<f64>) -> String {
    known.map_or_else(|| "unknown".to_owned(), |ms| format!("{ms:.1} ms"))
}

/// Why the slot of a key is where it is.
fn explain(
    place: &Place,
    (key, slot): (&str, Slot),
    explained: Option<Explained>,
    names: &[String],
    survey: &Survey,
) -> std::io::Result<()> {
    let Some(Explained { owner, bytes, uses, candidates, alone_ms, why }) = explained else {
        if place.json {
            return show::print_json(&json!({ "key": key, "slot": slot.number() }));
        }
        return show::print(format_args!(
            "{key} (slot {slot}): no client has named it, or no master has it"
        ));
    };
    let owner = survey.shown(&owner);
    if place.json {
        let uses =
            uses.iter().map(|(client, rate)| json!({ "client": names[*client], "per_s": rate }));
        let uses: Vec<_> = uses.collect();
        let candidates = candidates.iter().map(
            |(master, ms, bar)| json!({ "master": survey.shown(master), "ms": ms, "excluded": bar }),
        );
        let candidates: Vec<_> = candidates.collect();
        return show::print_json(&json!({
            "key": key, "slot": slot.number(), "owner": owner, "bytes": bytes,
            "uses": uses, "candidates": candidates, "alone_ms": alone_ms, "why": why,
        }));
    }
    show::print(format_args!("{key}: slot {slot}, about {}, at {owner}", BinaryBytes(bytes)))?;
    let mut table = Table::new(["client", ">uses/s"]);
    for (client, rate) in uses.iter().take(EXPLAINED_CLIENTS_MAX) {
        table.row([names[*client].clone(), format!("{rate:.1}")]);
    }
    show::print(&table)?;
    if let Some(more) = uses.len().checked_sub(EXPLAINED_CLIENTS_MAX).filter(|more| *more > 0) {
        show::print(format_args!("and {more} clients more"))?;
    }
    let mut table = Table::new(["master", ">an access", "excluded"]);
    for (master, known, bar) in candidates {
        table.row([survey.shown(&master), ms(known), bar.unwrap_or_default().to_owned()]);
    }
    show::print(&table)?;
    show::print(format_args!(
        "{why}; it would take {alone_ms:.1} ms if each client had the slot to itself"
    ))
}

/// Clients that an explanation lists.
const EXPLAINED_CLIENTS_MAX: usize = 20;

fn lost(gain: f64, apart: f64) -> f64 {
    if apart > 0.0 { 100.0 * (1.0 - gain / apart).max(0.0) } else { 0.0 }
}
