//! The unique id: root address and secret in 128 bytes, as `nvshmemx_uniqueid_t` has, to hand to all ranks.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..8 | `SHUNTUID` |
//! | 8..10 | version, big-endian |
//! | 10 | 4 or 6: kind of address |
//! | 11 | 0 |
//! | 12..14 | port, big-endian |
//! | 14..30 | address; an IPv4 address takes the first four |
//! | 30..62 | secret |
//! | 62..120 | 0 |
//! | 120..128 | first bytes of BLAKE2s of all before |

use super::address::RootAddress;
use super::error::{JoinError, UniqueIdError};
use super::interface::{InterfaceSpec, own_address};
use super::secret::{Secret, hex};
use blake2::{Blake2s256, Digest};
use std::fmt;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::str::FromStr;

/// Length of a unique id.
pub const LENGTH: usize = 128;
/// Version of its layout.
pub const VERSION: u16 = 1;
const MAGIC: &[u8; 8] = b"SHUNTUID";
const SUM: usize = 120;

/// Where the root listens, and the secret of its job.
#[derive(Clone, PartialEq, Eq)]
pub struct UniqueId {
    root: SocketAddr,
    secret: Secret,
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UniqueId({}, ..)", self.root)
    }
}

fn sum(bytes: &[u8]) -> [u8; 8] {
    let hash: [u8; 32] = Blake2s256::digest(bytes).into();
    hash[..8].try_into().expect("eight of 32")
}

impl UniqueId {
    /// A job's id: binds a port on the interface of `spec`, else that of the default route, else another that is up.
    /// The listener belongs in [`JoinOptions::listener`](super::JoinOptions) of rank 0, in this process.
    pub fn create(spec: Option<&InterfaceSpec>) -> Result<(Self, TcpListener), JoinError> {
        let ip = own_address(spec)?;
        let failed = |error: std::io::Error| JoinError::Listen {
            root: SocketAddr::new(ip, 0).to_string(),
            detail: error.to_string(),
        };
        let listener = TcpListener::bind((ip, 0)).map_err(failed)?;
        let root = listener.local_addr().map_err(failed)?;
        Ok((Self::new(root, Secret::random()?), listener))
    }

    /// The id of a root that listens at `root`.
    pub fn new(root: SocketAddr, secret: Secret) -> Self {
        Self { root, secret }
    }

    /// Where the root listens.
    pub fn root(&self) -> RootAddress {
        self.root.into()
    }

    /// A soft fabric for the processes of one machine that have this id.
    pub fn fabric(&self) -> String {
        format!("uid-{}", hex(&self.to_bytes()[SUM..]))
    }

    /// The job's secret.
    pub fn secret(&self) -> Secret {
        self.secret.clone()
    }

    /// Its bytes. They hold the secret.
    pub fn to_bytes(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_be_bytes());
        bytes[12..14].copy_from_slice(&self.root.port().to_be_bytes());
        match self.root.ip() {
            IpAddr::V4(ip) => {
                bytes[10] = 4;
                bytes[14..18].copy_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                bytes[10] = 6;
                bytes[14..30].copy_from_slice(&ip.octets());
            }
        }
        bytes[30..62].copy_from_slice(self.secret.key());
        let sum = sum(&bytes[..SUM]);
        bytes[SUM..].copy_from_slice(&sum);
        bytes
    }

    /// From its bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, UniqueIdError> {
        let length = UniqueIdError::Length { met: bytes.len(), want: LENGTH, unit: "bytes" };
        let bytes: &[u8; LENGTH] = bytes.try_into().map_err(|_| length)?;
        if &bytes[..8] != MAGIC {
            return Err(UniqueIdError::Magic);
        }
        let version = u16::from_be_bytes([bytes[8], bytes[9]]);
        if version != VERSION {
            return Err(UniqueIdError::Version { met: version, want: VERSION });
        }
        if bytes[SUM..] != sum(&bytes[..SUM]) {
            return Err(UniqueIdError::Checksum);
        }
        let octets: [u8; 16] = bytes[14..30].try_into().expect("sixteen");
        let ip = match bytes[10] {
            4 if octets[4..] == [0; 12] => IpAddr::from([octets[0], octets[1], octets[2], octets[3]]),
            6 => IpAddr::from(octets),
            _ => return Err(UniqueIdError::Field { field: "address" }),
        };
        let port = u16::from_be_bytes([bytes[12], bytes[13]]);
        if port == 0 {
            return Err(UniqueIdError::Field { field: "port" });
        }
        if bytes[11] != 0 || bytes[62..SUM] != [0; SUM - 62] {
            return Err(UniqueIdError::Field { field: "reserved" });
        }
        let key: [u8; 32] = bytes[30..62].try_into().expect("32");
        Ok(Self::new(SocketAddr::new(ip, port), Secret::from_key(key)))
    }

    /// As text, for a variable or a file. It holds the secret.
    pub fn to_text(&self) -> String {
        hex(&self.to_bytes())
    }
}

impl FromStr for UniqueId {
    type Err = UniqueIdError;

    fn from_str(text: &str) -> Result<Self, UniqueIdError> {
        let text = text.trim();
        if let Some(at) = text.chars().position(|c| !c.is_ascii_hexdigit()) {
            return Err(UniqueIdError::Digit { at });
        }
        if text.len() != 2 * LENGTH {
            return Err(UniqueIdError::Length { met: text.len(), want: 2 * LENGTH, unit: "digits" });
        }
        let nibble = |digit: u8| (digit as char).to_digit(16).expect("checked above") as u8;
        let bytes: Vec<u8> =
            text.as_bytes().chunks(2).map(|pair| nibble(pair[0]) << 4 | nibble(pair[1])).collect();
        Self::from_bytes(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ids() -> impl Strategy<Value = UniqueId> {
        let ip =
            prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)];
        (ip, 1u16.., any::<[u8; 32]>())
            .prop_map(|(ip, port, key)| UniqueId::new(SocketAddr::new(ip, port), Secret::from_key(key)))
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(id in ids()) {
            prop_assert_eq!(&UniqueId::from_bytes(&id.to_bytes()).unwrap(), &id);
            prop_assert_eq!(&id.to_text().to_uppercase().parse::<UniqueId>().unwrap(), &id);
        }

        #[test]
        fn one_flipped_bit_is_noticed(id in ids(), bit in 0..LENGTH * 8) {
            let mut bytes = id.to_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(UniqueId::from_bytes(&bytes).is_err());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(UniqueId::from_bytes(&bytes).is_err());
        }

        #[test]
        fn any_body_under_a_right_sum_is_read_or_refused(mut bytes in any::<[u8; 62]>(), kind in 3u8..8) {
            bytes[..10].copy_from_slice(b"SHUNTUID\0\x01");
            bytes[10] = kind;
            let mut all = [0; LENGTH];
            all[..62].copy_from_slice(&bytes);
            let sum = sum(&all[..SUM]);
            all[SUM..].copy_from_slice(&sum);
            if let Ok(id) = UniqueId::from_bytes(&all) {
                prop_assert_eq!(id.to_bytes(), all);
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}|[0-9a-f]{254,258}") {
            prop_assert!(text.parse::<UniqueId>().is_err());
        }
    }

    #[test]
    fn the_secret_is_not_printed() {
        let id = UniqueId::new("10.0.0.1:7".parse().unwrap(), Secret::from_key([0xab; 32]));
        assert_eq!(format!("{id:?}"), "UniqueId(10.0.0.1:7, ..)");
        assert_eq!(id.root().to_string(), "10.0.0.1:7");
    }

    #[test]
    fn a_made_id_is_listened_at() {
        let (id, listener) = UniqueId::create(Some(&"lo".parse().unwrap()))
            .unwrap_or_else(|_| UniqueId::create(None).unwrap());
        assert_eq!(listener.local_addr().unwrap().to_string(), id.root().to_string());
    }

    #[test]
    fn refusals_say_what_is_wrong() {
        let good = UniqueId::new("10.0.0.1:7".parse().unwrap(), Secret::from_key([1; 32])).to_bytes();
        let mut other = good;
        other[9] = 2;
        assert_eq!(UniqueId::from_bytes(&other), Err(UniqueIdError::Version { met: 2, want: 1 }));
        let short = UniqueId::from_bytes(&good[1..]).unwrap_err().to_string();
        assert!(short.contains("128 bytes, got 127"), "{short}");
        assert_eq!("0g".parse::<UniqueId>(), Err(UniqueIdError::Digit { at: 1 }));
    }
}
