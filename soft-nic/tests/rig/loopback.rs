//! Addresses of the loopback network for NICs that speak RoCE v2: no two tests have the same.

use super::Rig;
use shunt_soft_nic::{NicConfig, RoceOptions, RoceUplink, UplinkError};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Two addresses that nobody else has, now.
pub fn addresses() -> [Ipv4Addr; 2] {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (process, pair) = (std::process::id(), NEXT.fetch_add(2, Ordering::Relaxed) as u8);
    // The upper bit of the third byte is what a `gid-change` changes.
    let [high, low] = [0x80 | (process >> 7) as u8, process as u8 & 0x7f];
    [pair + 1, pair + 2].map(|last| Ipv4Addr::new(127, high, low, last))
}

/// Options for tests: without a lifetime, so that nothing is lost however busy the machine is.
pub fn options(address: Ipv4Addr) -> RoceOptions {
    RoceOptions { lifetime: Duration::MAX, ..RoceOptions::new([address]) }
}

/// A PE with one NIC at an address, in a fabric of its own with an uplink.
pub fn rig(pe: u32, options: RoceOptions) -> Rig {
    try_rig(pe, options, |_| {}).unwrap()
}

pub fn try_rig(pe: u32, options: RoceOptions, adjust: impl Fn(&mut NicConfig)) -> Result<Rig, UplinkError> {
    let address = options.addresses[0];
    let uplink = RoceUplink::open(options)?;
    let mut rig = Rig::alone(pe, 1, |config| {
        let NicConfig { gid, mac, mtu, .. } = NicConfig::behind(&uplink, "", address);
        (config.gid, config.mac, config.mtu) = (gid, mac, mtu);
        adjust(config);
    });
    rig.fabric.attach(Box::new(uplink))?;
    Ok(rig)
}

/// A file that a capture is written to while the test looks at it.
#[derive(Clone, Default)]
pub struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The frames in a capture.
pub fn frames(capture: &[u8]) -> Vec<Vec<u8>> {
    // Ours has nanoseconds, others' may have microseconds.
    assert!([0xa1b2_3c4du32, 0xa1b2_c3d4].map(u32::to_le_bytes).contains(&capture[..4].try_into().unwrap()));
    let (mut frames, mut rest) = (Vec::new(), &capture[24..]);
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        frames.push(rest[16..16 + length].to_vec());
        rest = &rest[16 + length..];
    }
    frames
}
