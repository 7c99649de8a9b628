//! The operations of clients and their results, in the format of docs/histories.md, for `portolan
//! lab verdict`.
//!
//! The format is written here as users would write it for a store of their own: this package links
//! nothing of Portolan, so the format is tested from outside as well.
//!
//! All times are of one clock, that of this process, in microseconds since the first history began.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Instant;

use serde_json::{Value, json};

use crate::binary;

/// The clock's zero.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// One client's lines. The client runs one operation at a time.
#[derive(Debug)]
pub struct History {
    client: String,
    lines: Vec<String>,
}

/// Start and end of an operation.
pub type Times = (Instant, Instant);

impl History {
    /// An empty one.
    #[must_use]
    pub fn new(client: impl Into<String>) -> Self {
        // The clock starts before the first operation.
        LazyLock::force(&BEGAN);
        Self { client: client.into(), lines: Vec::new() }
    }

    /// A read and its value. Reads without an answer need not be recorded.
    pub fn got(&mut self, key: &str, times: Times, value: Option<&str>) {
        self.answered(key, times, &json!("get"), &json!({"value": {"value": value}}));
    }

    /// An acknowledged put.
    pub fn put(&mut self, key: &str, times: Times, value: &str) {
        self.answered(key, times, &put(value), &json!({"written": {}}));
    }

    /// A put with an unknown outcome.
    pub fn put_unknown(&mut self, key: &str, sent: Instant, value: &str, why: &str) {
        self.unknown(key, sent, &put(value), why);
    }

    /// An increment and the number that it returned.
    pub fn incremented(&mut self, key: &str, times: Times, number: i64) {
        self.answered(key, times, &increment(), &json!({"number": {"value": number}}));
    }

    /// An increment with an unknown outcome.
    pub fn increment_unknown(&mut self, key: &str, sent: Instant, why: &str) {
        self.unknown(key, sent, &increment(), why);
    }

    /// A fault that the test caused.
    pub fn fault(&mut self, text: &str) {
        let at_us = us(Instant::now());
        let line = json!({"type": "mark", "at_us": at_us, "kind": "fault", "text": text});
        self.lines.push(line.to_string());
    }

    fn answered(&mut self, key: &str, (sent, back): Times, action: &Value, got: &Value) {
        let (call_us, return_us) = (us(sent), us(back));
        let line = json!({
            "type": "op", "client": self.client, "key": key,
            "call_us": call_us, "return_us": return_us, "do": action, "got": got,
        });
        self.lines.push(line.to_string());
    }

    fn unknown(&mut self, key: &str, sent: Instant, action: &Value, why: &str) {
        let line = json!({
            "type": "op", "client": self.client, "key": key,
            "call_us": us(sent), "do": action, "got": {"unknown": {"why": why}},
        });
        self.lines.push(line.to_string());
    }
}

fn put(value: &str) -> Value {
    json!({"put": {"value": value}})
}

fn increment() -> Value {
    json!({"add": {"delta": 1}})
}

fn us(at: Instant) -> u64 {
    at.saturating_duration_since(*BEGAN).as_micros() as u64
}

/// Writes a history of these clients.
///
/// # Errors
/// The file cannot be written.
pub fn write<'a>(path: &Path, clients: impl IntoIterator<Item = &'a History>) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let promises = ["linearizable", "durable"];
    let header = json!({"type": "header", "format": 1, "source": "field", "promises": promises});
    writeln!(file, "{header}")?;
    for line in clients.into_iter().flat_map(|client| &client.lines) {
        writeln!(file, "{line}")?;
    }
    file.flush()
}

/// Runs `portolan lab verdict` on a file with these guarantees and returns its output.
///
/// # Errors
/// Its output if they do not all hold, or the reason why there is none.
pub fn judge(path: &Path, promises: &[&str]) -> Result<Value, String> {
    let mut program = Command::new(binary::portolan());
    program.args(["lab", "verdict", "--json", "--only", &promises.join(",")]).arg(path);
    let output = program.stderr(Stdio::inherit()).output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let document: Value = serde_json::from_str(&said)
        .map_err(|error| format!("{error}, {}: {said}", output.status))?;
    let verdicts = document["verdicts"].as_array().map_or(&[][..], Vec::as_slice);
    let held: BTreeSet<&str> = verdicts
        .iter()
        .filter(|verdict| verdict["verdict"] == "holds")
        .filter_map(|verdict| verdict["promise"].as_str())
        .collect();
    match output.status.success() && promises.iter().all(|promise| held.contains(promise)) {
        true => Ok(document),
        false => Err(format!("{}: {said}", output.status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_in_the_words_of_the_format() {
        let mut history = History::new("w1");
        let at = |us| *BEGAN + std::time::Duration::from_micros(us);
        history.got("k", (at(1), at(2)), None);
        history.put("k", (at(3), at(4)), "v");
        history.put_unknown("k", at(5), "w", "timed out");
        history.incremented("n", (at(6), at(7)), 1);
        history.increment_unknown("n", at(8), "timed out");
        history.fault("n1 is killed");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        write(&path, [&history]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 7);
        assert_eq!(lines[0]["type"], "header");
        let op = |rest: Value| {
            let mut line = json!({"type": "op", "client": "w1"});
            line.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            line
        };
        assert_eq!(
            lines[1..6],
            [
                op(json!({"key": "k", "call_us": 1, "return_us": 2, "do": "get",
                    "got": {"value": {"value": null}}})),
                op(json!({"key": "k", "call_us": 3, "return_us": 4, "do": {"put": {"value": "v"}},
                    "got": {"written": {}}})),
                op(json!({"key": "k", "call_us": 5, "do": {"put": {"value": "w"}},
                    "got": {"unknown": {"why": "timed out"}}})),
                op(json!({"key": "n", "call_us": 6, "return_us": 7, "do": {"add": {"delta": 1}},
                    "got": {"number": {"value": 1}}})),
                op(json!({"key": "n", "call_us": 8, "do": {"add": {"delta": 1}},
                    "got": {"unknown": {"why": "timed out"}}})),
            ]
        );
        assert_eq!(lines[6]["kind"], "fault");
    }
}
