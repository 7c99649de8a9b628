//! `slot move`: slots that are to be a site's, until they are, or until there is a reason why not.
//!
//! An order bears a number, and is repeated under it until all that it has begun is over: at which
//! node, and how often, makes no difference. What has come to another site meanwhile, or was called
//! off, or had to wait for room is ordered once more, under the next number.

use super::connect::Connect;
use super::failed::Failed;
use super::show;
use clap::Args;
use client::{Client, v1};
use indicatif::{ProgressBar, ProgressStyle};
use model::{Slot, SlotSet};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often it is looked how far an order has come.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Slots to move.
#[derive(Args)]
#[command(after_help = "Example:\n  portolan slot move 0-99,105 --to pier-39\n\n\
    All sites are asked what they hold. It ends with 0 when all slots are with the site, and with 1 when\n\
    some are not (5, when a site did not answer): the output lists which, which site has them and why. With --no-wait those count that are on their way.")]
pub(crate) struct Move {
    /// Which slots: numbers and ranges as 0-99,105, or all
    slots: SlotSet,
    /// The site that is to hold them
    #[arg(long, value_name = "SITE")]
    to: String,
    /// Return when it has begun, without waiting for its end
    #[arg(long)]
    no_wait: bool,
    /// Print what came of it as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

impl Move {
    pub(crate) fn run(self) -> Result<(), Failed> {
        let timeout = self.connect.deadline();
        let Move { slots, to, no_wait, json, connect } = self;
        connect.run(|client| async move {
            let mut account = Account::new(slots);
            account.carry_out(&client, &to, no_wait, timeout).await?;
            match json {
                true => show::print_json(&account.as_json(&to, no_wait))?,
                false => show::print(account.text(&to, no_wait))?,
            }
            account.verdict(&to, no_wait)
        })
    }
}

/// The progress of an order.
#[derive(Debug, Default)]
struct Account {
    wanted: SlotSet,
    /// By the first answer of the destination.
    before: Option<SlotSet>,
    /// By its last one.
    there: SlotSet,
    /// What was begun, by source and number.
    moves: BTreeMap<(String, u64), v1::BegunMove>,
    elsewhere: Vec<v1::SlotsElsewhere>,
    silent: Vec<v1::SilentSite>,
}

impl Account {
    fn new(wanted: SlotSet) -> Account {
        Account { wanted, ..Account::default() }
    }

    /// Gives the order, again and again. `timeout`: how long it may make no progress while a site
    /// does not answer, or while slots keep changing hands.
    async fn carry_out(
        &mut self,
        client: &Client,
        to: &str,
        no_wait: bool,
        timeout: Duration,
    ) -> Result<(), Failed> {
        let style = ProgressStyle::with_template("{spinner} {msg}").expect("a template");
        let bar = ProgressBar::new_spinner().with_style(style);
        let mut came_on = Instant::now();
        loop {
            let deployment = client.deployment();
            let order = deployment.move_slots(&self.wanted, to);
            loop {
                let before = self.progress();
                self.take(order.ask().await?, to);
                if self.progress() != before {
                    came_on = Instant::now();
                }
                let is_late = came_on.elapsed() > timeout && !self.silent.is_empty();
                if is_late || !self.waits(to, no_wait) {
                    break;
                }
                bar.set_message(self.shown(to));
                bar.tick();
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            let is_worth_it = self.elsewhere.iter().any(|one| one.again);
            if !is_worth_it || came_on.elapsed() > timeout {
                bar.finish_and_clear();
                return Ok(());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Notes an answer.
    fn take(&mut self, reported: v1::MoveSlotsResponse, to: &str) {
        let is_silent = reported.silent.iter().any(|one| one.site == to);
        if !is_silent {
            self.there = set(&reported.there);
            self.before.get_or_insert_with(|| self.there.clone());
        }
        for one in reported.moves {
            self.moves.insert((one.from.clone(), one.number), one);
        }
        self.elsewhere = reported.elsewhere;
        self.silent = reported.silent;
    }

    /// What grows while it goes on.
    fn progress(&self) -> (usize, usize, usize) {
        let over = self.moves.values().filter(|one| one.over).count();
        (self.moves.len(), over, self.there.len())
    }

    /// Whether the order is to be repeated under the same number.
    fn waits(&self, to: &str, no_wait: bool) -> bool {
        let is_all_there = self.left(to, no_wait) == 0;
        if !self.silent.is_empty() {
            return !is_all_there;
        }
        let is_going = |one: &v1::SlotsElsewhere| one.going_to == to;
        !no_wait
            && (self.moves.values().any(|one| !one.over) || self.elsewhere.iter().any(is_going))
    }

    /// How it ends.
    fn verdict(&self, to: &str, no_wait: bool) -> Result<(), Failed> {
        let left = self.left(to, no_wait);
        if left == 0 {
            return Ok(());
        }
        let or_going = if no_wait { ", nor on their way" } else { "" };
        let wanted = self.wanted.len();
        let stayed = format!("{left} of {wanted} slots are not with {to}{or_going}");
        let silent: Vec<&str> = self.silent.iter().map(|one| &*one.site).collect();
        Err(match silent.is_empty() {
            true => Failed::no(Some(stayed)),
            false => Failed::unknown(format!(
                "{stayed}; whether {} got the order is unknown, so what is there may go yet",
                silent.join(", ")
            )),
        })
    }

    fn shown(&self, to: &str) -> String {
        let going = self.elsewhere.iter().filter(|one| one.going_to == to);
        let going: usize = going.map(|one| set(&one.slots).len()).sum();
        let silent = self.silent.iter().map(|one| format!("; {} does not answer", one.site));
        let (there, wanted) = (self.there.len(), self.wanted.len());
        format!(
            "{there} of {wanted} slots there, {going} on their way{}",
            silent.collect::<String>()
        )
    }

    /// How many slots are not where they are to be; some count that are on their way.
    fn left(&self, to: &str, no_wait: bool) -> usize {
        let counts = |one: &&v1::SlotsElsewhere| !(no_wait && one.going_to == to);
        self.elsewhere.iter().filter(counts).map(|one| set(&one.slots).len()).sum()
    }

    /// What each source has handed over.
    fn gone(&self) -> BTreeMap<&str, SlotSet> {
        let mut gone: BTreeMap<&str, Vec<Slot>> = BTreeMap::new();
        for one in self.moves.values().filter(|one| one.over) {
            gone.entry(&one.from).or_default().extend(set(&one.gone).iter());
        }
        let sets = gone.into_iter().map(|(from, slots)| (from, slots.into_iter().collect()));
        sets.filter(|(_, slots): &(_, SlotSet)| !slots.is_empty()).collect()
    }

    fn text(&self, to: &str, no_wait: bool) -> String {
        let mut lines = Vec::new();
        let named = |slots: &SlotSet| format!("{} slots ({slots})", slots.len());
        if let Some(before) = self.before.as_ref().filter(|before| !before.is_empty()) {
            lines.push(format!("{to} held {} already", named(before)));
        }
        if no_wait {
            for one in self.moves.values().filter(|one| !one.over) {
                let (from, number) = (&one.from, one.number);
                lines.push(format!("{from} hands over {}: move {number}", named(&set(&one.slots))));
            }
        }
        for (from, slots) in self.gone() {
            lines.push(format!("{from} has handed over {}", named(&slots)));
        }
        for one in self.elsewhere.iter().filter(|one| !(no_wait && one.going_to == to)) {
            let owner = match (&*one.site, one.confirmed) {
                ("", _) => String::new(),
                (site, true) => format!(" {site} has them:"),
                (site, false) => format!(" {site} seems to have them:"),
            };
            lines.push(format!("not moved: {}.{owner} {}", named(&set(&one.slots)), one.why));
        }
        for one in &self.silent {
            lines.push(format!("{} did not answer: {}", one.site, one.why));
        }
        lines.join("\n")
    }

    fn as_json(&self, to: &str, no_wait: bool) -> serde_json::Value {
        let moves = self.moves.values().map(|one| {
            json!({
                "from": one.from, "number": one.number, "slots": one.slots, "over": one.over,
                "gone": one.gone,
            })
        });
        let elsewhere = self.elsewhere.iter().map(|one| {
            json!({
                "slots": one.slots, "site": one.site, "confirmed": one.confirmed,
                "going_to": one.going_to, "why": one.why,
            })
        });
        let silent: Vec<&str> = self.silent.iter().map(|one| &*one.site).collect();
        let listed = |slots: &SlotSet| match slots.is_empty() {
            true => String::new(),
            false => slots.to_string(),
        };
        let before = self.before.as_ref().map(listed).unwrap_or_default();
        json!({
            "to": to, "before": before, "there": listed(&self.there),
            "moves": moves.collect::<Vec<_>>(), "elsewhere": elsewhere.collect::<Vec<_>>(),
            "silent": silent, "left": self.left(to, no_wait),
        })
    }
}

/// Slots as a site wrote them.
fn set(text: &str) -> SlotSet {
    text.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elsewhere(slots: &str, site: &str, going_to: &str, why: &str) -> v1::SlotsElsewhere {
        let (slots, site, going_to) = (slots.to_owned(), site.to_owned(), going_to.to_owned());
        let why = why.to_owned();
        v1::SlotsElsewhere { slots, site, confirmed: true, going_to, why, again: false }
    }

    fn begun(from: &str, number: u64, slots: &str, gone: Option<&str>) -> v1::BegunMove {
        let (from, slots) = (from.to_owned(), slots.to_owned());
        let over = gone.is_some();
        v1::BegunMove { from, number, slots, over, gone: gone.unwrap_or_default().to_owned() }
    }

    #[test]
    fn it_waits_until_all_that_was_begun_is_over() {
        let mut account = Account::new(set("0-9"));
        let reported = v1::MoveSlotsResponse {
            moves: vec![begun("a", 7, "0-4", None)],
            there: "5-6".into(),
            elsewhere: vec![
                elsewhere("0-4", "a", "b", "they are on their way"),
                elsewhere("7-9", "c", "", "it has too many moves under way"),
            ],
            silent: Vec::new(),
        };
        account.take(reported, "b");
        assert!(account.waits("b", false));
        assert!(!account.waits("b", true), "it has begun");
        assert_eq!((account.left("b", false), account.left("b", true)), (8, 3));
        let reported = v1::MoveSlotsResponse {
            moves: vec![begun("a", 7, "0-4", Some("0-4"))],
            there: "0-6".into(),
            elsewhere: vec![elsewhere("7-9", "c", "", "it has too many moves under way")],
            silent: Vec::new(),
        };
        account.take(reported, "b");
        assert!(!account.waits("b", false));
        assert_eq!(account.left("b", false), 3);
        assert_eq!(
            account.text("b", false),
            "b held 2 slots (5-6) already\n\
             a has handed over 5 slots (0-4)\n\
             not moved: 3 slots (7-9). c has them: it has too many moves under way"
        );
    }

    #[test]
    fn a_silent_site_is_asked_again_unless_nothing_is_missing() {
        let mut account = Account::new(set("0-9"));
        let silent = vec![v1::SilentSite { site: "c".into(), why: "late".into() }];
        let mut reported =
            v1::MoveSlotsResponse { there: "0-8".into(), silent, ..Default::default() };
        reported.elsewhere = vec![elsewhere("9", "c", "", "it does not answer")];
        account.take(reported.clone(), "b");
        assert!(account.waits("b", true));
        let unknown = account.verdict("b", false);
        assert!(unknown.is_err_and(|failed| failed != Failed::no(None)));
        (reported.there, reported.elsewhere) = ("0-9".into(), Vec::new());
        account.take(reported, "b");
        assert!(!account.waits("b", false));
        assert_eq!(account.verdict("b", false), Ok(()));
    }
}
