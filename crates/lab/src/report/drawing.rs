//! A drawing: paths, circles and text, each with the ink it is drawn with.
//!
//! Plots and maps are made as drawings, and a drawing is written in one of three ways: as SVG
//! inside the page, with the page's colours; as an SVG file that stands alone; or as pixels
//! ([`super::raster`]).

use std::fmt::Write as _;

use super::{escaped, palette::Ink};

/// What a picture that stands alone asks for; the last is what the pixels are drawn with.
const FONTS: &str = "system-ui,'Segoe UI',Roboto,'Noto Sans',sans-serif";

/// Shapes on a canvas; later ones lie over earlier ones.
#[derive(Debug, Clone)]
pub(super) struct Drawing {
    pub(super) width: f64,
    pub(super) height: f64,
    /// What it shows, for those who cannot see it.
    pub(super) label: String,
    pub(super) shapes: Vec<Shape>,
}

/// One shape.
#[derive(Debug, Clone)]
pub(super) enum Shape {
    Path { path: Path, look: Look, title: String },
    Circle { center: (f64, f64), radius: f64, look: Look },
    Words { at: (f64, f64), words: String, lettering: Lettering },
}

/// Straight lines: for each piece its points, and whether its end is joined to its start.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Path(pub(super) Vec<(Vec<(f64, f64)>, bool)>);

impl Path {
    pub(super) fn open(points: Vec<(f64, f64)>) -> Self {
        Self(vec![(points, false)])
    }

    pub(super) fn closed(points: Vec<(f64, f64)>) -> Self {
        Self(vec![(points, true)])
    }

    pub(super) fn rectangle((x, y): (f64, f64), width: f64, height: f64) -> Self {
        let (right, bottom) = (x + width, y + height);
        Self::closed(vec![(x, y), (right, y), (right, bottom), (x, bottom)])
    }

    fn svg(&self) -> String {
        let mut d = String::new();
        for (points, closed) in &self.0 {
            for (index, (x, y)) in points.iter().enumerate() {
                let _ = write!(d, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
            }
            if points.len() == 1 {
                // A line of no length with round caps is a dot.
                d.push_str("h0");
            }
            if *closed {
                d.push('Z');
            }
        }
        d
    }
}

/// How a line is drawn; ends and joints are round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pen {
    pub(super) ink: Ink,
    pub(super) width: f64,
    pub(super) dashed: bool,
}

impl Pen {
    pub(super) fn new(ink: Ink, width: f64) -> Self {
        Self { ink, width, dashed: false }
    }

    /// The pen of a line of a plot: dashed when its colour has been used before.
    pub(super) fn of_series(ink: Ink, width: f64) -> Self {
        Self { dashed: ink.comes_again(), ..Self::new(ink, width) }
    }
}

/// How a path or a circle is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Look {
    pub(super) fill: Option<Ink>,
    pub(super) pen: Option<Pen>,
    /// 0 to 1.
    pub(super) opacity: f64,
}

impl Look {
    pub(super) fn line(ink: Ink, width: f64) -> Self {
        Self::pen(Pen::new(ink, width))
    }

    pub(super) fn pen(pen: Pen) -> Self {
        Self { fill: None, pen: Some(pen), opacity: 1.0 }
    }

    pub(super) fn fill(ink: Ink) -> Self {
        Self { fill: Some(ink), pen: None, opacity: 1.0 }
    }
}

/// Which end of the text is at their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// How text is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Lettering {
    pub(super) ink: Ink,
    pub(super) size: f64,
    pub(super) bold: bool,
    pub(super) anchor: Anchor,
    /// An outline around the letters, where they lie over something.
    pub(super) halo: Option<Ink>,
}

/// Width of the outline around letters.
pub(super) const HALO: f64 = 3.5;

impl Lettering {
    pub(super) fn new(ink: Ink, size: f64, anchor: Anchor) -> Self {
        Self { ink, size, bold: false, anchor, halo: None }
    }
}

/// Where the colours of an SVG come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Theme {
    Page,
    Light,
}

impl Theme {
    fn color(self, ink: Ink) -> String {
        match self {
            Theme::Page => ink.on_page(),
            Theme::Light => ink.light().to_string(),
        }
    }

    fn look(self, look: &Look) -> String {
        let fill = look.fill.map_or("none".to_owned(), |ink| self.color(ink));
        let mut style = format!("fill:{fill}");
        if let Some(pen) = look.pen {
            let _ = write!(style, ";stroke:{};stroke-width:{}", self.color(pen.ink), pen.width);
            style.push_str(";stroke-linejoin:round;stroke-linecap:round");
            if pen.dashed {
                style.push_str(";stroke-dasharray:4 3;stroke-linecap:butt");
            }
        }
        if look.opacity < 1.0 {
            let _ = write!(style, ";opacity:{}", look.opacity);
        }
        style
    }

    fn lettering(self, lettering: &Lettering) -> String {
        let Lettering { ink, size, bold, anchor, halo } = *lettering;
        let mut style = format!("fill:{};font-size:{size}px", self.color(ink));
        style.push_str(match anchor {
            Anchor::Start => "",
            Anchor::Middle => ";text-anchor:middle",
            Anchor::End => ";text-anchor:end",
        });
        if bold {
            style.push_str(";font-weight:600");
        }
        if let Some(halo) = halo {
            let _ = write!(style, ";paint-order:stroke;stroke:{}", self.color(halo));
            let _ = write!(style, ";stroke-width:{HALO};stroke-linejoin:round");
        }
        style
    }
}

impl Drawing {
    pub(super) fn new(width: f64, height: f64, label: impl Into<String>) -> Self {
        Self { width, height, label: label.into(), shapes: Vec::new() }
    }

    pub(super) fn path(&mut self, path: Path, look: Look) {
        self.shapes.push(Shape::Path { path, look, title: String::new() });
    }

    /// A straight line.
    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), look: Look) {
        self.path(Path::open(vec![from, to]), look);
    }

    pub(super) fn circle(&mut self, center: (f64, f64), radius: f64, look: Look) {
        self.shapes.push(Shape::Circle { center, radius, look });
    }

    pub(super) fn words(&mut self, at: (f64, f64), words: impl Into<String>, lettering: Lettering) {
        self.shapes.push(Shape::Words { at, words: words.into(), lettering });
    }

    /// Puts another drawing over this one, its corner at a place.
    pub(super) fn put(&mut self, (right, down): (f64, f64), other: &Drawing) {
        let moved = |(x, y): (f64, f64)| (x + right, y + down);
        self.shapes.extend(other.shapes.iter().cloned().map(|mut shape| {
            match &mut shape {
                Shape::Path { path, .. } => {
                    path.0
                        .iter_mut()
                        .flat_map(|(points, _)| points)
                        .for_each(|point| *point = moved(*point));
                }
                Shape::Circle { center: at, .. } | Shape::Words { at, .. } => *at = moved(*at),
            }
            shape
        }));
    }

    /// As SVG inside the page.
    pub(super) fn on_page(&self) -> String {
        let (width, height, label) = (self.width, self.height, escaped(&self.label));
        format!(
            "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\">{}</svg>",
            self.body(Theme::Page)
        )
    }

    /// As an SVG file.
    pub(super) fn alone(&self) -> String {
        let (width, height, label) = (self.width, self.height, escaped(&self.label));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\" \
             font-family=\"{FONTS}\">{}</svg>\n",
            self.body(Theme::Light)
        )
    }

    /// The shapes; those in a row that look the same are a group.
    fn body(&self, theme: Theme) -> String {
        let style = |shape: &Shape| match shape {
            Shape::Path { look, .. } | Shape::Circle { look, .. } => theme.look(look),
            Shape::Words { lettering, .. } => theme.lettering(lettering),
        };
        let styled: Vec<(String, &Shape)> =
            self.shapes.iter().map(|shape| (style(shape), shape)).collect();
        let mut svg = String::new();
        for group in styled.chunk_by(|a, b| a.0 == b.0) {
            let style = &group[0].0;
            // The opacity of a group is not that of its shapes where they overlap.
            let (style, opacity) = style.split_once(";opacity:").unwrap_or((style, ""));
            let _ = write!(svg, "<g style=\"{style}\">");
            for (_, shape) in group {
                write_shape(&mut svg, shape, opacity);
            }
            svg.push_str("</g>");
        }
        svg
    }
}

fn write_shape(svg: &mut String, shape: &Shape, opacity: &str) {
    let opacity =
        if opacity.is_empty() { String::new() } else { format!(" opacity=\"{opacity}\"") };
    let _ = match shape {
        Shape::Path { path, title, .. } if title.is_empty() => {
            write!(svg, "<path{opacity} d=\"{}\"/>", path.svg())
        }
        Shape::Path { path, title, .. } => {
            let (d, title) = (path.svg(), escaped(title));
            write!(svg, "<path{opacity} d=\"{d}\"><title>{title}</title></path>")
        }
        Shape::Circle { center: (x, y), radius, .. } => {
            write!(svg, "<circle{opacity} cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"/>")
        }
        Shape::Words { at: (x, y), words, .. } => {
            write!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escaped(words))
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawing() -> Drawing {
        let mut drawing = Drawing::new(100.0, 50.0, "a <test>");
        drawing.line((0.0, 0.0), (10.0, 5.0), Look::line(Ink::Rule, 1.0));
        drawing.line((1.0, 0.0), (11.0, 5.0), Look::line(Ink::Rule, 1.0));
        let faint = Look { opacity: 0.5, ..Look::fill(Ink::Site(0)) };
        drawing.circle((20.0, 20.0), 3.0, faint);
        drawing.words((1.0, 2.0), "x < y", Lettering::new(Ink::Text, 12.0, Anchor::End));
        drawing
    }

    #[test]
    fn shapes_that_look_the_same_share_a_group() {
        let svg = drawing().on_page();
        assert_eq!(svg.matches("<g ").count(), 3, "{svg}");
        assert_eq!(svg.matches("<path").count(), 2, "{svg}");
        assert!(svg.contains("<circle opacity=\"0.5\""), "{svg}");
        assert!(svg.contains("x &lt; y") && svg.contains("a &lt;test&gt;"), "{svg}");
    }

    #[test]
    fn the_page_has_variables_and_a_file_has_colours() {
        let (page, alone) = (drawing().on_page(), drawing().alone());
        assert!(page.contains("stroke:var(--rule)") && !page.contains("xmlns"), "{page}");
        assert!(alone.contains("stroke:#e3e0d8") && alone.contains("xmlns"), "{alone}");
        assert!(!alone.contains("var(") && !alone.contains("hsl("), "{alone}");
    }

    #[test]
    fn what_is_put_into_another_is_moved() {
        let mut outer = Drawing::new(200.0, 200.0, "outer");
        outer.put((100.0, 50.0), &drawing());
        let svg = outer.on_page();
        assert!(svg.contains("M100.0 50.0L110.0 55.0"), "{svg}");
        assert!(svg.contains("cx=\"120.0\" cy=\"70.0\"") && svg.contains("x=\"101.0\" y=\"52.0\""));
    }
}
