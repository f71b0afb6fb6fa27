//! What nodes say to each other over their connection. Pure.

use crate::rails::Address;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// A random number that no other process has.
pub(crate) type Id = [u8; 16];

const AGENT: u8 = 2;
const BYE: u8 = 3;
/// 1 was one that did not name the host, 4 one that did not say whom it is meant for.
const HELLO: u8 = 5;

/// Who a node is, as it says itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The process.
    pub id: Id,
    /// What both call their relation, if the sender knows of one.
    pub relation: Option<Id>,
    /// Who is to hear it, of one that dials a process that it knows. An address may lead to another one.
    pub meant: Option<Id>,
    /// The address at which it is reached. With none of a host it is any of its machine's.
    pub at: SocketAddr,
    /// Its rails.
    pub address: Address,
}

impl Hello {
    /// Where it is reached, as seen from who hears it over a connection from this host. An address of its own machine
    /// alone means nothing elsewhere.
    pub fn reached(&self, from: IpAddr) -> SocketAddr {
        let host = self.at.ip();
        let is_known = !host.is_unspecified() && (!host.is_loopback() || from.is_loopback());
        SocketAddr::new(if is_known { host } else { from }, self.at.port())
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// Who the sender is.
    Hello(Box<Hello>),
    /// Of an agent.
    Agent(Vec<u8>),
    /// The sender leaves, or has cut the other one off.
    Bye,
}

/// A number, if there is one.
fn perhaps(id: Option<Id>) -> [u8; 17] {
    id.map_or([0; 17], |id| {
        let mut known = [1; 17];
        known[1..].copy_from_slice(&id);
        known
    })
}

fn known(bytes: &[u8; 17]) -> Option<Id> {
    let (is_there, id) = bytes.split_first()?;
    (*is_there == 1).then(|| id.try_into().ok()).flatten()
}

/// A message as bytes.
pub(super) fn encode(said: &Said) -> Vec<u8> {
    match said {
        Said::Hello(hello) => {
            let Hello { id, relation, meant, at, address } = &**hello;
            let host = match at.ip() {
                IpAddr::V4(host) => host.to_ipv6_mapped(),
                IpAddr::V6(host) => host,
            };
            let (relation, meant) = (perhaps(*relation), perhaps(*meant));
            let port = at.port().to_be_bytes();
            [&[HELLO][..], id, &relation, &meant, &host.octets(), &port, &address.to_bytes()].concat()
        }
        Said::Agent(bytes) => [&[AGENT][..], bytes].concat(),
        Said::Bye => vec![BYE],
    }
}

/// Reads a message.
///
/// # Errors
/// It is none, in words.
pub(super) fn decode(bytes: &[u8]) -> Result<Said, String> {
    let unknown = || "a message of another version".to_owned();
    match bytes.split_first().ok_or_else(unknown)? {
        (&HELLO, rest) => {
            let (id, rest) = rest.split_first_chunk::<16>().ok_or_else(unknown)?;
            let (relation, rest) = rest.split_first_chunk::<17>().ok_or_else(unknown)?;
            let (meant, rest) = rest.split_first_chunk::<17>().ok_or_else(unknown)?;
            let (host, rest) = rest.split_first_chunk::<16>().ok_or_else(unknown)?;
            let (port, rest) = rest.split_first_chunk::<2>().ok_or_else(unknown)?;
            let host = Ipv6Addr::from_octets(*host).to_canonical();
            let (relation, meant) = (known(relation), known(meant));
            let address = Address::from_bytes(rest)?;
            let at = SocketAddr::new(host, u16::from_be_bytes(*port));
            Ok(Said::Hello(Box::new(Hello { id: *id, relation, meant, at, address })))
        }
        (&AGENT, rest) => Ok(Said::Agent(rest.to_vec())),
        (&BYE, []) => Ok(Said::Bye),
        _ => Err(unknown()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_transfer_engine::rc::PeerAddress;

    #[test]
    fn what_is_said_is_read_and_what_is_cut_short_is_not() {
        let address = Address::Rc(PeerAddress { rails: Vec::new(), datagrams: Vec::new(), qkey: 5 });
        let hosts = ["10.0.0.1:7800", "[2001:db8::1]:7800", "0.0.0.0:1"];
        let hosts = hosts.map(|at| at.parse::<SocketAddr>().expect("an address"));
        for (relation, at) in [None, Some([7; 16])].into_iter().flat_map(|of| hosts.map(|at| (of, at))) {
            let hello = Hello { id: [3; 16], relation, meant: relation, at, address: address.clone() };
            let said = Said::Hello(Box::new(hello));
            let bytes = encode(&said);
            assert_eq!(decode(&bytes), Ok(said));
            for cut in 0..bytes.len() {
                assert!(decode(&bytes[..cut]).is_err(), "cut to {cut} bytes");
            }
        }
        for said in [Said::Agent(vec![1, 2]), Said::Agent(Vec::new()), Said::Bye] {
            assert_eq!(decode(&encode(&said)), Ok(said));
        }
        assert!(decode(&[]).is_err() && decode(&[9]).is_err() && decode(&[BYE, 0]).is_err());
    }

    #[test]
    fn a_node_is_reached_where_it_says_unless_that_means_nothing_here() {
        let address = Address::Rc(PeerAddress { rails: Vec::new(), datagrams: Vec::new(), qkey: 5 });
        let reached = |at: &str, from: &str| {
            let at = at.parse().expect("an address");
            let hello = Hello { id: [3; 16], relation: None, meant: None, at, address: address.clone() };
            hello.reached(from.parse().expect("a host")).to_string()
        };
        assert_eq!(reached("10.0.0.1:7800", "10.0.0.9"), "10.0.0.1:7800");
        assert_eq!(reached("0.0.0.0:7800", "10.0.0.9"), "10.0.0.9:7800");
        assert_eq!(reached("127.0.0.1:7800", "10.0.0.9"), "10.0.0.9:7800");
        assert_eq!(reached("127.0.0.2:7800", "127.0.0.1"), "127.0.0.2:7800");
    }
}
