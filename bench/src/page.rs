//! A report as `--report` and `--trace` show it.

use crate::report::{Report, Verdict};
use shunt_figures::lines::{Bin, FaultLine};
use shunt_figures::switch_table::SwitchLine;
use shunt_layout::state::SwitchKind;
use shunt_view::{Channel, Mark, Outcome, Port, Rate, Run, Switch};

/// What the page and the trace are made of.
pub fn run(report: &Report) -> Run {
    let last = report.switches.iter().map(|switch| switch.opened_ns).max().unwrap_or(0) as f64 / 1e6;
    let end = report.timeline.last().map_or(0.0, |bin| bin.t_ms + 10.0);
    let rate = |bin: &Bin| Rate { at_ms: bin.t_ms, gb_s: bin.gb_s };
    Run {
        title: format!("shmem_put_bw ({})", report.clock),
        verdict: Some((report.verdict.to_owned(), matches!(report.judged, Verdict::Clean))),
        facts: facts(report),
        length_ms: end.max(last),
        rails: report.rails.iter().filter_map(|rail| place(&rail.rail)).collect(),
        rates: report.timeline.iter().map(rate).collect(),
        switches: report.switches.iter().map(switch).collect(),
        marks: report.faults.iter().map(mark).collect(),
    }
}

fn switch(line: &SwitchLine) -> Switch {
    let outcome = match line.kind {
        Some(SwitchKind::SwitchBack) => Outcome::Back,
        Some(SwitchKind::Dead) => Outcome::Dead,
        _ => Outcome::Failover,
    };
    let first = if outcome == Outcome::Back { "drain" } else { "fence" };
    let stages =
        [(first, line.fence_us), ("cut", line.cut_us), ("replay", line.replay_us), ("open", line.open_us)];
    Switch {
        channel: Channel { pe: line.pe, peer: line.peer, index: line.channel },
        from: line.from.clone(),
        to: line.to.clone(),
        cause: line.cause.to_owned(),
        outcome,
        noticed_ms: line.noticed_ns as f64 / 1e6,
        stages: stages.map(|(name, us)| (name.to_owned(), us)).to_vec(),
        replayed: line.replayed,
    }
}

/// PE and rail of `<pe>.<rail>`.
fn place(text: &str) -> Option<(u32, u32)> {
    let (pe, rail) = text.split_once('.')?;
    Some((pe.parse().ok()?, rail.parse().ok()?))
}

/// A planned fault; a place is `<pe>.<rail>` or `<pe>`.
fn mark(fault: &FaultLine) -> Mark {
    let name = fault.kind.split('=').next().unwrap_or_default();
    Mark {
        at_ms: fault.at_ms,
        pe: place(&fault.place).map_or_else(|| fault.place.parse().unwrap_or_default(), |(pe, _)| pe),
        rail: place(&fault.place).map(|(_, rail)| rail),
        text: format!("{} ({} hits)", fault.kind, fault.hits),
        // One with a time comes up by itself, at a moment that the plan does not know.
        port: match (name, fault.kind.contains('=')) {
            ("down", false) => Some(Port::Down),
            ("up", _) => Some(Port::Up),
            _ => None,
        },
    }
}

fn facts(report: &Report) -> Vec<(String, String)> {
    let known =
        |value: Option<f64>, unit: &str| value.map_or("-".into(), |value| format!("{value:.3} {unit}"));
    let doubled = report.signals_duplicated.map_or("-".into(), |count| count.to_string());
    let mut facts = vec![
        ("bytes posted, delivered", format!("{}, {}", report.bytes_posted, report.bytes_delivered)),
        ("puts lost", report.puts_lost.to_string()),
        ("signals posted, applied", format!("{}, {}", report.signals_posted, report.signals_applied)),
        ("signals duplicated", doubled),
        ("uncertain operations", report.uncertain.to_string()),
        ("order violations", report.order_violations.to_string()),
        ("ghost writes", report.ghost_writes.to_string()),
        ("failovers, switch-backs", format!("{}, {}", report.failovers, report.switchbacks)),
        ("longest gap", known(report.max_gap_us.map(|us| us / 1e3), "ms")),
        ("before the first fault", known(report.gb_s_before, "GB/s")),
        ("after the last switch-back", known(report.gb_s_after, "GB/s")),
        ("kernels ran on", report.device.to_owned()),
        ("processes", report.processes.to_string()),
        ("oversubscribed", report.oversubscribed.to_string()),
        ("seed", report.seed.to_string()),
        ("command", std::env::args().collect::<Vec<_>>().join(" ")),
    ];
    let rail = |rail: &shunt_figures::rail_stats::RailLine| {
        let shares: Vec<String> = rail
            .shares
            .iter()
            .map(|share| share.map_or("-".into(), |share| format!("{share:.1} %")))
            .collect();
        format!("rail {}: {} bytes; {}", rail.rail, rail.bytes, shares.join(", "))
    };
    let rails: Vec<String> = report.rails.iter().map(rail).collect();
    facts.push(("sent by each rail, share by phase", rails.join(" | ")));
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
