//! The work of a vehicle: hazards that drivers report to each other, kept by zone.
//!
//! A zone's hazards are one Redis hash at the site the vehicle is attached to, `hazard:<zone>`. A
//! field is a report's own name, chosen by its vehicle, so that reporting and clearing may be
//! repeated without harm when an attempt's fate is unknown; its value has what, where and when:
//!
//! ```text
//! hazard:14.9
//!     17-204 → "debris 37.78012,-122.40771 30512"
//! ```
//!
//! The [`Ledger`] remembers what was acknowledged, and at the end the run is judged by it: a report
//! that was acknowledged with no attempt to clear it must still be there.

use std::collections::HashMap;

use lab::geo::{Point, Zone};
use wire::resp::Reply;

const KINDS: [&str; 8] =
    ["pothole", "crash", "debris", "roadworks", "flood", "stalled-car", "signal-out", "closure"];

/// The key of a zone's hazards.
pub(super) fn key(zone: Zone) -> String {
    format!("hazard:{zone}")
}

/// A report's value; `draw` chooses the kind.
pub(super) fn value(draw: usize, at: Point, t_s: f64) -> String {
    format!("{} {:.5},{:.5} {t_s:.0}", KINDS[draw % KINDS.len()], at.lat, at.lon)
}

/// The names and values of a zone's hazards, from the reply to HGETALL.
pub(super) fn fields(reply: &Reply) -> Vec<(String, String)> {
    let Reply::Array(items) = reply else { return Vec::new() };
    let text = |item: &Reply| match item {
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    };
    items.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

/// The names and times of a zone's hazards, from the reply to HGETALL; fields that are not ours
/// count as new ones, so that they are never cleared.
pub(super) fn listed(reply: &Reply) -> Vec<(String, f64)> {
    let timed = |(field, value): (String, String)| {
        let t_s = value.rsplit(' ').next().and_then(|t_s| t_s.parse().ok());
        (field, t_s.unwrap_or(f64::INFINITY))
    };
    fields(reply).into_iter().map(timed).collect()
}

/// Where a report is: its site, the key of its zone, its field.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Report {
    /// Index of the site.
    pub(super) site: usize,
    /// Key of the zone.
    pub(super) key: String,
    /// Name of the report.
    pub(super) field: String,
}

/// Reports that must still be there, and those that may.
///
/// It holds no more than the hazards that are in the zones, since a cleared one is forgotten.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Whether each report sent is acknowledged.
    reports: HashMap<Report, bool>,
}

impl Ledger {
    /// A report is about to be sent.
    pub(super) fn sending(&mut self, report: Report) {
        self.reports.insert(report, false);
    }

    /// It was acknowledged: from now on it must be there, unless a vehicle has seen and cleared it
    /// before the acknowledgement arrived.
    pub(super) fn acknowledged(&mut self, report: &Report) {
        if let Some(acknowledged) = self.reports.get_mut(report) {
            *acknowledged = true;
        }
    }

    /// Its fate is unknown (it failed, or a vehicle is about to clear it): nothing is promised.
    pub(super) fn forget(&mut self, report: &Report) {
        self.reports.remove(report);
    }

    /// A site was left, and what it holds has been read back: nothing is promised of it any more.
    pub(super) fn forget_site(&mut self, site: usize) {
        self.reports.retain(|report, _| report.site != site);
    }

    /// What must be there, by site and key.
    pub(super) fn promised(&self) -> HashMap<(usize, String), Vec<String>> {
        let mut promised: HashMap<(usize, String), Vec<String>> = HashMap::new();
        for (report, _) in self.reports.iter().filter(|(_, acknowledged)| **acknowledged) {
            let place = (report.site, report.key.clone());
            promised.entry(place).or_default().push(report.field.clone());
        }
        promised
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lists_back_with_its_time() {
        let bytes = |text: &str| Reply::Bulk(text.to_owned().into());
        let value = value(9, Point::new(37.78, -122.4), 30_512.4);
        assert_eq!(value, "crash 37.78000,-122.40000 30512");
        let reply = Reply::Array(vec![bytes("1-1"), bytes(&value), bytes("x"), bytes("else")]);
        let expected = [("1-1".to_owned(), 30_512.0), ("x".to_owned(), f64::INFINITY)];
        assert_eq!(listed(&reply), expected);
        assert!(listed(&Reply::Null).is_empty());
        assert_eq!(key(Zone { column: 14, row: 9 }), "hazard:14.9");
    }

    #[test]
    fn only_acknowledged_and_uncleared_reports_are_promised() {
        let report =
            |field: &str| Report { site: 2, key: "hazard:1.1".into(), field: field.into() };
        let mut ledger = Ledger::default();
        for field in ["kept", "unknown", "cleared", "cleared-before-ack", "in-flight"] {
            ledger.sending(report(field));
        }
        ledger.acknowledged(&report("kept"));
        ledger.forget(&report("unknown"));
        ledger.acknowledged(&report("cleared"));
        ledger.forget(&report("cleared"));
        ledger.forget(&report("cleared-before-ack"));
        ledger.acknowledged(&report("cleared-before-ack"));
        let promised = ledger.promised();
        assert_eq!(promised.len(), 1);
        assert_eq!(promised[&(2, "hazard:1.1".to_owned())], ["kept"]);
        ledger.forget_site(1);
        assert_eq!(ledger.promised().len(), 1);
        ledger.forget_site(2);
        assert!(ledger.promised().is_empty());
    }
}
