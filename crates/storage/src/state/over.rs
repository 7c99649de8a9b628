//! A view of a state with pending changes applied.

use super::StateError;
use model::Bytes;

/// Visits the items below with the changes applied: both in byte order, of the same range. `below`
/// calls its argument with every item until that returns `false`.
pub fn scan_over(
    changes: impl Iterator<Item = (Bytes, Option<Bytes>)>,
    below: impl FnOnce(&mut dyn FnMut(Bytes, Bytes) -> bool) -> Result<(), StateError>,
    visit: &mut dyn FnMut(Bytes, Bytes) -> bool,
) -> Result<(), StateError> {
    let mut changes = changes.peekable();
    let mut goes_on = true;
    below(&mut |key, value| {
        while let Some((changed, change)) = changes.next_if(|(changed, _)| *changed < key) {
            if let Some(value) = change {
                goes_on = visit(changed, value);
                if !goes_on {
                    return false;
                }
            }
        }
        goes_on = match changes.next_if(|(changed, _)| *changed == key) {
            Some((_, Some(newer))) => visit(key, newer),
            Some((_, None)) => true,
            None => visit(key, value),
        };
        goes_on
    })?;
    for (changed, change) in changes {
        if !goes_on {
            break;
        }
        if let Some(value) = change {
            goes_on = visit(changed, value);
        }
    }
    Ok(())
}
