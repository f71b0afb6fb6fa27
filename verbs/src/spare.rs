//! A queue pair of this library's own that stands in for the program's: on another NIC, or on the first one once the
//! program's own was fenced.

use crate::objects::{At, Channel, Domain};
use crate::real;
use crate::settings::{Atomics, settings};
use crate::work_request;
use rustc_hash::FxHashMap;
use shunt_mlx5::error::NicError;
use shunt_mlx5_sys::{
    IBV_QPT_RC, IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED, IBV_WR_RDMA_WRITE,
    ibv_context, ibv_context_ops, ibv_cq, ibv_pd, ibv_qp, ibv_qp_cap, ibv_qp_init_attr, ibv_recv_wr,
    ibv_send_wr, ibv_sge, ibv_wc,
};
use shunt_verbs_journal::request::{Data, Kind, Piece, Receive, Request};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// Completions that are taken at once.
const BATCH: usize = 16;
/// Probes under way, at most. None is where a request of the program's is, so they need no room beside those: room
/// for both made the rings twice as large where a program asks for a power of two.
pub const PROBES: u32 = 16;
/// The number of a probe: no request has it.
const PROBE: u64 = u64::MAX;

/// Remote keys on the peer's backup NICs, by the rail and key that its program gave away, and the backup's rail.
pub type Keys = FxHashMap<(u32, u32, u32), u32>;

/// Its objects.
#[derive(Clone, Copy)]
pub struct Parts {
    /// The queue pair.
    pub qp: At<ibv_qp>,
    /// Completions of what it sends.
    pub send_cq: At<ibv_cq>,
    /// Completions of what it receives.
    pub recv_cq: At<ibv_cq>,
}

/// The queue pair.
pub struct Spare {
    /// Its objects, until they are destroyed.
    parts: RwLock<Option<Parts>>,
    /// The table of its context, as the provider made it.
    ops: ibv_context_ops,
    /// Its number.
    pub qpn: u32,
    /// The key of the path and the incarnation that it was made for.
    pub made_for: (usize, u32),
    /// Where it lies, and where it leads.
    pub lies: Lies,
    sent: AtomicU64,
    name: String,
    /// Its completions wake the agent.
    wakes: bool,
}

/// Where a queue pair that stands in lies, and where it leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lies {
    /// Its rail.
    pub rail: u32,
    /// That is the program's own NIC: it lies in the program's own domain, and keys are the program's.
    pub at_home: bool,
    /// The rail of the other end.
    pub peer_rail: u32,
    /// The peer's rail that the program's keys are of.
    pub peer_home: u32,
}

impl Lies {
    /// The other end lies on the NIC that the program connected to.
    pub const fn peer_at_home(&self) -> bool {
        self.peer_rail == self.peer_home
    }
}

/// Where a spare is made.
pub struct Place {
    /// The context.
    pub context: At<ibv_context>,
    /// Its table.
    pub ops: ibv_context_ops,
    /// The domain.
    pub domain: At<ibv_pd>,
    /// Where it lies, and where it leads.
    pub lies: Lies,
    /// Name of the NIC.
    pub name: String,
    /// Completions are to wake the agent.
    pub channel: Option<Channel>,
}

impl Place {
    fn failed(&self, what: &'static str) -> NicError {
        let met = std::io::Error::last_os_error().to_string();
        let (want, cure) = ("made", "look at limits of locked memory and of the device");
        NicError::Unfit { nic: self.name.clone(), what, met, want, cure }
    }
}

impl Spare {
    /// Makes one like the program's, in RST.
    ///
    /// # Errors
    /// As the library answers.
    pub fn make(place: &Place, like: ibv_qp_cap, made_for: (usize, u32)) -> Result<Self, NicError> {
        let channel = place.channel.map_or(null_mut(), |channel| channel.0.0);
        let cq = |entries: u32| {
            // SAFETY: the context is open while the caller holds the place.
            At(unsafe { real::ibv_create_cq(place.context.0, entries as i32, null_mut(), channel, 0) })
        };
        let mut cap = like;
        cap.max_send_wr = cap.max_send_wr.max(PROBES);
        cap.max_recv_wr = cap.max_recv_wr.max(1);
        let send_cq = cq(cap.max_send_wr);
        let recv_cq = cq(cap.max_recv_wr);
        let destroy = || {
            for one in [send_cq, recv_cq].into_iter().filter(|one| !one.0.is_null()) {
                // SAFETY: made above, used by nobody.
                unsafe { real::ibv_destroy_cq(one.0) };
            }
        };
        if send_cq.0.is_null() || recv_cq.0.is_null() {
            let error = place.failed("completion queue");
            destroy();
            return Err(error);
        }
        let mut attr = ibv_qp_init_attr {
            send_cq: send_cq.0,
            recv_cq: recv_cq.0,
            cap,
            qp_type: IBV_QPT_RC,
            sq_sig_all: 0,
            ..ibv_qp_init_attr::default()
        };
        // SAFETY: domain and queues are alive, the attributes ours.
        let made = unsafe { real::ibv_create_qp(place.domain.0, &raw mut attr) };
        if made.is_null() {
            let error = place.failed("queue pair");
            destroy();
            return Err(error);
        }
        // SAFETY: just made.
        let qpn = unsafe { (*made).qp_num };
        let Place { ops, lies, name, .. } = place;
        let spare = Self {
            parts: RwLock::new(Some(Parts { qp: At(made), send_cq, recv_cq })),
            ops: *ops,
            qpn,
            made_for,
            lies: *lies,
            sent: AtomicU64::new(0),
            name: name.clone(),
            wakes: !channel.is_null(),
        };
        spare.arm();
        Ok(spare)
    }

    /// The next completion of each queue wakes the agent, or one that nobody has taken does.
    pub fn arm(&self) {
        let parts = self.parts();
        let Some((parts, arm)) = parts.as_ref().zip(self.ops.req_notify_cq).filter(|_| self.wakes) else {
            return;
        };
        // SAFETY: both are alive while the guard is held.
        unsafe {
            arm(parts.send_cq.0, 0);
            arm(parts.recv_cq.0, 0);
        }
    }

    /// Its objects, which stay while the answer is held.
    pub fn parts(&self) -> RwLockReadGuard<'_, Option<Parts>> {
        self.parts.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Index of the next request.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Acquire)
    }

    /// Destroys it, unless that was done.
    pub fn destroy(&self) {
        let mut parts = self.parts.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(Parts { qp, send_cq, recv_cq }) = parts.take() {
            // SAFETY: nobody uses them: the lock is held for writing, and they are not given out any more.
            unsafe {
                real::ibv_destroy_qp(qp.0);
                real::ibv_destroy_cq(send_cq.0);
                real::ibv_destroy_cq(recv_cq.0);
            }
        }
    }

    fn poll(&self, which: impl Fn(&Parts) -> At<ibv_cq>, mut take: impl FnMut(&ibv_wc)) {
        let mut wcs = [ibv_wc::default(); BATCH];
        let parts = self.parts();
        let Some((cq, poll)) = parts.as_ref().map(which).zip(self.ops.poll_cq) else { return };
        loop {
            // SAFETY: the queue is alive while the guard is held, and the array has this much room.
            let count = unsafe { poll(cq.0, BATCH as i32, wcs.as_mut_ptr()) };
            let count = usize::try_from(count).unwrap_or_default().min(BATCH);
            wcs[..count].iter().for_each(&mut take);
            if count < BATCH {
                return;
            }
        }
    }

    /// Takes completions of what it sent, but those of probes.
    pub fn poll_sends(&self, mut take: impl FnMut(&ibv_wc)) {
        self.poll(
            |parts| parts.send_cq,
            |wc| {
                if wc.wr_id != PROBE {
                    take(wc)
                }
            },
        );
    }

    /// Takes completions of what it received.
    pub fn poll_receives(&self, take: impl FnMut(&ibv_wc)) {
        self.poll(|parts| parts.recv_cq, take);
    }

    /// Takes completions of probes: whether each was executed.
    pub fn poll_probes(&self, mut take: impl FnMut(bool)) {
        self.poll(|parts| parts.send_cq, |wc| take(wc.status == 0));
    }

    fn post(&self, wr: &mut ibv_send_wr) -> bool {
        let parts = self.parts();
        let Some((parts, post)) = parts.as_ref().zip(self.ops.post_send) else { return false };
        let mut bad = null_mut();
        // SAFETY: the queue pair is alive while the guard is held; the request and what it names are the caller's.
        let posted = unsafe { post(parts.qp.0, wr, &raw mut bad) } == 0;
        self.sent.fetch_add(u64::from(posted), Ordering::AcqRel);
        posted
    }

    /// Posts a WRITE of nothing.
    pub fn post_probe(&self) -> bool {
        self.post(&mut ibv_send_wr {
            wr_id: PROBE,
            opcode: IBV_WR_RDMA_WRITE,
            send_flags: IBV_SEND_SIGNALED,
            ..ibv_send_wr::default()
        })
    }

    /// Posts a request under its number. One that was executed becomes a WRITE of nothing, unless it is a READ. False
    /// if there is no room, a key is not known (yet), or an atomic would go to another NIC than it may.
    pub fn post_send(
        &self,
        of: &Domain,
        keys: &Keys,
        number: u64,
        request: &Request,
        executed: bool,
    ) -> bool {
        let mut wr = ibv_send_wr {
            wr_id: number,
            opcode: IBV_WR_RDMA_WRITE,
            send_flags: IBV_SEND_SIGNALED,
            ..ibv_send_wr::default()
        };
        if request.fence {
            wr.send_flags |= IBV_SEND_FENCE;
        }
        if executed && request.kind != Kind::Read {
            return self.post(&mut wr);
        }
        if request.solicited {
            wr.send_flags |= IBV_SEND_SOLICITED;
        }
        if request.kind.is_atomic() && !self.takes_atomics() {
            return false;
        }
        let rkey = if matches!(request.kind, Kind::Send(_)) { Some(0) } else { self.rkey(keys, request) };
        let Some(rkey) = rkey else { return false };
        work_request::fill(&mut wr, request.kind, request.remote, rkey);
        let mut pieces = match &request.data {
            Data::Inline(bytes) => {
                wr.send_flags |= IBV_SEND_INLINE;
                let addr = bytes.as_ptr().expose_provenance() as u64;
                vec![ibv_sge { addr, length: bytes.len() as u32, lkey: 0 }]
            }
            Data::Pieces(pieces) => match self.pieces(of, pieces) {
                Some(pieces) => pieces,
                None => return false,
            },
        };
        wr.sg_list = pieces.as_mut_ptr();
        wr.num_sge = pieces.len() as i32;
        self.post(&mut wr)
    }

    /// True if atomics may go there.
    pub fn takes_atomics(&self) -> bool {
        self.lies.peer_at_home() || settings().atomics == Atomics::Move
    }

    fn rkey(&self, keys: &Keys, request: &Request) -> Option<u32> {
        // Nothing is reached by a request of no bytes: its key is not looked at.
        if self.lies.peer_at_home() || request.data.length() == 0 {
            return Some(request.rkey);
        }
        keys.get(&(self.lies.peer_home, request.rkey, self.lies.peer_rail)).copied()
    }

    fn pieces(&self, of: &Domain, pieces: &[Piece]) -> Option<Vec<ibv_sge>> {
        let regions = (!self.lies.at_home).then(|| of.regions());
        let key = |piece: &Piece| match &regions {
            Some(regions) if piece.length > 0 => regions.lkeys.get(&(self.lies.rail, piece.lkey)).copied(),
            _ => Some(piece.lkey),
        };
        let one =
            |piece: &Piece| Some(ibv_sge { addr: piece.address, length: piece.length, lkey: key(piece)? });
        pieces.iter().map(one).collect()
    }

    /// Posts a receive. False if there is no room, or a key is not known (yet).
    pub fn post_receive(&self, of: &Domain, receive: &Receive) -> bool {
        let Some(mut pieces) = self.pieces(of, &receive.pieces) else { return false };
        let mut wr = ibv_recv_wr {
            wr_id: receive.wr_id,
            next: null_mut(),
            sg_list: pieces.as_mut_ptr(),
            num_sge: pieces.len() as i32,
        };
        let parts = self.parts();
        let Some((parts, post)) = parts.as_ref().zip(self.ops.post_recv) else { return false };
        let mut bad = null_mut();
        // SAFETY: the queue pair is alive while the guard is held; request and buffers are alive as well.
        unsafe { post(parts.qp.0, &raw mut wr, &raw mut bad) == 0 }
    }

    /// Name of its NIC.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        self.destroy();
    }
}
