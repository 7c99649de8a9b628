//! Questions to the user: whether to go on, or for a password, without showing it on a terminal, or
//! as a line from a pipe.

use super::failed::Failed;
use ratatui::crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers, read};
use ratatui::crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

/// Asks for a password, on the standard error and input.
pub(crate) fn password(what: &str) -> Result<String, Failed> {
    if !io::stdin().is_terminal() {
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line).map_err(|error| {
            Failed::usage(format!("cannot read the {what} from the standard input: {error}"))
        })?;
        return Ok(line.trim_end_matches(['\r', '\n']).to_owned());
    }
    let typed = ask(what).map_err(|error| {
        Failed::usage(format!("cannot ask for the {what} on this terminal: {error}"))
    })?;
    typed.ok_or_else(|| Failed::usage(format!("no {what} was given")))
}

fn ask(what: &str) -> io::Result<Option<String>> {
    write!(io::stderr(), "{what}: ")?;
    io::stderr().flush()?;
    enable_raw_mode()?;
    let typed = typed();
    disable_raw_mode()?;
    writeln!(io::stderr())?;
    typed
}

/// Whether the user at a terminal agrees.
pub(crate) fn agreed() -> Result<bool, Failed> {
    if !io::stdin().is_terminal() {
        return Ok(false);
    }
    write!(io::stderr(), "Go on? Type yes: ")?;
    io::stderr().flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim() == "yes")
}

/// What is typed until Enter; `None`: it was given up.
fn typed() -> io::Result<Option<String>> {
    let mut password = String::new();
    loop {
        let Event::Key(key) = read()? else { continue };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        match key.code {
            KeyCode::Enter => return Ok(Some(password)),
            KeyCode::Esc => return Ok(None),
            KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Ok(None);
            }
            KeyCode::Char(typed) => password.push(typed),
            KeyCode::Backspace => {
                password.pop();
            }
            _ => {}
        }
    }
}
