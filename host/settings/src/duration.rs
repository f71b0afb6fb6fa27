//! Durations as the environment writes them. Pure.

/// A duration in nanoseconds: `0`, or a whole or decimal number with a unit.
pub fn parse_duration(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let units = [("ns", 1u64), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000), ("m", 60_000_000_000)];
    let (number, unit) = units.iter().find_map(|(name, ns)| Some((text.strip_suffix(name)?, *ns)))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty()
        || !digits(whole)
        || !digits(fraction)
        || (number.contains('.') && fraction.is_empty())
    {
        return None;
    }
    let mut ns = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    let mut scale = unit;
    for digit in fraction.bytes() {
        // What is below a nanosecond cannot happen: dropping it silently would be another duration.
        if (scale == 0 || !scale.is_multiple_of(10)) && digit != b'0' {
            return None;
        }
        scale /= 10;
        ns = ns.checked_add(u64::from(digit - b'0') * scale)?;
    }
    Some(ns)
}

/// A duration within bounds.
pub fn within(range: std::ops::RangeInclusive<u64>) -> impl Fn(&str) -> Option<u64> {
    move |text| parse_duration(text).filter(|ns| range.contains(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let cases = [
            ("0", 0),
            ("7ns", 7),
            ("30us", 30_000),
            ("0.5ms", 500_000),
            ("2s", 2_000_000_000),
            ("1.5m", 90_000_000_000),
        ];
        for (text, ns) in cases {
            assert_eq!(parse_duration(text), Some(ns), "{text}");
        }
        for text in [
            "",
            "s",
            "1",
            "1.s",
            ".5s",
            "1e3s",
            "99999999999999s",
            "1 ms",
            "+1s",
            "1.001ns",
            "1.00000000001m",
        ] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
