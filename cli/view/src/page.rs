//! The page: one file, styles and pictures inside, no script, nothing fetched. It is well-formed XML as well.

use crate::lanes::{self, Segment};
use crate::{Mark, Outcome, Port, Rate, Run, Switch};
use std::fmt::Write;

/// Colours of paths in order of appearance; they differ in lightness, too.
const COLOURS: [&str; 8] =
    ["#1b6ca8", "#e07b00", "#3a9a50", "#b03a6f", "#6a51a3", "#8c6d31", "#17a2a2", "#636363"];
const STYLE: &str = "body{font:14px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#222}\
h1{font-size:1.4em}h2{font-size:1.1em;margin-top:1.6em}table{border-collapse:collapse}\
td,th{padding:2px 10px 2px 0;text-align:left;vertical-align:top;border-bottom:1px solid #eee}\
.n{text-align:right}.verdict{display:inline-block;padding:.3em .8em;border-radius:4px;color:#fff;font-weight:600}\
.good{background:#2e7d32}.bad{background:#b71c1c}svg{width:100%;height:auto}svg text{font-size:12px;fill:#444}\
.switch{fill:#c00;stroke:#c00}.switch:hover{stroke-width:4}.down{fill:#b71c1c}.up{fill:#cfe3cf}";
const WIDTH: f64 = 1060.0;
const LEFT: f64 = 110.0;
const RIGHT: f64 = 40.0;
const LANE: f64 = 26.0;
const RATE_HEIGHT: f64 = 130.0;
const BAR: f64 = 16.0;

/// The page of a run.
pub fn html(run: &Run) -> String {
    let mut out = String::new();
    let title = escape(&run.title);
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head><meta charset=\"utf-8\"/>\
         <title>{title}</title>\n<style>{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n"
    );
    if let Some((text, good)) = &run.verdict {
        let class = if *good { "good" } else { "bad" };
        let _ = writeln!(out, "<p id=\"verdict\" class=\"verdict {class}\">{}</p>", escape(text));
    }
    pictures(&mut out, run);
    switches(&mut out, &run.switches);
    marks(&mut out, &run.marks);
    let _ = writeln!(out, "<h2>Run</h2>\n<table id=\"facts\">");
    for (name, value) in &run.facts {
        let _ = writeln!(out, "<tr><th>{}</th><td>{}</td></tr>", escape(name), escape(value));
    }
    out + "</table>\n</body>\n</html>\n"
}

fn escape(text: &str) -> String {
    // XML has no other control characters than these, and a message may hold some.
    let kept = text.chars().filter(|c| !c.is_control() || "\n\t".contains(*c));
    let text: String = kept.collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Where a time is, in the picture's units.
fn x(run: &Run, at_ms: f64) -> f64 {
    LEFT + at_ms / run.length_ms.max(1e-6) * (WIDTH - LEFT - RIGHT)
}

/// Paths in order of appearance.
fn paths(run: &Run) -> Vec<&str> {
    let mut found = Vec::new();
    for path in run.switches.iter().flat_map(|switch| [switch.from.as_str(), switch.to.as_str()]) {
        if !path.is_empty() && !found.contains(&path) {
            found.push(path);
        }
    }
    found
}

fn pictures(out: &mut String, run: &Run) {
    let (channels, rails) = (lanes::channels(run), lanes::rails(run));
    let rate_height = if run.rates.is_empty() { 0.0 } else { RATE_HEIGHT };
    let lanes = (channels.len() + rails.len()) as f64;
    let height = 10.0 + rate_height + lanes * LANE + 30.0;
    let _ = writeln!(
        out,
        "<h2>Channels and rails over time</h2>\n<svg id=\"time\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\">"
    );
    rates(out, run, &run.rates);
    let mut y = 10.0 + rate_height;
    let paths = paths(run);
    for (channel, lane) in &channels {
        let name = format!("{}>{}#{}", channel.pe, channel.peer, channel.index);
        let _ = writeln!(
            out,
            "<g class=\"channel\"><text x=\"0\" y=\"{}\">channel {}</text>",
            y + 13.0,
            escape(&name)
        );
        for segment in lane {
            let colour = paths.iter().position(|path| *path == segment.state).unwrap_or(0);
            bar(out, run, segment, y, &format!("fill=\"{}\"", COLOURS[colour % COLOURS.len()]));
        }
        let own = run.switches.iter().filter(|switch| switch.channel == *channel);
        own.for_each(|switch| switch_mark(out, run, switch, y));
        out.push_str("</g>\n");
        y += LANE;
    }
    for ((pe, rail), lane) in &rails {
        let _ = writeln!(out, "<g class=\"rail\"><text x=\"0\" y=\"{}\">rail {pe}.{rail}</text>", y + 13.0);
        lane.iter().for_each(|segment| bar(out, run, segment, y, &format!("class=\"{}\"", segment.state)));
        out.push_str("</g>\n");
        y += LANE;
    }
    for tenth in 0..=10 {
        let at = run.length_ms * f64::from(tenth) / 10.0;
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{at:.0} ms</text>",
            x(run, at),
            y + 16.0
        );
    }
    out.push_str("</svg>\n");
    legend(out, &paths);
}

fn legend(out: &mut String, paths: &[&str]) {
    out.push_str("<p id=\"legend\">");
    for (number, path) in paths.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let _ = write!(out, "<span style=\"color:{colour}\">&#9632;</span> path {} &#160; ", escape(path));
    }
    out.push_str(
        "<span style=\"color:#c00\">&#9632;</span> a switch: hold the pointer over it for its stages. Path 0.1>1.0 is \
         rail 1 of PE 0 to rail 0 of PE 1.</p>\n"
            .replace("0.1>1.0", "0.1&gt;1.0")
            .as_str(),
    );
}

fn bar(out: &mut String, run: &Run, segment: &Segment, y: f64, look: &str) {
    let (from, to) = (x(run, segment.from_ms), x(run, segment.to_ms));
    let _ = writeln!(
        out,
        "<rect x=\"{from:.2}\" y=\"{y}\" width=\"{:.2}\" height=\"{BAR}\" {look}>\
         <title>{}: {:.3} to {:.3} ms</title></rect>",
        (to - from).max(0.2),
        escape(&segment.state),
        segment.from_ms,
        segment.to_ms
    );
}

fn switch_mark(out: &mut String, run: &Run, switch: &Switch, y: f64) {
    let (from, to) = (x(run, switch.noticed_ms), x(run, switch.ended_ms()));
    let _ = writeln!(
        out,
        "<rect class=\"switch\" x=\"{from:.2}\" y=\"{}\" width=\"{:.2}\" height=\"{}\"><title>{}</title></rect>",
        y - 3.0,
        (to - from).max(1.5),
        BAR + 6.0,
        escape(&told(switch))
    );
}

/// A switch in lines: what a pointer over it shows.
fn told(switch: &Switch) -> String {
    let mut text = format!("{} at {:.3} ms: {}", name(switch.outcome), switch.noticed_ms, switch.cause);
    let _ =
        write!(text, "\n{} to {}", switch.from, if switch.to.is_empty() { "no path" } else { &switch.to });
    for (stage, us) in &switch.stages {
        let _ = write!(text, "\n{stage} {us:.1} us");
    }
    let _ = write!(text, "\n{} operations sent again", switch.replayed);
    text
}

fn name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Failover => "failover",
        Outcome::Back => "switch-back",
        Outcome::Dead => "channel ended",
    }
}

/// GB/s over time.
fn rates(out: &mut String, run: &Run, rates: &[Rate]) {
    let top = rates.iter().map(|rate| rate.gb_s).fold(0.0, f64::max);
    if top <= 0.0 {
        return;
    }
    let base = 10.0 + RATE_HEIGHT - 20.0;
    let y = |gb_s: f64| base - gb_s / top * (RATE_HEIGHT - 30.0);
    let points: Vec<String> =
        rates.iter().map(|rate| format!("{:.2},{:.2}", x(run, rate.at_ms), y(rate.gb_s))).collect();
    let _ = writeln!(
        out,
        "<g class=\"rates\"><text x=\"0\" y=\"20\">{top:.3} GB/s</text><text x=\"0\" y=\"{base}\">0</text>\
         <polyline fill=\"none\" stroke=\"#1b6ca8\" stroke-width=\"1.2\" points=\"{}\"/></g>",
        points.join(" ")
    );
}

fn switches(out: &mut String, switches: &[Switch]) {
    if switches.is_empty() {
        out.push_str("<h2>Switches</h2>\n<p>None.</p>\n");
        return;
    }
    out.push_str(
        "<h2>Switches</h2>\n<table id=\"switches\"><tr><th>at, ms</th><th>channel</th><th>what</th>\
         <th>from</th><th>to</th><th>cause</th><th>stages, us</th><th>sent again</th></tr>\n",
    );
    for switch in switches {
        let stages: Vec<String> = switch.stages.iter().map(|(name, us)| format!("{name} {us:.1}")).collect();
        let channel = format!("{}>{}#{}", switch.channel.pe, switch.channel.peer, switch.channel.index);
        let _ = write!(out, "<tr><td class=\"n\">{:.3}</td>", switch.noticed_ms);
        for cell in
            [&channel, name(switch.outcome), &switch.from, &switch.to, &switch.cause, &stages.join(", ")]
        {
            let _ = write!(out, "<td>{}</td>", escape(cell));
        }
        let _ = writeln!(out, "<td class=\"n\">{}</td></tr>", switch.replayed);
    }
    out.push_str("</table>\n");
}

fn marks(out: &mut String, marks: &[Mark]) {
    out.push_str(
        "<h2>Faults, ports and PEs</h2>\n<table id=\"marks\"><tr><th>at, ms</th><th>where</th><th>what</th>\
         </tr>\n",
    );
    for mark in marks {
        let place = mark.rail.map_or_else(|| format!("PE {}", mark.pe), |rail| format!("{}.{rail}", mark.pe));
        let class = if mark.port == Some(Port::Down) { " class=\"fault\"" } else { "" };
        let _ = writeln!(
            out,
            "<tr{class}><td class=\"n\">{:.3}</td><td>{place}</td><td>{}</td></tr>",
            mark.at_ms,
            escape(&mark.text)
        );
    }
    out.push_str("</table>\n");
}
