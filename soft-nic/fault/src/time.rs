//! Times as people write them: `20us`, `1.5ms`, `3s`. Exact: no time passes through a float.

/// What a time looks like, for errors.
pub(crate) const WANTED: &str = "a time like 10ms (ns, us, ms, s, m)";

/// Longest time that reads: 31 years, so that sums of times fit.
const MAX_NS: u128 = 1_000_000_000_000_000_000;

/// Units by name; `ns`, `us` and `ms` first because they end like `s`.
const UNITS: [(&str, u64); 5] =
    [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000), ("m", 60_000_000_000)];

/// Reads `1.5ms`. A bare number is refused, its unit would be a guess; `0` needs none. What is below a nanosecond is
/// refused: it cannot happen.
pub fn parse_time(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let (number, unit) = UNITS.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |part: &str| {
        (1..=18).contains(&part.len()).then_some(())?;
        part.bytes().all(|byte| byte.is_ascii_digit()).then_some(())?;
        part.parse::<u128>().ok()
    };
    let scaled = digits(fraction)? * u128::from(unit);
    // Behind the look at how many digits there are: 40 of them are no power of ten that fits.
    let parts = 10u128.pow(fraction.len() as u32);
    if !scaled.is_multiple_of(parts) {
        return None;
    }
    let nanoseconds = digits(whole)? * u128::from(unit) + scaled / parts;
    (nanoseconds <= MAX_NS).then_some(nanoseconds as u64)
}

/// Writes a time in the largest unit that needs no fraction.
pub fn format_time(nanoseconds: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    match units.iter().find(|(scale, _)| nanoseconds != 0 && nanoseconds.is_multiple_of(*scale)) {
        Some((scale, unit)) => format!("{}{unit}", nanoseconds / scale),
        None => format!("{nanoseconds}ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times() {
        for (text, ns) in [
            ("1.5ms", 1_500_000),
            ("20us", 20_000),
            ("3s", 3_000_000_000),
            ("2m", 120_000_000_000),
            ("0.25us", 250),
            ("0", 0),
            ("1000000000s", 1_000_000_000_000_000_000),
        ] {
            assert_eq!(parse_time(text), Some(ns), "{text}");
        }
        for text in ["", "3", "ms", "5h", "-1ms", "+1ms", "1e3ms", ".5ms", "5.ms", "1.2.3ms", "0.5ns", "nans"]
        {
            assert_eq!(parse_time(text), None, "{text}");
        }
        let long = format!("0.{}s", "1".repeat(40));
        assert_eq!(parse_time(&long), None, "{long}");
        for text in ["1000000001s", "99999999999999999999ns", "9999999999999999999999999999999999999999999s"]
        {
            assert_eq!(parse_time(text), None, "{text}");
        }
        assert_eq!(format_time(1_500_000), "1500us");
        assert_eq!(format_time(0), "0ns");
    }

    proptest! {
        #[test]
        fn a_time_survives_its_text(ns in 0..=MAX_NS as u64, shift in 0u32..60) {
            let ns = ns >> shift;
            prop_assert_eq!(parse_time(&format_time(ns)), Some(ns));
        }

        #[test]
        fn fractions_are_exact(whole in 0u64..1_000_000, thousandths in 0u64..1000) {
            let text = format!("{whole}.{thousandths:03}us");
            prop_assert_eq!(parse_time(&text), Some(whole * 1000 + thousandths));
        }
    }
}
