//! What NICs tell of their ports, and what is asked about those.

use super::Agent;
use crate::words::{Said, encode};
use shunt_mlx5::rail::Rail;
use shunt_recovery::nanos::Nanos;
use std::os::fd::RawFd;
use std::sync::Arc;

/// Pause between two questions whether a port that was down is up.
const ASK_PORT: Nanos = Nanos::millis(20);

impl Agent {
    /// When a port is asked about, if one is in question.
    pub(super) fn port_due(&self) -> Option<Nanos> {
        let asks = (0..self.engine.rails.len()).any(|rail| self.engine.ports.is_in_question(rail));
        asks.then(|| self.ports_asked + ASK_PORT)
    }

    /// Descriptors of NICs that tell of events.
    pub(super) fn event_fds(&self) -> impl Iterator<Item = RawFd> {
        let hears = |(rail, _): &(usize, &Arc<Rail>)| !self.deaf.contains(rail);
        let rails = self.engine.rails.iter().enumerate().filter(hears);
        rails.filter_map(|(_, rail)| rail.devx.event_fd())
    }

    /// What NICs tell of.
    pub(super) fn take_events(&mut self) -> Vec<(u32, [u8; 64])> {
        let mut events = Vec::new();
        for (rail, one) in self.engine.rails.iter().enumerate() {
            let silent = loop {
                match one.devx.next_event() {
                    Ok(Some(event)) => events.push((rail as u32, event)),
                    Ok(None) => break false,
                    Err(_) => break true,
                }
            };
            // Its descriptor may be ready for ever, and the agent would never rest.
            if silent {
                self.deaf.insert(rail);
            } else {
                self.deaf.remove(&rail);
            }
            // An event may be lost: the port is asked for.
            self.engine.ports.set_silent(rail as u32, silent);
        }
        events
    }

    pub(super) fn ask_ports(&mut self, now: Nanos) {
        if now < self.ports_asked + ASK_PORT {
            return;
        }
        self.ports_asked = now;
        for rail in 0..self.engine.rails.len() {
            if self.engine.ports.is_in_question(rail) {
                self.engine.nics.ask_port(now, rail);
            }
        }
    }

    pub(super) fn port_answered(&mut self, now: Nanos, rail: usize, up: bool) {
        let asked = self.engine.nics.port_answered(rail);
        if self.engine.ports.believes_firmware(rail, up, asked) {
            self.port_changed(now, rail as u32, !up);
        }
    }

    pub(super) fn port_changed(&mut self, now: Nanos, rail: u32, down: bool) {
        if self.engine.ports.own_changes(now, rail, down).is_none() {
            return;
        }
        for peer in self.peers.keys() {
            self.post.send(*peer, encode(&Said::Port(rail, down, now.get())));
        }
    }
}
