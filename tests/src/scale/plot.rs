//! What a series of runs came to: a table in Markdown, and a picture of the time to the last channel.

use std::fmt::Write;

use super::{Hit, ScaleOutcome, quantile};

const COLOURS: [&str; 4] = ["#1b6ca8", "#e07b00", "#3a9a50", "#b03a6f"];
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 30.0;

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn name(hit: Hit) -> &'static str {
    match hit {
        Hit::Port => "port down",
        Hit::Nic => "NIC dead to commands",
    }
}

/// One line a run.
pub fn table(outcomes: &[ScaleOutcome]) -> String {
    let mut out = String::from(
        "| fault | command | channels | open p50 | open p99 | last open | its commands | of all others | most of one \
         far NIC | messages |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for one in outcomes {
        let at = |share| ms(quantile(&one.opened_ns, share));
        let others = one.centre_commands[1..].iter().sum::<u64>() + one.far_commands.0;
        let _ = writeln!(
            out,
            "| {} | {} us | {} | {:.1} ms | {:.1} ms | {:.1} ms | {} | {others} | {} | {} |",
            name(one.spec.hit),
            one.spec.firmware_ns / 1000,
            one.opened_ns.len(),
            at(0.5),
            at(0.99),
            at(1.0),
            one.centre_commands[0],
            one.far_commands.1,
            one.messages,
        );
    }
    out
}

/// Lines at powers of ten. Both ranges in powers.
fn grid(out: &mut String, x_range: (f64, f64), y_range: (f64, f64)) {
    let x = |value: f64| LEFT + place(value, x_range) * WIDTH;
    let y = |value: f64| TOP + HEIGHT - place(value, y_range) * HEIGHT;
    for power in x_range.0 as i32..=x_range.1 as i32 {
        let (value, at) = (10f64.powi(power), x(10f64.powi(power)));
        let (end, text) = (TOP + HEIGHT, TOP + HEIGHT + 16.0);
        let _ = writeln!(
            out,
            "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{end}\" stroke=\"#ddd\"/>\
             <text x=\"{at:.1}\" y=\"{text}\" text-anchor=\"middle\">{value}</text>"
        );
    }
    for power in y_range.0 as i32..=y_range.1 as i32 {
        let (value, at, end) = (10f64.powi(power), y(10f64.powi(power)), LEFT + WIDTH);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{end}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value} ms</text>",
            LEFT - 6.0,
            at + 4.0
        );
    }
}

/// Where a value stands between two powers of ten, from 0 to 1.
fn place(value: f64, (low, high): (f64, f64)) -> f64 {
    (value.log10() - low) / (high - low)
}

/// Time to the last channel against the number of channels, both logarithmic; a line for each fault and latency.
pub fn picture(outcomes: &[ScaleOutcome]) -> String {
    let mut series: Vec<(Hit, u64)> =
        outcomes.iter().map(|one| (one.spec.hit, one.spec.firmware_ns)).collect();
    series.dedup();
    let points = |key: (Hit, u64)| {
        let of = move |one: &&ScaleOutcome| (one.spec.hit, one.spec.firmware_ns) == key;
        outcomes.iter().filter(of).map(|one| (f64::from(one.spec.peers), ms(quantile(&one.opened_ns, 1.0))))
    };
    let all: Vec<(f64, f64)> = series.iter().flat_map(|key| points(*key)).collect();
    let decades = |get: fn(&(f64, f64)) -> f64| {
        let low = all.iter().map(get).fold(f64::INFINITY, f64::min).log10().floor();
        let high = all.iter().map(get).fold(1.0, f64::max).log10().ceil();
        (low, high.max(low + 1.0))
    };
    let (x_range, y_range) = (decades(|point| point.0), decades(|point| point.1));
    let x = |value: f64| LEFT + place(value, x_range) * WIDTH;
    let y = |value: f64| TOP + HEIGHT - place(value, y_range) * HEIGHT;
    let mut out = String::new();
    let (wide, high) = (LEFT + WIDTH + 40.0, TOP + HEIGHT + 60.0 + 20.0 * series.len() as f64);
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide}\" height=\"{high}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
    );
    grid(&mut out, x_range, y_range);
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"18\">From the fault to the last channel open, against channels (virtual time)</text>"
    );
    for (number, key) in series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let line: Vec<String> = points(*key).map(|(n, ms)| format!("{:.1},{:.1}", x(n), y(ms))).collect();
        let _ = writeln!(
            out,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
            line.join(" ")
        );
        for point in &line {
            let (x, y) = point.split_once(',').unwrap_or_default();
            let _ = writeln!(out, "<circle cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let (row, text) = (TOP + HEIGHT + 40.0 + 20.0 * number as f64, name(key.0));
        let _ = writeln!(
            out,
            "<rect x=\"{LEFT}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"{row}\">{text}, {} us a command</text>",
            row - 10.0,
            LEFT + 18.0,
            key.1 / 1000
        );
    }
    out.push_str("</svg>\n");
    out
}
