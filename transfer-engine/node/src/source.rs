//! What carries the packets: found before anybody waits for it.

use crate::error::NoNode;
use shunt::OpenNics;
use shunt::choice::{software, through_libibverbs};
use shunt::machine::{Found, Rails};
use shunt_settings::{ConfigError, Lookup, NicKind, parse_duration};

/// What a program asks of its NICs.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// What carries the packets.
    pub nic: NicKind,
    /// Rails of each end.
    pub rails: u32,
    /// Rate of each rail in Gb/s, of NICs in software.
    pub soft_gbps: f64,
}

/// What `SHUNT_GIVE_UP` holds, if it is set.
pub(crate) fn give_up_ns() -> Result<Option<u64>, ConfigError> {
    Lookup(&|name| std::env::var(name).ok()).parse("SHUNT_GIVE_UP", parse_duration)
}

/// What it comes to here.
pub struct Source {
    pub(crate) wish: Wish,
    pub(crate) found: Found,
}

impl Source {
    /// Looks for what is asked for. Nothing is left open.
    ///
    /// # Errors
    /// It is not there.
    pub fn find(wish: Wish) -> Result<Self, NoNode> {
        give_up_ns().map_err(|error| NoNode::Refused(error.to_string()))?;
        let lookup = |name: &str| std::env::var(name).ok();
        let found = Found::find(wish.nic, Rails::Exactly(wish.rails), &lookup)?;
        Ok(Self { wish, found })
    }

    /// Whether they are RDMA devices of libibverbs.
    pub fn are_devices(&self) -> bool {
        matches!(self.found, Found::Mlx5(_))
    }

    /// Whether NICs fail on request: those in software.
    pub fn fail_on_request(&self) -> bool {
        match &self.found {
            Found::Soft(_) => true,
            Found::Mlx5(ports) => ports.is_interposed(),
        }
    }

    /// What a rail carries in Gb/s, if it is known. Soft NICs behind libibverbs move what the cores give them, whatever
    /// rate their ports name.
    pub fn rail_gbps(&self, nics: &OpenNics) -> Option<f64> {
        match &self.found {
            Found::Soft(_) => Some(self.wish.soft_gbps),
            Found::Mlx5(_) if nics.are_soft() => None,
            Found::Mlx5(ports) => Some(ports.ports().slowest_gbps()).filter(|gbps| *gbps > 0.0),
        }
    }

    /// What all ends must have alike.
    pub(crate) fn name(&self) -> &'static str {
        if self.are_devices() { "RDMA devices" } else { "NICs in software" }
    }

    /// What the NICs are that so many ends of this machine share, a line each. Software that was asked for needs none.
    pub(crate) fn lines(&self, ends: usize) -> Vec<String> {
        match &self.found {
            Found::Soft(_) if self.wish.nic == NicKind::Soft => Vec::new(),
            Found::Soft(why) => vec![software(why)],
            Found::Mlx5(ports) => {
                let notes = ports.ports().notes().iter().cloned();
                notes.chain([through_libibverbs(&ports.devices(ends))]).collect()
            }
        }
    }
}
