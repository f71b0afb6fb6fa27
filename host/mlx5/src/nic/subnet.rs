//! What an InfiniBand port's own tables say, and what of it a connection takes. Pure.

pub use crate::devx::SubnetPort;

/// Full membership, in a P_Key. IBTA volume 1, 10.9.3: two limited members do not hear each other.
const FULL: u16 = 0x8000;

/// The MTU code of connections over a port: one that is in use there.
pub(super) fn mtu(port: &SubnetPort) -> Option<u32> {
    (1..=5).contains(&port.mtu).then_some(port.mtu)
}

/// Index of the partition key that connections carry: the first of full membership, else the first that is none of the
/// invalid ones (base of 0). `None`: there is none.
pub(super) fn pkey_index(pkeys: &[u16]) -> Option<u16> {
    if pkeys.is_empty() {
        return Some(0);
    }
    let valid = |key: &u16| key & !FULL != 0;
    let at = pkeys.iter().position(|key| valid(key) && key & FULL != 0);
    at.or_else(|| pkeys.iter().position(valid)).map(|at| at as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_partition_is_one_that_all_hear() {
        for (pkeys, want) in [
            (&[][..], Some(0)),
            (&[0xffff], Some(0)),
            (&[0x7fff, 0x8001], Some(1)),
            (&[0, 0x8000, 0x0002], Some(2)),
            (&[0, 0x8000], None),
        ] {
            assert_eq!(pkey_index(pkeys), want, "{pkeys:x?}");
        }
    }

    #[test]
    fn the_mtu_is_that_in_use() {
        let port = |mtu| SubnetPort { mtu, gid: None, pkeys: Vec::new() };
        assert_eq!([0, 1, 4, 5, 6].map(|code| mtu(&port(code))), [None, Some(1), Some(4), Some(5), None]);
    }
}
