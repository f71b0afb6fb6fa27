//! More of the heap: chunks that get their keys when the program reaches them, at all PEs at once.

use super::{Pe, connect};
use crate::connect::bootstrap::Bootstrap;
use crate::connect::card::KeyRows;
use crate::error::StartError;
use crate::keys::Reached;
use crate::upload::upload_keys;
use shunt_layout::state::OrderPolicy;
use std::sync::PoisonError;

impl Pe {
    /// Makes the heap usable up to an offset, at every PE: all of them call it with the same one. Returns when each PE
    /// can post to each. A kernel that runs meanwhile may not know the new keys.
    ///
    /// # Errors
    /// A PE's NIC refuses the memory: the others fail as well, with its rank. What was made stays.
    pub fn reach(&self, end: u64, exchange: &dyn Bootstrap) -> Result<(), StartError> {
        let mut reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = end.div_ceil(1 << self.config.log2_chunk).min(self.config.late_chunks.into()) as u32;
        if wanted <= reached.chunks {
            return Ok(());
        }
        let mut rails: Vec<_> = self.rails.iter().collect();
        let made = connect::for_each(self.config.bringup, &mut rails, |rail| {
            Ok(rail.register_chunks(reached.chunks..wanted)?)
        });
        let rows = KeyRows {
            all: self.rails.iter().map(|rail| rail.heap_keys()).collect(),
            data: self.rails.iter().map(|rail| rail.heap_data_keys()).collect(),
        };
        let mine = if made.is_ok() { rows.to_bytes() } else { Vec::new() };
        let all = exchange.all_gather(&mine)?;
        made?;
        let mut rows = Vec::new();
        for (bytes, pe) in all.iter().zip(0..) {
            if bytes.is_empty() {
                return Err(StartError::NotReached { pe });
            }
            rows.push(KeyRows::from_bytes(bytes).map_err(|error| StartError::Card { pe, error })?);
        }
        let ordering = OrderPolicy::from_raw(self.root.policy.ordering);
        let keys = connect::keys(&self.config, &self.plan.shape, &rows, ordering)?;
        upload_keys(&**self.memory(), &self.plan, self.bases(), &keys)?;
        *reached = Reached { keys, chunks: wanted };
        // Nobody posts before everybody knows the keys.
        exchange.all_gather(&[])?;
        Ok(())
    }
}
