//! Reads a recorded trace: CSV with a header `cab,t_s,lat,lon` and any columns after those, plain
//! or gzip (recognized by its first bytes, not by its name).
//!
//! ```text
//! cab,t_s,lat,lon,occ
//! 0,28842,37.75161,-122.39391,0
//! 0,28903,37.7516,-122.39391,0
//! ```
//!
//! `cab` is any name, `t_s` seconds since a zero of the trace's choosing, `lat` and `lon` degrees
//! of WGS84. Lines may come in any order. The reader streams: it holds the fixes, never the file. A
//! line that cannot be understood is an error that names it; skipping it would quietly change the
//! result.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use flate2::read::MultiGzDecoder;

use super::{Fix, Track};
use crate::geo::Point;

/// Most reports of one trace; each takes 24 bytes of memory.
pub const REPORTS_MAX: usize = 20_000_000;
/// The columns that must come first.
const COLUMNS: [&str; 4] = ["cab", "t_s", "lat", "lon"];
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Why a trace could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file is not there or not readable.
    #[error("cannot open the trace: {source}")]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The stream broke, or is damaged gzip, or is not UTF-8.
    #[error("cannot read the trace after line {line}: {source}")]
    Read {
        /// The last line that was fine; 0 is none.
        line: u64,
        /// The reader's error.
        source: csv::Error,
    },
    /// The first line is not the header.
    #[error("line 1: the header must begin with cab,t_s,lat,lon and is {found:?}")]
    Header {
        /// What stands there.
        found: String,
    },
    /// A line is not a report.
    #[error("line {line}: {problem}")]
    Line {
        /// From 1, the header included.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// More reports than [`REPORTS_MAX`].
    #[error("the trace has more than {REPORTS_MAX} reports; cut it by time or by cab first")]
    TooMany,
}

/// Reads a trace file into tracks, ordered by name (numbers by value).
///
/// # Errors
/// See [`TraceError`]; for a bad line, its number.
pub fn load(path: &Path) -> Result<Vec<Track>, TraceError> {
    let file =
        File::open(path).map_err(|source| TraceError::Open { path: path.to_owned(), source })?;
    read(BufReader::new(file))
}

/// Reads a trace from a stream, plain or gzip, into tracks ordered by name (numbers by value).
///
/// # Errors
/// See [`TraceError`]; for a bad line, its number.
pub fn read(mut stream: impl BufRead) -> Result<Vec<Track>, TraceError> {
    let start =
        stream.fill_buf().map_err(|error| TraceError::Read { line: 0, source: error.into() })?;
    if start.starts_with(&GZIP_MAGIC) {
        read_csv(MultiGzDecoder::new(stream))
    } else {
        read_csv(stream)
    }
}

fn read_csv(stream: impl Read) -> Result<Vec<Track>, TraceError> {
    let mut reader =
        csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(stream);
    let header = reader.headers().map_err(|source| TraceError::Read { line: 0, source })?;
    if !header.iter().take(COLUMNS.len()).eq(COLUMNS) {
        let found = header.iter().collect::<Vec<_>>().join(",");
        return Err(TraceError::Header { found });
    }
    let mut cabs: BTreeMap<(u64, String), Vec<Fix>> = BTreeMap::new();
    let mut record = csv::StringRecord::new();
    let mut reports = 0;
    loop {
        let line = reader.position().line();
        match reader.read_record(&mut record) {
            Ok(true) => {}
            Ok(false) => break,
            Err(source) => {
                return Err(TraceError::Read { line: line - 1, source });
            }
        }
        let line = record.position().map_or(line, csv::Position::line);
        let (cab, fix) = parse(&record).map_err(|problem| TraceError::Line { line, problem })?;
        reports += 1;
        if reports > REPORTS_MAX {
            return Err(TraceError::TooMany);
        }
        let number = cab.parse().unwrap_or(u64::MAX);
        cabs.entry((number, cab.to_owned())).or_default().push(fix);
    }
    Ok(cabs.into_iter().map(|((_, cab), fixes)| Track::new(cab, fixes)).collect())
}

fn parse(record: &csv::StringRecord) -> Result<(&str, Fix), String> {
    let column = |index: usize| {
        record
            .get(index)
            .filter(|text| !text.is_empty())
            .ok_or_else(|| format!("column {} ({}) is missing", index + 1, COLUMNS[index]))
    };
    let number = |index: usize| {
        let text = column(index)?;
        text.parse::<f64>().ok().filter(|number| number.is_finite()).ok_or_else(|| {
            format!("column {} ({}) is not a number: {text:?}", index + 1, COLUMNS[index])
        })
    };
    let cab = column(0)?;
    let fix = Fix { t_s: number(1)?, at: Point::new(number(2)?, number(3)?) };
    if !fix.at.is_on_earth() {
        return Err(format!("lat {} lon {} is not on the earth", fix.at.lat, fix.at.lon));
    }
    Ok((cab, fix))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    const GOOD: &str = "cab,t_s,lat,lon,occ\n\
        10,60,37.76,-122.40,1\n\
        9,0,37.75,-122.39,0\n\
        10,0,37.75,-122.40,1\n";

    fn error(text: &str) -> String {
        read(text.as_bytes()).expect_err("must be refused").to_string()
    }

    #[test]
    fn reads_tracks_in_order_and_ignores_further_columns() {
        let tracks = read(GOOD.as_bytes()).unwrap();
        assert_eq!(tracks.iter().map(Track::name).collect::<Vec<_>>(), ["9", "10"]);
        assert_eq!(tracks[1].span_s(), Some((0.0, 60.0)));
        let halfway = tracks[1].position(30.0).expect("between two reports");
        assert!((halfway.lat - 37.755).abs() < 1e-9);
    }

    #[test]
    fn gzip_reads_the_same() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(GOOD.as_bytes()).unwrap();
        let bytes = gzip.finish().unwrap();
        assert_eq!(read(bytes.as_slice()).unwrap(), read(GOOD.as_bytes()).unwrap());
        let torn = read(&bytes[..bytes.len() / 2]);
        assert!(matches!(torn, Err(TraceError::Read { .. })), "{torn:?}");
    }

    #[test]
    fn a_bad_line_is_an_error_with_its_number() {
        let header = "line 1: the header must begin with cab,t_s,lat,lon and is \"t_s,cab\"";
        assert_eq!(error("t_s,cab\n1,2\n"), header);
        let line = |bad: &str| error(&format!("{GOOD}{bad}\n9,9,1,1\n"));
        assert_eq!(line("9,5,37.7"), "line 5: column 4 (lon) is missing");
        assert_eq!(line("9,noon,37.7,-122"), "line 5: column 2 (t_s) is not a number: \"noon\"");
        assert_eq!(line("9,5,NaN,-122"), "line 5: column 3 (lat) is not a number: \"NaN\"");
        assert_eq!(line("9,5,-122,37.7"), "line 5: lat -122 lon 37.7 is not on the earth");
        assert_eq!(line(",5,37.7,-122"), "line 5: column 1 (cab) is missing");
        assert!(error("").contains("header"));
        let missing = load(Path::new("no/such/trace.csv")).unwrap_err().to_string();
        assert!(missing.starts_with("cannot open the trace: "), "{missing}");
    }

    #[test]
    fn bytes_that_are_not_text_are_an_error_after_the_last_good_line() {
        let mut bytes = GOOD.as_bytes().to_vec();
        bytes.extend_from_slice(b"9,\xff,37.7,-122\n");
        let error = read(bytes.as_slice()).unwrap_err();
        assert!(matches!(error, TraceError::Read { line: 4, .. }), "{error:?}");
    }
}
