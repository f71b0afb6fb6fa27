//! Where an end is, as it is sent to others.

use super::rails::Draw;
use crate::error::TransferError;
use shunt_mlx5::descriptor::RailCard;
use shunt_mlx5::rail::Rail;
use shunt_recovery::links::PeerAddress;
use shunt_recovery::links::envelope::qkey;
use shunt_wire::{CardError, Reader, Writer};
use std::sync::Arc;

const MAGIC: u32 = 0x5445_4101;

/// How other ends reach these rails.
pub fn address(rails: &[Arc<Rail>], draw: &Draw) -> PeerAddress {
    PeerAddress {
        rails: rails.iter().map(|rail| rail.card()).collect(),
        datagrams: rails.iter().map(|rail| rail.datagram_qpn()).collect(),
        qkey: qkey(draw),
    }
}

/// An address as bytes.
pub fn address_to_bytes(address: &PeerAddress) -> Vec<u8> {
    let mut writer = Writer::header(MAGIC);
    writer.u32(address.qkey);
    writer.u32(address.rails.len() as u32);
    for (rail, qpn) in address.rails.iter().zip(&address.datagrams) {
        rail.write(&mut writer);
        writer.u32(*qpn);
    }
    writer.finish()
}

/// Reads one.
///
/// # Errors
/// The bytes are none of this version.
pub fn address_from_bytes(bytes: &[u8]) -> Result<PeerAddress, TransferError> {
    read(bytes).map_err(|error| {
        let (what, want) = ("address", "one of a transfer engine of this version");
        TransferError::Refused { what, want, met: error.to_string() }
    })
}

fn read(bytes: &[u8]) -> Result<PeerAddress, CardError> {
    let mut reader = Reader::header(bytes, "address of a transfer engine", MAGIC)?;
    let qkey = reader.u32("qkey")?;
    let (mut rails, mut datagrams) = (Vec::new(), Vec::new());
    for _ in 0..reader.count("rails", RailCard::BYTES + 4)? {
        rails.push(RailCard::read(&mut reader)?);
        datagrams.push(reader.u32("datagram queue pair")?);
    }
    reader.end()?;
    Ok(PeerAddress { rails, datagrams, qkey })
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_mlx5::nic::caps::Link;

    #[test]
    fn an_address_is_read_whole_or_not_at_all() {
        let rail = |index| RailCard {
            index,
            link: Link::Ethernet,
            mtu: 3,
            lid: 0,
            mac: [2; 6],
            gid: [7; 16],
            name: *b"mlx5_1\0\0\0\0\0\0\0\0\0\0",
        };
        let address = PeerAddress { rails: vec![rail(0), rail(1)], datagrams: vec![5, 6], qkey: 9 };
        let bytes = address_to_bytes(&address);
        assert_eq!(address_from_bytes(&bytes).ok(), Some(address));
        for cut in 0..bytes.len() {
            assert!(address_from_bytes(&bytes[..cut]).is_err(), "cut to {cut} bytes");
        }
        assert!(address_from_bytes(&[&bytes[..], &[0]].concat()).is_err(), "too long");
    }
}
