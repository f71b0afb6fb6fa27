//! One PE in this process, the others in theirs: exchange over TCP, boards and reports by courier, packets over the
//! machine's soft fabric.

use super::board::Board;
use super::courier::Courier;
use super::entry::Entry;
use super::{AgentCut, Job, JobError, Member};
use crate::options::Options;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use shunt_device::platform::host::World;
use shunt_host::connect::bootstrap::Bootstrap;
use shunt_host::connect::oob::Oob;
use shunt_host::connect::tcp::error::SecretError;
use shunt_host::connect::tcp::{JoinError, LinkReason, Peers, TcpEnd, TcpNet, Topic};
use shunt_host::error::BootstrapError;
use shunt_host::job::Job as Place;
use shunt_soft_nic::Fabric;
use shunt_soft_nic::uplink::{UnixUplink, UplinkError};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// How long a process that kills itself gives its last report.
const LAST_REPORT: Duration = Duration::from_millis(200);

/// Why this process takes part in no run.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Its secret cannot be had.
    #[error("{0}; give a file that holds the secret and that only its owner can read")]
    Secret(SecretError),
    /// It could not join.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The exchange of command lines failed.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// Two processes were started with command lines that do not go together.
    #[error("rank {rank} was started with {theirs}, rank 0 with {ours}; give all ranks the same")]
    Disagree {
        /// Who differs.
        rank: u32,
        /// Its line.
        theirs: String,
        /// Rank 0's.
        ours: String,
    },
}

impl Refused {
    /// 2 where what was typed or set cannot be honoured, else 1.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Disagree { .. }
            | Self::Secret(_)
            | Self::Join(
                JoinError::Resolve { .. }
                | JoinError::Listen { .. }
                | JoinError::Descriptor { .. }
                | JoinError::NoInterface { .. }
                | JoinError::Value { .. },
            ) => 2,
            _ => 1,
        }
    }
}

/// A job of as many processes as PEs.
pub struct Processes {
    /// Stopped first: it talks over `net`.
    courier: Courier,
    net: TcpNet,
    fabric: String,
    /// A fence without the other end relies on it: no frame is under way for longer.
    packet_lifetime: Duration,
    /// Counts bring-ups: what an agent of an earlier one said is not for a later one.
    phase: AtomicU8,
}

impl Processes {
    /// Joins: returns when all are there and were started alike.
    ///
    /// # Errors
    /// Why not.
    pub fn join(options: &Options, place: &Place) -> Result<Self, Refused> {
        let joining = place.join().map_err(|error| match error {
            JoinError::Secret(error) => Refused::Secret(error),
            other => Refused::Join(other),
        })?;
        let net = TcpNet::join(joining.options)?;
        let mine = options.shared_lines().join("\n");
        let all = net.bootstrap().all_gather(mine.as_bytes())?;
        if let Some(refused) = difference(&all) {
            return Err(refused);
        }
        let peers = net.clone();
        let gone = move |rank| describe_death(&peers, rank);
        let end = Box::new(net.end(Topic::App));
        let courier = Courier::start(place.rank, place.world, end, Box::new(gone));
        let packet_lifetime = Duration::from_nanos(options.environment.config.packet_lifetime_ns);
        Ok(Self { courier, net, fabric: joining.fabric, packet_lifetime, phase: AtomicU8::new(0) })
    }
}

/// The first line in which a rank differs from rank 0.
fn difference(all: &[Vec<u8>]) -> Option<Refused> {
    let lines =
        |bytes: &[u8]| -> Vec<String> { String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect() };
    let ours = lines(all.first()?);
    (0..).zip(all).skip(1).find_map(|(rank, theirs)| {
        let theirs = lines(theirs);
        let longest = ours.len().max(theirs.len());
        let line = |of: &[String], at: usize| of.get(at).cloned().unwrap_or_else(|| "less".to_owned());
        let at = (0..longest).find(|at| line(&ours, *at) != line(&theirs, *at))?;
        Some(Refused::Disagree { rank, theirs: line(&theirs, at), ours: line(&ours, at) })
    })
}

/// What is known of a process that cannot be reached any more.
fn describe_death(net: &TcpNet, rank: u32) -> Option<String> {
    if rank == net.rank() {
        return None;
    }
    let link = net.peer(rank);
    if link.up {
        return None;
    }
    let ago = format!("{} ms before", link.since.elapsed().as_millis());
    Some(match link.reason {
        LinkReason::Connecting | LinkReason::Connected => return None,
        LinkReason::Closed => {
            format!("the process of PE {rank} is gone: its system closed the connection {ago}")
        }
        LinkReason::Refused => {
            format!("the process of PE {rank} is gone: its address refuses connections, {ago}")
        }
        LinkReason::Left => format!("the process of PE {rank} has left the job, {ago}"),
        LinkReason::TimedOut => format!("the process of PE {rank} does not answer: timed out {ago}"),
        LinkReason::Failed(why) => format!("the process of PE {rank} cannot be reached: {why}, {ago}"),
    })
}

/// An agent's end that hears its own bring-up only.
struct PhasedEnd {
    end: TcpEnd,
    phase: u8,
}

impl Oob for PhasedEnd {
    fn send(&self, to_pe: u32, mut bytes: Vec<u8>) {
        bytes.push(self.phase);
        self.end.send(to_pe, bytes);
    }

    fn try_recv(&self) -> Option<(u32, Vec<u8>)> {
        loop {
            let (from, mut bytes) = self.end.try_recv()?;
            if bytes.pop() == Some(self.phase) {
                return Some((from, bytes));
            }
        }
    }

    fn reachable(&self, pe: u32) -> bool {
        self.end.reachable(pe)
    }
}

impl Job for Processes {
    fn pes(&self) -> u32 {
        self.net.world()
    }

    fn own(&self) -> Range<u32> {
        self.net.rank()..self.net.rank() + 1
    }

    fn rank(&self) -> u32 {
        self.net.rank()
    }

    fn members(&self, _: &Arc<dyn World>) -> Vec<Member> {
        let phase = self.phase.fetch_add(1, Ordering::AcqRel) + 1;
        let end = PhasedEnd { end: self.net.end(Topic::Agent), phase };
        vec![Member { pe: self.rank(), bootstrap: Box::new(self.net.bootstrap()), oob: Box::new(end) }]
    }

    fn attach(&self, fabric: &mut Fabric) -> Result<(), JobError> {
        let link = |error: UplinkError| {
            let own = "; give each job a fabric of its own: --fabric NAME";
            let hint = if matches!(error, UplinkError::Taken { .. }) { own } else { "" };
            JobError::Link(format!("fabric {}: {error}{hint}", self.fabric))
        };
        let uplink = UnixUplink::open(&self.fabric, &[]).map_err(link)?;
        fabric.attach(Box::new(uplink.with_lifetime(self.packet_lifetime))).map_err(link)
    }

    fn mates(&self, ports: &str) -> Result<Vec<u32>, JobError> {
        let all = self.net.bootstrap().all_gather(ports.as_bytes())?;
        Ok((0..).zip(all).filter(|(_, theirs)| theirs == ports.as_bytes()).map(|(pe, _)| pe).collect())
    }

    fn cut_agent(&self, _: u32, cut: AgentCut) {
        match cut {
            AgentCut::Joined => self.net.cut(Topic::Agent, Peers::All, false),
            AgentCut::BothWays => self.net.cut(Topic::Agent, Peers::All, true),
            AgentCut::Says => self.net.cut_one_way(Topic::Agent, Peers::All, true),
            AgentCut::Hears => self.net.cut_one_way(Topic::Agent, Peers::All, false),
        }
    }

    fn lost_by_cuts(&self) -> u64 {
        self.net.counters().cut
    }

    /// A PE that is a process dies with it.
    fn close_agent(&self, _: u32) {}

    fn begin(&self, board: &Arc<Board>) -> Result<(), JobError> {
        self.courier.begin(board);
        self.net.bootstrap().all_gather(&[])?;
        Ok(())
    }

    fn publish(&self, entry: &Entry) {
        self.courier.publish(entry);
    }

    fn collect(&self) -> Vec<(u32, Entry)> {
        self.courier.collect()
    }

    fn close(&self) {
        self.courier.close();
    }

    fn awaited(&self) -> Vec<u32> {
        self.courier.awaited()
    }

    fn missing(&self) -> Vec<u32> {
        if self.rank() == 0 { self.courier.missing() } else { Vec::new() }
    }

    fn conclude(&self, status: u8, patience: Duration) -> Option<u8> {
        if self.rank() == 0 {
            self.courier.tell(status, patience);
            return Some(status);
        }
        self.courier.hear(patience)
    }

    fn gone(&self, pe: u32) -> Option<String> {
        self.courier.gone(pe)
    }

    fn die(&self) -> bool {
        self.courier.flush(LAST_REPORT);
        // Nobody can refuse a signal to itself.
        let _ = kill(Pid::this(), Signal::SIGKILL);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_differs_is_named_with_its_rank() {
        let all = |lines: [&str; 3]| lines.map(|line| line.as_bytes().to_vec());
        assert!(difference(&all(["a 1\nb 2", "a 1\nb 2", "a 1\nb 2"])).is_none());
        let text = difference(&all(["a 1\nb 2", "a 1\nb 2", "a 1\nb 3"])).unwrap().to_string();
        assert_eq!(text, "rank 2 was started with b 3, rank 0 with b 2; give all ranks the same");
        let text = difference(&all(["a 1\nb 2", "a 1", "a 1\nb 2"])).unwrap();
        assert!(text.to_string().contains("rank 1 was started with less") && text.exit_status() == 2);
    }
}
