//! Window by window: sketches in, moves out.

use super::super::failed::Failed;
use super::super::show::{self, Length, Table, length};
use super::{Place, Progress};
use clap::Args;
use indicatif::BinaryBytes;
use place::cluster::{Cluster, ClusterError};
use place::decide::{Budget, Move, Regret};
use place::listen::Inbox;
use place::mover::{Event, Mover};
use place::sketch::Client;
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
}

impl Windows {
    pub(super) async fn run(&self, place: &Place, cluster: &mut Cluster) -> Result<(), Failed> {
        if !self.sketches.is_empty() {
            return self.once(place, cluster).await;
        }
        if !self.listen.ip().is_loopback() && self.token.is_none() {
            return Err(Failed::usage(
                "--listen: other machines reach this address: give a --token",
            ));
        }
        let listener = TcpListener::bind(self.listen).await;
        let listener =
            listener.map_err(|e| Failed::cannot_serve(format!("{}: {e}", self.listen)))?;
        let inbox = Inbox::new(self.token.as_deref());
        tokio::spawn(inbox.clone().serve(listener));
        eprintln!("portolan: sketches are taken at http://{}/v1/sketches", self.listen);
        if !place.advise {
            place.perform(cluster, &[]).await?;
        }
        let mut regret = Regret::default();
        let mut windows = 0;
        while self.windows.is_none_or(|most| windows < most) {
            windows += 1;
            tokio::time::sleep(self.window.0).await;
            let done = self.decide(place, cluster, &inbox, Some(&mut regret)).await;
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
        let inbox = Inbox::new(None);
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

    async fn decide(
        &self,
        place: &Place,
        cluster: &mut Cluster,
        inbox: &Inbox,
        mut regret: Option<&mut Regret>,
    ) -> Result<(), ClusterError> {
        let masters = window::masters(&cluster.survey().await?);
        let (clients, dropped) = inbox.with(|sketches, now| {
            sketches.forget(now, self.window.0);
            (sketches.clients(&masters), sketches.dropped)
        });
        let budget = Budget { moves: self.max_moves, bytes: self.max_mib << 20 };
        // Advice has no memory: it is what one window shows.
        let paced = regret.as_deref_mut().filter(|_| !place.advise);
        let paced = paced.map(|regret| (regret, self.window.0.as_secs_f64()));
        let moves = window::plan(cluster, &clients, budget, paced).await?;
        if let Err(error) = self.print(place, &clients, &moves, dropped) {
            eprintln!("portolan: cannot write the output: {error}");
        }
        if place.advise || moves.is_empty() {
            return Ok(());
        }
        let mut progress = Progress::new(place.steps);
        let mut report = |event: Event<'_>| progress.take(&event);
        let goals = window::goals(cluster, &moves).await?;
        let outcome = place.set_up(Mover::new(cluster, &mut report)).run(&goals).await?;
        progress.bar.finish_and_clear();
        if let Some(regret) = regret {
            outcome.arrived.iter().for_each(|slot| regret.paid(slot));
        }
        // What is left is printed; the next window tries again.
        if let Err(failed) = place.tell(&outcome) {
            failed.report();
        }
        Ok(())
    }

    fn print(
        &self,
        place: &Place,
        clients: &[Client],
        moves: &[Move],
        dropped: place::sketch::Dropped,
    ) -> std::io::Result<()> {
        let sum = |of: fn(&Move) -> f64| moves.iter().map(of).sum::<f64>();
        let (gain, apart) = (sum(|one| one.gain), sum(|one| one.gain_apart));
        let bytes: u64 = moves.iter().map(|one| one.bytes).sum();
        if place.json {
            let listed = moves.iter().map(|one| {
                json!({
                    "slot": one.slot.number(), "from": one.from.to_string(),
                    "to": one.to.to_string(), "gain_ms_per_s": one.gain,
                    "gain_apart_ms_per_s": one.gain_apart, "bytes": one.bytes,
                })
            });
            return show::print_json(&json!({
                "clients": clients.len(), "moves": listed.collect::<Vec<_>>(),
                "gain_ms_per_s": gain, "gain_apart_ms_per_s": apart, "bytes": bytes,
                "malformed_sketches": dropped.malformed,
                "unknown_servers": dropped.unknown_servers,
                "absurd_latencies": dropped.absurd_latencies,
                "refused_clients": dropped.clients,
            }));
        }
        if place.advise && !moves.is_empty() {
            let mut table = Table::new([">slot", "from", "to", ">saves ms/s", ">bytes", ">lost %"]);
            for one in moves {
                table.row([
                    one.slot.to_string(),
                    one.from.to_string(),
                    one.to.to_string(),
                    format!("{:.1}", one.gain),
                    BinaryBytes(one.bytes).to_string(),
                    format!("{:.0}", lost(one.gain, one.gain_apart)),
                ]);
            }
            show::print(&table)?;
        }
        show::print(format_args!(
            "{} clients; {} moves save {gain:.1} ms/s for {}; {:.0} % of the gain is lost as slots have \
             several users; dropped: {} sketches, {} servers, {} latencies",
            clients.len(),
            moves.len(),
            BinaryBytes(bytes),
            lost(gain, apart),
            dropped.malformed + dropped.clients,
            dropped.unknown_servers,
            dropped.absurd_latencies,
        ))
    }
}

fn lost(gain: f64, apart: f64) -> f64 {
    if apart > 0.0 { 100.0 * (1.0 - gain / apart).max(0.0) } else { 0.0 }
}
