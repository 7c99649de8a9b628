//! A drawing as pixels: a PNG file in light colours, for slides and papers that take no SVG.

use std::io;

use tiny_skia::{
    FillRule, LineCap, LineJoin, Paint, Path, PathBuilder, Pixmap, Stroke, StrokeDash, Transform,
};
use ttf_parser::OutlineBuilder;

use super::{
    drawing::{self, Anchor, Drawing, HALO, Lettering, Look, Pen, Shape},
    font,
    palette::Ink,
};

/// Pixels for one unit of a drawing.
const SCALE: f32 = 2.0;

/// The drawing as a PNG file.
///
/// # Errors
/// It is too large, or empty; neither is so for what a report draws.
pub(super) fn png(drawing: &Drawing) -> io::Result<Vec<u8>> {
    pixels(drawing)?.encode_png().map_err(io::Error::other)
}

fn pixels(drawing: &Drawing) -> io::Result<Pixmap> {
    let pixels = |length: f64| (length as f32 * SCALE).ceil() as u32;
    let (width, height) = (pixels(drawing.width), pixels(drawing.height));
    let mut canvas =
        Canvas(Pixmap::new(width, height).ok_or_else(|| {
            io::Error::other(format!("no picture of {width} by {height} pixels"))
        })?);
    for shape in &drawing.shapes {
        match shape {
            Shape::Path { path, look, .. } => canvas.look(traced(path), look),
            Shape::Circle { center: (x, y), radius, look } => {
                canvas.look(PathBuilder::from_circle(*x as f32, *y as f32, *radius as f32), look);
            }
            Shape::Words { at, words, lettering } => canvas.words(*at, words, lettering),
        }
    }
    Ok(canvas.0)
}

struct Canvas(Pixmap);

impl Canvas {
    fn look(&mut self, path: Option<Path>, look: &Look) {
        let Some(path) = path else { return };
        if let Some(ink) = look.fill {
            self.fill(&path, ink, look.opacity);
        }
        if let Some(pen) = look.pen {
            self.stroke(&path, pen, look.opacity);
        }
    }

    fn words(&mut self, (x, y): (f64, f64), words: &str, lettering: &Lettering) {
        let Lettering { ink, size, bold, anchor, halo } = *lettering;
        let before = match anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => font::width(words, size, bold) / 2.0,
            Anchor::End => font::width(words, size, bold),
        };
        let mut letters = PathBuilder::new();
        outline(words, size, bold, (x - before, y), &mut letters);
        // Nothing but spaces has no outline.
        let Some(letters) = letters.finish() else { return };
        if let Some(halo) = halo {
            self.stroke(&letters, Pen::new(halo, HALO), 1.0);
        }
        self.fill(&letters, ink, 1.0);
    }

    fn fill(&mut self, path: &Path, ink: Ink, opacity: f64) {
        let scale = Transform::from_scale(SCALE, SCALE);
        self.0.fill_path(path, &paint(ink, opacity), FillRule::Winding, scale, None);
    }

    fn stroke(&mut self, path: &Path, pen: Pen, opacity: f64) {
        let stroke = Stroke {
            width: pen.width as f32,
            line_cap: if pen.dashed { LineCap::Butt } else { LineCap::Round },
            line_join: LineJoin::Round,
            dash: if pen.dashed { StrokeDash::new(vec![4.0, 3.0], 0.0) } else { None },
            ..Stroke::default()
        };
        let scale = Transform::from_scale(SCALE, SCALE);
        self.0.stroke_path(path, &paint(pen.ink, opacity), &stroke, scale, None);
    }
}

fn paint(ink: Ink, opacity: f64) -> Paint<'static> {
    let color = ink.light();
    let mut paint = Paint::default();
    paint.set_color_rgba8(color.0, color.1, color.2, (opacity * 255.0).round() as u8);
    paint
}

fn traced(path: &drawing::Path) -> Option<Path> {
    let mut builder = PathBuilder::new();
    for (points, closed) in &path.0 {
        for (index, (x, y)) in points.iter().enumerate() {
            let (x, y) = (*x as f32, *y as f32);
            if index == 0 { builder.move_to(x, y) } else { builder.line_to(x, y) }
        }
        if let [(x, y)] = points.as_slice() {
            builder.line_to(*x as f32, *y as f32);
        }
        if *closed {
            builder.close();
        }
    }
    builder.finish()
}

/// Adds the outlines of text that begins at a place.
fn outline(words: &str, size: f64, bold: bool, (x, y): (f64, f64), path: &mut PathBuilder) {
    let face = font::face(bold);
    let scale = size / f64::from(face.units_per_em());
    let mut pen = Tracing { path, x, y, scale };
    for (glyph, advance) in font::glyphs(face, words) {
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

    /// The colour in the middle of a unit of the drawing.
    fn color(pixels: &Pixmap, (x, y): (f64, f64)) -> (u8, u8, u8, u8) {
        let at = |place: f64| (place as f32 * SCALE) as u32;
        let color = pixels.pixel(at(x), at(y)).expect("inside").demultiply();
        (color.red(), color.green(), color.blue(), color.alpha())
    }

    fn solid(ink: Ink) -> (u8, u8, u8, u8) {
        let color = ink.light();
        (color.0, color.1, color.2, 255)
    }

    #[test]
    fn shapes_are_where_they_were_put_in_their_ink() {
        let mut drawing = Drawing::new(100.0, 60.0, "test");
        drawing.path(drawing::Path::rectangle((0.0, 0.0), 50.0, 60.0), Look::fill(Ink::Series(0)));
        drawing.circle((75.0, 30.0), 10.0, Look::fill(Ink::Mark));
        drawing.line((0.0, 55.0), (50.0, 55.0), Look::line(Ink::Text, 2.0));
        let dot = drawing::Path::open(vec![(90.0, 50.0)]);
        drawing.path(dot, Look::line(Ink::Series(1), 4.0));
        let pixels = pixels(&drawing).unwrap();
        assert_eq!((pixels.width(), pixels.height()), (200, 120));
        assert_eq!(color(&pixels, (25.0, 30.0)), solid(Ink::Series(0)));
        assert_eq!(color(&pixels, (75.0, 30.0)), solid(Ink::Mark));
        assert_eq!(color(&pixels, (25.0, 55.0)), solid(Ink::Text));
        assert_eq!(color(&pixels, (90.0, 50.0)), solid(Ink::Series(1)), "a lone point is a dot");
        assert_eq!(color(&pixels, (60.0, 5.0)).3, 0, "nothing was drawn there");
        assert!(png(&drawing).unwrap().starts_with(b"\x89PNG\r\n"));
    }

    #[test]
    fn words_are_anchored_and_have_a_halo() {
        let inked = |anchor: Anchor| -> Vec<u32> {
            let mut drawing = Drawing::new(100.0, 20.0, "test");
            drawing.words((50.0, 15.0), "HHH", Lettering::new(Ink::Text, 12.0, anchor));
            let pixels = pixels(&drawing).unwrap();
            let used =
                |x: &u32| (0..pixels.height()).any(|y| pixels.pixel(*x, y).unwrap().alpha() > 0);
            (0..pixels.width()).filter(used).collect()
        };
        let (start, middle, end) =
            (inked(Anchor::Start), inked(Anchor::Middle), inked(Anchor::End));
        assert!(start[0] >= 100 && *end.last().unwrap() <= 100, "{start:?} {end:?}");
        assert!(middle[0] < 100 && *middle.last().unwrap() > 100);
        let mut drawing = Drawing::new(40.0, 20.0, "test");
        let haloed =
            Lettering { halo: Some(Ink::Land), ..Lettering::new(Ink::Text, 12.0, Anchor::Start) };
        drawing.words((10.0, 15.0), "l", haloed);
        let pixels = pixels(&drawing).unwrap();
        let all: Vec<_> = pixels.pixels().iter().map(|pixel| pixel.demultiply()).collect();
        let has = |ink: Ink| {
            let wanted = solid(ink);
            all.iter().any(|p| (p.red(), p.green(), p.blue(), p.alpha()) == wanted)
        };
        assert!(has(Ink::Land) && has(Ink::Text));
    }

    #[test]
    fn a_picture_without_size_is_an_error() {
        assert!(png(&Drawing::new(0.0, 10.0, "none")).is_err());
    }

    #[test]
    fn outlines_stand_on_the_line_and_end_where_the_words_end() {
        let mut path = PathBuilder::new();
        outline("HH", 100.0, false, (10.0, 200.0), &mut path);
        let bounds = path.finish().expect("two letters").bounds();
        assert!((bounds.bottom() - 200.0).abs() < 1.0, "{bounds:?}");
        assert!((60.0..80.0).contains(&bounds.height()), "{bounds:?}");
        let end = 10.0 + font::width("HH", 100.0, false);
        assert!(f64::from(bounds.right()) < end && f64::from(bounds.right()) > end - 15.0);
    }
}
