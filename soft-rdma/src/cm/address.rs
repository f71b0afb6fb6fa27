//! Addresses as programs give them: IPv4, or IPv6 that stands for it.

use rustix::io::Errno;
use std::net::{Ipv4Addr, Ipv6Addr};

const INET: u16 = libc::AF_INET as u16;
const INET6: u16 = libc::AF_INET6 as u16;
/// InfiniBand's own addresses.
pub const IB: u16 = 27;

/// Bytes of each kind of address.
pub const INET_BYTES: usize = size_of::<libc::sockaddr_in>();
const INET6_BYTES: usize = size_of::<libc::sockaddr_in6>();
/// Bytes of an address of InfiniBand.
pub const IB_BYTES: usize = 48;

/// An address and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// It was given as IPv6, and is told so.
    pub is_v6: bool,
    /// The address; unspecified is any.
    pub ip: Ipv4Addr,
    /// The port; 0 is any.
    pub port: u16,
}

impl Name {
    /// Any address and port.
    pub const ANY: Self = Self { is_v6: false, ip: Ipv4Addr::UNSPECIFIED, port: 0 };

    /// The address in a structure of sockets. `None` where its family is none.
    pub fn read(bytes: &[u8]) -> Result<Option<Self>, Errno> {
        let family = bytes.first_chunk().map(|family| u16::from_ne_bytes(*family)).ok_or(Errno::INVAL)?;
        match family {
            0 => Ok(None),
            INET if bytes.len() >= INET_BYTES => {
                let ip = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
                Ok(Some(Self { is_v6: false, ip, port: u16::from_be_bytes([bytes[2], bytes[3]]) }))
            }
            INET6 if bytes.len() >= INET6_BYTES => {
                let octets: [u8; 16] = std::array::from_fn(|at| bytes[8 + at]);
                let ip = match Ipv6Addr::from(octets) {
                    Ipv6Addr::UNSPECIFIED => Ipv4Addr::UNSPECIFIED,
                    Ipv6Addr::LOCALHOST => Ipv4Addr::LOCALHOST,
                    ip => ip.to_ipv4_mapped().ok_or(Errno::ADDRNOTAVAIL)?,
                };
                Ok(Some(Self { is_v6: true, ip, port: u16::from_be_bytes([bytes[2], bytes[3]]) }))
            }
            _ => Err(Errno::INVAL),
        }
    }

    /// The structure of sockets.
    pub fn write(self) -> Vec<u8> {
        let family = if self.is_v6 { INET6 } else { INET };
        let mut bytes = [family.to_ne_bytes(), self.port.to_be_bytes()].concat();
        match (self.is_v6, self.ip) {
            (false, ip) => bytes.extend(ip.octets()),
            (true, ip) => {
                let is_any = ip.is_unspecified();
                let ip = if is_any { Ipv6Addr::UNSPECIFIED } else { ip.to_ipv6_mapped() };
                bytes.extend([0; 4]);
                bytes.extend(ip.octets());
            }
        }
        bytes.resize(if self.is_v6 { INET6_BYTES } else { INET_BYTES }, 0);
        bytes
    }

    /// Any address of this machine: no single NIC is named.
    pub fn is_open(self) -> bool {
        self.ip.is_unspecified() || self.ip.is_loopback()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for is_v6 in [false, true] {
            for ip in [Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(10, 1, 0, 3)] {
                let name = Name { is_v6, ip, port: 7174 };
                assert_eq!(Name::read(&name.write()), Ok(Some(name)));
            }
        }
        let mut local = [0; INET6_BYTES];
        local[..2].copy_from_slice(&INET6.to_ne_bytes());
        local[23] = 1;
        let name = Name { is_v6: true, ip: Ipv4Addr::LOCALHOST, port: 0 };
        assert_eq!(Name::read(&local), Ok(Some(name)));
        assert!(name.is_open());
        local[8] = 0xfe;
        assert_eq!(Name::read(&local), Err(Errno::ADDRNOTAVAIL), "no NIC has such an address");
        assert_eq!(Name::read(&[0; 16]), Ok(None));
        assert_eq!(Name::read(&IB.to_ne_bytes()), Err(Errno::INVAL));
        assert_eq!(Name::read(&INET.to_ne_bytes()), Err(Errno::INVAL), "it is cut");
        assert_eq!(Name::read(&[]), Err(Errno::INVAL));
    }
}
