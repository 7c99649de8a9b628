//! The writes that a failover lost, by the sites that made them.

use super::show::{self, Table};
use client::{Client, Error, v1};
use serde_json::json;

/// A site's list of the writes that a failover lost.
pub(crate) struct Lost {
    /// Empty: the site in use.
    site: String,
    /// `None`: it has no list.
    report: Option<v1::LostReport>,
    writes: Vec<v1::LostWrite>,
}

impl Lost {
    /// Gets the list of a site, page by page.
    pub(crate) async fn get(client: &Client, site: &str, failover: &str) -> Result<Lost, Error> {
        let deployment = client.deployment();
        let mut lost = Lost { site: site.to_owned(), report: None, writes: Vec::new() };
        let mut next = Some(0);
        while let Some(page) = next {
            let answer = deployment.lost_writes(site, failover, page).await?;
            lost.report = answer.reports.into_iter().next();
            lost.writes.extend(answer.writes);
            next = answer.next_page;
        }
        Ok(lost)
    }

    /// Whether there is a list.
    pub(crate) fn is_there(&self) -> bool {
        self.report.is_some()
    }

    pub(crate) fn as_json(&self) -> serde_json::Value {
        let write = |write: &v1::LostWrite| {
            json!({
                "keyspace": write.keyspace,
                "key": show::line(&write.key),
                "revision": write.revision,
                "change": change(write),
            })
        };
        let report = self.report.clone().unwrap_or_default();
        json!({
            "site": (!self.site.is_empty()).then_some(&self.site),
            "slots": report.slots,
            "trimmed": (report.trimmed > 0).then_some(report.trimmed),
            "more": report.more,
            "writes": self.writes.iter().map(write).collect::<Vec<_>>(),
        })
    }

    /// The keys, a line each.
    pub(crate) fn as_text(&self) -> String {
        let site = if self.site.is_empty() { "this site" } else { &self.site };
        let Some(report) = &self.report else {
            return format!(
                "{site} has no list of lost writes of this failover: none of its slots was taken without one, or \
                 there was no such failover (`portolan failover list` shows those of which sites still learn)"
            );
        };
        let mut lines = vec![format!("{site}: {} keys with lost writes", report.keys)];
        if report.trimmed > 0 {
            lines.push(format!(
                "not listed: writes up to revision {}, which the change log did not have any more",
                report.trimmed
            ));
        }
        if report.more {
            lines.push("not listed: more keys than a list may have".to_owned());
        }
        if !self.writes.is_empty() {
            let mut table = Table::new(["keyspace", "key", ">revision", "change"]);
            for write in &self.writes {
                table.row([
                    write.keyspace.clone(),
                    show::line(&write.key),
                    write.revision.to_string(),
                    change(write),
                ]);
            }
            lines.push(table.to_string());
        }
        lines.join("\n")
    }
}

/// What the last lost write of a key did.
fn change(write: &v1::LostWrite) -> String {
    write.change().as_str_name().to_lowercase().replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(report: v1::LostReport) -> Lost {
        let write = |key: &'static str, change: v1::ChangeKind| v1::LostWrite {
            keyspace: "cars".to_owned(),
            key: key.into(),
            revision: 12,
            change: change.into(),
        };
        let writes =
            vec![write("car:1", v1::ChangeKind::Put), write("car:22", v1::ChangeKind::HashDelete)];
        Lost { site: "a".to_owned(), report: Some(report), writes }
    }

    #[test]
    fn keys_are_aligned_and_what_is_missing_is_said() {
        let report = v1::LostReport { keys: 2, ..v1::LostReport::default() };
        assert_eq!(
            lost(report.clone()).as_text(),
            "a: 2 keys with lost writes\nkeyspace  key     revision  change\n\
             cars      car:1         12  put\ncars      car:22        12  hash-delete"
        );
        let text = lost(v1::LostReport { trimmed: 7, more: true, ..report }).as_text();
        assert!(text.contains("not listed: writes up to revision 7"), "{text}");
        assert!(text.contains("not listed: more keys"), "{text}");
        let none = Lost { site: String::new(), report: None, writes: Vec::new() };
        assert!(none.as_text().starts_with("this site has no list"), "{}", none.as_text());
    }

    #[test]
    fn json_names_the_last_change_of_each_key() {
        let report = v1::LostReport { slots: "0-9".to_owned(), ..v1::LostReport::default() };
        let json = lost(report).as_json();
        assert_eq!(json["site"], "a");
        assert_eq!(json["trimmed"], serde_json::Value::Null);
        assert_eq!(
            json["writes"][1],
            json!({"keyspace": "cars", "key": "car:22", "revision": 12, "change": "hash-delete"})
        );
    }
}
