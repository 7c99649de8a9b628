//! `placement`: which sites access a key, where it would be better, and what moves would save.

use super::connect::{Connect, Listing, Showing};
use super::failed::Failed;
use super::show::{self, Table};
use clap::{Args, Subcommand};
use client::v1;
use indicatif::BinaryBytes;
use serde_json::json;

/// What to look at.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show which sites access a key, where it could be and at which latency, and why it is where
    /// it is
    #[command(
        after_help = "Rates are of the last seconds, latencies are round trips between sites. In a keyspace with \
                      placement adaptive the keys of one tag move together, by themselves. With placement \
                      advise a key moves with its slot, by `portolan slot move`.\n\n\
                      Example:\n  portolan placement explain car:7"
    )]
    Explain(Explain),
    /// Show the moves that a site makes or advises, and what they save for which bytes
    #[command(
        after_help = "Of the site that is asked. Groups of keyspaces with placement adaptive move by themselves: \
                      what the site lends, what it has borrowed, and what that saves against their homes. Of \
                      keyspaces with placement advise nothing moves: the windows state what following all \
                      advice would have saved.\n\n\
                      Example:\n  portolan placement ledger --json"
    )]
    Ledger(Showing),
    /// Have the keys with the tag of a key stay at a site, or go there, whether they are used or
    /// not
    #[command(
        after_help = "Its keyspace must have placement adaptive, and may have to be lent there (--lend-to). While the site \
                      is away the keys stay where they are.\n\n\
                      Example:\n  portolan placement pin car:7 pier-39"
    )]
    Pin(Pin),
    /// Have the keys with the tag of a key go where they are used again
    Unpin(Unpin),
    /// List what is pinned to a site
    Pins(Listing),
}

/// One key.
#[derive(Args)]
pub(crate) struct Explain {
    /// The key
    key: String,
    #[command(flatten)]
    showing: Showing,
}

/// A key and a site.
#[derive(Args)]
pub(crate) struct Pin {
    /// The key
    key: String,
    /// The site, by name
    site: String,
    #[command(flatten)]
    connect: Connect,
}

/// One key.
#[derive(Args)]
pub(crate) struct Unpin {
    /// The key
    key: String,
    #[command(flatten)]
    connect: Connect,
}

impl Command {
    pub(crate) fn run(self) -> Result<(), Failed> {
        match self {
            Command::Pin(Pin { key, site, connect }) => connect.run(|client| async move {
                Ok(client.deployment().pin_group(key.as_bytes(), &site).await?)
            }),
            Command::Unpin(Unpin { key, connect }) => connect.run(|client| async move {
                Ok(client.deployment().unpin_group(key.as_bytes()).await?)
            }),
            Command::Pins(asked) => pins(asked),
            Command::Explain(explain) => explain.run(),
            Command::Ledger(showing) => ledger(showing),
        }
    }
}

impl Explain {
    fn run(self) -> Result<(), Failed> {
        let Explain { key, showing: Showing { json, connect } } = self;
        connect.run(|client| async move {
            let one = client.deployment().explain_placement(key.as_bytes()).await?;
            match json {
                true => Ok(show::print_json(&explained_json(&key, &one))?),
                false => Ok(show::print(explained_text(&key, &one))?),
            }
        })
    }
}

fn pins(asked: Listing) -> Result<(), Failed> {
    asked.connect.run(|client| async move {
        let pins = client.deployment().pins().await?;
        let tag = |pin: &v1::Pin| String::from_utf8_lossy(&pin.tag).into_owned();
        if asked.json {
            let pin = |pin: &v1::Pin| {
                json!({ "keyspace": pin.keyspace, "tag": tag(pin), "site": pin.site, "state": pin.state })
            };
            let list: Vec<_> = pins.iter().map(pin).collect();
            return Ok(show::print_json(&list.into())?);
        }
        let mut table = Table::new(["keyspace", "tag", "site", "state"]);
        for pin in &pins {
            let state = state(&pin.state).to_owned();
            table.row([pin.keyspace.clone(), show::line(&pin.tag), pin.site.clone(), state]);
        }
        Ok(show::print(table)?)
    })
}

/// Whether the keys of a pin are at its site, in words.
fn state(word: &str) -> &str {
    match word {
        "there" => "is there",
        "on-the-way" => "goes there as soon as the site can take it",
        "away" => "waits: the site leaves, does not answer or has a full disk",
        "not-lent" => "stays: its keyspace is not lent there (--lend-to)",
        "too-large" => "stays: too large to be lent",
        "not-adaptive" => "no effect: its keyspace is not adaptive",
        "unknown" => "unknown: the site that has it does not answer",
        other => other,
    }
}

/// Two figures of which the first is less, with as many digits as show that.
fn less_ms(less: f64, more: f64) -> (String, String) {
    let with = |digits: usize| (format!("{less:.digits$}"), format!("{more:.digits$}"));
    let two = with(2);
    if two.0 == two.1 { with(3) } else { two }
}

/// The reason why nothing is known of a group but its site.
const UNREACHABLE: &str = "unreachable";
const TOO_LARGE: &str = "it is larger than 1 MiB, or more than 8 MiB of answers are remembered with its slot, so it stays";

/// Why the slot is where it is, in words.
fn why(one: &v1::ExplainPlacementResponse) -> String {
    let v1::ExplainPlacementResponse { better, gain_ms, needed_ms, owner, .. } = one;
    let less = |that: &str| {
        let (gain_ms, needed_ms) = less_ms(*gain_ms, *needed_ms);
        format!("{better} is {gain_ms} ms nearer, less than the {needed_ms} ms that {that}")
    };
    match one.reason.as_str() {
        "unused" => "no access was counted lately".to_owned(),
        "best" => "no other site is better".to_owned(),
        "unknown" => "a round trip between its owner and a site with users is unknown".to_owned(),
        "no-candidate" => "every other site is excluded".to_owned(),
        "within-margin" => less("a move must gain"),
        "within-noise" => less("so few accesses can show"),
        "waits" => format!(
            "{better} is {gain_ms:.2} ms nearer; a move is worth it when users have waited as long as it costs"
        ),
        "advised" => format!("a move to {better} is advised: {gain_ms:.2} ms an access nearer"),
        "moves" => format!("it moves towards {better}: {gain_ms:.2} ms an access nearer"),
        "too-large" if better.is_empty() => TOO_LARGE.to_owned(),
        "too-large" => format!("pinned to {better}, but {TOO_LARGE}"),
        UNREACHABLE => {
            let pinned = pinned_to(one).map(|site| format!("; pinned to {site}"));
            let pinned = pinned.unwrap_or_default();
            format!("{owner} does not answer, and it alone has the users and the size{pinned}")
        }
        "pinned" if *better == one.owner => format!("pinned to {better}"),
        "pinned" if is_not_lent_to(one, better) => format!(
            "pinned to {better}, where its keyspace is not lent (`portolan keyspace alter --lend-to`), so it stays"
        ),
        "pinned" => format!("pinned to {better}: it goes there as soon as {better} can take it"),
        other => other.to_owned(),
    }
}

/// The site that the key is pinned to.
fn pinned_to(one: &v1::ExplainPlacementResponse) -> Option<&str> {
    let names_it = matches!(one.reason.as_str(), "pinned" | "too-large" | UNREACHABLE);
    Some(one.better.as_str()).filter(|site| names_it && !site.is_empty())
}

fn is_not_lent_to(one: &v1::ExplainPlacementResponse, site: &str) -> bool {
    one.candidates.iter().any(|candidate| candidate.site == site && candidate.bar == "lend-to")
}

/// Why a candidate is none.
fn bar(one: &v1::PlacementCandidate) -> Option<&'static str> {
    Some(match one.bar.as_str() {
        "lend-to" => "excluded: its keyspace is not lent there",
        "domain" => "excluded: all copies would be in one failure domain",
        "pinned" => "excluded: it is pinned to another site",
        "no-room" => "has no room: it takes only so much, and what it has is worth more",
        // An earlier version gives no reason.
        _ if one.barred => "excluded: it leaves, does not answer or has a full disk",
        _ if one.mean_ms.is_none() => "excluded: a round trip is unknown",
        _ => return None,
    })
}

/// Where the key is served.
fn place(one: &v1::ExplainPlacementResponse) -> String {
    match one.home.as_str() {
        "" => format!("is owned by {}", one.owner),
        home if home == one.owner => format!("is at home at {home}"),
        home => format!("is lent to {} by {home}", one.owner),
    }
}

fn explained_text(key: &str, one: &v1::ExplainPlacementResponse) -> String {
    if one.reason == UNREACHABLE {
        let place = match one.home.as_str() {
            "" => format!("is lent to {}", one.owner),
            _ => place(one),
        };
        let head = format!("{key} (keyspace {}, slot {})", one.keyspace, one.slot);
        return format!("{head} {place}\nwhy: {}", why(one));
    }
    let unit = if one.home.is_empty() { "slot" } else { "group" };
    let mut text = format!(
        "{key} (keyspace {}, slot {}, about {}) {}\nwhy: {}\n",
        one.keyspace,
        one.slot,
        BinaryBytes(one.bytes),
        place(one),
        why(one)
    );
    if !one.slot_users.is_empty() {
        let of_unit = if one.home.is_empty() { ">slot, /s" } else { ">group, /s" };
        let mut users = Table::new(["accessed from", ">key, /s", of_unit]);
        for user in &one.slot_users {
            let of_key = one.key_users.iter().find(|other| other.site == user.site);
            let of_key = of_key.map_or(0.0, |other| other.per_s);
            let site = user.site.clone();
            users.row([site, format!("{of_key:.2}"), format!("{:.2}", user.per_s)]);
        }
        text += &format!("\n{users}\n");
    }
    if !one.key_clients.is_empty() {
        let mut clients = Table::new(["client", "last at", ">key, /s"]);
        for client in &one.key_clients {
            let (number, per_s) = (number(client), format!("{:.2}", client.per_s));
            clients.row([number, client.site.clone(), per_s]);
        }
        text += &format!("\n{clients}\n");
    }
    let mut candidates = Table::new(["candidate", ">mean, ms", ""]);
    for candidate in &one.candidates {
        let ms = candidate.mean_ms.map_or("unknown".to_owned(), |ms| format!("{ms:.2}"));
        let note = match candidate {
            one_of if one_of.site == one.owner && one.home.is_empty() => "owner",
            one_of if one_of.site == one.owner => "serves it",
            one_of => match bar(one_of) {
                Some(bar) => bar,
                None if one_of.site == one.better && pinned_to(one).is_none() => "better",
                None if one_of.site == one.home => "its home",
                None => "",
            },
        };
        candidates.row([candidate.site.clone(), ms, note.to_owned()]);
    }
    text += &format!(
        "\n{candidates}\n{:.2} ms if each site with users had the {unit} to itself",
        one.alone_ms
    );
    text
}

/// A client as it is shown.
fn number(client: &v1::ClientRate) -> String {
    format!("{:06x}", client.number)
}

fn explained_json(key: &str, one: &v1::ExplainPlacementResponse) -> serde_json::Value {
    let rates = |users: &[v1::SiteRate]| -> Vec<_> {
        users.iter().map(|user| json!({ "site": user.site, "per_s": user.per_s })).collect()
    };
    let client =
        |of: &v1::ClientRate| json!({ "client": number(of), "site": of.site, "per_s": of.per_s });
    let candidate = |of: &v1::PlacementCandidate| {
        json!({
            "site": of.site, "mean_ms": of.mean_ms, "barred": of.barred,
            "bar": (!of.bar.is_empty()).then_some(&of.bar),
        })
    };
    let pinned = pinned_to(one);
    let better = !one.better.is_empty() && pinned.is_none();
    json!({
        "key": key,
        "keyspace": one.keyspace,
        "slot": one.slot,
        "owner": one.owner,
        "home": (!one.home.is_empty()).then_some(&one.home),
        "bytes": one.bytes,
        "key_users": rates(&one.key_users),
        "slot_users": rates(&one.slot_users),
        "key_clients": one.key_clients.iter().map(client).collect::<Vec<_>>(),
        "candidates": one.candidates.iter().map(candidate).collect::<Vec<_>>(),
        "alone_ms": one.alone_ms,
        "reason": one.reason,
        "why": why(one),
        "pinned_to": pinned,
        "better": better.then_some(&one.better),
        "gain_ms": better.then_some(one.gain_ms),
        "needed_ms": (one.needed_ms > 0.0).then_some(one.needed_ms),
    })
}

fn ledger(Showing { json, connect }: Showing) -> Result<(), Failed> {
    connect.run(|client| async move {
        let ledger = client.deployment().placement_ledger().await?;
        match json {
            true => Ok(show::print_json(&ledger_json(&ledger))?),
            false => Ok(show::print(ledger_text(&ledger))?),
        }
    })
}

fn advised_text(ledger: &v1::ShowPlacementLedgerResponse) -> String {
    let saves: f64 = ledger.advised.iter().map(|one| one.saves_ms_per_s).sum();
    let bytes: u64 = ledger.advised.iter().map(|one| one.bytes).sum();
    let mut text = format!(
        "site {} advises {} moves of slots, which would save {saves:.1} ms/s for {}; slots move by `portolan slot move` alone",
        ledger.site,
        ledger.advised.len(),
        BinaryBytes(bytes)
    );
    if !ledger.advised.is_empty() {
        let mut advised = Table::new(["slot", "from", "to", ">saves ms/s", ">bytes", ">for"]);
        for one in &ledger.advised {
            advised.row([
                one.slot.to_string(),
                one.from.clone(),
                one.to.clone(),
                format!("{:.1}", one.saves_ms_per_s),
                BinaryBytes(one.bytes).to_string(),
                format!("{} s", one.for_ms / 1_000),
            ]);
        }
        text += &format!("\n\n{advised}");
    }
    text + &windows_text(&ledger.windows, ">would have saved ms")
}

fn windows_text(windows: &[v1::PlacementWindow], saved: &'static str) -> String {
    if windows.is_empty() {
        return String::new();
    }
    let heads = [">window", ">moves", ">bytes", ">expected ms/s", saved, ">paused ms"];
    let mut table = Table::new(heads);
    for one in windows {
        table.row([
            one.number.to_string(),
            one.moves.to_string(),
            BinaryBytes(one.bytes).to_string(),
            format!("{:.1}", one.expected_ms_per_s),
            format!("{:.1}", one.saved_ms),
            format!("{:.1}", one.paused_ms),
        ]);
    }
    format!("\n\n{table}")
}

/// A group by its keyspace and tag.
fn group_name(keyspace: &str, tag: &[u8]) -> String {
    format!("{keyspace} {}", String::from_utf8_lossy(tag))
}

fn loans_text(site: &str, loans: &v1::LoansLedger) -> String {
    let (lent, borrowed) = (loans.lent_count, loans.borrowed_count);
    let saves: f64 = loans.borrowed.iter().map(|one| one.saves_ms_per_s).sum();
    let mut text = format!(
        "site {site} lends {lent} groups, and has borrowed {borrowed}, which saves {saves:.1} ms/s against their homes"
    );
    if !loans.lent.is_empty() {
        let mut table = Table::new(["lent", "to"]);
        for one in &loans.lent {
            table.row([group_name(&one.keyspace, &one.tag), one.to.clone()]);
        }
        text += &format!("\n\n{table}");
    }
    if !loans.borrowed.is_empty() {
        let mut table = Table::new(["borrowed", "from", ">saves ms/s"]);
        for one in &loans.borrowed {
            let (name, saves) = (group_name(&one.keyspace, &one.tag), one.saves_ms_per_s);
            table.row([name, one.from.clone(), format!("{saves:.1}")]);
        }
        text += &format!("\n\n{table}");
    }
    text + &windows_text(&loans.windows, ">saved ms")
}

fn ledger_text(ledger: &v1::ShowPlacementLedgerResponse) -> String {
    let loans = ledger.loans.as_ref().map(|loans| loans_text(&ledger.site, loans));
    let is_advised = !ledger.advised.is_empty() || !ledger.windows.is_empty();
    let advised = (is_advised || loans.is_none()).then(|| advised_text(ledger));
    let mut text = loans.into_iter().chain(advised).collect::<Vec<_>>().join("\n\n");
    if ledger.dropped > 0 {
        text += &format!("\n\n{} accesses found no room to be counted", ledger.dropped);
    }
    text
}

fn ledger_json(ledger: &v1::ShowPlacementLedgerResponse) -> serde_json::Value {
    let advised = |one: &v1::AdvisedMove| {
        json!({
            "slot": one.slot, "from": one.from, "to": one.to, "saves_ms_per_s": one.saves_ms_per_s,
            "bytes": one.bytes, "for_ms": one.for_ms,
        })
    };
    let window = |one: &v1::PlacementWindow| {
        json!({
            "number": one.number, "moves": one.moves, "bytes": one.bytes,
            "expected_ms_per_s": one.expected_ms_per_s, "saved_ms": one.saved_ms,
            "paused_ms": one.paused_ms,
        })
    };
    let loans = ledger.loans.as_ref().map(|loans| {
        let lent = loans.lent.iter().map(|one| {
            let tag = String::from_utf8_lossy(&one.tag);
            json!({ "keyspace": one.keyspace, "tag": tag, "to": one.to })
        });
        let borrowed = loans.borrowed.iter().map(|one| {
            let tag = String::from_utf8_lossy(&one.tag);
            json!({
                "keyspace": one.keyspace, "tag": tag, "from": one.from,
                "saves_ms_per_s": one.saves_ms_per_s,
            })
        });
        json!({
            "lent": lent.collect::<Vec<_>>(),
            "lent_count": loans.lent_count,
            "borrowed": borrowed.collect::<Vec<_>>(),
            "borrowed_count": loans.borrowed_count,
            "windows": loans.windows.iter().map(window).collect::<Vec<_>>(),
        })
    });
    json!({
        "site": ledger.site,
        "advised": ledger.advised.iter().map(advised).collect::<Vec<_>>(),
        "windows": ledger.windows.iter().map(window).collect::<Vec<_>>(),
        "loans": loans,
        "groups": ledger.groups,
        "dropped": ledger.dropped,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(reason: &str, better: &str) -> v1::ExplainPlacementResponse {
        v1::ExplainPlacementResponse {
            keyspace: "cars".to_owned(),
            slot: 746,
            owner: "a".to_owned(),
            home: "a".to_owned(),
            reason: reason.to_owned(),
            better: better.to_owned(),
            ..v1::ExplainPlacementResponse::default()
        }
    }

    #[test]
    fn a_gain_that_is_too_small_reads_so() {
        let of = |gain_ms, needed_ms| {
            let one = explained("within-noise", "b");
            why(&v1::ExplainPlacementResponse { gain_ms, needed_ms, ..one })
        };
        assert_eq!(
            of(0.06, 0.09),
            "b is 0.06 ms nearer, less than the 0.09 ms that so few accesses can show"
        );
        assert!(of(0.061, 0.064).starts_with("b is 0.061 ms nearer, less than the 0.064 ms"));
    }

    #[test]
    fn a_pin_is_shown_beside_what_keeps_its_group() {
        let large = explained("too-large", "b");
        assert!(why(&large).starts_with("pinned to b, but it is larger than 1 MiB"));
        assert_eq!(explained_json("car:7", &large)["pinned_to"], "b");
        let free = explained("too-large", "");
        assert!(why(&free).starts_with("it is larger than 1 MiB"));
        assert_eq!(explained_json("car:7", &free)["pinned_to"], serde_json::Value::Null);
    }

    #[test]
    fn a_borrower_that_does_not_answer_is_named() {
        let mut one = explained(UNREACHABLE, "c");
        one.owner = "b".to_owned();
        assert_eq!(
            explained_text("car:7", &one),
            "car:7 (keyspace cars, slot 746) is lent to b by a\n\
             why: b does not answer, and it alone has the users and the size; pinned to c"
        );
        one.home = String::new();
        assert!(explained_text("car:7", &one).contains("is lent to b\n"));
    }
}
