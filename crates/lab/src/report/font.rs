//! The letters of pictures: Noto Sans, inside the program, because a machine that runs experiments
//! often has no fonts. Plots lay out by how wide text is; `raster` draws its outlines.
//!
//! Left out: kerning, and scripts that need shaping; a letter that the font lacks is a box.

use std::sync::OnceLock;

use ttf_parser::{Face, GlyphId};

pub(super) fn face(bold: bool) -> &'static Face<'static> {
    static FACES: OnceLock<[Face<'static>; 2]> = OnceLock::new();
    let faces = FACES.get_or_init(|| {
        [notosans::REGULAR_TTF, notosans::BOLD_TTF]
            .map(|bytes| Face::parse(bytes, 0).expect("the font is part of the program"))
    });
    &faces[usize::from(bold)]
}

/// Each letter's glyph and how far it moves the pen, in the font's units.
pub(super) fn glyphs(
    face: &'static Face<'static>,
    words: &str,
) -> impl Iterator<Item = (GlyphId, f64)> {
    words.chars().map(move |letter| {
        let glyph = face.glyph_index(letter).unwrap_or_default();
        (glyph, f64::from(face.glyph_hor_advance(glyph).unwrap_or_default()))
    })
}

/// How wide text is at a size.
pub(super) fn width(words: &str, size: f64, bold: bool) -> f64 {
    let face = face(bold);
    let units: f64 = glyphs(face, words).map(|(_, advance)| advance).sum();
    units * size / f64::from(face.units_per_em())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_as_wide_as_their_letters() {
        let one = width("m", 12.0, false);
        assert!((8.0..14.0).contains(&one), "{one}");
        assert!((width("mmm", 12.0, false) - 3.0 * one).abs() < 1e-9);
        assert!((width("m", 24.0, false) - 2.0 * one).abs() < 1e-9);
        assert!(width("wide", 12.0, true) > width("wide", 12.0, false));
        assert_eq!(width("", 12.0, false), 0.0);
    }

    #[test]
    fn what_our_plots_write_is_in_the_font() {
        for letter in "0123456789 azAZ%–−·≤×→µ\u{2009}äé…".chars() {
            let known = face(false).glyph_index(letter).is_some();
            assert!(known && face(true).glyph_index(letter).is_some(), "{letter:?}");
        }
        // What is not in it takes room all the same.
        assert!(width("漢", 12.0, false) > 0.0);
    }
}
