//! One rank: its kernels go through layers, its proxy moves what they ask for, and everything is checked.

use crate::buffers::Buffers;
use crate::check::{Check, Seen};
use crate::failure::Failure;
use crate::ground::Ground;
use crate::kernel::Kernel;
use crate::model::Model;
use crate::plan::What;
use crate::proxy::Proxy;
use crate::words::{Step, Words, number};
use shunt_transfer::Node;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A step that takes longer has failed. It is less than what ranks wait for each other at their end.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// A kernel waits so much longer for the proxy than that does for the others.
const LONGER: Duration = Duration::from_secs(5);
/// Layers whose immediates are counted at the end.
const COUNTED: u64 = 1000;

/// Where a layer is, for those who look at the memory in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Rows are packed, and nothing is sent.
    Packed,
    /// All rows are there, and none was read.
    Arrived,
    /// What experts made is packed, and nothing is sent.
    Made,
    /// All of it came back, and none was read.
    Returned,
    /// All of it was read, and the others are not told.
    Read,
}

/// Looks at the memory of a rank at a point of a layer, or changes it: a test that the check notices.
pub type Look<'a> = dyn FnMut(Point, u64, &Node, &Ground) + 'a;

/// How long a layer took at a rank, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// From the first word to the last row.
    pub dispatch_ns: u64,
    /// From the first word to the last value.
    pub combine_ns: u64,
    /// All of it.
    pub layer_ns: u64,
}

/// What came of a rank.
#[derive(Debug, Default)]
pub struct Ran {
    /// What it saw.
    pub seen: Seen,
    /// How long each layer took.
    pub times: Vec<Times>,
    /// Layers that began while a rail of this rank did not work.
    pub layers_rail_down: u64,
    /// Why it did not go on.
    pub failure: Option<Failure>,
}

/// A rank that is ready.
pub struct Rank {
    node: Arc<Node>,
    rails: u32,
    ground: Arc<Ground>,
    words: Arc<Words>,
    kernel: Kernel,
    check: Check,
    proxy: Proxy,
}

impl Rank {
    /// Takes memory, tells the others of it, and starts the proxy. All ranks call it.
    ///
    /// # Errors
    /// There is no memory, or a rank does not answer.
    pub fn new(node: Arc<Node>, rails: u32, buffers: Buffers) -> Result<Self, Failure> {
        let ground = Arc::new(Ground::new(&node, buffers)?);
        let words = Arc::new(Words::default());
        let check = Check::new(ground.clone(), node.end())?;
        let kernel = Kernel::new(ground.clone(), node.end());
        let proxy = Proxy::start(node.clone(), ground.clone(), words.clone(), PATIENCE)?;
        // Memory is marked before anyone writes into it.
        node.exchange(&[])?;
        Ok(Self { node, rails, ground, words, kernel, check, proxy })
    }

    /// Its memory.
    pub fn ground(&self) -> Arc<Ground> {
        self.ground.clone()
    }

    /// Goes through layers, from 1 on, with `each` called after each one.
    pub fn layers(mut self, model: &Model, layers: u64, look: &mut Look<'_>, each: &dyn Fn(u64)) -> Ran {
        let mut ran = Ran::default();
        for layer in 1..=layers {
            match self.layer(model, layer, layer == layers, look) {
                Ok((times, is_down)) => {
                    ran.times.push(times);
                    ran.layers_rail_down += u64::from(is_down);
                    each(layer);
                }
                Err(failure) => {
                    // The proxy's own failure is the first, if there is one.
                    self.proxy.fail(failure.clone());
                    ran.failure = Some(self.words.failure().unwrap_or(failure));
                    break;
                }
            }
        }
        ran.seen = self.check.seen;
        ran
    }

    fn ask(&self, layer: u64, step: Step) -> Result<u64, Failure> {
        let (since, number) = (Instant::now(), number(layer, step));
        self.words.ask(number);
        self.words.wait(number, PATIENCE + LONGER)?;
        Ok(since.elapsed().as_nanos() as u64)
    }

    fn layer(
        &mut self,
        model: &Model,
        layer: u64,
        is_last: bool,
        look: &mut Look<'_>,
    ) -> Result<(Times, bool), Failure> {
        let (rank, node, ground) = (self.node.end() as usize, self.node.clone(), self.ground.clone());
        let mut look = |point| look(point, layer, &node, &ground);
        let is_down = self.is_rail_down()?;
        let (since, case) = (Instant::now(), model.case(layer));
        self.kernel.dispatch_send(layer, &case.x[rank], &case.topk_index[rank])?;
        look(Point::Packed);
        let dispatch_ns = self.ask(layer, Step::Dispatch)?;
        look(Point::Arrived);
        let received = self.kernel.dispatch_receive()?;
        self.check.dispatch(model, layer, &received)?;
        self.kernel.combine_send(&received)?;
        look(Point::Made);
        let combine_ns = self.ask(layer, Step::Combine)?;
        look(Point::Returned);
        let sums = self.kernel.combine_receive(&case.topk_weights[rank])?;
        self.check.combine(model, layer, &sums, self.kernel.own_rows())?;
        look(Point::Read);
        self.check.end(layer, is_last)?;
        self.ask(layer, Step::End)?;
        let layer_ns = since.elapsed().as_nanos() as u64;
        Ok((Times { dispatch_ns, combine_ns, layer_ns }, is_down))
    }

    fn is_rail_down(&self) -> Result<bool, Failure> {
        let mut working = BTreeSet::new();
        for other in (0..self.node.ends()).filter(|other| *other != self.node.end()) {
            working.extend(self.node.rails_to(other)?.into_iter().map(|(local, _)| local));
        }
        Ok((working.len() as u32) < self.rails)
    }
}

/// Immediates of the last layers that came once too often: all that were awaited are taken, so none may be left.
///
/// # Errors
/// The engine is closed.
pub fn doubled(node: &Node, layers: u64) -> Result<u64, Failure> {
    let mut doubled = 0;
    for other in (0..node.ends()).filter(|other| *other != node.end()) {
        for layer in layers.saturating_sub(COUNTED) + 1..=layers {
            for what in What::ALL {
                doubled += node.counter(other, what.imm(layer))?;
            }
        }
    }
    Ok(doubled)
}
