//! What nodes say to each other over their connection. Pure.

use crate::rails::Address;

/// A random number that no other process has.
pub(crate) type Id = [u8; 16];

const HELLO: u8 = 1;
const AGENT: u8 = 2;
const BYE: u8 = 3;

/// Who a node is, as it says itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The process.
    pub id: Id,
    /// What both call their relation, if the sender knows of one.
    pub relation: Option<Id>,
    /// The port at which it is reached.
    pub port: u16,
    /// Its rails.
    pub address: Address,
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

/// A message as bytes.
pub(super) fn encode(said: &Said) -> Vec<u8> {
    match said {
        Said::Hello(hello) => {
            let Hello { id, relation, port, address } = &**hello;
            let relation = relation.map_or([0; 17], |relation| {
                let mut known = [1; 17];
                known[1..].copy_from_slice(&relation);
                known
            });
            [&[HELLO][..], id, &relation, &port.to_be_bytes(), &address.to_bytes()].concat()
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
            let (port, rest) = rest.split_first_chunk::<2>().ok_or_else(unknown)?;
            let relation = match relation.split_first() {
                Some((1, relation)) => relation.try_into().ok(),
                _ => None,
            };
            let address = Address::from_bytes(rest)?;
            let port = u16::from_be_bytes(*port);
            Ok(Said::Hello(Box::new(Hello { id: *id, relation, port, address })))
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
        for relation in [None, Some([7; 16])] {
            let hello = Hello { id: [3; 16], relation, port: 7800, address: address.clone() };
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
}
