//! Words of the program's that an engine's thread looks at. Changes are told by the thread of its calls.

use crate::calls::Calls;
use crate::engine::Engine;
use crate::failure::Failure;
use shunt_transfer_engine::ids::WatcherId;
use shunt_transfer_engine::watch::Goes;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Is told of a change, with the value before and the value now; true: no more of it.
pub type OnChange = Box<dyn FnMut(u64, u64) -> bool + Send>;

/// `ste_watcher`.
pub struct WatcherOf {
    engine: Weak<Engine>,
    calls: Arc<Calls>,
    id: WatcherId,
    number: u64,
}

/// Changes of a word that the program was not told of: all of them are one.
struct Changes {
    calls: Arc<Calls>,
    number: u64,
    untold: Mutex<Option<(u64, u64)>>,
    each: Mutex<OnChange>,
    is_over: AtomicBool,
}

impl Changes {
    fn changed(self: &Arc<Self>, before: u64, now: u64) -> Goes {
        if self.is_over.load(Ordering::Relaxed) {
            return Goes::Off;
        }
        let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *untold {
            Some((_, last)) => *last = now,
            None => {
                *untold = Some((before, now));
                let own = self.clone();
                self.calls.call(self.number, Box::new(move || own.tell()));
            }
        }
        Goes::On
    }

    fn tell(&self) {
        let untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner).take();
        // One that came back to what it was is none.
        let change = untold.filter(|(before, now)| before != now);
        let is_over = self.is_over.load(Ordering::Relaxed);
        if let Some((before, now)) = change.filter(|_| !is_over) {
            let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
            self.is_over.store(each(before, now), Ordering::Relaxed);
        }
    }
}

impl WatcherOf {
    /// Watches the word at an address from what it is now.
    ///
    /// # Errors
    /// The address is none of a word; the engine is closed.
    ///
    /// # Safety
    /// The word can be read, and is written in one piece alone, until [`WatcherOf::end`] or [`Engine::close`] has
    /// succeeded.
    pub unsafe fn new(engine: &Arc<Engine>, word: *const u64, each: OnChange) -> Result<Self, Failure> {
        if word.is_null() || !word.addr().is_multiple_of(align_of::<AtomicU64>()) {
            let got = format!("{:#x}", word.addr());
            return Err(Failure::refused("word", "an address that is a multiple of 8", got));
        }
        let calls = engine.events().calls.clone();
        calls.start()?;
        let number = calls.number();
        let (untold, each, is_over) = (Mutex::default(), Mutex::new(each), AtomicBool::new(false));
        let changes = Arc::new(Changes { calls: calls.clone(), number, untold, each, is_over });
        let (address, token) = (word.expose_provenance(), engine.in_use());
        let read = move || {
            // The engine is not closed while its thread may look.
            let _kept = &token;
            let word = std::ptr::with_exposed_provenance_mut::<u64>(address);
            // SAFETY: the caller keeps the word until `end` or `close` succeeds; both wait until this is dropped. It is
            // aligned, and is written in one piece alone.
            unsafe { AtomicU64::from_ptr(word) }.load(Ordering::Relaxed)
        };
        let told = Box::new(move |before, now| changes.changed(before, now));
        let id = engine.with(|node| node.watch(Box::new(read), told))?;
        Ok(Self { engine: Arc::downgrade(engine), calls, id, number })
    }

    /// Ends it: its word is not read and its function not called any more when this returns.
    ///
    /// # Errors
    /// The engine is being closed: its word may be read until that is done.
    pub fn end(&self) -> Result<(), Failure> {
        let ended = match self.engine.upgrade() {
            Some(engine) => engine.with(|node| node.unwatch(self.id)).map(|_| ()),
            None => Ok(()),
        };
        self.calls.end(self.number);
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// Longer than anything takes here.
    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn changes_that_were_not_told_are_one_until_it_is_enough() {
        let calls = Arc::new(Calls::new(Arc::default()));
        let (tell, heard) = channel();
        let each: OnChange = Box::new(move |before, now| {
            let _ = tell.send((before, now));
            now == 9
        });
        let (untold, is_over) = (Mutex::default(), AtomicBool::new(false));
        let changes = Changes { calls: calls.clone(), number: 1, untold, each: Mutex::new(each), is_over };
        let changes = Arc::new(changes);
        // Nobody calls yet.
        assert_eq!([(5, 6), (6, 7)].map(|(old, new)| changes.changed(old, new)), [Goes::On; 2]);
        calls.start().expect("a thread");
        assert_eq!(heard.recv_timeout(SOON), Ok((5, 7)));
        assert_eq!(changes.changed(7, 9), Goes::On);
        assert_eq!(heard.recv_timeout(SOON), Ok((7, 9)));
        while changes.changed(9, 10) == Goes::On {
            std::thread::yield_now();
        }
        calls.end(1);
        calls.close();
        drop(changes);
        assert!(heard.try_recv().is_err(), "it was enough");
    }

    #[test]
    fn a_word_that_comes_back_to_what_it_was_is_no_change() {
        let calls = Arc::new(Calls::new(Arc::default()));
        let (tell, heard) = channel();
        let each: OnChange = Box::new(move |before, now| tell.send((before, now)).is_err());
        let (untold, is_over) = (Mutex::default(), AtomicBool::new(false));
        let changes = Changes { calls: calls.clone(), number: 1, untold, each: Mutex::new(each), is_over };
        let changes = Arc::new(changes);
        let all = [(1, 2), (2, 1)].map(|(old, new)| changes.changed(old, new));
        let (over, is_done) = channel();
        calls.call(2, Box::new(move || _ = over.send(())));
        calls.start().expect("a thread");
        assert_eq!((all, is_done.recv_timeout(SOON)), ([Goes::On; 2], Ok(())));
        assert!(heard.try_recv().is_err());
        calls.close();
    }
}
