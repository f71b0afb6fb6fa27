//! The JSON object has the keys the design names, and the verdict says what was broken.

use shunt_bench::nics::Medium;
use shunt_bench::options::DeviceKind;
use shunt_bench::report::{Counts, Ended, Failing, Raw, Report, Verdict};
use shunt_figures::lines::FaultLine;
use shunt_figures::plot;
use shunt_figures::rail_stats::{Carried, Spread};
use shunt_figures::switch_table::SwitchLine;
use shunt_layout::mlx5::cqe::Syndrome;
use shunt_layout::state::SwitchKind;
use shunt_soft_nic::RailAt;
use shunt_soft_nic::fault::Injection;

const MS: u64 = 1_000_000;

fn switch(kind: SwitchKind, at_ms: u64, from: &str, to: &str) -> SwitchLine {
    SwitchLine {
        pe: 0,
        channel: 0,
        from: from.into(),
        to: to.into(),
        cause: "port-down",
        detect_us: Some(55.0),
        fence_us: 400.0,
        cut_us: 1.0,
        replay_us: 12.0,
        open_us: 1.0,
        replayed: 9,
        waited: false,
        kind: Some(kind),
        peer: 1,
        noticed_ns: at_ms * MS,
        opened_ns: at_ms * MS + 500_000,
        syndrome: 0,
        failed_at_once: false,
        ledger: false,
        left: String::new(),
        entered: String::new(),
    }
}

fn fault(at_ms: f64, kind: &str, hits: u64) -> FaultLine {
    FaultLine { at_ms, place: "0.0".into(), kind: kind.into(), hits }
}

/// One second: 1 GB/s, an outage from 500 to 520 ms, back on the primary at 700 ms with 2 GB/s.
fn raw() -> Raw {
    let bins = (0..101).map(|bin| match bin {
        50 | 51 => 0,
        0..80 => 10 * MS,
        _ => 20 * MS,
    });
    Raw {
        counts: Counts { puts_lost: 0, signals_posted: 5, signals_applied: 5, ..Counts::default() },
        end_ns: 1000 * MS,
        bins: bins.collect(),
        switches: vec![
            switch(SwitchKind::SwitchBack, 700, "0.1>1.1", "0.0>1.0"),
            switch(SwitchKind::Failover, 520, "0.0>1.0", "0.1>1.1"),
        ],
        faults: vec![fault(500.0, "down", 1), fault(600.0, "up", 1)],
        spread: spread(),
        first_path: "0.0>1.0".into(),
        ended: None,
        oversubscribed: true,
        processes: 1,
        seed: 4,
        ..Raw::default()
    }
}

fn spread() -> Spread {
    let plan: Vec<Injection> =
        ["500ms:0.0:down", "600ms:0.0:up"].iter().map(|text| text.parse().unwrap()).collect();
    let mut carried = Carried::new(&plan);
    for ms in (0..=1000).step_by(50) {
        carried.take(RailAt { pe: 0, rail: 1 }, ms * MS, ms);
    }
    carried.spread(&[10 * MS; 100], 1000 * MS)
}

/// Names of fields: `docs/schemas`, held by the tests of schemas.
#[test]
fn rails_have_a_share_of_each_phase() {
    let json = serde_json::to_value(Report::new(raw())).unwrap();
    // Faults a tenth of a second apart are two.
    assert_eq!(json["rails"][0]["shares"].as_array().unwrap().len(), 3);
    assert_eq!(json["device"], "cpu");
    let on_gpu = Report::new(Raw { device: DeviceKind::Gpu, ..raw() });
    assert_eq!(serde_json::to_value(on_gpu).unwrap()["device"], "gpu");
}

#[test]
fn the_figures_are_those_of_the_definitions() {
    let report = Report::new(raw());
    assert_eq!((report.gb_s_before, report.gb_s_after), (Some(1.0), Some(2.0)));
    assert_eq!(report.switches[0].to, "0.1>1.1", "switches are in order of time");
    assert_eq!(report.timeline.len(), 100);
    let path = |bin: usize| report.timeline[bin].path.as_str();
    assert_eq!(
        (path(0), path(51), path(52), path(69), path(70)),
        ("0.0>1.0", "0.0>1.0", "0.1>1.1", "0.1>1.1", "0.0>1.0")
    );
}

#[test]
fn without_a_switch_back_there_is_no_after() {
    let mut raw = raw();
    raw.switches.remove(0);
    assert_eq!(Report::new(raw).gb_s_after, None);
}

fn verdict(change: impl FnOnce(&mut Raw)) -> Verdict {
    let mut raw = raw();
    change(&mut raw);
    Report::new(raw).judged
}

#[test]
fn each_broken_promise_is_named() {
    assert_eq!(verdict(|_| ()), Verdict::Clean);
    type Break = fn(&mut Counts);
    let cases: [(Break, &str); 7] = [
        (|c| c.puts_lost = 2, "2 puts lost or corrupt"),
        (|c| c.signals_applied = 4, "1 signals not applied"),
        (|c| c.signals_duplicated = 3, "3 signals duplicated"),
        (|c| c.order_violations = 1, "1 signals visible before their puts"),
        (|c| c.ghost_writes = 1, "1 ghost writes"),
        (|c| c.misread = 2, "2 fetched values wrong"),
        (|c| c.signals_wild = 1, "1 signal values that were never posted"),
    ];
    for (break_it, text) in cases {
        let verdict = verdict(|raw| break_it(&mut raw.counts));
        assert_eq!((&verdict, verdict.exit_status()), (&Verdict::Broken(vec![text.into()]), 1));
    }
}

#[test]
fn a_fault_that_never_hit_is_not_exercised() {
    let verdict = verdict(|raw| raw.faults[1].hits = 0);
    assert_eq!((&verdict, verdict.exit_status()), (&Verdict::NotExercised(vec!["0.0:up".into()]), 1));
}

#[test]
fn a_lost_peer_is_status_3_unless_a_promise_was_broken_too() {
    let lost = |raw: &mut Raw| {
        raw.ended = Some(Ended::Failed(Failing::NoPath, "peer 1".into()));
        raw.counts.puts_lost = 10;
        raw.counts.signals_applied = 0;
    };
    let only_lost = verdict(lost);
    assert_eq!(
        (&only_lost, only_lost.exit_status()),
        (&Verdict::Failed(Failing::NoPath, "peer 1".into()), 3)
    );
    let ghost = verdict(|raw| {
        lost(raw);
        raw.counts.ghost_writes = 1;
    });
    assert_eq!(ghost.exit_status(), 1);
}

#[test]
fn pictures_show_every_bin_path_and_fault() {
    let report = Report::new(raw());
    let svg = plot::draw(&report.picture());
    assert_eq!(svg.matches("<rect").count(), 1 + 100 + 2 + 2, "background, bins, legend, faults");
    for part in ["0.0&gt;1.0", "0.1&gt;1.1", "0.0 down", "0.0 up", "soft NIC, wall time", "</svg>"] {
        assert!(svg.contains(part), "{part}");
    }
    let plain = plot::text(&report.timeline, 100, false);
    assert!(!plain.contains('\x1b') && plain.contains("0 0.0>1.0  1 0.1>1.1"));
    assert!(plot::text(&report.timeline, 100, true).contains("\x1b[33m"));
}

#[test]
fn a_channel_that_failed_with_paths_left_does_not_say_that_none_was() {
    let program = Failing::Program(Syndrome::REMOTE_ACCESS);
    assert_eq!(program.to_string(), "channel failed: program error 0x13 (remote access error), not chained");
    let others = [(Failing::Untolerated, "fault tolerance off"), (Failing::Uncertain, "uncertain")];
    for (why, name) in [(program, "program error")].into_iter().chain(others) {
        let verdict = verdict(|raw| raw.ended = Some(Ended::Failed(why, "peer 1".into())));
        assert_eq!((verdict.name(), verdict.exit_status()), (name, 3));
    }
}

/// The numbers of an attribute of every element that has `mark` before it.
fn attributes(svg: &str, mark: &str, attribute: &str) -> Vec<f64> {
    let start = format!("{attribute}=\"");
    let number = |part: &str| {
        let from = part.find(&start).unwrap() + start.len();
        part[from..].split('"').next().unwrap().parse().unwrap()
    };
    svg.split(mark).skip(1).map(number).collect()
}

#[test]
fn pictures_hold_all_they_show() {
    let mut raw = raw();
    // Sixteen paths and a fault at the very end.
    raw.switches = (0..16)
        .map(|path| switch(SwitchKind::Failover, 50 * path, "0.0>1.0", &format!("0.{path}>1.{path}")))
        .collect();
    raw.faults = vec![fault(990.0, "placement-delay=5ms/100ms", 1)];
    let svg = plot::draw(&Report::new(raw).picture());
    let right = 1060.0;
    assert!(svg.contains("viewBox=\"0 0 1060 "));
    let (x, width) = (attributes(&svg, "class=\"fault\"", "x"), attributes(&svg, "class=\"fault\"", "width"));
    assert!(x[0] + width[0] <= right);
    let legend = attributes(&svg, "height=\"12\" fill", "x");
    assert_eq!(legend.len(), 16);
    assert!(legend.iter().all(|x| x + 60.0 < right), "{legend:?}");
    assert!(attributes(&svg, "class=\"x\"", "x").iter().all(|x| x + 30.0 < right));
    let rates: Vec<&str> = ["0.0", "0.5", "1.0", "1.5", "2.0"].to_vec();
    let shown: Vec<&str> =
        svg.split("class=\"y\"").skip(1).map(|part| part.split(['>', '<']).nth(1).unwrap()).collect();
    assert_eq!(shown, rates);
}

#[test]
fn pictures_end_where_the_run_ended() {
    let mut raw = raw();
    raw.end_ns = 550 * MS;
    raw.ended = Some(Ended::Failed(Failing::NoPath, "peer 1".into()));
    let report = Report::new(raw);
    assert_eq!(report.timeline.len(), 55);
    let svg = plot::draw(&report.picture());
    assert!(svg.contains("0.0 down") && !svg.contains("0.0 up"), "a fault after the end has no place");
}

#[test]
fn what_hardware_does_not_tell_is_null_unless_it_was_seen() {
    let report = |medium, signals_duplicated| {
        let counts = Counts { signals_duplicated, ..raw().counts };
        Report::new(Raw { medium, counts, repeats_show: medium.counts_placements(), ..raw() })
    };
    for (medium, clock) in [
        (Medium::Soft, "soft NIC, wall time"),
        (Medium::Interposer, "soft NIC (interposer), wall time"),
        (Medium::ConnectX, "ConnectX, wall time"),
    ] {
        let json = serde_json::to_value(report(medium, 0)).unwrap();
        let known = medium != Medium::ConnectX;
        assert_eq!(json["signals_duplicated"].as_u64(), known.then_some(0), "{json}");
        assert_eq!((json["clock"].as_str(), json["signals_duplicated"].is_null()), (Some(clock), !known));
        let seen = report(medium, 2);
        assert_eq!(
            (seen.signals_duplicated, seen.judged.exit_status()),
            (Some(2), 1),
            "a word that went back"
        );
    }
}
