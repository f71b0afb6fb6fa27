//! A NIC whose firmware lies: [`Devx`] that passes everything on and bends what the fence rests on.
//!
//! Some lies the library must see through (a count that its start-up proof or its cross-check refutes). The others
//! take away a part of the protocol, so that a test can show that its oracle notices: the same as a mutation of the
//! library, without touching it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use shunt_host::devx::{Devx, Neighbour, PortGid, PortReport, UarPage};
use shunt_host::error::DevxError;
use shunt_host::gpu::{DmaBuf, Span};
use shunt_host::nic::mkey::MkeyShape;
use shunt_host::nic::subnet::SubnetPort;
use shunt_layout::mlx5::prm::cmd;
use shunt_layout::mlx5::prm::qp::{QPC_OFFSET, State, qpc};

/// What the firmware lies about.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// It tells the truth.
    None = 0,
    /// 2ERR is answered and not done, and QUERY says ERR: no fence.
    NoFence = 1,
    /// One message and its packet fewer were executed: a part of the journal is replayed though it was executed.
    Behind = 2,
    /// One message and its packet more were executed.
    Ahead = 3,
    /// The count is one lower than the packets say.
    CountBehind = 4,
    /// The count is one higher than the packets say.
    CountAhead = 5,
    /// The count is zero.
    CountZero = 6,
    /// A half that was moved to ERR reads as RTS.
    StillRts = 7,
    /// 2ERR is answered and not done, and QUERY shows it.
    IgnoresErr = 8,
    /// One message more was executed, at a PSN that was never sent.
    FarAhead = 9,
}

impl Lie {
    /// All lies.
    pub const ALL: [Self; 9] = [
        Self::NoFence,
        Self::Behind,
        Self::Ahead,
        Self::CountBehind,
        Self::CountAhead,
        Self::CountZero,
        Self::StillRts,
        Self::IgnoresErr,
        Self::FarAhead,
    ];
}

impl Lie {
    /// How it is called on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::NoFence => "no-fence",
            Self::Behind => "behind",
            Self::Ahead => "ahead",
            Self::CountBehind => "count-behind",
            Self::CountAhead => "count-ahead",
            Self::CountZero => "count-zero",
            Self::StillRts => "still-rts",
            Self::IgnoresErr => "ignores-err",
            Self::FarAhead => "far-ahead",
        }
    }
}

/// A firmware command that was begun or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Whose NIC.
    pub pe: u32,
    /// Which of them.
    pub rail: u32,
    /// Opcode of the command.
    pub opcode: u32,
    /// It has ended.
    pub ended: bool,
}

/// The lie that all NICs of a cluster tell at present, and the commands they hear.
#[derive(Clone, Default)]
pub struct Lies(Arc<AtomicU32>, Arc<Mutex<Option<Vec<Heard>>>>, Arc<Mutex<Vec<(u32, u32)>>>);

impl Lies {
    /// Lies like this from now on.
    pub fn tell(&self, lie: Lie) {
        self.0.store(lie as u32, Ordering::Relaxed);
    }

    /// The events of a NIC cannot be read from now on.
    pub fn deafen(&self, pe: u32, rail: u32) {
        self.2.lock().expect("no panic under this lock").push((pe, rail));
    }

    fn deaf(&self, at: (u32, u32)) -> bool {
        self.2.lock().expect("no panic under this lock").contains(&at)
    }

    /// Keeps the commands that are heard from now on.
    pub fn listen(&self) {
        *self.1.lock().expect("no panic under this lock") = Some(Vec::new());
    }

    /// How many of the commands heard `chosen` picks.
    pub fn heard(&self, chosen: impl Fn(&Heard) -> bool) -> usize {
        let heard = self.1.lock().expect("no panic under this lock");
        heard.iter().flatten().filter(|one| chosen(one)).count()
    }

    fn hear(&self, heard: Heard) {
        if let Some(all) = &mut *self.1.lock().expect("no panic under this lock") {
            all.push(heard);
        }
    }

    fn told(&self) -> Option<Lie> {
        let told = self.0.load(Ordering::Relaxed);
        Lie::ALL.into_iter().find(|lie| *lie as u32 == told)
    }
}

/// A NIC that may lie.
pub struct LyingDevx {
    nic: Arc<dyn Devx>,
    lies: Lies,
    pe: u32,
    rail: u32,
}

impl LyingDevx {
    /// `nic`, which is `rail` of `pe`, bent by `lies`.
    pub fn new(nic: Arc<dyn Devx>, lies: Lies, pe: u32, rail: u32) -> Self {
        Self { nic, lies, pe, rail }
    }
}

/// Counters of 24 bits.
const MASK: u32 = 0xff_ffff;

fn bend(lie: Lie, answer: &mut [u8]) {
    let field = |field: shunt_layout::bits::Field| field.within(QPC_OFFSET);
    let in_error = field(qpc::STATE).get(answer) == State::Err as u32;
    let add = |answer: &mut [u8], which, by: u32| {
        let value = field(which).get(answer).wrapping_add(by) & MASK;
        field(which).set(answer, value);
    };
    match lie {
        Lie::None | Lie::IgnoresErr => {}
        Lie::NoFence => field(qpc::STATE).set(answer, State::Err as u32),
        Lie::StillRts => field(qpc::STATE).set(answer, State::Rts as u32),
        _ if !in_error => {}
        Lie::Behind if field(qpc::RMSN).get(answer) > 0 => {
            add(answer, qpc::RMSN, MASK);
            add(answer, qpc::NEXT_RCV_PSN, MASK);
        }
        Lie::Behind => {}
        Lie::Ahead => {
            add(answer, qpc::RMSN, 1);
            add(answer, qpc::NEXT_RCV_PSN, 1);
        }
        Lie::FarAhead => {
            add(answer, qpc::RMSN, 1);
            add(answer, qpc::NEXT_RCV_PSN, 0x1000);
        }
        Lie::CountBehind => add(answer, qpc::RMSN, MASK),
        Lie::CountAhead => add(answer, qpc::RMSN, 1),
        Lie::CountZero => field(qpc::RMSN).set(answer, 0),
    }
}

impl Devx for LyingDevx {
    fn name(&self) -> String {
        self.nic.name()
    }

    fn command(&self, input: &[u8], output: &mut [u8]) -> Result<(), DevxError> {
        let lie = self.lies.told().unwrap_or(Lie::None);
        let opcode = cmd::input::OPCODE.get(input);
        let heard = Heard { pe: self.pe, rail: self.rail, opcode, ended: false };
        self.lies.hear(heard);
        if matches!(lie, Lie::NoFence | Lie::IgnoresErr) && opcode == cmd::Opcode::Qp2Err as u32 {
            output.fill(0);
            return Ok(());
        }
        let result = self.nic.command(input, output);
        self.lies.hear(Heard { ended: true, ..heard });
        result?;
        if opcode == cmd::Opcode::QueryQp as u32 {
            bend(lie, output);
        }
        Ok(())
    }

    unsafe fn register_umem(&self, span: Span, dmabuf: Option<DmaBuf>) -> Result<u32, DevxError> {
        // SAFETY: the same contract, forwarded to the caller.
        unsafe { self.nic.register_umem(span, dmabuf) }
    }

    fn deregister_umem(&self, id: u32) -> Result<(), DevxError> {
        self.nic.deregister_umem(id)
    }

    fn alloc_pd(&self) -> Result<u32, DevxError> {
        self.nic.alloc_pd()
    }

    fn dealloc_pd(&self, pd: u32) -> Result<(), DevxError> {
        self.nic.dealloc_pd(pd)
    }

    fn keys_need_umem(&self) -> bool {
        self.nic.keys_need_umem()
    }

    unsafe fn create_key(&self, shape: &MkeyShape, dmabuf: Option<DmaBuf>) -> Result<u32, DevxError> {
        // SAFETY: the same contract, forwarded to the caller.
        unsafe { self.nic.create_key(shape, dmabuf) }
    }

    fn destroy_key(&self, key: u32) -> Result<(), DevxError> {
        self.nic.destroy_key(key)
    }

    fn map_uar(&self) -> Result<UarPage, DevxError> {
        self.nic.map_uar()
    }

    fn free_uar(&self, id: u32) {
        self.nic.free_uar(id);
    }

    fn query_eqn(&self) -> Result<u32, DevxError> {
        self.nic.query_eqn()
    }

    fn gid(&self, index: u32) -> Result<Option<PortGid>, DevxError> {
        self.nic.gid(index)
    }

    fn gid_index(&self) -> Option<u32> {
        self.nic.gid_index()
    }

    fn port(&self) -> Result<Option<PortReport>, DevxError> {
        self.nic.port()
    }

    fn subnet(&self) -> Result<SubnetPort, DevxError> {
        self.nic.subnet()
    }

    fn resolve_mac(&self, pd: u32, neighbour: &Neighbour) -> Result<Option<[u8; 6]>, DevxError> {
        self.nic.resolve_mac(pd, neighbour)
    }

    fn next_event(&self) -> Result<Option<[u8; 64]>, DevxError> {
        if self.lies.deaf((self.pe, self.rail)) {
            let (nic, detail) = (self.name(), "it is deaf".to_owned());
            return Err(DevxError::Resource { nic, what: "event channel", detail });
        }
        self.nic.next_event()
    }

    fn responsive(&self) -> bool {
        self.nic.responsive()
    }
}
