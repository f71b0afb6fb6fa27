//! A NIC's events as one file sees them: completions to the channels of its queues, everything else to its
//! asynchronous channel.
//!
//! A program acknowledges what it read, and the library waits for that when a queue is destroyed. So a destroy takes
//! back what was not read, and says how much was.

use crate::abi::Plain;
use crate::abi::ids::event;
use crate::abi::uverbs::{AsyncRecord, CompletionRecord, CqEvents};
use crate::ioctl::{Channel, FileId};
use rustix::io::Errno;
use shunt_layout::mlx5::eqe;
use shunt_soft_machine::devices::{EventSink, Nic, SubscriptionId};
use std::collections::HashMap;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Event types that nothing else here needs a name for.
const COMMUNICATION_ESTABLISHED: u32 = 0x02;
const SEND_QUEUE_DRAINED: u32 = 0x03;

/// What a queue or queue pair tells its program.
pub struct Notices {
    /// What the library knows it by.
    user_handle: u64,
    /// Channel of completions, of a queue that has one.
    completions: Option<Arc<Channel>>,
    /// Channel of the rest, if it is not the file's own.
    asynchronous: Option<Arc<Channel>>,
    completions_sent: AtomicU32,
    asynchronous_sent: AtomicU32,
}

impl Notices {
    /// Nothing told yet.
    pub fn new(
        user_handle: u64,
        completions: Option<Arc<Channel>>,
        asynchronous: Option<Arc<Channel>>,
    ) -> Arc<Self> {
        let (completions_sent, asynchronous_sent) = (AtomicU32::new(0), AtomicU32::new(0));
        Arc::new(Self { user_handle, completions, asynchronous, completions_sent, asynchronous_sent })
    }
}

#[derive(Default)]
struct State {
    cqs: HashMap<u32, Arc<Notices>>,
    qps: HashMap<u32, Arc<Notices>>,
    srqs: HashMap<u32, Arc<Notices>>,
    channels: Vec<Arc<Channel>>,
    /// The channel of what names no other.
    asynchronous: Option<Arc<Channel>>,
}

/// The events of one file.
#[derive(Default)]
pub struct Events {
    state: Mutex<State>,
    subscription: Mutex<Option<SubscriptionId>>,
}

struct Sink(Arc<Events>);

impl EventSink for Sink {
    fn event(&mut self, entry: &[u8; 64]) {
        self.0.take(entry);
    }
}

impl Events {
    /// Takes a NIC's events from now on.
    pub fn subscribe(nic: &Nic) -> Arc<Self> {
        let events = Arc::new(Self::default());
        let id = nic.subscribe(Box::new(Sink(events.clone())));
        *events.subscription.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
        events
    }

    /// Takes no more.
    pub fn unsubscribe(&self, nic: &Nic) {
        let id = self.subscription.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(id) = id {
            nic.unsubscribe(id);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that may panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a completion channel.
    pub fn completion_channel(&self) -> Result<OwnedFd, Errno> {
        let (channel, fd) = Channel::new(size_of::<CompletionRecord>())?;
        let mut state = self.state();
        state.forget_closed();
        state.channels.push(Arc::new(channel));
        Ok(fd)
    }

    /// Makes an asynchronous channel; the first is the file's own.
    pub fn asynchronous_channel(&self) -> Result<OwnedFd, Errno> {
        let (channel, fd) = Channel::new(size_of::<AsyncRecord>())?;
        let channel = Arc::new(channel);
        let mut state = self.state();
        state.forget_closed();
        state.asynchronous.get_or_insert_with(|| channel.clone());
        state.channels.push(channel);
        Ok(fd)
    }

    /// The channel of a program's descriptor.
    pub fn channel(&self, fd: RawFd) -> Result<Arc<Channel>, Errno> {
        let id = FileId::of(fd)?;
        self.state().channels.iter().find(|channel| channel.id() == id).cloned().ok_or(Errno::BADF)
    }

    /// Hears of a completion queue.
    pub fn add_cq(&self, cqn: u32, notices: Arc<Notices>) {
        self.state().cqs.insert(cqn, notices);
    }

    /// Hears of a queue pair.
    pub fn add_qp(&self, qpn: u32, notices: Arc<Notices>) {
        self.state().qps.insert(qpn, notices);
    }

    /// A completion queue is gone: what the program read of it.
    pub fn remove_cq(&self, cqn: u32) -> CqEvents {
        let (notices, channel) = {
            let mut state = self.state();
            (state.cqs.remove(&cqn), state.asynchronous.clone())
        };
        let Some(notices) = notices else { return CqEvents::default() };
        let mut completion = notices.completions_sent.load(Ordering::Acquire);
        if let Some(channel) = &notices.completions {
            let mine = CompletionRecord { user_handle: notices.user_handle };
            completion = completion.saturating_sub(channel.remove(|record| record == mine.bytes()) as u32);
        }
        CqEvents { completion, asynchronous: taken_back(&notices, channel) }
    }

    /// Hears of a shared receive queue.
    pub fn add_srq(&self, srqn: u32, notices: Arc<Notices>) {
        self.state().srqs.insert(srqn, notices);
    }

    /// A shared receive queue is gone: how many events of it the program read.
    pub fn remove_srq(&self, srqn: u32) -> u32 {
        let (notices, channel) = {
            let mut state = self.state();
            (state.srqs.remove(&srqn), state.asynchronous.clone())
        };
        notices.map_or(0, |notices| taken_back(&notices, channel))
    }

    /// A queue pair is gone: how many events of it the program read.
    pub fn remove_qp(&self, qpn: u32) -> u32 {
        let (notices, channel) = {
            let mut state = self.state();
            (state.qps.remove(&qpn), state.asynchronous.clone())
        };
        notices.map_or(0, |notices| taken_back(&notices, channel))
    }

    /// Takes an event queue entry.
    fn take(&self, entry: &[u8; 64]) {
        let kind = eqe::EVENT_TYPE.get(entry);
        let state = self.state();
        let qp = || state.qps.get(&eqe::OBJECT.get(entry));
        match kind {
            kind if kind == eqe::event::COMPLETION as u32 => {
                if let Some(notices) = state.cqs.get(&eqe::OBJECT.get(entry)) {
                    complete(notices);
                }
            }
            kind if kind == eqe::event::CQ_ERROR as u32 => {
                let cq = state.cqs.get(&eqe::CQ_ERROR_CQN.get(entry));
                state.tell_of(cq, event::CQ_ERROR);
            }
            kind if kind == eqe::event::PORT_CHANGE as u32 => {
                let port = eqe::PORT_NUM.get(entry) as u64;
                match eqe::SUB_TYPE.get(entry) as u8 {
                    eqe::port::DOWN => state.tell(port, event::PORT_ERROR),
                    eqe::port::ACTIVE => state.tell(port, event::PORT_ACTIVE),
                    _ => {}
                }
            }
            kind if kind == eqe::event::INTERNAL_ERROR as u32 => state.tell(0, event::DEVICE_FATAL),
            kind if kind == eqe::event::WQ_CATASTROPHIC as u32 => state.tell_of(qp(), event::QP_FATAL),
            kind if kind == eqe::event::WQ_INVALID_REQUEST as u32 => state.tell_of(qp(), event::QP_REQUEST),
            kind if kind == eqe::event::WQ_ACCESS as u32 => state.tell_of(qp(), event::QP_ACCESS),
            kind if kind == eqe::event::LAST_WQE as u32 => state.tell_of(qp(), event::LAST_WQE),
            kind if kind == eqe::event::RQ_LIMIT as u32 => {
                state.tell_of(state.srqs.get(&eqe::OBJECT.get(entry)), event::SRQ_LIMIT);
            }
            COMMUNICATION_ESTABLISHED => state.tell_of(qp(), event::ESTABLISHED),
            SEND_QUEUE_DRAINED => state.tell_of(qp(), event::SQ_DRAINED),
            _ => {}
        }
    }
}

impl State {
    /// Lets go of channels that the program closed and no queue has. It closes them without a word to anybody.
    fn forget_closed(&mut self) {
        self.channels.retain(|channel| Arc::strong_count(channel) > 1 || channel.is_open());
    }

    /// Tells of something that is no queue's.
    fn tell(&self, element: u64, kind: u32) {
        let record = AsyncRecord { element, kind, reserved: 0 };
        if let Some(channel) = &self.asynchronous {
            channel.send(record.bytes());
        }
    }

    /// Tells of a queue or queue pair.
    fn tell_of(&self, notices: Option<&Arc<Notices>>, kind: u32) {
        let Some(notices) = notices else { return };
        let record = AsyncRecord { element: notices.user_handle, kind, reserved: 0 };
        let channel = notices.asynchronous.as_ref().or(self.asynchronous.as_ref());
        if channel.is_some_and(|channel| channel.send(record.bytes())) {
            notices.asynchronous_sent.fetch_add(1, Ordering::AcqRel);
        }
    }
}

fn complete(notices: &Notices) {
    let record = CompletionRecord { user_handle: notices.user_handle };
    if notices.completions.as_ref().is_some_and(|channel| channel.send(record.bytes())) {
        notices.completions_sent.fetch_add(1, Ordering::AcqRel);
    }
}

/// Takes back the asynchronous events the program did not read, and says how many it did.
fn taken_back(notices: &Notices, common: Option<Arc<Channel>>) -> u32 {
    let sent = notices.asynchronous_sent.load(Ordering::Acquire);
    let channel = notices.asynchronous.clone().or(common);
    let mine = |record: &[u8]| {
        let record = AsyncRecord::from_bytes(record);
        let of_ports = event::DEVICE_FATAL..event::SRQ_LIMIT;
        record.element == notices.user_handle && !of_ports.contains(&record.kind)
    };
    match (sent, channel) {
        (0, _) | (_, None) => sent,
        (_, Some(channel)) => sent - (channel.remove(mine) as u32).min(sent),
    }
}
