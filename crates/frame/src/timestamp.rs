//! Timestamps as RFC 3339 writes them, to and from milliseconds since 1970 (UTC).

/// Milliseconds since 1970 of an RFC 3339 timestamp, rounded down; `None` if the text is not one.
///
/// `T` and `Z` may be lower case; a blank instead of the `T` is refused, as CloudEvents has it. A leap second
/// (`:60`) is accepted where UTC can have one, in the last minute of a day, and counts as the second after
/// it. Years are 0000…9999, so an instant before 1970 is negative.
pub fn parse_timestamp(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let (fixed, rest) = bytes.split_at_checked(19)?;
    let separators = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if separators.iter().any(|&(at, separator)| fixed[at] != separator) || !matches!(fixed[10], b'T' | b't') {
        return None;
    }
    let (year, month, day) = (number(&fixed[..4])?, number(&fixed[5..7])?, number(&fixed[8..10])?);
    let (hour, minute, second) = (number(&fixed[11..13])?, number(&fixed[14..16])?, number(&fixed[17..19])?);
    if !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (milliseconds, zone) = fraction(rest)?;
    let offset_minutes = match zone {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let (hours, minutes) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            (hours * 60 + minutes) * if *sign == b'-' { -1 } else { 1 }
        }
        _ => return None,
    };
    let utc_minutes = days_since_1970(year, month, day) * 1440 + hour * 60 + minute - offset_minutes;
    if second == 60 && utc_minutes.rem_euclid(1440) != 1439 {
        return None;
    }
    Some((utc_minutes * 60 + second) * 1000 + milliseconds)
}

/// The instant as RFC 3339 text in UTC with milliseconds, such as `2026-07-01T09:30:00.250Z`.
///
/// Instants after the year 9999, which RFC 3339 cannot write, give the last millisecond of it.
pub fn format_timestamp(milliseconds_since_1970: u64) -> String {
    const LAST: u64 = 253_402_300_799_999;
    let instant = milliseconds_since_1970.min(LAST).cast_signed();
    let (days, rest) = (instant / 86_400_000, instant % 86_400_000);
    let (year, month, day) = date_of(days);
    let (hour, minute, second) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60);
    let millisecond = rest % 1000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
}

/// The number that these ASCII digits write.
fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0')))
}

/// Splits `[.digits]zone` into milliseconds and zone.
fn fraction(rest: &[u8]) -> Option<(i64, &[u8])> {
    let Some((b'.', rest)) = rest.split_first() else { return Some((0, rest)) };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    let shown = number(&rest[..digits.min(3)])?;
    let scale = [100, 10, 1][digits.min(3) - 1];
    Some((shown * scale, &rest[digits..]))
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days from 1970-01-01 in the Gregorian calendar. Years are counted from March, which puts the leap day at
/// their end.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// The date that is this many days, not negative, after 1970-01-01.
fn date_of(days: i64) -> (i64, i64, i64) {
    // Within a day or two of the right year from the mean length of one; then step.
    let mut year = 1970 + days * 400 / 146_097;
    while days_since_1970(year, 1, 1) > days {
        year -= 1;
    }
    while days_since_1970(year + 1, 1, 1) <= days {
        year += 1;
    }
    let mut day = days - days_since_1970(year, 1, 1) + 1;
    let mut month = 1;
    while day > days_in_month(year, month) {
        day -= days_in_month(year, month);
        month += 1;
    }
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rfc_3339_timestamps_are_read() {
        let cases = [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("1969-12-31T23:59:59.999Z", Some(-1)),
            ("2018-04-05T17:31:00Z", Some(1_522_949_460_000)),
            ("2018-04-26T14:48:09+02:00", Some(1_524_746_889_000)),
            ("2020-02-29t00:00:00.5z", Some(1_582_934_400_500)),
            ("2020-02-29T00:00:00.123456789-00:00", Some(1_582_934_400_123)),
            ("2016-12-31T23:59:60Z", Some(1_483_228_800_000)),
            ("2017-01-01T00:59:60+01:00", Some(1_483_228_800_000)),
            ("0000-01-01T00:00:00Z", Some(-62_167_219_200_000)),
            ("9999-12-31T23:59:59.999Z", Some(253_402_300_799_999)),
            ("2016-12-31T12:00:60Z", None),
            ("2019-02-29T00:00:00Z", None),
            ("2020-13-01T00:00:00Z", None),
            ("2020-00-01T00:00:00Z", None),
            ("2020-01-00T00:00:00Z", None),
            ("2020-01-01T24:00:00Z", None),
            ("2020-01-01T00:60:00Z", None),
            ("2020-01-01T00:00:00", None),
            ("2020-01-01T00:00:00.Z", None),
            ("2020-01-01T00:00:00+24:00", None),
            ("2020-01-01T00:00:00+0100", None),
            ("2020-01-01 00:00:00Z", None),
            ("2020-01-01", None),
            ("2020-1-1T00:00:00Z", None),
            ("+020-01-01T00:00:00Z", None),
            ("2020-01-01T00:00:00ZZ", None),
            ("20é0-01-01T00:00:00Z", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_timestamp(text), expected, "{text}");
        }
    }

    #[test]
    fn a_written_timestamp_reads_as_the_same_instant() {
        assert_eq!(format_timestamp(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(format_timestamp(1_582_934_400_123), "2020-02-29T00:00:00.123Z");
        assert_eq!(format_timestamp(u64::MAX), "9999-12-31T23:59:59.999Z");
        for day in 0..200 * 366_u64 {
            let instant = day * 86_400_000 + 1;
            assert_eq!(parse_timestamp(&format_timestamp(instant)), Some(instant.cast_signed()));
        }
    }
}
