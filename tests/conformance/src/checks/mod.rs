//! `shunt-verbs-check data`: every kind of transfer between two sides, every byte of both looked at.

mod bench;
mod errors;
mod streams;
mod transfers;

use crate::draw::Draw;
use crate::peer::Peer;
use crate::verbs::{Device, Region, Setup};
use anyhow::Result;
pub use bench::Row;
pub(crate) use bench::takes_receive;
use bench::{Bench, MEMORY};
use std::net::TcpStream;
use std::rc::Rc;

/// Sets both sides up and runs every check. `far` leads to a process or thread in [`crate::peer::serve`].
/// Each row is told as it comes.
pub fn run(setup: &Setup, far: TcpStream, seed: u64, tell: &mut dyn FnMut(Row)) -> Result<()> {
    let mut draw = Draw::new(seed);
    let device = Rc::new(Device::open(setup)?);
    let region = Region::new(&device, MEMORY, &mut draw)?;
    let peer = Peer::meet(far, MEMORY, draw.any())?;
    let mut bench = Bench { device, region, peer, draw, ids: 0 };
    transfers::run(&mut bench, tell)?;
    streams::run(&mut bench, tell)?;
    errors::run(&mut bench, tell)
}
