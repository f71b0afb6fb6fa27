//! Sizes, durations, rates and switches as people write them, and back.

use clap::ValueEnum;
use std::borrow::Cow;
use std::ops::RangeInclusive;

/// A switch.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnOff {
    /// Yes
    On,
    /// No
    Off,
}

/// What was given and what is expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{want}, got {met:?}")]
pub struct BadUnit {
    /// The text as given.
    pub met: String,
    /// What is expected.
    pub want: Cow<'static, str>,
}

const SIZE: &str = "expected a whole number of bytes, or one with K, M or G (powers of 1024), such as 64K";
const TIME: &str = "expected a number with a unit ns, us, ms, s or m, such as 500ms";
const COUNT: &str = "expected a whole number from 0 to 18446744073709551615";
const SIZE_LARGE: &str = "expected less than 2^64 bytes";
const TIME_LARGE: &str = "expected at most 370 days";
const GBPS: &str = "expected a number of Gb/s from 0.01 to 800";

fn bad(met: &str, want: impl Into<Cow<'static, str>>) -> BadUnit {
    BadUnit { met: met.to_owned(), want: want.into() }
}

/// Splits `text` where its number ends.
fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    text.split_at(end)
}

/// `64K`, `4M`, `4MiB`, `1024`: bytes.
pub fn parse_size(text: &str) -> Result<u64, BadUnit> {
    let (number, unit) = split(text);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err(bad(text, SIZE)),
    };
    if number.is_empty() || number.contains('.') {
        return Err(bad(text, SIZE));
    }
    // Digits alone fail for one reason.
    let number: u64 = number.parse().map_err(|_| bad(text, SIZE_LARGE))?;
    number.checked_mul(1 << shift).ok_or_else(|| bad(text, SIZE_LARGE))
}

/// A whole number.
pub fn parse_count(text: &str) -> Result<u64, BadUnit> {
    text.parse().map_err(|_| bad(text, COUNT))
}

/// Reads a whole number of this range: a parser for clap, whose own say `1..=8` or quote Rust.
pub fn whole(range: RangeInclusive<u32>) -> impl Fn(&str) -> Result<u32, BadUnit> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let (least, most) = (range.start(), range.end());
        number.ok_or_else(|| bad(text, format!("expected a whole number from {least} to {most}")))
    }
}

/// The rate of a rail, in Gb/s.
pub fn parse_gbps(text: &str) -> Result<f64, BadUnit> {
    text.parse().ok().filter(|rate| (0.01..=800.0).contains(rate)).ok_or_else(|| bad(text, GBPS))
}

/// `3s`, `500ms`, `1.5s`: nanoseconds. `0` needs no unit.
pub fn parse_time(text: &str) -> Result<u64, BadUnit> {
    let (number, unit) = split(text);
    let scale = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "" if number == "0" => 1.0,
        _ => return Err(bad(text, TIME)),
    };
    let number: f64 = number.parse().map_err(|_| bad(text, TIME))?;
    let nanoseconds = number * scale;
    // A year is longer than any run and far from where f64 loses nanoseconds that matter.
    if nanoseconds > 3.2e16 { Err(bad(text, TIME_LARGE)) } else { Ok(nanoseconds.round() as u64) }
}

/// Bytes with the suffix that makes them shortest.
pub fn show_size(bytes: u64) -> String {
    for (shift, unit) in [(30, "G"), (20, "M"), (10, "K")] {
        if bytes >= 1 << shift && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Nanoseconds in a unit that keeps the number readable.
pub fn show_time(nanoseconds: u64) -> String {
    match nanoseconds {
        0..=9_999 => format!("{nanoseconds} ns"),
        10_000..=9_999_999 => format!("{:.1} us", nanoseconds as f64 / 1e3),
        10_000_000..=9_999_999_999 => format!("{:.1} ms", nanoseconds as f64 / 1e6),
        _ => format!("{:.2} s", nanoseconds as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_range_and_rates() {
        let rails = whole(1..=8);
        assert_eq!((rails("1"), rails("8")), (Ok(1), Ok(8)));
        for text in ["0", "9", "-1", "many", "", "4294967296", "1.5"] {
            let error = rails(text).unwrap_err().to_string();
            assert_eq!(error, format!("expected a whole number from 1 to 8, got {text:?}"));
        }
        assert_eq!((parse_gbps("0.01"), parse_gbps("800")), (Ok(0.01), Ok(800.0)));
        for text in ["0", "nan", "inf", "801", "fast", "-4", ""] {
            assert_eq!(parse_gbps(text).unwrap_err().to_string(), format!("{GBPS}, got {text:?}"));
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [("8", 8), ("64K", 65_536), ("4MiB", 4 << 20), ("1g", 1 << 30), ("0", 0)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "1.5K", "-1", "8x", "99999999999999999999", "18446744073709551615G"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert_eq!((show_size(65_536), show_size(1000)), ("64K".to_owned(), "1000".to_owned()));
    }

    #[test]
    fn times() {
        for (text, ns) in
            [("3s", 3_000_000_000), ("0", 0), ("1.5ms", 1_500_000), ("50us", 50_000), ("1m", 60_000_000_000)]
        {
            assert_eq!(parse_time(text), Ok(ns), "{text}");
        }
        for text in ["", "3", "ms", "-1s", "1h", "1..2s", "1e9s", "999999999999s"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
        for text in ["99999999999999s", "1000000000m"] {
            assert_eq!(parse_time(text).unwrap_err().want, TIME_LARGE, "{text}");
        }
        assert_eq!(show_time(1_234_567), "1234.6 us");
    }
}
