//! The timeline as SVG and as a line of blocks: a bar per 10 ms, coloured by the path that carried it.

use crate::report::{Bin, Report};
use std::fmt::Write;

/// Colours of paths in order of appearance; they differ in lightness too.
const COLOURS: [&str; 8] =
    ["#1b6ca8", "#e07b00", "#3a9a50", "#b03a6f", "#6a51a3", "#8c6d31", "#17a2a2", "#636363"];
const ANSI: [u8; 8] = [34, 33, 32, 35, 36, 31, 94, 90];
const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 30.0;

/// Paths in order of appearance.
fn paths(bins: &[Bin]) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for bin in bins {
        if !found.contains(&bin.path.as_str()) {
            found.push(&bin.path);
        }
    }
    found
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Which colour is which path.
fn legend(out: &mut String, paths: &[&str]) {
    for (number, path) in paths.iter().enumerate() {
        let x = LEFT + number as f64 * 110.0;
        let y = TOP + HEIGHT + 32.0;
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{}\"/>\
             <text x=\"{}\" y=\"{}\">{}</text>",
            COLOURS[number % COLOURS.len()],
            x + 16.0,
            y + 11.0,
            escape(path)
        );
    }
}

/// The timeline as an SVG document.
pub fn svg(report: &Report) -> String {
    let bins = &report.timeline;
    let paths = paths(bins);
    let top = bins.iter().map(|bin| bin.gb_s).fold(0.001, f64::max);
    let step = WIDTH / bins.len().max(1) as f64;
    let ms = bins.last().map_or(10.0, |bin| bin.t_ms + 10.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"18\">delivered, GB/s per 10 ms; {}; seed {}; oversubscribed: {}</text>\n",
        LEFT + WIDTH + 20.0,
        TOP + HEIGHT + 60.0,
        report.clock,
        report.seed,
        if report.oversubscribed { "yes" } else { "no" }
    );
    for (number, bin) in bins.iter().enumerate() {
        let colour = paths.iter().position(|path| *path == bin.path).unwrap_or(0) % COLOURS.len();
        let height = bin.gb_s / top * HEIGHT;
        let _ = writeln!(
            out,
            "<rect x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{height:.2}\" fill=\"{}\"/>",
            LEFT + number as f64 * step,
            TOP + HEIGHT - height,
            step,
            COLOURS[colour]
        );
    }
    for tenth in 0..=4 {
        let (share, x) = (tenth as f64 / 4.0, LEFT + WIDTH * tenth as f64 / 4.0);
        let y = TOP + HEIGHT - share * HEIGHT;
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{:.2}</text>\
             <line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\" stroke-width=\"0.5\"/>\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{:.0} ms</text>",
            LEFT - 6.0,
            y + 4.0,
            share * top,
            LEFT + WIDTH,
            TOP + HEIGHT + 16.0,
            share * ms
        );
    }
    for fault in &report.faults {
        let x = LEFT + fault.at_ms / ms * WIDTH;
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{}\" \
             stroke=\"#c00\" stroke-dasharray=\"4 3\"/>\
             <text x=\"{:.1}\" y=\"{}\" fill=\"#c00\">{} {}</text>",
            TOP + HEIGHT,
            x + 3.0,
            TOP + 10.0,
            escape(&fault.place),
            escape(&fault.kind)
        );
    }
    legend(&mut out, &paths);
    out.push_str("</svg>\n");
    out
}

/// The timeline as text of at most `columns` blocks a row, coloured on a terminal only.
pub fn text(bins: &[Bin], columns: usize, colour: bool) -> String {
    let paths = paths(bins);
    let per_column = bins.len().div_ceil(columns.max(1)).max(1);
    let top = bins.iter().map(|bin| bin.gb_s).fold(0.001, f64::max);
    let mut out = format!("{top:.3} GB/s at full height, {} ms a column\n", per_column * 10);
    let mut last = usize::MAX;
    let mut marks = String::new();
    for group in bins.chunks(per_column) {
        let mean = group.iter().map(|bin| bin.gb_s).sum::<f64>() / group.len() as f64;
        let number = paths.iter().position(|path| *path == group[group.len() - 1].path).unwrap_or(0);
        if colour && number != last {
            let _ = write!(out, "\x1b[{}m", ANSI[number % ANSI.len()]);
        }
        last = number;
        out.push(LEVELS[(mean / top * 8.0).round() as usize]);
        marks.push(char::from_digit(number as u32 % 36, 36).unwrap_or('?'));
    }
    if colour {
        out.push_str("\x1b[0m");
    }
    let _ = write!(out, "\n{marks}\n");
    for (number, path) in paths.iter().enumerate() {
        let digit = char::from_digit(number as u32 % 36, 36).unwrap_or('?');
        if colour {
            let _ = write!(out, "\x1b[{}m{digit} {path}\x1b[0m  ", ANSI[number % ANSI.len()]);
        } else {
            let _ = write!(out, "{digit} {path}  ");
        }
    }
    out.push('\n');
    out
}
