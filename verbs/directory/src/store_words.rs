//! What processes and the store tell each other. Pure. The first byte is the kind; GID and number of a queue pair
//! follow, and the name of its process.

/// A queue pair: GID and number.
pub type End = ([u8; 16], u32);

/// A message to the store, or from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The first of a connection.
    Hello,
    /// A queue pair is this process's, which listens there. It is until the connection ends.
    Put(End, String),
    /// It is not any more.
    Remove(End),
    /// Whose is it?
    Get(End),
    /// The answer: nobody's, if the name is empty.
    Is(End, String),
}

/// A message as bytes.
pub fn encode(said: &Said) -> Vec<u8> {
    let put = |kind: u8, (gid, qpn): &End, name: &str| {
        [&[kind][..], gid, &qpn.to_be_bytes(), name.as_bytes()].concat()
    };
    match said {
        Said::Hello => vec![0],
        Said::Put(end, name) => put(1, end, name),
        Said::Remove(end) => put(2, end, ""),
        Said::Get(end) => put(3, end, ""),
        Said::Is(end, name) => put(4, end, name),
    }
}

/// Reads a message; none if it is not one.
pub fn decode(bytes: &[u8]) -> Option<Said> {
    let (kind, rest) = bytes.split_first()?;
    if *kind == 0 {
        return rest.is_empty().then_some(Said::Hello);
    }
    let (gid, rest) = rest.split_first_chunk::<16>()?;
    let (qpn, name) = rest.split_first_chunk::<4>()?;
    let end = (*gid, u32::from_be_bytes(*qpn));
    let name = std::str::from_utf8(name).ok()?.to_owned();
    match (kind, name.is_empty()) {
        (1, false) => Some(Said::Put(end, name)),
        (2, true) => Some(Said::Remove(end)),
        (3, true) => Some(Said::Get(end)),
        (4, _) => Some(Said::Is(end, name)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_read_and_nothing_else() {
        let end = ([7; 16], 0x1234);
        let name = || "10.0.0.1:7700".to_owned();
        let all = [
            Said::Hello,
            Said::Put(end, name()),
            Said::Remove(end),
            Said::Get(end),
            Said::Is(end, name()),
            Said::Is(end, String::new()),
        ];
        for said in all {
            let bytes = encode(&said);
            assert_eq!(decode(&bytes), Some(said.clone()));
            assert_ne!(decode(&bytes[..bytes.len() - 1]), Some(said));
        }
        assert_eq!(decode(&encode(&Said::Put(end, String::new()))), None, "nobody's");
        assert_eq!(decode(&[9; 40]), None);
        assert_eq!(decode(b""), None);
    }
}
