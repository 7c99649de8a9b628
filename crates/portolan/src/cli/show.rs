//! How things are printed: bytes, tables, JSON, lengths of time.

use serde_json::{Map, Value};
use std::io::{self, Write};
use std::time::Duration;

/// A length of time on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Length(pub(crate) Duration);

/// Reads a length of time: a number and `ms`, `s`, `m`, `h` or `d`.
pub(crate) fn length(text: &str) -> Result<Length, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let wrong = || format!("{text:?} is no length of time: use a number and ms, s, m, h or d");
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    let ms = number.checked_mul(unit_ms).filter(|ms| *ms > 0).ok_or_else(wrong)?;
    Ok(Length(Duration::from_millis(ms)))
}

/// Bytes for a line of text: as they are if they are printable, else escaped as in Rust.
pub(crate) fn line(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => bytes.escape_ascii().to_string(),
    }
}

/// Puts bytes into a JSON object: as `name` if they are UTF-8, else as `name_hex`.
pub(crate) fn put_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            object.insert(format!("{name}_hex"), hex.into())
        }
    };
}

/// Prints one line.
pub(crate) fn print(text: impl std::fmt::Display) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{text}")
}

/// Prints a JSON value on lines of its own.
pub(crate) fn print_json(value: &Value) -> io::Result<()> {
    print(format_args!("{value:#}"))
}

/// A table with aligned columns; those of numbers to the right.
pub(crate) struct Table {
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// No rows yet. A head that begins with `>` makes a column of numbers.
    pub(crate) fn new<const N: usize>(heads: [&'static str; N]) -> Table {
        Table::of(heads.map(str::to_owned).into(), Vec::new())
    }

    /// The same with columns that are not known before, and rows as long.
    pub(crate) fn of(heads: Vec<String>, rows: Vec<Vec<String>>) -> Table {
        Table { heads, rows }
    }

    /// Adds a row.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let width = |text: &str| text.chars().count();
        let names: Vec<&str> = self.heads.iter().map(|head| head.trim_start_matches('>')).collect();
        let widths: Vec<usize> = (0..names.len())
            .map(|column| {
                let cells = self.rows.iter().map(|row| width(&row[column]));
                cells.chain([width(names[column])]).max().unwrap_or_default()
            })
            .collect();
        let head = names.iter().map(|name| name.to_string()).collect();
        for (number, row) in [&head].into_iter().chain(&self.rows).enumerate() {
            let cells = row.iter().enumerate().map(|(column, cell)| {
                let pad = " ".repeat(widths[column] - width(cell));
                match self.heads[column].starts_with('>') {
                    true => format!("{pad}{cell}"),
                    false => format!("{cell}{pad}"),
                }
            });
            let line = cells.collect::<Vec<_>>().join("  ");
            let newline = if number == 0 { "" } else { "\n" };
            write!(f, "{newline}{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_units() {
        assert_eq!(length("30s"), Ok(Length(Duration::from_secs(30))));
        assert_eq!(length("250ms"), Ok(Length(Duration::from_millis(250))));
        for wrong in ["", "5", "s", "-1s", "0s", "5 s", "99999999999999999999s", "300000000000d"] {
            assert!(length(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tables_are_aligned() {
        let mut table = Table::new(["node", ">keys", "role"]);
        table.row(["n1".into(), "5".into(), "leader".into()]);
        table.row(["n10".into(), "12345".into(), "".into()]);
        assert_eq!(table.to_string(), "node   keys  role\nn1        5  leader\nn10   12345");
    }

    #[test]
    fn bytes_are_shown_as_they_are_if_that_is_possible() {
        assert_eq!(line("Pier 39 ⚓".as_bytes()), "Pier 39 ⚓");
        assert_eq!(line(b"a\nb"), "a\\nb");
        assert_eq!(line(&[0xff, b'a']), "\\xffa");
        let mut object = Map::new();
        put_bytes(&mut object, "key", b"a\n");
        put_bytes(&mut object, "value", &[0xff, 0]);
        assert_eq!(Value::from(object).to_string(), r#"{"key":"a\n","value_hex":"ff00"}"#);
    }
}
