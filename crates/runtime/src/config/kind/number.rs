//! Numbers with a range: counts, spans of time, sizes.
//!
//! A value outside its range is refused with the range, never clamped.

use std::time::Duration;

use super::Kind;

/// Units of time, longest first.
const TIME_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
/// Units of size, largest first.
const SIZE_UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// A whole number.
#[derive(Debug)]
pub struct Count {
    /// The smallest.
    pub min: u64,
    /// The largest.
    pub max: u64,
}

impl Kind for Count {
    type Value = u64;

    fn read(&self, text: &str) -> Result<u64, String> {
        in_range(digits(text).ok_or("is not a whole number")?, self.min, self.max)
    }

    fn accepted(&self) -> String {
        format!("a whole number from {} to {}", self.min, self.max)
    }
}

/// A span of time: digits and a unit (`250ms`, `10s`, `5m`, `2h`, `7d`), or milliseconds without one.
#[derive(Debug)]
pub struct Span {
    /// The shortest, in milliseconds.
    pub min_ms: u64,
    /// The longest, in milliseconds.
    pub max_ms: u64,
    /// What zero means, when it is accepted although it is below the shortest.
    pub zero_means: Option<&'static str>,
}

impl Kind for Span {
    type Value = Duration;

    fn read(&self, text: &str) -> Result<Duration, String> {
        let millis = with_unit(text, &TIME_UNITS).ok_or("is not a duration")?;
        if millis == 0 && self.zero_means.is_some() {
            return Ok(Duration::ZERO);
        }
        in_range(millis, self.min_ms, self.max_ms).map(Duration::from_millis)
    }

    fn accepted(&self) -> String {
        let (min, max) = (in_units(self.min_ms, &TIME_UNITS), in_units(self.max_ms, &TIME_UNITS));
        let zero = self.zero_means.map(|meaning| format!("; 0 means {meaning}")).unwrap_or_default();
        format!("a duration from {min} to {max} (250ms, 10s, 5m, 2h, 7d; without a unit: milliseconds){zero}")
    }
}

/// A size: digits and a unit (`512KiB`, `12MiB`, `1GiB`, `1TiB`), or bytes without one.
#[derive(Debug)]
pub struct Bytes {
    /// The smallest, in bytes.
    pub min: u64,
    /// The largest, in bytes; `u64::MAX` for none.
    pub max: u64,
}

impl Kind for Bytes {
    type Value = u64;

    fn read(&self, text: &str) -> Result<u64, String> {
        in_range(with_unit(text, &SIZE_UNITS).ok_or("is not a size")?, self.min, self.max)
    }

    fn accepted(&self) -> String {
        let min = in_units(self.min, &SIZE_UNITS);
        let range = match self.max {
            u64::MAX => format!("of at least {min}"),
            max => format!("from {min} to {}", in_units(max, &SIZE_UNITS)),
        };
        format!("a size {range} (512KiB, 12MiB, 1GiB; without a unit: bytes)")
    }
}

/// The size in its largest whole unit: `12MiB`.
pub(crate) fn bytes_text(bytes: u64) -> String {
    in_units(bytes, &SIZE_UNITS)
}

/// `str::parse` would take a plus sign.
fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit {
        "" => 1,
        unit => units.iter().find(|(name, _)| *name == unit)?.1,
    };
    digits(number)?.checked_mul(factor)
}

fn in_units(value: u64, units: &[(&str, u64)]) -> String {
    let (name, factor) = units
        .iter()
        .find(|(_, factor)| value >= *factor && value.is_multiple_of(*factor))
        .unwrap_or(&units[units.len() - 1]);
    format!("{}{name}", value / factor)
}

fn in_range(value: u64, min: u64, max: u64) -> Result<u64, String> {
    if (min..=max).contains(&value) { Ok(value) } else { Err("is out of range".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: &str = "is out of range";

    #[test]
    fn counts_are_whole_numbers_in_their_range() {
        let kind = Count { min: 1, max: 1024 };
        let number = "is not a whole number";
        for (text, expected) in [
            ("1", Ok(1)),
            ("1024", Ok(1024)),
            ("0", Err(RANGE)),
            ("1025", Err(RANGE)),
            ("-1", Err(number)),
            ("+4", Err(number)),
            ("4.0", Err(number)),
            ("1e3", Err(number)),
            ("NaN", Err(number)),
            ("99999999999999999999", Err(number)),
        ] {
            assert_eq!(kind.read(text), expected.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn spans_have_a_unit_or_are_milliseconds() {
        let kind = Span { min_ms: 100, max_ms: 30 * 86_400_000, zero_means: Some("for ever") };
        let span = "is not a duration";
        for (text, expected) in [
            ("250ms", Ok(250)),
            ("250", Ok(250)),
            ("10s", Ok(10_000)),
            ("5m", Ok(300_000)),
            ("2h", Ok(7_200_000)),
            ("7d", Ok(604_800_000)),
            ("0", Ok(0)),
            ("0d", Ok(0)),
            ("99ms", Err(RANGE)),
            ("31d", Err(RANGE)),
            ("10 s", Err(span)),
            ("10S", Err(span)),
            ("s", Err(span)),
            ("-1s", Err(span)),
            ("1.5s", Err(span)),
            ("999999999999999999d", Err(span)),
        ] {
            assert_eq!(kind.read(text), expected.map(Duration::from_millis).map_err(str::to_owned), "{text}");
        }
        assert_eq!(Span { zero_means: None, ..kind }.read("0"), Err(RANGE.to_owned()));
    }

    #[test]
    fn sizes_have_a_binary_unit_or_are_bytes() {
        let kind = Bytes { min: 1024, max: 1 << 40 };
        let size = "is not a size";
        for (text, expected) in [
            ("1024", Ok(1024)),
            ("1KiB", Ok(1024)),
            ("12MiB", Ok(12 << 20)),
            ("1GiB", Ok(1 << 30)),
            ("1TiB", Ok(1 << 40)),
            ("2048B", Ok(2048)),
            ("1023", Err(RANGE)),
            ("2TiB", Err(RANGE)),
            ("12MB", Err(size)),
            ("12mib", Err(size)),
            ("12 MiB", Err(size)),
            ("99999999TiB", Err(size)),
        ] {
            assert_eq!(kind.read(text), expected.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn values_are_shown_in_their_largest_whole_unit() {
        assert_eq!(in_units(90_000, &TIME_UNITS), "90s");
        assert_eq!(in_units(7 * 86_400_000, &TIME_UNITS), "7d");
        assert_eq!(in_units(0, &TIME_UNITS), "0ms");
        assert_eq!(bytes_text(12 << 20), "12MiB");
        assert_eq!(bytes_text(1_500), "1500B");
    }
}
