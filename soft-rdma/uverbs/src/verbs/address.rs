//! Where packets go: address paths, and address handles.

use super::invocation::Core;
use super::pd::Pd;
use crate::abi::Plain;
use crate::abi::ids::HANDLE;
use crate::abi::mlx5::CreateAhResponse;
use crate::abi::uverbs::{CreateAh, Destination};
use crate::ioctl::{Call, Context, Resource};
use rustix::io::Errno;
use shunt_layout::mlx5::prm::qp::ads;
use shunt_soft_machine::devices::Nic;
use shunt_soft_nic::NicConfig;
use shunt_soft_nic::config::mac_of;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// The only port.
pub const PORT: u8 = 1;
/// Lowest UDP source port of RoCE v2.
const FIRST_UDP_PORT: u32 = 0xc000;

/// The MAC that a GID is reached by. There is nobody to ask: soft NICs have MACs that follow from their addresses.
pub fn mac(nic: &Nic, gid: [u8; 16]) -> Result<[u8; 6], Errno> {
    let address = u128::from_be_bytes(gid);
    if address >> 32 == 0xffff {
        let address = Ipv4Addr::from(address as u32);
        let own = nic.gid(0).map(|own| Ipv4Addr::from(u128::from_be_bytes(own.gid) as u32));
        // As we were given ours, so were they.
        if own.is_some_and(|own| mac_of(own) == nic.mac()) {
            return Ok(mac_of(address));
        }
        let [_, rail, high, low] = address.octets();
        let number = (high as u32 * 254 + low as u32).checked_sub(1).ok_or(Errno::NETUNREACH)?;
        let config = NicConfig::new("", number, rail as u32);
        return if config.gid == gid { Ok(config.mac) } else { Err(Errno::NETUNREACH) };
    }
    // A link-local address holds the MAC.
    if address >> 64 == 0xfe80 << 48 && gid[11..13] == [0xff, 0xfe] {
        return Ok([gid[8] ^ 2, gid[9], gid[10], gid[13], gid[14], gid[15]]);
    }
    Err(Errno::NETUNREACH)
}

/// Writes an address path into a context.
pub fn set_path(nic: &Nic, path: &mut [u8], to: &Destination, qpns: [u32; 2]) -> Result<(), Errno> {
    // There is nothing but GIDs on Ethernet.
    if to.is_global == 0 || to.port != PORT && to.port != 0 {
        return Err(Errno::INVAL);
    }
    nic.gid(to.sgid_index as u32).ok_or(Errno::INVAL)?;
    let [a, b, c, d, e, f] = mac(nic, to.gid)?;
    ads::SRC_ADDR_INDEX.set(path, to.sgid_index as u32);
    ads::HOP_LIMIT.set(path, to.hop_limit as u32);
    ads::TCLASS.set(path, to.traffic_class as u32);
    ads::FLOW_LABEL.set(path, to.flow_label & 0xf_ffff);
    ads::set_rgid(path, to.gid);
    ads::DSCP.set(path, to.traffic_class as u32 >> 2);
    ads::UDP_SPORT.set(path, udp_port(to.flow_label & 0xf_ffff, qpns));
    ads::ETH_PRIO.set(path, to.sl as u32 & 7);
    ads::VHCA_PORT_NUM.set(path, PORT as u32);
    ads::RMAC_47_32.set(path, u16::from_be_bytes([a, b]) as u32);
    ads::RMAC_31_0.set(path, u32::from_be_bytes([c, d, e, f]));
    Ok(())
}

/// The UDP source port of a connection: from the flow label, or from both numbers, so that both ends agree.
fn udp_port(flow_label: u32, [ours, theirs]: [u32; 2]) -> u32 {
    let label = if flow_label != 0 {
        flow_label
    } else {
        let product = ours as u64 * theirs as u64;
        ((product ^ product >> 20 ^ product >> 40) & 0xf_ffff) as u32
    };
    FIRST_UDP_PORT | (label & 0x3fff) ^ (label >> 14)
}

/// An address handle: it is the library's, but counts here.
pub struct Ah {
    pd: Arc<Pd>,
}

impl Resource for Ah {
    fn destroy(&self, _: &Context) -> Result<(), Errno> {
        self.pd.release();
        Ok(())
    }
}

/// CREATE_AH: the library wants to know the MAC.
pub fn create(context: &Context, core: &mut Core) -> Result<(), Errno> {
    let request: CreateAh = core.request()?;
    core.check_room::<u32>()?;
    if request.is_global == 0 || request.port != PORT {
        return Err(Errno::INVAL);
    }
    let nic = context.nic();
    nic.gid(request.route[0] as u32).ok_or(Errno::INVAL)?;
    let (mac, pd) = (mac(nic, request.gid)?, context.get::<Pd>(request.pd)?);
    let meant = std::mem::offset_of!(CreateAhResponse, reserved) as u32;
    core.driver_reply(CreateAhResponse { response_length: meant, mac, reserved: [0; 6] }.bytes())?;
    pd.hold();
    core.reply(&context.insert(Arc::new(Ah { pd })))
}

/// Destroy.
pub fn destroy(context: &Context, call: &mut Call) -> Result<(), Errno> {
    context.destroy::<Ah>(call.handle(HANDLE)?).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_ports_are_in_the_range_and_the_same_at_both_ends() {
        for (ours, theirs) in [(0x40, 0x41), (1, 0xff_ffff), (0xabcdef, 0x123456)] {
            let port = udp_port(0, [ours, theirs]);
            assert_eq!(port, udp_port(0, [theirs, ours]));
            assert!((0xc000..=0xffff).contains(&port), "{port:#x}");
        }
        assert!((0xc000..=0xffff).contains(&udp_port(0xf_ffff, [1, 2])));
        assert_ne!(udp_port(1, [1, 2]), udp_port(2, [1, 2]));
    }
}
