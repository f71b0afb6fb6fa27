//! What a program puts together by `ibv_wr_*` before it posts it. Pure.

use shunt_verbs_journal::record::{Beside, Record};

/// The requests of one batch, in memory that is used again.
#[derive(Default)]
pub struct Batch {
    slots: Vec<(Record, Beside)>,
    used: usize,
}

impl Batch {
    /// One more request.
    pub fn add(&mut self, record: Record) {
        if self.used == self.slots.len() {
            self.slots.push(Default::default());
        }
        self.slots[self.used].0 = record;
        self.used += 1;
    }

    /// The newest, to say what it carries.
    pub fn newest(&mut self) -> Option<&mut (Record, Beside)> {
        self.slots[..self.used].last_mut()
    }

    /// All of them.
    pub fn all(&self) -> &[(Record, Beside)] {
        &self.slots[..self.used]
    }

    /// Forgets them.
    pub const fn clear(&mut self) {
        self.used = 0;
    }
}
