//! A warp whose lanes are coroutines: collective calls really meet, and a lane that does not come is named.

use std::cell::RefCell;
use std::rc::Rc;

use shunt_device::platform::{Lanes, WarpLanes};

use crate::sim::{ActorOptions, Sim, SimWorld, Task};

/// Lanes wait for each other at most this long; device code's own deadlines are far below.
const MEET_MAX_NS: u64 = 20_000_000_000;
/// Lanes of the largest group: a block of two warps.
const LANES_MAX: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meeting {
    Sync,
    Broadcast(u32),
    Ballot,
    Across(u32),
}

struct State {
    arrived: Vec<bool>,
    finished: Vec<bool>,
    kind: Option<Meeting>,
    /// Values of the meetings with even and odd numbers: one may still be read while the next is filled.
    values: [[u64; LANES_MAX]; 2],
    meetings: u64,
    waiting: Vec<usize>,
}

struct Warp {
    world: std::sync::Arc<SimWorld>,
    name: String,
    size: u32,
    state: RefCell<State>,
}

/// One lane of a simulated warp.
#[derive(Clone, Copy)]
pub struct SimWarp<'w> {
    warp: &'w Warp,
    lane: u32,
}

impl Warp {
    fn missing(&self, state: &State) -> String {
        let lanes = |of: &[bool], is: bool| {
            let lanes: Vec<usize> = (0..of.len()).filter(|lane| of[*lane] == is).collect();
            format!("{lanes:?}")
        };
        format!(
            "warp {}, meeting {}: lanes {} have not come to {:?}, of which {} have returned",
            self.name,
            state.meetings,
            lanes(&state.arrived, false),
            state.kind,
            lanes(&state.finished, true),
        )
    }

    /// All lanes come before any goes on; the number of the meeting.
    fn meet(&self, lane: u32, kind: Meeting, value: u64) -> u64 {
        if self.world.closing() {
            return 0;
        }
        let mut state = self.state.borrow_mut();
        assert!(!state.arrived[lane as usize], "lane {lane} of warp {} came twice to one meeting", self.name);
        let expected = *state.kind.get_or_insert(kind);
        assert_eq!(expected, kind, "lane {lane} of warp {} is at another meeting than the others", self.name);
        state.arrived[lane as usize] = true;
        let number = state.meetings;
        state.values[number as usize % 2][lane as usize] = value;
        assert!(!state.finished.contains(&true), "{}", self.missing(&state));
        if state.arrived.iter().all(|arrived| *arrived) {
            state.arrived.fill(false);
            state.kind = None;
            state.meetings += 1;
            for id in std::mem::take(&mut state.waiting) {
                self.world.unpark(id);
            }
        } else {
            state.waiting.push(self.world.current().expect("lanes are actors"));
            drop(state);
            let came = self.world.park(self.world.now() + MEET_MAX_NS);
            assert!(came, "{}", self.missing(&self.state.borrow()));
        }
        number
    }

    fn finish(&self, lane: u32) {
        let mut state = self.state.borrow_mut();
        state.finished[lane as usize] = true;
        assert!(!state.arrived.contains(&true), "{}", self.missing(&state));
    }
}

impl Lanes for SimWarp<'_> {
    fn rank(self) -> u32 {
        self.lane
    }

    fn size(self) -> u32 {
        self.warp.size
    }

    fn sync(self) {
        self.warp.meet(self.lane, Meeting::Sync, 0);
    }

    fn broadcast(self, value: u64, from: u32) -> u64 {
        let number = self.warp.meet(self.lane, Meeting::Broadcast(from), value);
        self.warp.state.borrow().values[number as usize % 2][from as usize]
    }
}

impl WarpLanes for SimWarp<'_> {
    fn ballot(self, yes: bool) -> u32 {
        assert!(self.warp.size <= u32::BITS, "warp {}: a ballot of {} lanes", self.warp.name, self.warp.size);
        let number = self.warp.meet(self.lane, Meeting::Ballot, yes.into());
        let state = self.warp.state.borrow();
        let answers = &state.values[number as usize % 2][..self.warp.size as usize];
        answers.iter().enumerate().map(|(lane, yes)| (*yes as u32) << lane).sum()
    }

    fn across<const BIT: u32>(self, value: u32) -> u32 {
        let from = self.lane ^ BIT;
        assert!(from < self.warp.size, "warp {}: lane {from} of {}", self.warp.name, self.warp.size);
        let number = self.warp.meet(self.lane, Meeting::Across(BIT), value.into());
        self.warp.state.borrow().values[number as usize % 2][from as usize] as u32
    }
}

/// Starts a warp of `lanes` lanes, each running `body`.
pub fn spawn_warp<T: 'static>(
    sim: &Sim,
    name: &str,
    lanes: u32,
    options: ActorOptions,
    body: impl Fn(SimWarp<'_>) -> T + 'static,
) -> Vec<Task<T>> {
    let state = State {
        arrived: vec![false; lanes as usize],
        finished: vec![false; lanes as usize],
        kind: None,
        values: [[0; LANES_MAX]; 2],
        meetings: 0,
        waiting: Vec::new(),
    };
    let warp =
        Rc::new(Warp { world: sim.world(), name: name.into(), size: lanes, state: RefCell::new(state) });
    let body = Rc::new(body);
    (0..lanes)
        .map(|lane| {
            let (warp, body) = (warp.clone(), body.clone());
            sim.spawn(format!("{name}.lane{lane}"), options.clone(), move || {
                let result = body(SimWarp { warp: &warp, lane });
                warp.finish(lane);
                result
            })
        })
        .collect()
}
