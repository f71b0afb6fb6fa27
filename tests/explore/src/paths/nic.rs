//! NICs: what they do with their commands, and with the messages of both owners.

use super::drive::keep;
use super::half::Half;
use super::promises;
use super::setup::{Break, Setup};
use super::state::{Flow, Job, QpState, System};
use shunt_layout::mlx5::prm::qp::State;
use shunt_mlx5::nic::qp::{MASK_24, QpTruth};
use shunt_recovery::fenced::{FenceTimes, Fenced};
use shunt_recovery::path::{Task, outcomes};

/// How a command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Well.
    Done,
    /// The NIC answers with an error.
    Fails,
    /// Well, but the flush fails.
    Unflushed,
}

impl Setup {
    /// A NIC does one thing of a command; the last one is its answer.
    pub(super) fn command(&self, s: &mut System, at: usize, number: usize, how: How) -> Result<(), String> {
        let Some(job) = s.ends[at].nic.jobs[number] else { return Ok(()) };
        if let (Job::Fence { half, begun: false }, How::Done) = (job, how) {
            self.begin_fence(s, at, half);
            s.ends[at].nic.jobs[number] = Some(Job::Fence { half, begun: true });
            return Ok(());
        }
        s.ends[at].nic.jobs[number] = None;
        s.ends[at].nic.silent = false;
        let (well, task) = (how != How::Fails, s.ends[at].path.standing().task);
        let number = number as u64;
        let error = || "no answer".to_owned();
        match job {
            Job::Fence { half, .. } | Job::Count(half) => {
                let result = self.query(s, at, half, matches!(job, Job::Fence { .. }), how);
                if [Task::Fence(number), Task::Count(number)].contains(&task) {
                    self.with(s, at, |path, cx| outcomes::fenced(path, cx, result))?;
                }
            }
            Job::Stop(half) => {
                let known = well.then(|| self.stop(s, at, half)).flatten();
                if task == Task::Stop(number) {
                    self.with(s, at, |path, cx| outcomes::stopped(path, cx, known.ok_or_else(error)))?;
                }
            }
            Job::Look(half) => {
                let works = s.ends[at].nic.is(half.incarnation, QpState::Works) || !well;
                if task == Task::Look(number) {
                    self.with(s, at, |path, cx| outcomes::looked(path, cx, works))?;
                }
            }
            Job::Connect(half) => {
                let made = s.ends[at].nic.is(half.incarnation, QpState::Made) && well;
                let known = if made { s.ends[at].nic.set(half, QpState::Works) } else { None };
                if task == Task::Connect(number) {
                    self.with(s, at, |path, cx| outcomes::connected_here(path, cx, known.ok_or_else(error)))?;
                }
            }
            Job::Make { old, new, connect } => {
                let result = make(s, at, old, new, connect, well)?;
                if task == Task::Make(number) {
                    self.with(s, at, |path, cx| outcomes::made(path, cx, result))?;
                } else if let Ok(half) = result {
                    keep(&mut s.ends[at], half)?;
                }
            }
        }
        Ok(())
    }

    /// 2ERR.
    fn stop(&self, s: &mut System, at: usize, half: Half) -> Option<()> {
        if self.has(Break::LyingError) {
            return Some(());
        }
        s.ends[at].nic.set(half, QpState::Error)
    }

    /// 2ERR and the first query. What they say is what the second query says, unless somebody lies.
    fn begin_fence(&self, s: &mut System, at: usize, half: Half) {
        if self.has(Break::EarlyFlush) {
            flush(s, at);
        } else {
            self.stop(s, at, half);
        }
    }

    /// The flush and the second query, or a query without 2ERR.
    fn query(
        &self,
        s: &mut System,
        at: usize,
        half: Half,
        stopped: bool,
        how: How,
    ) -> Result<Fenced, String> {
        if how == How::Fails || !s.ends[at].nic.qps.iter().flatten().any(|(one, _)| *one == half) {
            return Err("no answer".into());
        }
        if self.has(Break::EarlyFlush) && stopped {
            self.stop(s, at, half);
        } else if how == How::Done {
            flush(s, at);
        }
        let lies = self.has(Break::LyingError) && stopped;
        let in_error = s.ends[at].nic.is(half.incarnation, QpState::Error) || lies;
        let same = |flow: &&Flow| flow.incarnation() == half.incarnation;
        let (sent, taken) = (Some(&s.flows[at]).filter(same), Some(&s.flows[1 - at]).filter(same));
        let executed = taken.map_or(0, |flow| u32::from(flow.executed));
        let more =
            u32::from(self.has(Break::WrongCount) && taken.is_some_and(|flow| flow.posted > flow.executed));
        let executed = executed + more;
        let truth = QpTruth {
            state: Some(if in_error { State::Err } else { State::Rts }),
            rmsn: executed,
            next_rcv_psn: taken.map_or(0, |flow| flow.from.psn + executed) & MASK_24,
            next_send_psn: (half.psn + sent.map_or(0, |flow| u32::from(flow.posted))) & MASK_24,
            last_acked_psn: half.psn.wrapping_sub(1) & MASK_24,
            in_order: true,
            ece: 0,
        };
        let flushed = how == How::Done;
        Ok(Fenced { first: truth, last: truth, flushed, stopped, times: FenceTimes::default() })
    }

    /// An old half is destroyed, or its NIC does not answer.
    pub(super) fn destroy(&self, s: &mut System, at: usize, place: usize, how: How) -> Result<(), String> {
        let nic = &mut s.ends[at].nic;
        let Some(old) = &mut nic.old[place] else { return Ok(()) };
        if how == How::Fails {
            old.refused = true;
            return Ok(());
        }
        let half = old.half;
        nic.old[place] = None;
        nic.silent = false;
        if !self.has(Break::LyingDestroy) {
            nic.drop_half(half);
        }
        let flow = Some(&s.flows[at]).filter(|flow| flow.from == half);
        let next = (half.psn + flow.map_or(0, |flow| u32::from(flow.posted))) & MASK_24;
        let age = super::setup::TICK * u64::from(s.ends[at].clock);
        outcomes::destroyed(&mut s.ends[at].path, age, Some(next));
        Ok(())
    }
}

/// Everything that a NIC executed is in memory.
fn flush(s: &mut System, at: usize) {
    s.flows[1 - at].placed = s.flows[1 - at].executed;
}

/// Destroys the old half and makes a new one.
fn make(
    s: &mut System,
    at: usize,
    old: Option<Half>,
    new: Half,
    connect: bool,
    well: bool,
) -> Result<Result<Half, String>, String> {
    let error = || Err("no answer".to_owned());
    match old {
        Some(old) if !well => {
            keep(&mut s.ends[at], old)?;
            return Ok(error());
        }
        Some(old) => s.ends[at].nic.drop_half(old),
        None if !well => return Ok(error()),
        None => {}
    }
    promises::to_be_made(s, at, new.incarnation)?;
    let nic = &mut s.ends[at].nic;
    let place = nic.qps.iter_mut().find(|qp| qp.is_none()).ok_or("a NIC has too many halves")?;
    *place = Some((new, if connect { QpState::Works } else { QpState::Made }));
    nic.qps.sort_unstable_by_key(|qp| qp.map_or(u32::MAX, |(half, _)| half.incarnation));
    nic.made |= 1 << new.incarnation;
    s.flows[at] = Flow::new(new);
    Ok(Ok(new))
}

/// True if the next message of an end can be executed.
pub(super) fn can_execute(s: &System, from: usize) -> bool {
    let flow = &s.flows[from];
    let up = s.ends.iter().all(|end| end.nic.up);
    let more = flow.executed < flow.posted && !flow.gone;
    more && up && s.ends[1 - from].nic.is(flow.incarnation(), QpState::Works)
}

/// A packet lifetime passes: what left a half that cannot send any more is gone, and what a half took that takes no
/// more is in memory.
pub(super) fn lifetime_passes(s: &mut System) {
    for from in [0, 1] {
        let incarnation = s.flows[from].incarnation();
        let ended = [from, 1 - from].map(|at| !s.ends[at].nic.is_alive(incarnation));
        let flow = &mut s.flows[from];
        flow.gone |= ended[0];
        if ended != [false; 2] {
            flow.placed = flow.executed;
        }
    }
}
