//! `shunt status`: the status page of every PE of this machine, as table or JSON, once or again and again.

use crate::print::{self, columns};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use shunt_host::events::page::{PageError, PageReader, folder_of, pages_in};
use shunt_json::{Document, Kind};
use shunt_layout::state::CauseKind;
use shunt_layout::status::{PeerState, RailState, Standing, StatusPage};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Print the status page of every PE of this machine.
#[derive(Args)]
#[command(
    after_help = "Exit status: 0 all is well or there is no page, 1 a PE has trouble, its process is gone, \
                        or a page makes no sense, 2 bad usage."
)]
pub struct Arguments {
    /// One JSON object; with --watch one a line
    #[arg(long)]
    json: bool,
    /// Print again every second
    #[arg(long)]
    watch: bool,
    /// Folder of the pages [default: this user's, /dev/shm/shunt-UID]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// A page older than this belongs to an agent that is held up.
const OLD_NS: u64 = 1_000_000_000;

/// Files that are no pages are named up to so many.
const NAMED_FILES: usize = 3;

/// One page as it was met.
struct Met {
    path: PathBuf,
    page: Result<Box<StatusPage>, PageError>,
    alive: bool,
}

impl Met {
    fn at(path: &Path) -> Self {
        let reader = PageReader::open(path);
        let alive = reader.as_ref().is_ok_and(PageReader::is_alive);
        Self { path: path.to_owned(), page: reader.and_then(|reader| reader.page()), alive }
    }

    fn is_well(&self, now: u64) -> bool {
        let is_well = |page: &StatusPage| {
            let age = now.saturating_sub(page.summary.updated_unix_ns);
            page.summary.trouble_unix_ns == 0 && !is_cut_off(page) && age <= OLD_NS
        };
        self.alive && self.page.as_ref().is_ok_and(|page| is_well(page))
    }
}

/// Runs it; gives the exit status.
pub fn run(arguments: &Arguments) -> u8 {
    let folder = arguments.dir.clone().unwrap_or_else(|| folder_of(nix::unistd::geteuid().as_raw()));
    // A mistyped folder must not look like health. The usual one is not there before the first job.
    if arguments.dir.is_some() && !folder.is_dir() {
        shunt_host::complain!(
            "error: --dir {}: no such folder; expected the one that a job writes its status pages to",
            folder.display()
        );
        return 2;
    }
    loop {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let met: Vec<Met> = pages_in(&folder).iter().map(|path| Met::at(path)).collect();
        let out = match (arguments.json, arguments.watch) {
            (true, true) => as_json(&met, now).line() + "\n",
            (true, false) => as_json(&met, now).pretty() + "\n",
            (false, _) => as_text(&met, &folder, now),
        };
        let status = !met.iter().all(|met| met.is_well(now)) as u8;
        let Some(status) = print::written(&out).then_some(status) else { return 1 };
        let bad: Vec<&PageError> = met.iter().filter_map(|met| met.page.as_ref().err()).collect();
        for error in bad.iter().take(NAMED_FILES) {
            shunt_host::complain!("error: {error}");
        }
        if let Some(more) = bad.len().checked_sub(NAMED_FILES).filter(|more| *more > 0) {
            shunt_host::complain!(
                "error: {}: {more} more files that cannot be read as pages; expected the folder that a job writes its \
                 status pages to",
                folder.display()
            );
        }
        if !arguments.watch {
            return status;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn name(raw: &[u8]) -> String {
    let end = raw.iter().position(|byte| *byte == 0).unwrap_or(raw.len());
    String::from_utf8_lossy(&raw[..end]).into_owned()
}

/// Whether no path to a peer works now, if only for a moment.
fn is_cut_off(page: &StatusPage) -> bool {
    page.summary.worst_peer >= PeerState::Pathless as u32
}

/// Peers by state, the worst first, those that are fine left out.
fn peers(page: &StatusPage) -> Vec<(PeerState, u32)> {
    use PeerState::{Backup, Lost, Pathless, Switching, Thin};
    let count = |state: PeerState| {
        let peers = &page.peer[..page.pe_count as usize];
        (state, peers.iter().filter(|raw| PeerState::from_raw(**raw) == state).count() as u32)
    };
    let counts = [Lost, Pathless, Switching, Backup, Thin].map(count);
    counts.into_iter().filter(|(_, count)| *count > 0).collect()
}

fn seconds(ns: u64) -> String {
    format!("{:.1} s", ns as f64 / 1e9)
}

fn as_text(met: &[Met], folder: &Path, now: u64) -> String {
    if met.is_empty() {
        return format!("no status page in {}\n", folder.display());
    }
    let heads = ["PE", "PID", "JOB", "STATE", "RAILS", "PEERS", "FAILOVERS", "BACK", "AGE"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    let pages = || met.iter().filter_map(|met| Some((met, met.page.as_ref().ok()?)));
    let one_job = pages().map(|(_, page)| name(&page.job)).collect::<BTreeSet<_>>().len() == 1;
    let mut notes = String::new();
    for (met, page) in pages() {
        let summary = &page.summary;
        let age = now.saturating_sub(summary.updated_unix_ns);
        let state = match summary.trouble_unix_ns {
            _ if !met.alive => "process gone".to_owned(),
            _ if age > OLD_NS => "agent silent".to_owned(),
            0 if is_cut_off(page) => "trouble".to_owned(),
            0 => "well".to_owned(),
            since => format!("trouble for {}", seconds(now.saturating_sub(since))),
        };
        let worst = peers(page).iter().map(|(state, n)| format!("{n} {}", state.name())).collect::<Vec<_>>();
        rows.push(vec![
            format!("{} of {}", page.pe, page.pe_count),
            page.pid.to_string(),
            name(&page.job),
            state,
            format!("{} of {} up", page.rails - summary.rails_down.min(page.rails), page.rails),
            if worst.is_empty() { "fine".to_owned() } else { worst.join(", ") },
            summary.failovers.to_string(),
            summary.switchbacks.to_string(),
            seconds(age),
        ]);
        let job = if one_job { String::new() } else { name(&page.job) + ": " };
        note(page, now).lines().for_each(|line| notes += &format!("{job}{line}\n"));
    }
    columns(&rows, "") + &notes
}

/// Rails that are down, paths that an operator took out, and the last fault.
fn note(page: &StatusPage, now: u64) -> String {
    let mut out = String::new();
    for rail in page.rail[..page.rails as usize].iter().filter(|rail| rail.retired + rail.leaving > 0) {
        let drained = if rail.leaving > 0 {
            format!(", {} not drained yet", rail.leaving)
        } else {
            " and drained".to_owned()
        };
        let paths = rail.retired + rail.leaving;
        out += &format!("PE {}: {}: {paths} path(s) are taken out{drained}\n", page.pe, name(&rail.name));
    }
    for rail in page.rail[..page.rails as usize].iter().filter(|rail| rail.state == RailState::Down as u32) {
        let since = seconds(now.saturating_sub(rail.changed_unix_ns));
        out += &format!(
            "PE {}: {} is down for {since}, {} times so far\n",
            page.pe,
            name(&rail.name),
            rail.downs
        );
    }
    out += &mask_note(page);
    let fault = &page.summary.last_fault;
    if fault.noticed_unix_ns > 0 {
        out += &format!(
            "PE {}: last fault {} ago: {} on {}.{}>{}.{}, {:.1} us\n",
            page.pe,
            seconds(now.saturating_sub(fault.noticed_unix_ns)),
            CauseKind::from_raw(fault.cause).name(),
            page.pe,
            fault.local_rail,
            fault.peer,
            fault.remote_rail,
            fault.lasted_ns as f64 / 1e3
        );
    }
    out
}

/// Ranks that are left out.
fn masked(page: &StatusPage) -> Vec<u32> {
    (0..page.pe_count).filter(|rank| page.mask[*rank as usize / 64] >> (rank % 64) & 1 == 1).collect()
}

/// Who is left out, if anybody is.
fn mask_note(page: &StatusPage) -> String {
    let (pe, epoch) = (page.pe, page.summary.epoch);
    match Standing::from_raw(page.summary.standing) {
        Standing::Out => format!("PE {pe}: the others go on without it, from epoch {epoch} on\n"),
        Standing::Alone => {
            format!("PE {pe}: it found no majority and left itself out, after epoch {epoch}\n")
        }
        Standing::Member if page.summary.masked > 0 => {
            let ranks: Vec<String> = masked(page).iter().map(ToString::to_string).collect();
            format!("PE {pe}: left out from epoch {epoch} on: {}\n", ranks.join(", "))
        }
        Standing::Member | Standing::Off => String::new(),
    }
}

/// What `shunt status --json` writes.
#[derive(JsonSchema, Serialize)]
struct Pages {
    /// When they were read.
    unix_ns: u64,
    pages: Vec<PageJson>,
}

impl Kind for Pages {
    const NAME: &'static str = "shunt-status";
    const VERSION: u32 = 1;
}

#[derive(JsonSchema, Serialize)]
#[serde(untagged)]
enum PageJson {
    Read(Box<ReadPage>),
    Unreadable { file: String, error: String },
}

/// The page of a PE. Moments are nanoseconds since 1970, 0 where there was none.
#[derive(JsonSchema, Serialize)]
struct ReadPage {
    file: String,
    /// Its agent runs.
    alive: bool,
    pid: u32,
    job: String,
    pe: u32,
    pes: u32,
    started_unix_ns: u64,
    updated_unix_ns: u64,
    generation: u64,
    trouble_unix_ns: u64,
    armed_unix_ns: u64,
    rails: Vec<RailJson>,
    /// State of each PE's worst channel: `fine`, `thin`, `backup`, `switching`, `pathless` or `lost`.
    peers: Vec<&'static str>,
    last_fault: Option<LastFault>,
    channels: u32,
    on_backup: u32,
    switching: u32,
    dead: u32,
    failovers: u64,
    switchbacks: u64,
    suspicions: u64,
    fences_asked: u64,
    replayed: u64,
    placeholders: u64,
    late_tickets: u64,
    ledger_cuts: u64,
    pathless: u64,
    uncertain: u64,
    events: u64,
    events_lost: u64,
    epoch: u64,
    standing: &'static str,
    /// PEs that are left out.
    masked: Vec<u32>,
}

#[derive(JsonSchema, Serialize)]
struct RailJson {
    name: String,
    /// `up`, `down` or `absent`.
    state: &'static str,
    downs: u32,
    changed_unix_ns: u64,
    /// Paths that an operator took out.
    retired: u32,
    /// Paths that are being taken out, and are drained first.
    leaving: u32,
}

#[derive(JsonSchema, Serialize)]
struct LastFault {
    noticed_unix_ns: u64,
    lasted_ns: u64,
    peer: u32,
    channel: u32,
    local_rail: u32,
    remote_rail: u32,
    cause: &'static str,
    syndrome: u32,
}

fn as_json(met: &[Met], now: u64) -> Document<Pages> {
    let page = |met: &Met| {
        let file = met.path.display().to_string();
        match &met.page {
            Err(error) => PageJson::Unreadable { file, error: error.to_string() },
            Ok(page) => PageJson::Read(Box::new(ReadPage::new(file, met.alive, page))),
        }
    };
    let pages = Pages { unix_ns: now, pages: met.iter().map(page).collect() };
    Document::new(pages)
}

impl ReadPage {
    fn new(file: String, alive: bool, page: &StatusPage) -> Self {
        let (summary, fault) = (&page.summary, &page.summary.last_fault);
        let rails = page.rail[..page.rails as usize].iter().map(|rail| RailJson {
            name: name(&rail.name),
            state: RailState::from_raw(rail.state).name(),
            downs: rail.downs,
            changed_unix_ns: rail.changed_unix_ns,
            retired: rail.retired,
            leaving: rail.leaving,
        });
        let peers = page.peer[..page.pe_count as usize].iter().map(|raw| PeerState::from_raw(*raw).name());
        let last_fault = (fault.noticed_unix_ns > 0).then(|| LastFault {
            noticed_unix_ns: fault.noticed_unix_ns,
            lasted_ns: fault.lasted_ns,
            peer: fault.peer,
            channel: fault.channel,
            local_rail: fault.local_rail,
            remote_rail: fault.remote_rail,
            cause: CauseKind::from_raw(fault.cause).name(),
            syndrome: fault.syndrome,
        });
        Self {
            file,
            alive,
            pid: page.pid,
            job: name(&page.job),
            pe: page.pe,
            pes: page.pe_count,
            started_unix_ns: page.started_unix_ns,
            updated_unix_ns: summary.updated_unix_ns,
            generation: summary.generation,
            trouble_unix_ns: summary.trouble_unix_ns,
            armed_unix_ns: summary.armed_unix_ns,
            rails: rails.collect(),
            peers: peers.collect(),
            last_fault,
            channels: summary.channels,
            on_backup: summary.on_backup,
            switching: summary.switching,
            dead: summary.dead,
            failovers: summary.failovers,
            switchbacks: summary.switchbacks,
            suspicions: summary.suspicions,
            fences_asked: summary.fences_asked,
            replayed: summary.replayed,
            placeholders: summary.placeholders,
            late_tickets: summary.late_tickets,
            ledger_cuts: summary.ledger_cuts,
            pathless: summary.pathless,
            uncertain: summary.uncertain,
            events: summary.events,
            events_lost: summary.events_lost,
            epoch: summary.epoch,
            standing: Standing::from_raw(summary.standing).name(),
            masked: masked(page),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_kept() {
        shunt_json::kept(Pages::NAME, &shunt_json::schema::<Pages>());
    }
}
