//! Switch records as an operator reads them: which channel, from which path to which, why, and how long each
//! stage took.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use shunt_layout::state::{CauseKind, PathIdentity, SwitchKind, SwitchRecord};
use std::fmt;
use std::net::Ipv6Addr;

/// One switch, as JSON has it. Stages are microseconds.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct SwitchLine {
    /// PE that switched.
    pub pe: u32,
    /// Index of the channel.
    pub channel: u32,
    /// Path left, e.g. `0.1>1.0`: PE 0's rail 1 to PE 1's rail 0.
    pub from: String,
    /// Path entered; empty if there was none.
    pub to: String,
    /// Why.
    pub cause: &'static str,
    /// From the latest planned fault on a rail of the path left to the moment it was noticed. A fault counts
    /// once for a channel; `null` where there is none, and for a switch-back, which waits on purpose.
    pub detect_us: Option<f64>,
    /// Noticed to fenced: closing, settling, both halves in ERR, truth, placement flush. Of a switch-back:
    /// the drain.
    pub fence_us: f64,
    /// Fenced to the cut stored.
    pub cut_us: f64,
    /// Cut to the journal written into the new ring. Holds the wait for a path where none was there.
    pub replay_us: f64,
    /// Replayed to open.
    pub open_us: f64,
    /// Operations of the journal that were sent again.
    pub replayed: u64,
    /// No path was there for a while: the stage before the replay is a wait.
    #[serde(skip)]
    pub waited: bool,
    /// What the record tells of.
    #[serde(skip)]
    pub kind: Option<SwitchKind>,
    /// Peer of the channel.
    pub peer: u32,
    /// Noticed, nanoseconds since the start of the stream; milliseconds in JSON.
    #[serde(rename = "noticed_ms", serialize_with = "in_ms")]
    #[schemars(with = "f64")]
    pub noticed_ns: u64,
    /// Opened, nanoseconds since the start of the stream; milliseconds in JSON.
    #[serde(rename = "opened_ms", serialize_with = "in_ms")]
    #[schemars(with = "f64")]
    pub opened_ns: u64,
    /// Syndrome and vendor syndrome << 8.
    #[serde(skip)]
    pub syndrome: u32,
    /// A dead channel that tried no other path: a program error, no fault tolerance, or no fence.
    #[serde(skip)]
    pub failed_at_once: bool,
    /// True if the cut came from the ledger.
    #[serde(skip)]
    pub ledger: bool,
    /// Both ends of the path left, for people.
    #[serde(skip)]
    pub left: String,
    /// Both ends of the path entered.
    #[serde(skip)]
    pub entered: String,
}

fn in_ms<S: Serializer>(ns: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(*ns as f64 / 1e6)
}

fn kind_of(raw: u32) -> Option<SwitchKind> {
    [SwitchKind::Failover, SwitchKind::SwitchBack, SwitchKind::Dead]
        .into_iter()
        .find(|kind| *kind as u32 == raw)
}

/// `0.1>1.0`.
pub fn path_name(pe: u32, peer: u32, identity: &PathIdentity) -> String {
    format!("{pe}.{}>{peer}.{}", identity.local_rail, identity.remote_rail)
}

fn rail_name(name: &[u8; 16]) -> String {
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).into_owned()
}

/// `mlx5_0 ::ffff:10.0.0.1 qpn 0x000040 > mlx5_0 ::ffff:10.0.0.2 qpn 0x000041`.
pub fn ends(identity: &PathIdentity) -> String {
    let end = |name: &[u8; 16], gid: [u8; 16], lid: u16, qpn: u32| {
        let lid = if lid == 0 { String::new() } else { format!(" lid {lid}") };
        format!("{} {}{lid} qpn {qpn:#08x}", rail_name(name), Ipv6Addr::from(gid))
    };
    let here = end(&identity.local_rail_name, identity.local_gid, identity.local_lid, identity.local_qpn);
    let there =
        end(&identity.remote_rail_name, identity.remote_gid, identity.remote_lid, identity.remote_qpn);
    format!("{here} > {there}")
}

/// A planned fault that may be what a switch noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Nanoseconds since the start of the stream.
    pub at_ns: u64,
    /// PE of the rail.
    pub pe: u32,
    /// The rail; none if all of the PE's are hit.
    pub rail: Option<u32>,
}

impl Planned {
    fn hits(&self, pe: u32, rail: u32) -> bool {
        self.pe == pe && self.rail.is_none_or(|hit| hit == rail)
    }
}

/// The time a channel was seen without any path, by the PE that sends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pathless {
    /// PE.
    pub pe: u32,
    /// Peer of the channel.
    pub peer: u32,
    /// Index of the channel.
    pub channel: u32,
    /// Since when.
    pub since_ns: u64,
}

/// All switches in order of time. Each planned fault is noticed once by a channel: what a channel notices
/// later has another reason.
pub fn lines(records: &[(u32, SwitchRecord)], planned: &[Planned], pathless: &[Pathless]) -> Vec<SwitchLine> {
    let mut records: Vec<_> = records.iter().collect();
    records.sort_by_key(|(_, record)| record.stamps[0]);
    let mut used: Vec<(u32, u32, u32, usize)> = Vec::new();
    let mut out = Vec::new();
    for (pe, record) in records {
        let mut line = SwitchLine::new(*pe, record);
        if line.kind != Some(SwitchKind::SwitchBack) {
            let on_path = |fault: &Planned| {
                fault.at_ns <= line.noticed_ns
                    && (fault.hits(*pe, record.left.local_rail)
                        || fault.hits(record.peer, record.left.remote_rail))
            };
            let mut latest = None;
            for (number, fault) in planned.iter().enumerate().filter(|(_, fault)| on_path(fault)) {
                let mark = (*pe, record.peer, record.channel, number);
                if !used.contains(&mark) {
                    used.push(mark);
                    latest = latest.max(Some(fault.at_ns));
                }
            }
            line.detect_us = latest.map(|at| (line.noticed_ns - at) as f64 / 1e3);
        }
        let own = |seen: &Pathless| {
            (seen.pe, seen.peer, seen.channel) == (*pe, record.peer, record.channel)
                && (line.noticed_ns..=line.opened_ns).contains(&seen.since_ns)
        };
        line.waited = pathless.iter().any(own);
        out.push(line);
    }
    out
}

impl SwitchLine {
    /// Reads a record of `pe`. What took no part in it is left out: [`lines`] adds faults and waits.
    pub fn new(pe: u32, record: &SwitchRecord) -> Self {
        let [noticed, _closed, fenced, cut, replayed, opened] = record.stamps;
        let us = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e3;
        // A stage that was not reached still has the stamp of an older switch, or none: it took no time.
        let failed_at_once = fenced < noticed;
        let fenced = fenced.max(noticed);
        let cut = cut.max(fenced);
        let replayed = replayed.max(cut);
        let kind = kind_of(record.kind);
        let dead = kind == Some(SwitchKind::Dead);
        Self {
            pe,
            channel: record.channel,
            from: path_name(pe, record.peer, &record.left),
            to: if dead { String::new() } else { path_name(pe, record.peer, &record.entered) },
            cause: CauseKind::from_raw(record.cause).name(),
            detect_us: None,
            fence_us: us(noticed, fenced),
            cut_us: us(fenced, cut),
            replay_us: us(cut, replayed),
            open_us: us(replayed, opened),
            replayed: record.journal_end.saturating_sub(record.executed.max(record.done_at_close)),
            waited: false,
            kind,
            peer: record.peer,
            noticed_ns: noticed,
            opened_ns: opened,
            syndrome: record.syndrome,
            failed_at_once: failed_at_once && dead,
            ledger: record.ledger != 0,
            left: ends(&record.left),
            entered: if dead { String::new() } else { ends(&record.entered) },
        }
    }
}

impl fmt::Display for SwitchLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            Some(SwitchKind::Failover) => "failover",
            Some(SwitchKind::SwitchBack) => "switch-back",
            Some(SwitchKind::Dead) if self.failed_at_once => "channel failed",
            Some(SwitchKind::Dead) => "no path left",
            None => "unknown record",
        };
        let to = if self.to.is_empty() { "none" } else { &self.to };
        write!(
            f,
            "{what}  channel {}>{}#{}  {} to {to}  cause {}",
            self.pe, self.peer, self.channel, self.from, self.cause
        )?;
        if self.syndrome != 0 {
            write!(f, " syndrome {:#04x} vendor {:#04x}", self.syndrome & 0xff, self.syndrome >> 8)?;
        }
        match self.detect_us {
            Some(detect) => write!(f, "\n    detect {detect:.1}  ")?,
            None => write!(f, "\n    detect -  ")?,
        }
        let fence = if self.kind == Some(SwitchKind::SwitchBack) { "drain" } else { "fence" };
        write!(f, "{fence} {:.1}  ", self.fence_us)?;
        if self.kind == Some(SwitchKind::Dead) {
            let word = if self.failed_at_once { "failed" } else { "given up" };
            return write!(f, "{word} after {:.1} us\n    left    {}", self.open_us, self.left);
        }
        // The ledger is read over the new path: there the wait comes before the cut.
        let (cut, replay) = match (self.waited, self.ledger) {
            (true, true) => ("wait", "replay"),
            (true, false) => ("cut", "wait"),
            (false, _) => ("cut", "replay"),
        };
        write!(
            f,
            "{cut} {:.1}  {replay} {:.1}  open {:.1} us  replayed {}{}",
            self.cut_us,
            self.replay_us,
            self.open_us,
            self.replayed,
            if self.ledger { "  (cut from the ledger)" } else { "" }
        )?;
        write!(f, "\n    left    {}", self.left)?;
        if !self.entered.is_empty() {
            write!(f, "\n    entered {}", self.entered)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(local: u32, remote: u32) -> PathIdentity {
        let mut identity = PathIdentity { local_rail: local, remote_rail: remote, ..PathIdentity::EMPTY };
        identity.local_rail_name[..6].copy_from_slice(b"mlx5_1");
        identity.remote_gid = "::ffff:10.0.0.2".parse::<Ipv6Addr>().unwrap().octets();
        identity.local_qpn = 0x41;
        identity
    }

    fn record(kind: SwitchKind) -> SwitchRecord {
        SwitchRecord {
            sequence: 1,
            kind: kind as u32,
            cause: CauseKind::PortDown as u32,
            peer: 1,
            channel: 2,
            from: 0,
            to: 1,
            syndrome: 0x8115,
            ledger: 0,
            done_at_close: 100,
            executed: 130,
            journal_end: 164,
            generation: 1,
            stamps: [50_000, 51_000, 250_000, 252_000, 262_500, 263_000],
            left: identity(0, 0),
            entered: identity(1, 1),
            reserved: [0; 11],
        }
    }

    #[test]
    fn stages_add_up_to_the_whole_switch() {
        let line =
            lines(&[(0, record(SwitchKind::Failover))], &faults([20_000, 40_000, 60_000]), &[]).remove(0);
        assert_eq!((line.from.as_str(), line.to.as_str(), line.cause), ("0.0>1.0", "0.1>1.1", "port-down"));
        let stages = [line.detect_us.unwrap(), line.fence_us, line.cut_us, line.replay_us, line.open_us];
        assert_eq!(stages, [10.0, 200.0, 2.0, 10.5, 0.5]);
        assert_eq!(line.replayed, 34);
        let text = line.to_string();
        for part in ["channel 0>1#2", "syndrome 0x15 vendor 0x81", "mlx5_1", "::ffff:10.0.0.2", "0x000041"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn a_switch_back_has_no_detection_and_a_dead_channel_no_new_path() {
        let back = lines(&[(0, record(SwitchKind::SwitchBack))], &faults([20_000]), &[]).remove(0);
        assert_eq!(back.detect_us, None);
        let text = back.to_string();
        assert!(text.contains("detect -  drain 200.0  cut 2.0") && !text.contains("fence"), "{text}");
        let line = lines(&[(0, record(SwitchKind::Failover))], &[], &[]).remove(0);
        assert!(line.detect_us.is_none() && line.to_string().contains("detect -  fence 200.0"));
        let mut stale = record(SwitchKind::Dead);
        stale.stamps = [50_000, 51_000, 90_000, 7, 0, 190_000];
        let dead = SwitchLine::new(0, &stale);
        assert!(dead.to.is_empty() && dead.entered.is_empty());
        assert_eq!([dead.fence_us, dead.cut_us, dead.replay_us, dead.open_us], [40.0, 0.0, 0.0, 100.0]);
    }

    fn faults<const N: usize>(at: [u64; N]) -> Vec<Planned> {
        at.map(|at_ns| Planned { at_ns, pe: 0, rail: Some(0) }).to_vec()
    }

    #[test]
    fn only_a_fault_on_the_path_left_is_what_was_noticed_and_once() {
        let at = |pe: u32, rail: u32| Planned { at_ns: 20_000, pe, rail: Some(rail) };
        let one = |planned| lines(&[(0, record(SwitchKind::Failover))], &[planned], &[])[0].detect_us;
        assert_eq!((one(at(0, 0)), one(at(1, 0))), (Some(30.0), Some(30.0)));
        assert_eq!((one(at(0, 1)), one(at(1, 1)), one(at(2, 0))), (None, None, None));
        let mut later = record(SwitchKind::Failover);
        later.stamps.iter_mut().for_each(|stamp| *stamp += 500_000);
        let mut other = record(SwitchKind::Failover);
        other.channel = 3;
        let records = [(0, later), (0, record(SwitchKind::Failover)), (0, other)];
        let detect: Vec<_> = lines(&records, &[at(0, 0)], &[]).iter().map(|line| line.detect_us).collect();
        assert_eq!(detect, [Some(30.0), Some(30.0), None]);
    }

    #[test]
    fn a_time_without_any_path_is_a_wait() {
        let since = |channel, since_ns| Pathless { pe: 0, peer: 1, channel, since_ns };
        let text = |record, seen| lines(&[(0, record)], &[], &[seen])[0].to_string();
        let failover = record(SwitchKind::Failover);
        assert!(text(failover, since(2, 252_000)).contains("cut 2.0  wait 10.5  open"));
        assert!(text(failover, since(2, 300_000)).contains("replay 10.5"));
        assert!(text(failover, since(1, 252_000)).contains("replay 10.5"));
        let ledger = SwitchRecord { ledger: 1, ..failover };
        assert!(text(ledger, since(2, 251_000)).contains("wait 2.0  replay 10.5"));
    }
}
