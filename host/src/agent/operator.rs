//! What only an operator may order: a path that is taken out stays out until it is brought back.

use super::Agent;
use super::pair::Task;
use super::words::Place;
use super::worker::Urgency;
use shunt_device::health::{Health, Observation};
use shunt_layout::state::PathState;

impl Agent {
    /// Takes a path out: it is left and fenced like one that failed, and is not made anew. Nothing on it is lost. False
    /// if there is no such path.
    pub fn retire(&mut self, at: Place) -> bool {
        let index = self.index(at);
        let Some(Some(pair)) = self.pairs.get_mut(index) else { return false };
        pair.retired = true;
        if pair.health == Health::Ready {
            self.fence_asked(index, Urgency::Idle);
        }
        true
    }

    /// Brings a path back that was taken out: it is made anew, probed, and ready after its recovery window. False if
    /// there is no such path.
    pub fn readmit(&mut self, at: Place) -> bool {
        let index = self.index(at);
        let Some(Some(pair)) = self.pairs.get_mut(index) else { return false };
        pair.retired = false;
        pair.failures = 0;
        if pair.health == Health::Retired {
            self.observe(index, Observation::Readmit);
            self.words.set_state(at, PathState::Released);
        }
        true
    }

    /// A path that both ends left and that is not to come back.
    pub(super) fn retires(&mut self, index: usize) -> bool {
        let retired = self.pairs[index].as_ref().is_some_and(|pair| pair.retired && pair.task == Task::None);
        if retired {
            self.observe(index, Observation::Retire);
            self.words.set_state(self.place(index), PathState::Retired);
        }
        retired
    }
}
