//! The colours, once: as CSS variables for the page, which follows the reader's light or dark
//! setting, and as numbers for pictures that stand alone, which are light.

use std::fmt::Write as _;

/// Red, green and blue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rgb(pub(super) u8, pub(super) u8, pub(super) u8);

impl std::fmt::Display for Rgb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{:02x}{:02x}{:02x}", self.0, self.1, self.2)
    }
}

/// What a thing is drawn with, by what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    /// Behind a plot.
    Card,
    /// Text to read first.
    Text,
    /// Axes and what stands beside them.
    Soft,
    /// Lines to read off from.
    Rule,
    /// Around the land.
    Sea,
    /// Where sites stand.
    Land,
    /// Faults and other marks.
    Mark,
    /// A line of a plot; there are [`SERIES`] colours, then they come again.
    Series(usize),
    /// What belongs to a site, by the site's index.
    Site(usize),
    /// A way served by a site, by the site's index.
    Way(usize),
}

/// How many lines have a colour of their own.
pub(super) const SERIES: usize = 8;

/// Name, light, dark. The last eight are the lines of plots, distinguishable in print and by most
/// colour-blind readers through their lightness too.
const VARIABLES: [(&str, u32, u32); 18] = [
    ("paper", 0xf7f5f0, 0x11161c),
    ("card", 0xffffff, 0x1a2129),
    ("ink", 0x1c2530, 0xe7ebef),
    ("soft", 0x5c6875, 0x98a4b0),
    ("rule", 0xe3e0d8, 0x2b343e),
    ("sea", 0xe4edf2, 0x131d27),
    ("land", 0xfbfaf6, 0x1d242c),
    ("good", 0x17784d, 0x5cc993),
    ("bad", 0xb3261e, 0xff8a80),
    ("mark", 0xb3261e, 0xff8a80),
    ("c0", 0x1f6fb2, 0x63b0ee),
    ("c1", 0xd2691e, 0xf09a55),
    ("c2", 0x3a8f4f, 0x74c98a),
    ("c3", 0x8452a8, 0xbd93dd),
    ("c4", 0x128a94, 0x4fc3cb),
    ("c5", 0xc2447f, 0xf08cba),
    ("c6", 0x8a741a, 0xd6c257),
    ("c7", 0x54626f, 0xa9b7c4),
];

/// Saturation and lightness of what has a site's hue, light and dark.
const SITE: [(u32, u32); 2] = [(60, 46), (55, 58)];
const WAY: [(u32, u32); 2] = [(62, 42), (60, 62)];

/// The style sheet's variables.
pub(super) fn css() -> String {
    let mut css = ":root{color-scheme:light dark".to_owned();
    for (name, light, _) in VARIABLES {
        let _ = write!(css, ";--{name}:#{light:06x}");
    }
    let tone = |(saturation, lightness): (u32, u32)| format!("{saturation}% {lightness}%");
    let _ = write!(css, ";--site:{};--way:{}}}", tone(SITE[0]), tone(WAY[0]));
    css.push_str("@media(prefers-color-scheme:dark){:root{");
    for (name, _, dark) in VARIABLES {
        let _ = write!(css, "--{name}:#{dark:06x};");
    }
    let _ = write!(css, "--site:{};--way:{}}}}}", tone(SITE[1]), tone(WAY[1]));
    css
}

impl Ink {
    fn variable(self) -> String {
        match self {
            Ink::Card => "card".to_owned(),
            Ink::Text => "ink".to_owned(),
            Ink::Soft => "soft".to_owned(),
            Ink::Rule => "rule".to_owned(),
            Ink::Sea => "sea".to_owned(),
            Ink::Land => "land".to_owned(),
            Ink::Mark => "mark".to_owned(),
            Ink::Series(index) => format!("c{}", index % SERIES),
            Ink::Site(_) => "site".to_owned(),
            Ink::Way(_) => "way".to_owned(),
        }
    }

    /// Whether an earlier line of the plot has the same colour.
    pub(super) fn comes_again(self) -> bool {
        matches!(self, Ink::Series(index) if index >= SERIES)
    }

    /// The colour as the page names it.
    pub(super) fn on_page(self) -> String {
        match self {
            Ink::Site(site) | Ink::Way(site) => {
                format!("hsl({} var(--{}))", hue(site), self.variable())
            }
            _ => format!("var(--{})", self.variable()),
        }
    }

    /// The colour of a picture that stands alone.
    pub(super) fn light(self) -> Rgb {
        match self {
            Ink::Site(site) => hsl(hue(site), SITE[0]),
            Ink::Way(site) => hsl(hue(site), WAY[0]),
            _ => {
                let wanted = self.variable();
                let found = VARIABLES.iter().find(|(name, _, _)| *name == wanted);
                let [_, red, green, blue] = found.map_or(0, |(_, light, _)| *light).to_be_bytes();
                Rgb(red, green, blue)
            }
        }
    }
}

/// Neighbours in the file get hues far apart: the golden angle never repeats.
fn hue(site: usize) -> u32 {
    (site as f64 * 137.508 + 205.0) as u32 % 360
}

fn hsl(hue: u32, (saturation, lightness): (u32, u32)) -> Rgb {
    let (saturation, lightness) = (f64::from(saturation) / 100.0, f64::from(lightness) / 100.0);
    let part = |offset: f64| {
        let k = (offset + f64::from(hue) / 30.0) % 12.0;
        let swing = saturation * lightness.min(1.0 - lightness);
        let value = lightness - swing * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        (value * 255.0).round() as u8
    };
    Rgb(part(0.0), part(8.0), part(4.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ink_has_a_variable() {
        let plain = [Ink::Card, Ink::Text, Ink::Soft, Ink::Rule, Ink::Sea, Ink::Land, Ink::Mark];
        for ink in plain.into_iter().chain((0..2 * SERIES).map(Ink::Series)) {
            let name = ink.variable();
            assert!(VARIABLES.iter().any(|(known, _, _)| *known == name), "{name}");
            assert!(css().contains(&format!("--{name}:#")));
        }
        assert_eq!(Ink::Series(1).light().to_string(), "#d2691e");
        assert_eq!(Ink::Series(SERIES).light(), Ink::Series(0).light());
        assert!(css().contains("--site:") && css().contains("--way:"));
    }

    #[test]
    fn hues_become_the_colours_of_css() {
        assert_eq!(hsl(0, (100, 50)), Rgb(255, 0, 0));
        assert_eq!(hsl(120, (100, 25)), Rgb(0, 128, 0));
        assert_eq!(hsl(240, (50, 75)), Rgb(159, 159, 223));
        assert_eq!(hsl(300, (0, 50)), Rgb(128, 128, 128));
        assert_ne!(Ink::Site(0).light(), Ink::Site(1).light());
    }
}
