//! In which order writes may land on a rail: settled at start, agreed on by all PEs.

use super::Rail;
use crate::error::NicError;
use crate::nic::loopback::Pair;
use crate::nic::order::{self, Chosen, Seen, Stance};
use crate::nic::rmsn_selftest;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::OrderPolicy;
use std::sync::Arc;

/// The order of a PE with these rails: that of the one which keeps the least.
pub fn stance(rails: &[Rail]) -> Stance {
    let weakest = rails.iter().map(|rail| rail.order as u32).max().unwrap_or(0);
    let asked = rails.iter().any(|rail| rail.options.ordering.is_some());
    Stance { policy: OrderPolicy::from_raw(weakest), asked }
}

/// What is weaker on these rails than elsewhere, once each, for the log: nobody is to find it out by a wrong result.
pub fn remarks(rails: &[Arc<Rail>]) -> Vec<String> {
    let mut said: Vec<(String, Vec<&str>)> = Vec::new();
    for rail in rails {
        let weaker = rail.caps.atomics.weaker().map(str::to_owned);
        for text in rail.order_detail.clone().into_iter().chain(weaker) {
            match said.iter_mut().find(|(known, _)| *known == text) {
                Some((_, names)) => names.push(&rail.name),
                None => said.push((text, vec![&rail.name])),
            }
        }
    }
    said.into_iter().map(|(text, names)| format!("{}: {text}", names.join(", "))).collect()
}

impl Rail {
    /// Settles in which order writes may land, before the heap is registered and any path is connected: by what was
    /// asked for, by what a loopback pair in RTS says of itself, and by a search for a NIC that places out of order and
    /// does not say so: on that pair a flag must not be seen before the data written ahead of it. What only the network
    /// or other memory does is not found.
    ///
    /// # Errors
    /// `Unfit` if what was asked for is not to be had. That nothing could be written is no answer.
    pub fn settle_order(&mut self) -> Result<(), NicError> {
        let asked = self.options.ordering;
        let seen = if asked == Some(OrderPolicy::Unordered) { Seen::InOrder } else { self.seen_order() };
        let chosen = order::choose(asked, self.caps.order, seen, self.caps.atomics);
        let chosen = match chosen {
            Err(refusal) if Mutant::OrderNotChecked.on() => {
                Chosen { policy: OrderPolicy::Strict, why: Some(refusal.met) }
            }
            Err(refusal) => return Err(refusal.of(&self.name)),
            Ok(chosen) => chosen,
        };
        (self.order, self.order_detail) = (chosen.policy, chosen.why);
        Ok(())
    }

    /// What the flush pair says of the order, and what is seen on it.
    fn seen_order(&self) -> Seen {
        let mut guard = self.flush.lock(&*self.world);
        let look = |pair: &mut Pair| {
            if !pair.responder.qp.query()?.in_order {
                return Ok(Seen::Reported);
            }
            if Mutant::OrderNotProved.on() {
                return Ok(Seen::InOrder);
            }
            let (rounds, patience_ns) = (0..self.options.order_rounds, self.options.startup_ns);
            let found = rmsn_selftest::out_of_order(pair, &self.private, &*self.world, patience_ns, rounds)?;
            Ok(if found { Seen::Measured } else { Seen::InOrder })
        };
        self.flush_pair(&mut guard).and_then(look).unwrap_or_else(|_: NicError| {
            guard.pair = None;
            Seen::InOrder
        })
    }

    /// Takes over the job's policy, which is that of the PE whose NICs keep the least order.
    ///
    /// # Errors
    /// `Unfit` if it needs what this NIC lacks.
    pub fn adopt_order(&mut self, policy: OrderPolicy) -> Result<(), NicError> {
        if policy != self.order && policy == OrderPolicy::Unordered {
            let asked = Some(policy);
            order::choose(asked, self.caps.order, Seen::InOrder, self.caps.atomics)
                .map_err(|refusal| refusal.of(&self.name))?;
            self.order_detail = Some("another PE's NICs do not keep the order: signals go as atomics".into());
        }
        self.order = policy;
        Ok(())
    }
}
