//! The thread that drives an engine.

use crate::asker::{Asker, Told};
use crate::connect::Connected;
use crate::cuts::{Cuts, Why};
use crate::error::NoNode;
use crate::mailbox::Mailbox;
use crate::mates::Mates;
use crate::naps::Naps;
use crate::rails::Rails;
use crate::report::Report;
use shunt::host::nanos::Nanos;
use shunt_transfer_engine::engine::Engine;
use shunt_transfer_engine::ids::PeerId;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// It goes on for so long after its node was dropped, so that the others' last words are answered.
const LINGER: Nanos = Nanos::millis(300);

/// A thread that makes an engine: how to give it work, what it says once it is ready, and where messages come.
pub(crate) struct Begun<T> {
    asker: Asker,
    ready: Receiver<Result<T, NoNode>>,
    inbox: Arc<Mailbox<(u32, Vec<u8>)>>,
    cuts: Cuts,
    thread: JoinHandle<()>,
}

/// What comes of it.
pub(crate) struct Ready<T> {
    /// What there is to say of the engine.
    pub told: T,
    pub asker: Asker,
    /// Where messages come.
    pub inbox: Arc<Mailbox<(u32, Vec<u8>)>>,
    pub cuts: Cuts,
    pub thread: JoinHandle<()>,
}

impl<T> Begun<T> {
    /// Waits until its engine is ready.
    ///
    /// # Errors
    /// Why there is none.
    pub fn ready(self) -> Result<Ready<T>, NoNode> {
        // A thread that panicked tells nothing.
        let refused = || NoNode::Refused("an engine's thread has ended before it was ready".to_owned());
        let told = self.ready.recv().map_err(|_| refused())??;
        let Self { asker, inbox, cuts, thread, .. } = self;
        Ok(Ready { told, asker, inbox, cuts, thread })
    }
}

/// Who waits for a message hears of the thread's end, also of one by a panic.
struct ClosesMail<T>(Arc<Mailbox<T>>);

impl<T> Drop for ClosesMail<T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Starts such a thread, for the end of this number.
pub(crate) fn begin<T: Send + 'static>(
    end: u32,
    make: impl FnOnce() -> Result<Connected<T>, NoNode> + Send + 'static,
) -> Begun<T> {
    let (asker, told) = Asker::new();
    let (tell, ready) = channel();
    let (name, inbox) = (format!("transfer {end}"), Arc::new(Mailbox::default()));
    let (mail, own, cuts) = (inbox.clone(), asker.clone(), Cuts::default());
    let known = cuts.clone();
    let thread = std::thread::Builder::new().name(name).spawn(move || match make() {
        Ok(Connected { engine, world, mates, told: ready }) => {
            own.drive();
            // Without it the thread ends once nobody can ask any more.
            drop(own);
            let _ = tell.send(Ok(ready));
            let mail = ClosesMail(mail);
            let driven = Driven { engine, report: Report::of_end(end), mates, cuts: known };
            drive(driven, &|| Nanos::new(world.now_ns()), &told, &mail.0);
        }
        Err(error) => _ = tell.send(Err(error)),
    });
    Begun { asker, ready, inbox, cuts, thread: thread.expect("a thread can be made") }
}

/// An engine, and what its thread does beside its steps.
struct Driven {
    engine: Engine<Rails>,
    report: Report,
    mates: Mates,
    cuts: Cuts,
}

/// Steps an engine and does what comes, until it is told to stop and the others had time for their last words.
fn drive(driven: Driven, now: &dyn Fn() -> Nanos, told: &Receiver<Told>, inbox: &Mailbox<(u32, Vec<u8>)>) {
    let Driven { mut engine, mut report, mut mates, cuts } = driven;
    let (mut naps, mut end) = (Naps::new(Instant::now()), Nanos::MAX);
    while now() < end {
        // Before the step, which takes what they had sent until then.
        let left = mates.look(now(), |peer| engine.domain.has_left(PeerId(peer)));
        let has_worked = engine.step(now());
        for peer in left {
            // False of one that was cut off before.
            let _ = cuts.cut(&mut engine, now(), peer, Why::Left);
        }
        while let Some((peer, message)) = engine.take_message() {
            inbox.put((peer.0, message));
        }
        for remark in engine.domain.take_remarks() {
            shunt::host::complain!("shunt transfer: {remark}");
        }
        if end == Nanos::MAX {
            cuts.take_untold().into_iter().for_each(|(peer, why)| report.gone(peer, why));
            report.look(engine.counts(), || engine.lanes());
        }
        let rested = Instant::now();
        if has_worked {
            naps.worked(rested);
        }
        let nap = if has_worked { Duration::ZERO } else { naps.next(rested) };
        match told.recv_timeout(nap) {
            Ok(Told::Work(work)) => {
                work(&mut engine, now());
                naps.worked(Instant::now());
            }
            Ok(Told::Stop) => end = now() + LINGER,
            Err(RecvTimeoutError::Timeout) => naps.woke(Instant::now(), rested + nap),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
