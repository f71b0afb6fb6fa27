//! Those who watch a PE: timeline file, Prometheus endpoint, status page, while a port goes down and comes back.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use shunt_host::events::control::{Order, give};
use shunt_host::events::page::{PageReader, pages_in, sweep};
use shunt_host::events::{EVENTS, Endpoint, FileSink, Metrics, Watching, line};
use shunt_layout::status::{PeerState, RailState, STATUS_MAGIC, STATUS_VERSION, StatusPage};
use shunt_tests::cluster::Cluster;
use shunt_tests::run::{finish, start_streams};
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;

fn spec(faults: &[&str]) -> RunSpec {
    RunSpec {
        both_ways: true,
        traffic: Traffic { messages: 400, pace_ns: 200_000, ..Traffic::default() },
        faults: faults.iter().map(|fault| fault.parse().expect("a fault")).collect(),
        ..RunSpec::default()
    }
}

/// A folder of this test's own, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn watched(folder: &Folder) -> Watching {
    Watching { status: Some(folder.0.clone()), job: "a job".to_owned(), ..Watching::nobody() }
}

fn watched_cluster(spec: &RunSpec, watching: &Watching, metrics: Option<&Arc<Metrics>>) -> Cluster {
    let cluster = Cluster::start(spec);
    cluster.watch_agents(watching, metrics);
    cluster
}

/// What a scrape says: series with their labels, and the value.
fn scrape(endpoint: &Endpoint) -> BTreeMap<String, f64> {
    let mut stream = TcpStream::connect(endpoint.address()).expect("the endpoint listens");
    let accept = "Accept: application/openmetrics-text; version=1.0.0,text/plain";
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: here\r\n{accept}\r\n\r\n").expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.0 200") && head.contains("application/openmetrics-text"), "{head}");
    parse(body)
}

/// The text format, strictly: every series is announced by HELP and TYPE, and the text has an end.
fn parse(body: &str) -> BTreeMap<String, f64> {
    let (mut kinds, mut helped, mut series) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
    assert!(body.ends_with("# EOF\n"), "{body}");
    for line in body.lines().filter(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, text) = rest.split_once(' ').expect("a name and a text");
            assert!(!text.is_empty());
            helped.push(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a kind");
            kinds.insert(name.to_owned(), kind.to_owned());
        } else if let Some(rest) = line.strip_prefix("# UNIT ") {
            assert_eq!(rest, "shunt_stage_seconds seconds");
        } else {
            let (name, value) = line.rsplit_once(' ').expect("a series and a value");
            let family = name.split('{').next().expect("a name");
            let ends = ["", "_total", "_info", "_bucket", "_sum", "_count"];
            let of = ends.iter().find_map(|end| kinds.get(family.strip_suffix(end)?));
            assert!(of.is_some() && family.starts_with("shunt_"), "{line}");
            let before = series.insert(name.to_owned(), value.parse().expect("a number"));
            assert_eq!(before, None, "{name} is there once");
        }
    }
    assert!(kinds.keys().all(|name| helped.contains(name)));
    series
}

#[test]
fn a_scrape_during_a_failover_sees_it() {
    let endpoint = Endpoint::start("127.0.0.1:0".parse().expect("an address")).expect("a free port");
    let taken = Endpoint::start(endpoint.address()).err().expect("the port is taken").to_string();
    assert!(
        taken.contains(&endpoint.address().to_string()) && taken.contains("name a free address"),
        "{taken}"
    );
    let folder = Folder::new("scrape");
    let spec = spec(&["5ms:0.0:down", "30ms:0.0:up"]);
    let cluster = watched_cluster(&spec, &watched(&folder), Some(endpoint.metrics()));
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let streams = start_streams(&cluster);
    cluster.sim.run_for(4_000_000);
    let before = scrape(&endpoint);
    assert_eq!(before["shunt_rail_up{pe=\"0\",rail=\"0\",device=\"mlx5_0\"}"], 1.0, "{before:#?}");
    assert_eq!(
        (before["shunt_trouble{pe=\"0\"}"], before["shunt_peers{pe=\"0\",state=\"fine\"}"]),
        (0.0, 1.0)
    );
    assert!(!before.keys().any(|name| name.starts_with("shunt_failovers_total{")));
    cluster.sim.run_for(10_000_000);
    let during = scrape(&endpoint);
    assert_eq!(during["shunt_rail_up{pe=\"0\",rail=\"0\",device=\"mlx5_0\"}"], 0.0);
    assert_eq!(during["shunt_failovers_total{pe=\"0\",peer=\"1\",path=\"0>0\"}"], 1.0);
    assert_eq!(
        (during["shunt_trouble{pe=\"1\"}"], during["shunt_channels{pe=\"1\",state=\"backup\"}"]),
        (1.0, 1.0)
    );
    finish(&cluster, streams).assert_clean();
    let after = scrape(&endpoint);
    assert_eq!((after["shunt_trouble{pe=\"0\"}"], after["shunt_trouble{pe=\"1\"}"]), (0.0, 0.0));
    for stage in ["fence", "cut", "replay", "open", "drain", "half_2err", "half_flush", "revival"] {
        let count = format!("shunt_stage_seconds_count{{pe=\"0\",stage=\"{stage}\"}}");
        assert!(after[&count] >= 1.0, "{stage}");
    }
    let revival = after["shunt_stage_seconds_sum{pe=\"0\",stage=\"revival\"}"];
    assert!((0.02..1.0).contains(&revival), "seconds, not another unit: {revival}");
    let events = cluster.events(0);
    for event in EVENTS {
        let told = events.iter().filter(|told| told.event.name() == event.name).count();
        let level = event.level.name();
        let series = format!("shunt_events_total{{pe=\"0\",event=\"{}\",level=\"{level}\"}}", event.name);
        assert_eq!(after[&series], told as f64, "{}", event.name);
    }
    assert!(after.len() < 1_000, "{} series", after.len());
}

#[test]
fn what_is_not_metrics_is_refused() {
    let endpoint = Endpoint::start("127.0.0.1:0".parse().expect("an address")).expect("a free port");
    for (request, want) in
        [("GET / HTTP/1.0", "404"), ("POST /metrics HTTP/1.0", "405"), ("GET /metrics?x=1 HTTP/1.0", "200")]
    {
        let mut stream = TcpStream::connect(endpoint.address()).expect("the endpoint listens");
        stream.write_all(format!("{request}\r\nContent-Length: 0\r\n\r\n").as_bytes()).expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        assert_eq!(text.split(' ').nth(1), Some(want), "{request}: {text}");
    }
}

#[test]
fn the_status_page_follows_a_port_down_and_up_and_goes_with_its_agent() {
    let folder = Folder::new("page");
    let spec = spec(&["5ms:0.0:down", "30ms:0.0:up"]);
    let cluster = watched_cluster(&spec, &watched(&folder), None);
    let pages = pages_in(&folder.0);
    assert_eq!(pages.len(), 2, "one a PE: {pages:?}");
    let reader = PageReader::open(&pages[0]).expect("a page");
    let page = reader.page().expect("whole");
    assert_eq!((page.magic, page.pe, page.pe_count, page.rails), (STATUS_MAGIC, 0, 2, 2));
    assert!(reader.is_alive() && page.pid == std::process::id() && page.job.starts_with(b"a job\0"));
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let streams = start_streams(&cluster);
    cluster.sim.run_for(3_000_000);
    let calm = reader.summary().expect("whole");
    assert_eq!((calm.worst_peer, calm.trouble_unix_ns, calm.channels), (PeerState::Fine as u32, 0, 1));
    assert!(calm.armed_unix_ns > 0 && calm.last_fault.noticed_unix_ns == 0);
    cluster.sim.run_for(10_000_000);
    let page = reader.page().expect("whole");
    let summary = page.summary;
    assert!(summary.generation > calm.generation);
    assert_eq!((summary.failovers, summary.rails_down, summary.on_backup), (1, 1, 1));
    assert_eq!((page.rail[0].state, page.rail[0].downs), (RailState::Down as u32, 1));
    assert_eq!((page.rail[1].state, page.peer[1]), (RailState::Up as u32, PeerState::Backup as u8));
    assert_eq!((summary.last_fault.peer, summary.last_fault.local_rail), (1, 0));
    assert!(summary.trouble_unix_ns > 0 && summary.last_fault.noticed_unix_ns >= summary.trouble_unix_ns);
    finish(&cluster, streams).assert_clean();
    let after = reader.summary().expect("whole");
    assert_eq!((after.worst_peer, after.rails_down, after.trouble_unix_ns), (PeerState::Fine as u32, 0, 0));
    assert_eq!((after.failovers, after.switchbacks, after.fences_asked), (1, 1, 1));
    assert_eq!(after.events, cluster.events(0).len() as u64);
    drop(cluster);
    assert!(pages_in(&folder.0).is_empty(), "an agent that ends takes its page with it");
    assert!(!reader.is_alive());
}

/// An operator takes a rail out of a running job through the socket beside the page, and brings it back: drained, not
/// failed. What would leave no path is refused.
#[test]
fn paths_are_taken_out_and_brought_back_by_order() {
    // The path of a socket is short.
    let folder = Folder(std::env::temp_dir().join(format!("shunt-orders-{}", std::process::id())));
    let spec = RunSpec { recovery_ns: 2_000_000, ..spec(&[]) };
    let cluster = watched_cluster(&spec, &watched(&folder), None);
    let streams = start_streams(&cluster);
    cluster.sim.run_for(2_000_000);
    let ordered = |text: &str| {
        let (page, order) = (pages_in(&folder.0)[0].clone(), text.parse::<Order>().expect("an order"));
        let patience = Duration::from_secs(60);
        let asked =
            std::thread::spawn(move || give(&page, order, patience).map_err(|error| error.to_string()));
        while !asked.is_finished() {
            cluster.sim.run_for(1_000_000);
            std::thread::sleep(Duration::from_millis(1));
        }
        asked.join().expect("it ends")
    };
    let count = |name: &str| cluster.events(0).iter().filter(|told| told.event.name() == name).count();
    assert!(ordered("retire 0.0").is_ok_and(|answer| answer.starts_with("2 path(s)")));
    cluster.sim.run_for(200_000_000);
    assert_eq!((count("path_retired"), count("failover"), count("switch_back")), (2, 0, 1));
    for (order, want) in [
        ("retire 0.1", "nothing was taken out"),
        ("retire 0.5", "PE 0 has no path 0.5"),
        ("retire 1.0", "1.0 begins at PE 1; this is PE 0"),
    ] {
        assert!(ordered(order).is_err_and(|error| error.contains(want)), "{order}");
    }
    assert!(ordered("readmit 0.0>1.0").is_ok());
    cluster.sim.run_for(200_000_000);
    assert_eq!((count("path_admitted"), count("failover"), count("switch_back")), (1, 0, 2));
    finish(&cluster, streams).assert_clean();
    drop(cluster);
    assert_eq!(std::fs::read_dir(&folder.0).expect("the folder").count(), 0, "pages and sockets go");
}

/// Page and socket are the PE's, not its agent's: one that follows another is watched as that one was.
#[test]
fn the_next_agent_is_watched_and_takes_orders_as_the_last_one_did() {
    let folder = Folder(std::env::temp_dir().join(format!("shunt-restart-{}", std::process::id())));
    let spec = spec(&["5ms:0:agent-restart"]);
    let cluster = watched_cluster(&spec, &watched(&folder), None);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let streams = start_streams(&cluster);
    cluster.sim.run_for(20_000_000);
    assert!(cluster.events(0).iter().any(|told| told.event.name() == "agent_restarted"), "the fault struck");
    let pages = pages_in(&folder.0);
    assert_eq!(pages.len(), 2, "a page each");
    let page = pages
        .into_iter()
        .find(|page| PageReader::open(page).is_ok_and(|page| page.page().is_ok_and(|page| page.pe == 0)));
    let page = page.expect("PE 0 has its page");
    let order = "retire 0.0".parse::<Order>().expect("an order");
    let asked = std::thread::spawn(move || {
        give(&page, order, Duration::from_secs(60)).map_err(|error| error.to_string())
    });
    while !asked.is_finished() {
        cluster.sim.run_for(1_000_000);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(asked.join().expect("it ends").is_ok_and(|answer| answer.starts_with("2 path(s)")));
    finish(&cluster, streams).assert_clean();
}

#[test]
fn bad_pages_are_refused_and_leftovers_swept() {
    let folder = Folder::new("bad");
    std::fs::create_dir_all(&folder.0).expect("a folder");
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.0.join(name);
        std::fs::write(&path, bytes).expect("written");
        path
    };
    let mut page = vec![0u8; size_of::<StatusPage>()];
    let refused = |path: &Path| PageReader::open(path).err().expect("refused").to_string();
    let length = format!("its length: expected {:#x}, got 0x5", size_of::<StatusPage>());
    assert!(refused(&write("1-0", b"short")).contains(&length));
    assert!(refused(&write("2-0", &page)).contains("its first word: expected 0x535453544e554853, got 0x0"));
    page[..8].copy_from_slice(&STATUS_MAGIC.to_le_bytes());
    page[8] = 9;
    let right = format!("its version: expected {STATUS_VERSION:#x}, got 0x9");
    assert!(refused(&write("3-0", &page)).contains(&right));
    page[8..12].copy_from_slice(&STATUS_VERSION.to_le_bytes());
    let size = format!("the size it names: expected {:#x}, got 0x0", size_of::<StatusPage>());
    assert!(refused(&write("4-0", &page)).contains(&size));
    page[12..16].copy_from_slice(&(size_of::<StatusPage>() as u32).to_le_bytes());
    page[120] = 1; // odd for ever: its writer died in the middle
    let torn = PageReader::open(&write("5-0", &page)).expect("a page");
    assert!(torn.summary().expect_err("torn").to_string().contains("stopped in the middle"));
    assert!(torn.page().is_err() && !torn.is_alive());
    std::fs::create_dir(folder.0.join("a-folder")).expect("made");
    assert!(PageReader::open(&folder.0.join("a-folder")).is_err());
    assert!(PageReader::open(&folder.0.join("nothing")).is_err());
    assert_eq!(sweep(&folder.0), 5, "no process holds them");
    assert_eq!(pages_in(&folder.0), [folder.0.join("a-folder")], "what is no page is left alone");
    // A folder that others may write is not trusted.
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&folder.0, std::fs::Permissions::from_mode(0o777)).expect("set");
    let page = shunt_host::events::page::zeroed();
    let error = shunt_host::events::page::PageWriter::create(&folder.0, &page).err().expect("refused");
    assert!(error.to_string().contains("mode 777"), "{error}");
}

/// The file holds what the log told, line by line, and each line is JSON with what every line has.
#[test]
fn the_timeline_in_a_file_is_that_of_the_log() {
    let folder = Folder::new("timeline");
    std::fs::create_dir_all(&folder.0).expect("a folder");
    let path = folder.0.join("events-%.jsonl");
    let spec = spec(&["5ms:0.0:down", "30ms:0.0:up"]);
    let watching = Watching { events: Some(path.clone()), ..Watching::nobody() };
    let cluster = watched_cluster(&spec, &watching, None);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let streams = start_streams(&cluster);
    finish(&cluster, streams).assert_clean();
    let told: Vec<_> = (0..2).map(|pe| cluster.events(pe)).collect();
    drop(cluster);
    for (pe, told) in told.iter().enumerate() {
        let text = std::fs::read_to_string(shunt_host::events::file_of(&path, pe as u32)).expect("written");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() >= told.len() && told.len() > 20, "{} lines", lines.len());
        for (line_, told) in lines.iter().zip(told) {
            let value: serde_json::Value = serde_json::from_str(line_).expect("JSON");
            let (at, unix) = (value["at_ns"].as_u64().expect("a number"), value["unix_ns"].as_u64());
            assert_eq!((value["pe"].as_u64(), value["seq"].as_u64()), (Some(pe as u64), Some(told.number)));
            assert_eq!(*line_, line(told, unix.map(|unix| unix.wrapping_sub(at))));
        }
    }
}

#[test]
fn a_file_that_cannot_be_written_or_is_full_stops_nobody() {
    let folder = Folder::new("full");
    std::fs::create_dir_all(&folder.0).expect("a folder");
    let told = shunt_host::events::Told {
        number: 0,
        at_ns: 1,
        pe: 0,
        fault: 0,
        event: shunt_host::events::Event::AgentEnded {},
    };
    use shunt_host::events::Sink;
    let mut nowhere = FileSink::new(folder.0.join("no/such/folder"), None, u64::MAX);
    let path = folder.0.join("small");
    let mut small = FileSink::new(path.clone(), None, 1_000);
    for _ in 0..20_000 {
        nowhere.tell(&told);
        small.tell(&told);
    }
    drop((nowhere, small));
    let text = std::fs::read_to_string(&path).expect("written");
    assert!(text.len() <= 1_000 && (text.is_empty() || text.ends_with('\n')), "{} bytes", text.len());
}
