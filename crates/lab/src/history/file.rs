//! Histories as files: one JSON object a line, written as things happen and read back whole.

use std::io::{self, BufRead, Write};

use super::{FORMAT, Header, History, Line};

/// Longest line that is read, in bytes: far above any operation, far below memory.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// Why a history cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The file broke off or is not text.
    #[error("cannot read the history after line {line}: {source}")]
    Read {
        /// The last line that was fine; 0 is none.
        line: usize,
        /// The reader's error.
        source: io::Error,
    },
    /// A line is not one of a history.
    #[error("line {line}: {problem}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// The history is of an unknown version.
    #[error("the history is of format {found}; this program reads up to {FORMAT}")]
    Format {
        /// The version in its header.
        found: u32,
    },
}

/// Writes a history line by line.
#[derive(Debug)]
pub struct Writer<W: Write> {
    to: W,
}

impl<W: Write> Writer<W> {
    /// Begins a history.
    ///
    /// # Errors
    /// The header cannot be written.
    pub fn new(to: W, header: &Header) -> io::Result<Writer<W>> {
        let mut writer = Writer { to };
        writer.line(&Line::Header(header.clone()))?;
        Ok(writer)
    }

    /// Adds a line.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn line(&mut self, line: &Line) -> io::Result<()> {
        serde_json::to_writer(&mut self.to, line)?;
        self.to.write_all(b"\n")
    }

    /// Ends the history.
    ///
    /// # Errors
    /// What was written cannot be passed on.
    pub fn finish(mut self) -> io::Result<W> {
        self.to.flush()?;
        Ok(self.to)
    }
}

impl History {
    /// Sorts a line in.
    pub fn push(&mut self, line: Line) {
        match line {
            Line::Header(header) => self.header = header,
            Line::Op(operation) => self.operations.push(operation),
            Line::Owner(owner) => self.owners.push(owner),
            Line::State(state) => self.states.push(state),
            Line::Request(request) => self.requests.push(request),
            Line::Position(position) => self.positions.push(position),
            Line::Ring(member) => self.rings.push(member),
            Line::Lost(lost) => self.lost.push(lost),
            Line::Mark(mark) => self.marks.push(mark),
        }
    }

    /// Writes all of it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, to: impl Write) -> io::Result<()> {
        let mut writer = Writer::new(to, &self.header)?;
        for operation in &self.operations {
            writer.line(&Line::Op(operation.clone()))?;
        }
        for request in &self.requests {
            writer.line(&Line::Request(request.clone()))?;
        }
        for position in &self.positions {
            writer.line(&Line::Position(position.clone()))?;
        }
        for owner in &self.owners {
            writer.line(&Line::Owner(owner.clone()))?;
        }
        for lost in &self.lost {
            writer.line(&Line::Lost(lost.clone()))?;
        }
        for mark in &self.marks {
            writer.line(&Line::Mark(mark.clone()))?;
        }
        for state in &self.states {
            writer.line(&Line::State(state.clone()))?;
        }
        for member in &self.rings {
            writer.line(&Line::Ring(member.clone()))?;
        }
        writer.finish().map(drop)
    }
}

/// Reads a history. Empty lines are passed over.
///
/// # Errors
/// See [`HistoryError`]; for a bad line, its number.
pub fn read(mut from: impl BufRead) -> Result<History, HistoryError> {
    let mut history = History::default();
    let (mut text, mut number, mut begun) = (String::new(), 0, false);
    loop {
        text.clear();
        let taken = io::Read::take(&mut from, LINE_BYTES_MAX).read_line(&mut text);
        let bytes = taken.map_err(|source| HistoryError::Read { line: number, source })?;
        if bytes == 0 {
            break;
        }
        number += 1;
        let wrong = |problem: String| HistoryError::Line { line: number, problem };
        if bytes as u64 == LINE_BYTES_MAX {
            return Err(wrong(format!("it is longer than {LINE_BYTES_MAX} bytes")));
        }
        if text.trim().is_empty() {
            continue;
        }
        let line: Line = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        match (&line, begun) {
            (Line::Header(header), false) if header.format == 0 || header.format > FORMAT => {
                return Err(HistoryError::Format { found: header.format });
            }
            (Line::Header(_), false) => begun = true,
            (Line::Header(_), true) => return Err(wrong("a second header".to_owned())),
            (_, false) => return Err(wrong("the first line must be a header".to_owned())),
            (Line::Op(operation), true)
                if operation.return_us.is_some_and(|at_us| at_us < operation.call_us) =>
            {
                return Err(wrong("it returned before it was called".to_owned()));
            }
            (Line::Request(request), true)
                if request.return_us.is_some_and(|at_us| at_us < request.call_us) =>
            {
                return Err(wrong("it returned before it was called".to_owned()));
            }
            _ => {}
        }
        history.push(line);
    }
    match begun {
        true => Ok(history),
        false => Err(HistoryError::Line { line: number.max(1), problem: "no header".to_owned() }),
    }
}

/// What must hold for any text: it is refused with a sentence that names the place, or it is a
/// history that is written and read again as the same. For fuzzing.
///
/// # Panics
/// If it is neither.
pub fn check_any(text: &str) {
    match read(text.as_bytes()) {
        Ok(history) => {
            let mut written = Vec::new();
            history.write(&mut written).expect("memory takes what is written");
            let again = read(written.as_slice()).expect("what is written can be read");
            assert_eq!(again, history);
        }
        Err(HistoryError::Line { line, problem }) => {
            assert!((1..=text.lines().count().max(1)).contains(&line), "line {line}");
            assert!(!problem.is_empty());
        }
        Err(HistoryError::Format { found }) => assert!(found == 0 || found > FORMAT),
        Err(error @ HistoryError::Read { .. }) => panic!("text can be read: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Action, MarkKind, Outcome};
    use crate::random::Random;

    /// What format 1 looks like: this text must be read for as long as the format is.
    const FIRST: &str = r#"{"type":"header","format":1,"source":"lab","world":"three-sites","seed":7,"promises":["linearizable","read-your-writes"]}
{"type":"op","client":"c1","site":"a","key":"a:k7","call_us":1200,"return_us":6100,"do":{"put":{"value":"c1-1"}},"got":{"written":{"version":14}}}
{"type":"op","client":"c2","key":"a:k7","call_us":1900,"return_us":9000,"do":"get","got":{"value":{"value":"c1-1","version":14}}}
{"type":"op","client":"c2","key":"a:k8","call_us":9001,"return_us":9002,"do":"get","got":{"value":{"value":null}},"stale":true}
{"type":"op","client":"c1","key":"a:k7","call_us":6200,"do":{"add":{"delta":-1}},"got":{"unknown":{"why":"timed out"}}}
{"type":"op","client":"c1","key":"a:k7","call_us":6300,"return_us":6400,"do":{"compare_and_set":{"expected":null,"value":"x"}},"got":"conflict"}
{"type":"op","client":"c1","key":"a:k7","call_us":6500,"return_us":6600,"do":"delete","got":{"failed":{"why":"no leader"}}}
{"type":"op","client":"c1","key":"a:n","call_us":6700,"return_us":6800,"do":{"add":{"delta":1}},"got":{"number":{"value":1}}}
{"type":"owner","at_us":40,"unit":"a/leader","epoch":3,"owner":"a/n1"}
{"type":"mark","at_us":9900,"kind":"healed","text":"all faults have ended"}
{"type":"state","at_us":9990,"group":"a","replica":"a/n2","digest":"5f2e"}
"#;

    #[test]
    fn the_first_format_is_read_and_written_as_it_is() {
        let history = read(FIRST.as_bytes()).unwrap();
        assert_eq!(history.operations.len(), 7);
        assert_eq!(history.operations[2].outcome, Outcome::Value { value: None, version: None });
        assert_eq!(history.operations[3].action, Action::Add { delta: -1 });
        assert_eq!(history.marks[0].kind, MarkKind::Healed);
        let mut written = Vec::new();
        history.write(&mut written).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), FIRST);
    }

    /// What requests about causal keys and their positions look like.
    const REGIONAL: &str = r#"{"type":"header","format":1,"source":"lab"}
{"type":"request","client":"c1","site":"a","call_us":10,"return_us":14,"writes":[{"register":{"key":"x"}},{"register":{"expiry":"x"},"deletes":true}],"write":{"site":"a","revision":7},"got":"done"}
{"type":"request","client":"c2","site":"b","call_us":20,"return_us":21,"reads":[{"register":{"key":"x"},"found":{"site":"a","revision":7}},{"register":{"field":["h","f"]},"absent":true}],"got":"done"}
{"type":"request","client":"c2","site":"b","call_us":30,"writes":[{"register":{"keyspace":"p:"},"deletes":true}],"got":{"unknown":{"why":"timed out"}}}
{"type":"position","site":"a","revision":7,"position":3}
{"type":"position","site":"a","revision":8}
{"type":"position","site":"a","revision":9,"position":8,"instead":[{"of":6},{"of":7,"same":true,"registers":[{"key":"y"}]}],"removes":[{"key":"z"}]}
"#;

    #[test]
    fn lines_about_causal_keys_are_read_and_written_as_they_are() {
        let history = read(REGIONAL.as_bytes()).unwrap();
        assert_eq!((history.requests.len(), history.positions.len()), (3, 3));
        let mut written = Vec::new();
        history.write(&mut written).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), REGIONAL);
        let late = REGIONAL.replace("\"return_us\":21", "\"return_us\":2");
        let error = read(late.as_bytes()).expect_err("must be refused").to_string();
        assert_eq!(error, "line 3: it returned before it was called");
    }

    #[test]
    fn what_is_not_a_history_is_refused_with_its_line() {
        let header = FIRST.lines().next().unwrap();
        let error = |text: &str| read(text.as_bytes()).expect_err("must be refused").to_string();
        assert_eq!(error(""), "line 1: no header");
        assert!(error("{}").starts_with("line 1: missing field `type`"));
        let op = FIRST.lines().nth(1).unwrap();
        assert_eq!(error(op), "line 1: the first line must be a header");
        assert_eq!(error(&format!("{header}\n\n{header}")), "line 3: a second header");
        let late = op.replace("6100", "100");
        assert_eq!(error(&format!("{header}\n{late}")), "line 2: it returned before it was called");
        let newer = header.replace("\"format\":1", "\"format\":9");
        assert_eq!(error(&newer), "the history is of format 9; this program reads up to 1");
        let odd = op.replace("\"key\"", "\"kee\"");
        assert!(error(&format!("{header}\n{odd}")).starts_with("line 2: unknown field `kee`"));
    }

    /// The first format with lines left out, put twice or exchanged, and with chunks of it put
    /// anywhere else.
    #[test]
    fn any_text_is_refused_or_is_a_history() {
        let chunks = [
            "null",
            "1",
            "-1",
            "18446744073709551616",
            "{}",
            "\"\"",
            "\"get\"",
            ",",
            "\n",
            "\\",
            "é",
        ];
        let (mut read_whole, count) = (0, 20_000);
        for seed in 0..count {
            let mut random = Random::stream(seed, "text", 0);
            let mut lines: Vec<&str> = FIRST.lines().collect();
            for _ in 0..random.below(3) {
                let (at, other) = (random.below(11) as usize, random.below(11) as usize);
                match random.below(3) {
                    0 if lines.len() > at => drop(lines.remove(at)),
                    1 if lines.len() > at => lines.push(lines[at]),
                    _ if lines.len() > at.max(other) => lines.swap(at, other),
                    _ => {}
                }
            }
            let mut text = lines.join("\n");
            for _ in 0..random.below(3) {
                let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
                let from = *random.pick(&ends);
                let to = ends.iter().copied().find(|&at| at >= from + random.below(6) as usize);
                let copied = random.pick(&lines).split('"').nth(random.below(9) as usize);
                let chunk =
                    copied.filter(|_| random.chance(500)).unwrap_or_else(|| *random.pick(&chunks));
                text.replace_range(from..to.unwrap_or(text.len()), chunk);
            }
            check_any(&text);
            read_whole += u32::from(read(text.as_bytes()).is_ok());
        }
        assert!(read_whole > 1_000 && u64::from(read_whole) < count - 1_000, "{read_whole}");
    }
}
