//! Options of connections (enhanced connection establishment): two queue pairs agree on them as programs do that find
//! each other by the RDMA connection manager.

use crate::checks::Row;
use crate::verbs::{Device, Queue, Setup, Shape};
use anyhow::Result;
use std::rc::Rc;

/// Mellanox at the PCI bus.
const VENDOR: u32 = 0x15b3;

/// The active end says what it can have, the passive end's device takes of it what it has, and the active end takes
/// that.
pub fn run(setup: &Setup, tell: &mut dyn FnMut(Row)) -> Result<()> {
    let mut row = Row::new("options of connections");
    let device = Rc::new(Device::open(setup)?);
    let [active, passive] = [Queue::new(&device, Shape::default())?, Queue::new(&device, Shape::default())?];
    let (vendor, has) = active.options()?;
    row.must(vendor == VENDOR, || format!("ibv_query_ece: vendor {vendor:#x}, not {VENDOR:#x}"));
    if has == 0 {
        let refused = passive.want_options(VENDOR, 0x2000_0001).is_err();
        row.must(refused, || "ibv_set_ece: a device without options took some".into());
    } else {
        passive.want_options(vendor, has)?;
        passive.connect(active.ends())?;
        let (_, taken) = passive.options()?;
        row.must(taken & !has & 0x0fff_ffff == 0 && taken >> 28 <= has >> 28, || {
            format!("options {taken:#x} of {has:#x} that were offered")
        });
        row.must(taken != 0, || format!("nothing of {has:#x}, which the same device offered"));
        active.want_options(vendor, taken)?;
        active.connect(passive.ends())?;
        let (_, met) = active.options()?;
        row.must(met == taken, || format!("the active end has {met:#x}, the passive one {taken:#x}"));
    }
    tell(row);
    Ok(())
}
