//! Arguments, parsed as the words and numbers that Redis expects.

use super::refused::Refused;
use super::step::Unit;
use model::Expiry;
use wire::resp::{Encoder, Frame, parse_i64};

/// A whole number.
pub(super) fn integer(arg: &[u8]) -> Result<i64, Refused> {
    parse_i64(arg).ok_or(Refused::NOT_AN_INTEGER)
}

/// Whether an argument is this word, in any case.
pub(super) fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

/// Checks the number of arguments of a command with a subcommand.
pub(super) fn takes(frame: &Frame, len: usize, name: &str) -> Result<(), Refused> {
    if frame.len() == len { Ok(()) } else { Err(Refused::arity(name)) }
}

/// The usage of a subcommand and its description.
pub(super) type Help = (&'static str, &'static str);

/// Writes the reply to HELP.
pub(super) fn write_help(command: &str, subcommands: &[Help], out: &mut Encoder<'_>) {
    out.array(3 + 2 * subcommands.len());
    let head = "<subcommand> [<arg> [value] [opt] ...]. Subcommands are:";
    out.simple(&format!("{command} {head}"));
    for (usage, what) in subcommands.iter().chain(&[("HELP", "Print this help.")]) {
        out.simple(usage);
        out.simple(&format!("    {what}"));
    }
}

/// An argument as text for a message.
pub(super) fn text(arg: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(&arg[..arg.len().min(128)])
}

/// EX, PX, EXAT or PXAT at `at` and its number, if present.
pub(super) fn expiry_option(
    frame: &Frame,
    at: usize,
    command: &str,
) -> Result<Option<Expiry>, Refused> {
    let word = frame.arg(at);
    let (unit, is_moment) = match () {
        () if is(word, "ex") => (Unit::Seconds, false),
        () if is(word, "px") => (Unit::Milliseconds, false),
        () if is(word, "exat") => (Unit::Seconds, true),
        () if is(word, "pxat") => (Unit::Milliseconds, true),
        () => return Ok(None),
    };
    if at + 1 >= frame.len() {
        return Err(Refused::SYNTAX);
    }
    let time = match is_moment {
        true => moment(frame.arg(at + 1), unit, command)?,
        false => positive_time(frame.arg(at + 1), unit, command)?,
    };
    Ok(Some(if is_moment { Expiry::AtMs(time) } else { Expiry::AfterMs(time) }))
}

/// A time span that must be positive, in milliseconds.
pub(super) fn positive_time(arg: &[u8], unit: Unit, command: &str) -> Result<u64, Refused> {
    let time = integer(arg)?;
    let ms = time.checked_mul(unit.ms()).filter(|ms| *ms > 0 && *ms < TIME_MS_MAX);
    ms.map(|ms| ms as u64).ok_or_else(|| Refused::expire_time(command))
}

/// A time after the beginning of 1970, in milliseconds since then.
fn moment(arg: &[u8], unit: Unit, command: &str) -> Result<u64, Refused> {
    let ms = integer(arg)?.checked_mul(unit.ms()).filter(|ms| *ms > 0);
    ms.map(|ms| ms as u64).ok_or_else(|| Refused::expire_time(command))
}

/// Times beyond this do not fit a moment in milliseconds once the present is added.
pub(super) const TIME_MS_MAX: i64 = i64::MAX - (1 << 48);
