//! Median and spread of a few repetitions.

/// What remains of repeated measurements of one thing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Spread {
    /// `None` when nothing was measured.
    pub(super) fn of(samples: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut samples: Vec<f64> = samples.into_iter().collect();
        samples.sort_by(f64::total_cmp);
        let middle = samples.len() / 2;
        let median = if samples.len() % 2 == 1 {
            samples[middle]
        } else {
            (*samples.get(middle.checked_sub(1)?)? + samples[middle]) / 2.0
        };
        Some(Self { median, least: samples[0], most: samples[samples.len() - 1] })
    }

    /// `median (least–most)`, each number through `show`.
    pub(super) fn text(&self, show: impl Fn(f64) -> String) -> String {
        format!("{} ({}–{})", show(self.median), show(self.least), show(self.most))
    }
}

/// A whole number with thin groups of three digits.
pub(super) fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_two() {
        let spread = Spread::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!(spread, Spread { median: 2.0, least: 1.0, most: 3.0 });
        assert_eq!(Spread::of([4.0, 1.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of([7.0]).unwrap().median, 7.0);
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(grouped(7.0), "7");
        assert_eq!(grouped(1234.4), "1,234");
        assert_eq!(grouped(123_456.0), "123,456");
    }
}
