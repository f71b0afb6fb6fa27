//! What the program's threads tell the agent, and how they wake it.
//!
//! An order is a change that the agent must hear of once: it is kept here. All else that the agent looks at stays where
//! it belongs (the state of a queue pair, the regions of a domain), and who changes it says [`Keeper::stirred`] after
//! that. The agent takes the word of [`Rest`] before it looks, and sleeps only by it.

use crate::queue_pair::{Keeper, QueuePair};
use shunt_verbs_near::rest::Rest;
use shunt_verbs_near::waker::Waker;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// What the program's threads tell the agent.
pub(super) enum Order {
    /// A queue pair is connected.
    Connected(Arc<QueuePair>),
    /// It is destroyed.
    Gone(Arc<QueuePair>),
}

/// What has time wakes an agent that sleeps after this: who registers memory for a connection has connected by then.
const LATER: Duration = Duration::from_millis(4);

/// What wakes an agent that sleeps.
enum Wakes {
    Thread(Waker),
    /// A simulator's.
    Call(Box<dyn Fn() + Send + Sync>),
}

/// What an agent was told and has not taken.
#[derive(Default)]
pub struct Orders {
    list: Mutex<Vec<Order>>,
    rest: Rest,
    /// None: the agent never sleeps for long.
    by: OnceLock<Wakes>,
}

impl Orders {
    /// With descriptors that wake the agent, if the system gives some.
    pub(super) fn with_descriptors() -> Self {
        let by = Waker::new().map(Wakes::Thread).map_or_else(OnceLock::new, OnceLock::from);
        Self { by, ..Self::default() }
    }

    /// This wakes the agent from now on, unless something does already. It may be called from any thread.
    pub fn wakes_by(&self, call: Box<dyn Fn() + Send + Sync>) {
        let _ = self.by.set(Wakes::Call(call));
    }

    fn give(&self, order: Order) {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).push(order);
        self.stirred_later();
    }

    /// Those that were given since.
    pub(super) fn take(&self) -> Vec<Order> {
        // The list keeps its memory: the program's thread that gives the next one allocates nothing.
        self.list.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    /// The agent is awake, and looks at everything after this. True if it was told of something.
    pub(super) fn begin_look(&self) -> bool {
        self.rest.take()
    }

    /// The agent wants to sleep, for long or not. False if there is something for it, or nothing would wake it.
    pub(super) fn lie_down(&self, long: bool) -> bool {
        self.rest.lie_down(long)
    }

    /// Something wakes the agent.
    pub(super) fn can_wake(&self) -> bool {
        self.by.get().is_some()
    }

    /// Its descriptors, if it has some.
    pub(super) fn waker(&self) -> Option<&Waker> {
        match self.by.get() {
            Some(Wakes::Thread(waker)) => Some(waker),
            _ => None,
        }
    }

    /// The agent has slept. A ring that is late wakes it once for nothing.
    pub(super) fn hush(&self) {
        self.waker().into_iter().for_each(Waker::clear);
    }

    /// Waits until it is told of something. Without a descriptor: for a moment.
    pub(super) fn wait(&self) {
        match self.waker() {
            None => std::thread::sleep(5 * LATER),
            Some(waker) => {
                if self.lie_down(true) {
                    waker.wait(None);
                    waker.clear();
                }
            }
        }
    }

    #[cold]
    fn ring(&self, later: bool) {
        match self.by.get() {
            Some(Wakes::Thread(waker)) if later => waker.wake_after(LATER),
            Some(Wakes::Thread(waker)) => waker.wake(),
            Some(Wakes::Call(call)) => call(),
            None => {}
        }
    }
}

impl Keeper for Orders {
    fn connected(&self, pair: &Arc<QueuePair>) {
        self.give(Order::Connected(pair.clone()));
    }

    fn gone(&self, pair: &Arc<QueuePair>) {
        self.give(Order::Gone(pair.clone()));
    }

    fn stirred(&self) {
        if self.rest.tell() {
            self.ring(false);
        }
    }

    fn stirred_later(&self) {
        if self.rest.tell_later() {
            self.ring(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::completions::{Goes, Member};
    use shunt_mlx5_sys::{IBV_WC_RETRY_EXC_ERR, ibv_wc};

    fn is_ready(orders: &Orders, within: Duration) -> bool {
        orders.waker().expect("descriptors").wait(Some(within))
    }

    /// Longer than any timer takes, on a busy machine as well.
    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_descriptor_is_ready_once_an_agent_that_sleeps_is_told() {
        let orders = Orders::with_descriptors();
        orders.stirred();
        assert!(!is_ready(&orders, Duration::ZERO), "it is awake");
        assert!(!orders.lie_down(true) && orders.begin_look());
        for tell in [Orders::stirred, Orders::stirred_later] {
            assert!(orders.lie_down(true) && !is_ready(&orders, Duration::ZERO));
            tell(&orders);
            assert!(is_ready(&orders, LONG));
            orders.hush();
            assert!(!is_ready(&orders, Duration::ZERO) && orders.begin_look() && !orders.begin_look());
        }
    }

    #[test]
    fn a_completion_that_fails_wakes_the_agent_at_once() {
        let orders = Arc::new(Orders::with_descriptors());
        let pair = crate::idle_pair::pair();
        assert!(pair.keeper.set(orders.clone()).is_ok());
        pair.state().armed = true;
        assert!(orders.lie_down(true));
        let failed = ibv_wc { status: IBV_WC_RETRY_EXC_ERR, qp_num: pair.qpn, ..ibv_wc::default() };
        assert_eq!(pair.absorb(&failed), (Goes::Nowhere, false));
        assert!(is_ready(&orders, Duration::ZERO) && orders.begin_look() && pair.state().own_failed);
    }

    #[test]
    fn an_agent_is_woken_from_another_thread() {
        for tell in [Orders::stirred, Orders::stirred_later] {
            let orders = Arc::new(Orders::with_descriptors());
            let other = orders.clone();
            let told = std::thread::spawn(move || tell(&other));
            // It would wait without end if the ring were lost.
            orders.wait();
            told.join().expect("no panic");
            assert!(orders.begin_look());
        }
    }
}
