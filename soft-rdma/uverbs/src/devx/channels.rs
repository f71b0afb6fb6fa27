//! Channels of the provider: events that programs ask for by object and type, and answers of queries that nobody
//! waited for. A channel is a pair of sockets that keep records apart.
//!
//! Two things are not as in the kernel. A record that is read into too small a buffer is cut rather than refused; and
//! when a program lets its channel run full, further events are lost without a word rather than with EOVERFLOW.

use super::policy::{self, CQ, Kind, QP, RMP};
use crate::ioctl::{Context, FileId, Resource};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec, write};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use shunt_layout::mlx5::eqe;
use shunt_soft_machine::devices::{EventSink, Nic, SubscriptionId};
use shunt_soft_machine::log::Level;
use shunt_soft_machine::thread;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Descriptors of our own lie above those that programs count on.
pub(super) const HIGH_FD: i32 = 200;
/// Bytes of answers on their way to one channel.
const ASKED_MAX: usize = 1 << 20;

/// The kind of object that an event is about, and where its number stands.
fn subject(eqe: &[u8; 64]) -> (Option<&'static Kind>, u32) {
    match eqe::EVENT_TYPE.get(eqe) as u16 {
        0x00 => (Some(CQ), eqe::OBJECT.get(eqe)),
        0x04 => (Some(CQ), eqe::CQ_ERROR_CQN.get(eqe)),
        0x12 | 0x14 => (Some(RMP), eqe::OBJECT.get(eqe)),
        0x09 => (None, 0),
        _ => (Some(QP), eqe::OBJECT.get(eqe)),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that may panic runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The end of a channel that records are written to.
struct Queue {
    id: FileId,
    end: OwnedFd,
}

impl Queue {
    /// A channel, and the descriptor that the program gets.
    fn new() -> Result<(Self, OwnedFd), Errno> {
        let flags = SocketFlags::CLOEXEC;
        let (for_program, ours) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let id = FileId::of(for_program.as_raw_fd())?;
        Ok((Self { id, end: fcntl_dupfd_cloexec(&ours, HIGH_FD)? }, for_program))
    }

    fn send(&self, parts: &[&[u8]]) {
        if let Err(error) = send(&self.end, &parts.concat(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            shunt_soft_machine::log!(Level::Debug, "a record found no reader: {error}");
        }
    }

    /// True once the program closed its end.
    fn is_closed(&self) -> bool {
        ready(&self.end, PollFlags::HUP)
    }
}

fn ready(fd: &OwnedFd, wanted: PollFlags) -> bool {
    let mut on = [PollFd::new(fd, wanted)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut on, Some(&at_once)).is_ok() && on[0].revents().intersects(wanted)
}

/// Where an event goes.
pub(super) enum Target {
    /// Into the channel, behind this.
    Channel { cookie: u64 },
    /// It is only counted.
    Eventfd(OwnedFd),
}

/// Events that a program asked for.
pub(super) struct Subscription {
    /// Their type.
    pub(super) kind: u16,
    /// The object they are about; none for those of the NIC.
    pub(super) object: Option<(&'static Kind, u32)>,
    pub(super) target: Target,
}

/// A channel of events.
pub(super) struct EventChannel {
    queue: Queue,
    nic: &'static Nic,
    omit_data: bool,
    subscriptions: Mutex<Vec<Subscription>>,
    sink: Mutex<Option<SubscriptionId>>,
}

impl EventChannel {
    /// Makes a channel of a file: its place in the file's table, and the descriptor that the program gets.
    pub(super) fn open(context: &Context, omit_data: bool) -> Result<(u32, OwnedFd), Errno> {
        let (queue, for_program) = Queue::new()?;
        let (id, nic) = (queue.id, context.nic());
        let (subscriptions, sink) = (Mutex::default(), Mutex::default());
        let channel = Arc::new(Self { queue, nic, omit_data, subscriptions, sink });
        *lock(&channel.sink) = Some(nic.subscribe(Box::new(Sink(channel.clone()))));
        let handle = context.insert(channel.clone());
        enter(context, id, AnyChannel::Events(Arc::downgrade(&channel)), handle)?;
        Ok((handle, for_program))
    }

    /// These events go their way from now on.
    pub(super) fn subscribe(&self, added: Vec<Subscription>) {
        lock(&self.subscriptions).extend(added);
    }
}

struct Sink(Arc<EventChannel>);

impl EventSink for Sink {
    fn event(&mut self, eqe: &[u8; 64]) {
        let (kind, subject) = (eqe::EVENT_TYPE.get(eqe) as u16, subject(eqe));
        let fits = |wanted: &&Subscription| {
            wanted.kind == kind && wanted.object.is_none_or(|(kind, number)| subject == (Some(kind), number))
        };
        for wanted in lock(&self.0.subscriptions).iter().filter(fits) {
            match &wanted.target {
                Target::Channel { cookie } if self.0.omit_data => self.0.queue.send(&[&cookie.to_ne_bytes()]),
                Target::Channel { cookie } => self.0.queue.send(&[&cookie.to_ne_bytes(), eqe]),
                Target::Eventfd(fd) if ready(fd, PollFlags::OUT) => {
                    // There was room a moment ago, and one more says nothing new.
                    let _ = write(fd, &1u64.to_ne_bytes());
                }
                Target::Eventfd(_) => {}
            }
        }
    }
}

impl Resource for EventChannel {
    fn destroy(&self, _: &Context) -> Result<(), Errno> {
        lock(&self.subscriptions).clear();
        let sink = lock(&self.sink).take();
        if let Some(sink) = sink {
            self.nic.unsubscribe(sink);
        }
        Ok(())
    }
}

/// A channel of answers.
pub(super) struct CommandChannel {
    queue: Queue,
    /// Bytes of answers that are not there yet.
    asked: AtomicUsize,
}

impl Resource for CommandChannel {
    fn destroy(&self, _: &Context) -> Result<(), Errno> {
        Ok(())
    }
}

impl CommandChannel {
    /// Makes a channel of a file: its place in the file's table, and the descriptor that the program gets.
    pub(super) fn open(context: &Context) -> Result<(u32, OwnedFd), Errno> {
        let (queue, for_program) = Queue::new()?;
        let id = queue.id;
        let channel = Arc::new(Self { queue, asked: AtomicUsize::new(0) });
        let handle = context.insert(channel.clone());
        enter(context, id, AnyChannel::Commands(Arc::downgrade(&channel)), handle)?;
        Ok((handle, for_program))
    }

    /// Executes a mailbox while the program does something else.
    pub(super) fn query(
        self: Arc<Self>,
        nic: &'static Nic,
        mailbox: Vec<u8>,
        cookie: u64,
        bytes: usize,
    ) -> Result<(), Errno> {
        if self.asked.fetch_add(bytes, Ordering::AcqRel) + bytes > ASKED_MAX {
            self.asked.fetch_sub(bytes, Ordering::AcqRel);
            return Err(Errno::AGAIN);
        }
        let channel = self.clone();
        let ask = move || {
            let mut answer = vec![0; bytes];
            if nic.command(&mailbox, &mut answer).is_err() {
                policy::unanswered(&mut answer);
            }
            channel.queue.send(&[&cookie.to_ne_bytes(), &answer]);
            channel.asked.fetch_sub(bytes, Ordering::AcqRel);
        };
        thread::in_thread("soft-rdma query", ask).map_err(|_| {
            self.asked.fetch_sub(bytes, Ordering::AcqRel);
            Errno::AGAIN
        })
    }
}

/// A channel of either kind, the file it belongs to, and its place in that file's table.
struct Known {
    channel: AnyChannel,
    file: FileId,
    handle: u32,
}

enum AnyChannel {
    Events(Weak<EventChannel>),
    Commands(Weak<CommandChannel>),
}

/// All channels, by what the program's descriptors of them are known by.
static CHANNELS: Mutex<Option<HashMap<FileId, Known>>> = Mutex::new(None);

/// Makes a channel known, and forgets those of the same file that the program closed.
fn enter(context: &Context, id: FileId, channel: AnyChannel, handle: u32) -> Result<(), Errno> {
    let file = FileId::of(context.file().as_raw_fd())?;
    let mut closed = Vec::new();
    {
        let mut channels = lock(&CHANNELS);
        let channels = channels.get_or_insert_default();
        channels.retain(|_, known| {
            let gone = match &known.channel {
                AnyChannel::Events(channel) => {
                    channel.upgrade().is_none_or(|channel| channel.queue.is_closed())
                }
                AnyChannel::Commands(channel) => {
                    channel.upgrade().is_none_or(|channel| channel.queue.is_closed())
                }
            };
            if gone && known.file == file {
                closed.push((known.handle, matches!(known.channel, AnyChannel::Events(_))));
            }
            !gone || known.file != file
        });
        channels.insert(id, Known { channel, file, handle });
    }
    for (handle, events) in closed {
        // One that is gone already is as good.
        let _ = match events {
            true => context.destroy::<EventChannel>(handle).map(|_| ()),
            false => context.destroy::<CommandChannel>(handle).map(|_| ()),
        };
    }
    Ok(())
}

/// The channel of events that a program's descriptor is.
pub(super) fn event_channel(fd: RawFd) -> Result<Arc<EventChannel>, Errno> {
    let id = FileId::of(fd)?;
    match lock(&CHANNELS).as_ref().and_then(|channels| channels.get(&id)).map(|known| &known.channel) {
        Some(AnyChannel::Events(channel)) => channel.upgrade().ok_or(Errno::BADF),
        Some(AnyChannel::Commands(_)) => Err(Errno::INVAL),
        None => Err(Errno::BADF),
    }
}

/// The channel of answers that a program's descriptor is.
pub(super) fn command_channel(fd: RawFd) -> Result<Arc<CommandChannel>, Errno> {
    let id = FileId::of(fd)?;
    match lock(&CHANNELS).as_ref().and_then(|channels| channels.get(&id)).map(|known| &known.channel) {
        Some(AnyChannel::Commands(channel)) => channel.upgrade().ok_or(Errno::BADF),
        Some(AnyChannel::Events(_)) => Err(Errno::INVAL),
        None => Err(Errno::BADF),
    }
}

/// An object is gone: a later one of the same number is another.
pub(super) fn forget(nic: &Nic, kind: &'static Kind, number: u32) {
    let channels: Vec<Arc<EventChannel>> = lock(&CHANNELS)
        .iter()
        .flat_map(HashMap::values)
        .filter_map(|known| match &known.channel {
            AnyChannel::Events(channel) => channel.upgrade(),
            AnyChannel::Commands(_) => None,
        })
        .filter(|channel| channel.nic.index() == nic.index())
        .collect();
    for channel in channels {
        lock(&channel.subscriptions).retain(|wanted| wanted.object != Some((kind, number)));
    }
}
