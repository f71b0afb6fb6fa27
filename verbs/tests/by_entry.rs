//! A completion queue that is read entry by entry: what completes there passes the library by.

use shunt_mlx5_sys as sys;
use shunt_verbs::completions::{CompletionQueue, Completions, Goes, Member, Tally};
use shunt_verbs::hooks::queue;
use shunt_verbs::objects::{At, Context, Extended};
use shunt_verbs::registry;
use std::collections::VecDeque;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// A queue pair that counts how often it was told to give up.
struct Pair {
    tally: Arc<Tally>,
    gave_up: AtomicU32,
}

impl Default for Pair {
    fn default() -> Self {
        Self { tally: Arc::new(Tally::new(0)), gave_up: AtomicU32::new(0) }
    }
}

impl Member for Pair {
    fn absorb(&self, _: &sys::ibv_wc) -> (Goes, bool) {
        (Goes::On, false)
    }

    fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    fn is_counted(&self) -> bool {
        true
    }

    fn collect(&self, _: &CompletionQueue, _: &mut VecDeque<sys::ibv_wc>) {}

    fn give_up(&self) {
        self.gave_up.fetch_add(1, Ordering::Relaxed);
    }
}

unsafe extern "C" fn nothing_there(_: *mut sys::ibv_cq_ex, _: *mut sys::ibv_poll_cq_attr) -> i32 {
    libc::ENOENT
}

#[test]
fn who_starts_to_poll_by_entry_is_not_protected_and_gets_the_providers_answer() {
    let (ops, channel) = (sys::ibv_context_ops::default(), OnceLock::new());
    let raw = At(without_provenance_mut(0x1000));
    let context = Arc::new(Context { raw, device: "none".into(), ops, ex: Extended::default(), channel });
    let cq: *mut sys::ibv_cq_ex = without_provenance_mut(0x2000);
    let mut made = CompletionQueue::new(At(cq.cast()), context, false);
    made.start_poll = Some(nothing_there);
    let made = Arc::new(made);
    let [before, after] = [(), ()].map(|()| Arc::<Pair>::default());
    let join = |qpn, pair: &Arc<Pair>| {
        Completions::join(&mut made.enter_first(), qpn, pair.clone());
        made.check_member(&**pair);
    };
    join(1, &before);
    registry::with_mut(|objects| objects.put_queue(cq.cast(), made.clone()));
    assert_eq!(before.gave_up.load(Ordering::Relaxed), 0);
    for _ in 0..2 {
        // SAFETY: the provider's function looks at nothing.
        assert_eq!(unsafe { queue::start_poll(cq, null_mut()) }, libc::ENOENT);
    }
    join(2, &after);
    assert_eq!([before, after].map(|pair| pair.gave_up.load(Ordering::Relaxed)), [1, 1], "once each");
}
