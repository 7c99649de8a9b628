//! The letters of pictures that are pixels: Noto Sans, inside the program, because a machine that
//! runs experiments often has no fonts. Also how wide text is, which plots lay out by.
//!
//! Left out: kerning, and scripts that need shaping; a letter that the font lacks is a box.

use std::sync::OnceLock;

use tiny_skia::PathBuilder;
use ttf_parser::{Face, GlyphId, OutlineBuilder};

fn face(bold: bool) -> &'static Face<'static> {
    static FACES: OnceLock<[Face<'static>; 2]> = OnceLock::new();
    let faces = FACES.get_or_init(|| {
        [notosans::REGULAR_TTF, notosans::BOLD_TTF]
            .map(|bytes| Face::parse(bytes, 0).expect("the font is part of the program"))
    });
    &faces[usize::from(bold)]
}

/// Each letter's glyph and how far it moves the pen, in the font's units.
fn glyphs(face: &'static Face<'static>, words: &str) -> impl Iterator<Item = (GlyphId, f64)> {
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

/// Adds the outlines of text that begins at a place.
pub(super) fn outline(
    words: &str,
    size: f64,
    bold: bool,
    (x, y): (f64, f64),
    path: &mut PathBuilder,
) {
    let face = face(bold);
    let scale = size / f64::from(face.units_per_em());
    let mut pen = Tracing { path, x, y, scale };
    for (glyph, advance) in glyphs(face, words) {
        face.outline_glyph(glyph, &mut pen);
        pen.x += advance * scale;
    }
}

/// Follows the outline of a glyph, from the font's units (up) to the picture's (down).
struct Tracing<'a> {
    path: &'a mut PathBuilder,
    x: f64,
    y: f64,
    scale: f64,
}

impl Tracing<'_> {
    fn point(&self, x: f32, y: f32) -> (f32, f32) {
        ((self.x + f64::from(x) * self.scale) as f32, (self.y - f64::from(y) * self.scale) as f32)
    }
}

impl OutlineBuilder for Tracing<'_> {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.point(x, y);
        self.path.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.point(x, y);
        self.path.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ((x1, y1), (x, y)) = (self.point(x1, y1), self.point(x, y));
        self.path.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let ((x1, y1), (x2, y2), (x, y)) =
            (self.point(x1, y1), self.point(x2, y2), self.point(x, y));
        self.path.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.path.close();
    }
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
    fn outlines_stand_on_the_line_and_end_where_the_words_end() {
        let mut path = PathBuilder::new();
        outline("HH", 100.0, false, (10.0, 200.0), &mut path);
        let bounds = path.finish().expect("two letters").bounds();
        assert!((bounds.bottom() - 200.0).abs() < 1.0, "{bounds:?}");
        assert!((60.0..80.0).contains(&bounds.height()), "{bounds:?}");
        let end = 10.0 + width("HH", 100.0, false);
        assert!(f64::from(bounds.right()) < end && f64::from(bounds.right()) > end - 15.0);
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
