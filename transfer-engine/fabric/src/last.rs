//! What is left of a domain that was dropped: memory is let go once no endpoint is open that may place bytes there.

use crate::closing::Closing;
use crate::region::Region;
use shunt_mlx5::memory::OwnedSpan;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// No close takes so long. What is not closed by then keeps its memory for good.
const LONGEST: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(5);

/// It.
pub(crate) struct Last {
    /// By rail.
    pub closings: Vec<(u32, Closing)>,
    /// Rails on which an endpoint cannot be closed: it may still place bytes.
    pub aside: BTreeSet<u32>,
    /// By rail, and by key.
    pub regions: Vec<BTreeMap<u32, Region>>,
    /// Memory of regions whose keys were taken back, by rail.
    pub taken: Vec<(u32, Arc<OwnedSpan>)>,
}

impl Last {
    /// Lets all memory go, now or by a thread, which nobody waits for.
    pub fn let_go(mut self) {
        if self.is_over() {
            return;
        }
        let thread = std::thread::Builder::new().name("fabric-last".to_owned());
        // Without a thread it is dropped here: what is not closed keeps its memory.
        drop(thread.spawn(move || {
            let until = Instant::now() + LONGEST;
            while !self.is_over() && Instant::now() < until {
                std::thread::sleep(LOOK);
            }
        }));
    }

    /// True once every endpoint is closed, or failed to be.
    fn is_over(&mut self) -> bool {
        let Self { closings, aside, .. } = self;
        closings.retain_mut(|(rail, closing)| match closing.take(&mut Vec::new()) {
            None => true,
            Some(Ok(())) => false,
            Some(Err(_)) => {
                aside.insert(*rail);
                false
            }
        });
        closings.is_empty()
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        self.aside.extend(self.closings.iter().map(|(rail, _)| *rail));
        for (rail, regions) in (0..).zip(std::mem::take(&mut self.regions)) {
            if self.aside.contains(&rail) {
                std::mem::forget(regions);
            }
        }
        for (rail, memory) in std::mem::take(&mut self.taken) {
            if self.aside.contains(&rail) {
                std::mem::forget(memory);
            }
        }
    }
}
