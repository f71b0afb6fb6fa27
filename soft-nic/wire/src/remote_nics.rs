//! NICs of other processes: their numbers, what is under way to each, and which of them are full.

use crate::congestion::{Charge, Window};
use crate::packet::{ELSEWHERE, NO_ROUTE};
use crate::uplink::AddressId;
use std::collections::{HashMap, HashSet};

/// The first number of a NIC of another process.
const FIRST: u32 = 1 << 31;
/// NICs of other processes at most. More is a mistake that must not eat the memory.
const MOST: usize = 1 << 20;

/// A NIC of another process, or nobody's address.
#[derive(Clone, Copy, Debug)]
pub struct RemoteNic {
    /// What is under way to it, if the uplink loses what is too much.
    window: Option<Window>,
    /// Its GID, or LID.
    pub address: u128,
    /// Its MAC, as a number; 0 on InfiniBand.
    pub mac: u64,
    id: Option<AddressId>,
    full: bool,
}

/// NICs of other processes, by number.
#[derive(Default)]
pub struct RemoteNics {
    attached: bool,
    /// Packets that may be under way to one NIC, if the uplink says so.
    window: Option<u32>,
    /// A window opened: those who were refused may try again.
    opened: bool,
    list: Vec<RemoteNic>,
    numbers: HashMap<(u128, u64), u32>,
    /// Addresses that were ours: nobody has them now.
    left: HashSet<u128>,
}

impl RemoteNics {
    /// Nobody known yet, behind an uplink that lets as many packets be under way to one NIC.
    pub fn behind(window: Option<u32>) -> Self {
        Self { attached: true, window, ..Self::default() }
    }

    /// The number of a NIC of another process; [`NO_ROUTE`] where there is no way to any.
    pub fn number(&mut self, address: u128, mac: u64) -> u32 {
        if !self.attached || self.left.contains(&address) {
            return NO_ROUTE;
        }
        if let Some(known) = self.numbers.get(&(address, mac)) {
            return *known;
        }
        if self.list.len() >= MOST {
            return NO_ROUTE;
        }
        let number = FIRST + self.list.len() as u32;
        let window = self.window.map(Window::new);
        self.list.push(RemoteNic { window, address, mac, id: None, full: false });
        self.numbers.insert((address, mac), number);
        number
    }

    /// True for the number of a NIC of another process.
    #[inline]
    pub fn holds(number: u32) -> bool {
        (FIRST..ELSEWHERE).contains(&number)
    }

    /// True if there are windows.
    #[inline]
    pub fn is_windowed(&self) -> bool {
        self.window.is_some()
    }

    /// The window of a NIC, if it has one.
    pub fn window(&mut self, number: u32) -> Option<&mut Window> {
        let at = Self::holds(number).then(|| (number - FIRST) as usize)?;
        self.list.get_mut(at)?.window.as_mut()
    }

    /// True while nothing more should be sent to a NIC, whatever its number.
    #[inline]
    pub fn is_full(&self, number: u32) -> bool {
        Self::holds(number) && self.list.get((number - FIRST) as usize).is_some_and(|remote| remote.full)
    }

    /// An address that is no longer ours.
    pub fn leave(&mut self, address: u128) {
        self.left.insert(address);
    }

    /// An address that is ours (again).
    pub fn enter(&mut self, address: u128) {
        self.left.remove(&address);
    }

    /// Takes in what a queue pair has under way now.
    pub fn settle(&mut self, charge: &mut Charge, to: u32, packets: u32) {
        if charge.to != to {
            self.change(*charge, 0);
            *charge = Charge { to, packets: 0 };
        }
        if charge.packets != packets {
            self.change(*charge, packets);
            charge.packets = packets;
        }
    }

    fn change(&mut self, charge: Charge, packets: u32) {
        if let Some(window) = self.window(charge.to) {
            let opened = window.change(charge.packets, packets);
            self.opened |= opened;
        }
    }

    /// What nobody waits for any more.
    pub fn release(&mut self, charge: Charge) {
        self.change(charge, 0);
    }

    /// Packets to a NIC were lost.
    pub fn lost_some(&mut self, number: u32, now: u64) {
        if let Some(window) = self.window(number) {
            window.cut(now);
        }
    }

    /// True once if a window opened: those who were refused may try again.
    pub fn take_opened(&mut self) -> bool {
        std::mem::take(&mut self.opened)
    }

    /// Where a NIC is, and the number that the uplink has for its address, which `ask` finds once.
    pub fn uplink_address(
        &mut self,
        number: u32,
        ask: impl FnOnce(u128) -> AddressId,
    ) -> Option<(AddressId, &RemoteNic)> {
        let remote = self.list.get_mut(number.checked_sub(FIRST)? as usize)?;
        let id = *remote.id.get_or_insert_with(|| ask(remote.address));
        Some((id, remote))
    }

    /// Learns from `is_full` which NICs are full. True if one no longer is.
    pub fn learn_full(&mut self, is_full: impl Fn(AddressId) -> bool) -> bool {
        let mut resumed = false;
        for remote in &mut self.list {
            let full = remote.id.is_some_and(&is_full);
            resumed |= remote.full && !full;
            remote.full = full;
        }
        resumed
    }
}
