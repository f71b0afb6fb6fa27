//! Parsers of what sysfs files hold. Pure; bad text is `None`, never a panic.

use std::cmp::Ordering;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A GID: 128 bits, written as sysfs does, eight groups of four hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// Reads eight groups of one to four digits, none left out.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 16];
        let mut groups = text.split(':');
        for pair in bytes.chunks_exact_mut(2) {
            let group = groups.next()?;
            if group.len() > 4 {
                return None;
            }
            pair.copy_from_slice(&(hex(group)? as u16).to_be_bytes());
        }
        groups.next().is_none().then_some(Self(bytes))
    }

    /// Whether the table's entry is empty.
    pub fn is_zero(&self) -> bool {
        self.0 == [0; 16]
    }

    /// The IPv4 address of a RoCE GID made from one (`::ffff:a.b.c.d`).
    pub fn ipv4(&self) -> Option<Ipv4Addr> {
        Ipv6Addr::from(self.0).to_ipv4_mapped()
    }

    /// Whether it is made from the MAC address alone: link local, not routed.
    pub fn is_link_local(&self) -> bool {
        self.0[0] == 0xfe && self.0[1] & 0xc0 == 0x80
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

/// A GUID, written as sysfs does: four groups of four hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Guid(pub u64);

impl Guid {
    /// Reads four groups of four digits.
    pub fn parse(text: &str) -> Option<Self> {
        let mut value = 0;
        let mut groups = text.split(':');
        for _ in 0..4 {
            let group = groups.next().filter(|group| group.len() == 4)?;
            value = value << 16 | u64::from(hex(group)?);
        }
        groups.next().is_none().then_some(Self(value))
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = |shift: u32| self.0 >> shift & 0xffff;
        write!(f, "{:04x}:{:04x}:{:04x}:{:04x}", group(48), group(32), group(16), group(0))
    }
}

/// A port's rate: `400 Gb/sec (4X NDR)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rate {
    /// In Mb/s, so that 2.5 Gb/s is a whole number.
    pub mbps: u32,
    /// What stands in brackets: lanes and speed.
    pub lanes: String,
}

impl Rate {
    /// Reads `NUMBER Gb/sec`, with a fraction of one digit at most, and what may follow in brackets.
    pub fn parse(text: &str) -> Option<Self> {
        let (number, rest) = text.split_once(' ')?;
        let rest = rest.strip_prefix("Gb/sec")?.trim();
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        if fraction.len() != 1 {
            return None;
        }
        let mbps = decimal(whole)?.checked_mul(1000)?.checked_add(decimal(fraction)? * 100)?;
        let lanes = match rest {
            "" => "",
            _ => rest.strip_prefix('(')?.strip_suffix(')')?,
        };
        Some(Self { mbps, lanes: lanes.to_owned() })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mbps % 1000 {
            0 => write!(f, "{} Gb/s", self.mbps / 1000),
            rest => write!(f, "{}.{} Gb/s", self.mbps / 1000, rest / 100),
        }
    }
}

/// A number in hexadecimal digits, with or without `0x`, of 32 bits at most.
pub(crate) fn hex(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let right = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    right.then(|| u32::from_str_radix(digits, 16).ok())?
}

/// A number in decimal digits alone.
pub(crate) fn decimal(text: &str) -> Option<u32> {
    let right = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    right.then(|| text.parse().ok())?
}

/// Order of names by their parts: digits as numbers, so that `mlx5_2` comes before `mlx5_10`.
pub fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (parts(a).into_iter(), parts(b).into_iter());
    loop {
        match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, _) => return Ordering::Less,
            (_, None) => return Ordering::Greater,
            (Some(a), Some(b)) => match order_of_parts(a, b) {
                Ordering::Equal => {}
                order => return order,
            },
        }
    }
}

fn parts(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut start = 0;
    for (at, pair) in text.as_bytes().windows(2).enumerate() {
        if pair[0].is_ascii_digit() != pair[1].is_ascii_digit() {
            out.push(&text[start..at + 1]);
            start = at + 1;
        }
    }
    out.push(&text[start..]);
    out
}

fn order_of_parts(a: &str, b: &str) -> Ordering {
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit()) && !s.is_empty();
    if digits(a) && digits(b) {
        let (short_a, short_b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
        let by_value = short_a.len().cmp(&short_b.len()).then_with(|| short_a.cmp(short_b));
        return by_value.then_with(|| a.len().cmp(&b.len()));
    }
    a.cmp(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn gids() {
        let mapped = Gid::parse("0000:0000:0000:0000:0000:ffff:0a00:0001").unwrap();
        assert_eq!((mapped.to_string().as_str(), mapped.is_link_local()), ("::ffff:10.0.0.1", false));
        assert_eq!(mapped.ipv4(), Some(Ipv4Addr::new(10, 0, 0, 1)));
        let local = Gid::parse("fe80:0000:0000:0000:a288:c2ff:fe3d:3f7a").unwrap();
        assert!(local.is_link_local() && local.ipv4().is_none());
        for bad in
            ["", "fe80::1", "0:0:0:0:0:0:0", "0:0:0:0:0:0:0:0:0", "0:0:0:0:0:0:0:g", "00000:0:0:0:0:0:0:0"]
        {
            assert_eq!(Gid::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn rates() {
        let ndr = Rate::parse("400 Gb/sec (4X NDR)").unwrap();
        assert_eq!((ndr.mbps, ndr.lanes.as_str(), ndr.to_string().as_str()), (400_000, "4X NDR", "400 Gb/s"));
        assert_eq!(Rate::parse("2.5 Gb/sec (1X SDR)").unwrap().to_string(), "2.5 Gb/s");
        assert_eq!(Rate::parse("100 Gb/sec").unwrap().lanes, "");
        for bad in ["", "400", "400 Mb/sec", "x Gb/sec", "4.25 Gb/sec", "4294968 Gb/sec", "400 Gb/sec (4X"] {
            assert_eq!(Rate::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_in_the_order_people_expect() {
        let mut names = ["mlx5_10", "mlx5_2", "mlx5_1", "mlx5_bond_0", "ibp24s0", "mlx5_02"];
        names.sort_by(|a, b| natural_order(a, b));
        assert_eq!(names, ["ibp24s0", "mlx5_1", "mlx5_2", "mlx5_02", "mlx5_10", "mlx5_bond_0"]);
    }

    proptest! {
        #[test]
        fn gids_come_back(bytes: [u8; 16]) {
            let text: Vec<String> =
                bytes.chunks(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1])).collect();
            prop_assert_eq!(Gid::parse(&text.join(":")), Some(Gid(bytes)));
        }

        #[test]
        fn guids_come_back(value: u64) {
            prop_assert_eq!(Guid::parse(&Guid(value).to_string()), Some(Guid(value)));
        }

        #[test]
        fn any_text_is_a_value_or_none(text in "\\PC{0,40}|[0-9a-fx:. ()GXb/sec]{0,40}") {
            let _ = (Gid::parse(&text), Guid::parse(&text), Rate::parse(&text), hex(&text), decimal(&text));
        }

        #[test]
        fn natural_order_is_an_order(a in "[a-b0-2_é]{0,6}", b in "[a-b0-2_é]{0,6}", c in "[a-b0-2_é]{0,6}") {
            prop_assert_eq!(natural_order(&a, &b), natural_order(&b, &a).reverse());
            prop_assert_eq!(natural_order(&a, &b) == Ordering::Equal, a == b);
            if natural_order(&a, &b).is_le() && natural_order(&b, &c).is_le() {
                prop_assert!(natural_order(&a, &c).is_le());
            }
        }
    }
}
