//! What a series of runs came to: a table in Markdown, and a picture of the time to the first and to the last channel.

use std::fmt::Write;

use super::{Hit, ScaleOutcome, quantile};

/// Readable on white and on black.
const COLOURS: [&str; 4] = ["#2f81d7", "#d9730d", "#2e9e57", "#c2478a"];
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 84.0;
const TOP: f64 = 44.0;
const RIGHT: f64 = 24.0;
/// Space below the picture for the numbers and the name of its axis.
const BELOW: f64 = 56.0;
const ROW: f64 = 20.0;

/// What both kinds of background need.
const STYLE: &str = "<style>.back{fill:#fff}text{fill:#24292f}.grid{stroke:#d0d7de}.axis{stroke:#57606a}\
    @media(prefers-color-scheme:dark){.back{fill:#0d1117}text{fill:#e6edf3}.grid{stroke:#30363d}\
    .axis{stroke:#8b949e}}</style>";

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
        "| fault | a command | channels | first open | p50 | p99 | last open | commands of the NIC: 2ERR, query, \
         other | of all other NICs | most of one far NIC | messages | CPU s |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for one in outcomes {
        let at = |share| ms(quantile(&one.opened_ns, share));
        let _ = writeln!(
            out,
            "| {} | {} us | {} | {:.1} ms | {:.1} ms | {:.1} ms | {:.1} ms | {}, {}, {} | {}, {}, {} | {} | \
             {} | {:.1} |",
            name(one.spec.hit),
            one.spec.firmware_ns / 1000,
            one.opened_ns.len(),
            at(0.0),
            at(0.5),
            at(0.99),
            at(1.0),
            one.own.errors,
            one.own.queries,
            one.own.rest,
            one.others.errors,
            one.others.queries,
            one.others.rest,
            one.most_of_one,
            one.messages,
            one.cpu_ns as f64 / 1e9,
        );
    }
    out
}

/// One line a run of [`super::ScaleSpec::mass`]: both sides of the pairs.
pub fn mass_table(outcomes: &[ScaleOutcome]) -> String {
    let mut out = String::from(
        "| a command | pairs | own channels: first, p50, p99, last open (ms) | the peers': first, p50, p99, last (ms) \
         | commands of the NIC: 2ERR, query, other | without a truth |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for one in outcomes {
        let at = |opened: &[u64]| {
            let at = |share| ms(quantile(opened, share));
            format!("{:.1}, {:.1}, {:.1}, {:.1}", at(0.0), at(0.5), at(0.99), at(1.0))
        };
        let _ = writeln!(
            out,
            "| {} us | {} | {} | {} | {}, {}, {} | {} |",
            one.spec.firmware_ns / 1000,
            one.opened_ns.len(),
            at(&one.opened_ns),
            at(&one.far_opened_ns),
            one.own.errors,
            one.own.queries,
            one.own.rest,
            one.without_truth,
        );
    }
    out
}

/// Two logarithmic axes.
struct Axes {
    /// First and last number of channels.
    x: (f64, f64),
    /// Milliseconds, whole powers of ten.
    y: (f64, f64),
}

impl Axes {
    fn x(&self, channels: f64) -> f64 {
        LEFT + place(channels, self.x) * WIDTH
    }

    fn y(&self, ms: f64) -> f64 {
        TOP + HEIGHT - place(ms, self.y) * HEIGHT
    }

    /// Lines and numbers: at each number of channels that was run, and at powers of ten of the time.
    fn draw(&self, out: &mut String, counts: &[u32]) {
        let (end, bottom) = (LEFT + WIDTH, TOP + HEIGHT);
        for count in counts {
            let at = self.x(f64::from(*count));
            let _ = writeln!(
                out,
                "<line class=\"grid\" x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\"/>\
                 <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{count}</text>",
                bottom + 18.0
            );
        }
        for power in self.y.0.log10().round() as i32..=self.y.1.log10().round() as i32 {
            let at = self.y(10f64.powi(power));
            let _ = writeln!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{end}\" y2=\"{at:.1}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                at + 4.0,
                10f64.powi(power)
            );
        }
        let _ = writeln!(
            out,
            "<path class=\"axis\" fill=\"none\" d=\"M{LEFT} {TOP}V{bottom}H{end}\"/>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">channels on the NIC that fails (log scale)</text>\
             <text transform=\"translate(22 {}) rotate(-90)\" text-anchor=\"middle\">ms of virtual time from the fault \
             (log scale)</text>",
            LEFT + WIDTH / 2.0,
            bottom + 40.0,
            TOP + HEIGHT / 2.0,
        );
    }
}

/// Where a value stands between two others on a logarithmic scale, from 0 to 1.
fn place(value: f64, (low, high): (f64, f64)) -> f64 {
    (value.log10() - low.log10()) / (high.log10() - low.log10())
}

/// A fault, the time of a command in nanoseconds, and how it came out by number of channels.
struct Series<'a> {
    hit: Hit,
    firmware_ns: Vec<u64>,
    runs: Vec<&'a ScaleOutcome>,
}

/// Runs by fault and time of a command; those in which that time changes nothing that could be seen are one.
fn series(outcomes: &[ScaleOutcome]) -> Vec<Series<'_>> {
    let mut all: Vec<Series<'_>> = Vec::new();
    for one in outcomes {
        let key = (one.spec.hit, vec![one.spec.firmware_ns]);
        match all.iter_mut().find(|series| (series.hit, &series.firmware_ns) == (key.0, &key.1)) {
            Some(series) => series.runs.push(one),
            None => all.push(Series { hit: key.0, firmware_ns: key.1, runs: vec![one] }),
        }
    }
    let mut kept: Vec<Series<'_>> = Vec::new();
    for one in all {
        let alike = |other: &&mut Series<'_>| {
            let near = |(a, b): (&&ScaleOutcome, &&ScaleOutcome)| {
                let (a, b) = (quantile(&a.opened_ns, 1.0) as f64, quantile(&b.opened_ns, 1.0) as f64);
                a.max(b) < 1.02 * a.min(b)
            };
            other.hit == one.hit
                && other.runs.len() == one.runs.len()
                && other.runs.iter().zip(&one.runs).all(near)
        };
        match kept.iter_mut().find(alike) {
            Some(same) => same.firmware_ns.extend(one.firmware_ns),
            None => kept.push(one),
        }
    }
    kept
}

impl Series<'_> {
    fn draw(&self, out: &mut String, axes: &Axes, colour: &str) {
        for (share, dashes, radius) in [(0.0, "3 4", 2.0), (1.0, "none", 3.5)] {
            let point = |one: &&ScaleOutcome| {
                let at = ms(quantile(&one.opened_ns, share));
                (axes.x(f64::from(one.spec.peers)), axes.y(at))
            };
            let points: Vec<(f64, f64)> = self.runs.iter().map(point).collect();
            let line: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(
                out,
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\" \
                 points=\"{}\"/>",
                line.join(" ")
            );
            for (x, y) in points {
                let _ =
                    writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{colour}\"/>");
            }
        }
    }

    fn legend(&self) -> String {
        let times: Vec<String> = self.firmware_ns.iter().map(|ns| format!("{} us", ns / 1000)).collect();
        format!("{}, {} a command", name(self.hit), times.join(" or "))
    }
}

/// Time to the first and to the last channel against the number of channels; a colour for each fault and latency.
pub fn picture(outcomes: &[ScaleOutcome]) -> String {
    let series = series(outcomes);
    let mut counts: Vec<u32> = outcomes.iter().map(|one| one.spec.peers).collect();
    counts.sort_unstable();
    counts.dedup();
    let shown = |share: f64| outcomes.iter().map(move |one| ms(quantile(&one.opened_ns, share)));
    let (least, most) = (shown(0.0).fold(f64::INFINITY, f64::min), shown(1.0).fold(1.0, f64::max));
    let ends = |counts: &[u32]| Some((f64::from(*counts.first()?), f64::from(*counts.last()?)));
    let (first, last) = ends(&counts).unwrap_or((1.0, 2.0));
    let axes = Axes {
        x: (first, last.max(first * 2.0)),
        y: (10f64.powf(least.min(most).log10().floor()), 10f64.powf(most.log10().ceil())),
    };
    let high = TOP + HEIGHT + BELOW + ROW * (series.len() + 1) as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {high}\" font-family=\"sans-serif\" \
         font-size=\"12\">{STYLE}\n<rect class=\"back\" width=\"100%\" height=\"100%\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"14\">From a NIC's failure to open channels: soft NIC, virtual \
         time</text>\n",
        LEFT + WIDTH + RIGHT
    );
    axes.draw(&mut out, &counts);
    for (number, one) in series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        one.draw(&mut out, &axes, colour);
        let y = TOP + HEIGHT + BELOW + ROW * number as f64;
        let _ = writeln!(
            out,
            "<rect x=\"{LEFT}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"{}\">{}</text>",
            LEFT + 20.0,
            y + 10.0,
            one.legend()
        );
    }
    let y = TOP + HEIGHT + BELOW + ROW * series.len() as f64;
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{}\">solid: the last channel is open; dotted: the first</text>\n</svg>",
        y + 10.0
    );
    out
}
