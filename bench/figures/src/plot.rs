//! The timeline as SVG and as a line of blocks: a bar per 10 ms, coloured by the path that carried it.

use crate::lines::{Bin, FaultLine};
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
const RIGHT: f64 = 40.0;
/// Rows of fault labels before they start again at the top.
const LABEL_ROWS: usize = 6;

/// Width of `text` in the pictures' font, on the safe side: nothing measures it before it is drawn.
fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * 7.5
}

/// The step of 1, 2 or 5 times a power of ten that cuts `top` into at most `most` parts.
fn step(top: f64, most: f64) -> f64 {
    let power = 10f64.powf((top / most).log10().floor());
    let fits = |factor: &f64| top / (factor * power) <= most * (1.0 + 1e-9);
    [1.0, 2.0, 5.0].into_iter().find(fits).unwrap_or(10.0) * power
}

/// Multiples of `step` from 0 to `top`.
fn ticks(top: f64, step: f64) -> impl Iterator<Item = f64> {
    (0..=(top / step * (1.0 + 1e-9)) as u32).map(move |number| number as f64 * step)
}

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

/// Which colour is which path, in as many rows as it takes; answers with their height.
fn legend(out: &mut String, paths: &[&str]) -> f64 {
    let (mut x, mut y) = (LEFT, TOP + HEIGHT + 32.0);
    for (number, path) in paths.iter().enumerate() {
        let width = 16.0 + text_width(path) + 16.0;
        if x > LEFT && x + width > LEFT + WIDTH {
            (x, y) = (LEFT, y + 20.0);
        }
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{}\"/>\
             <text x=\"{}\" y=\"{}\">{}</text>",
            COLOURS[number % COLOURS.len()],
            x + 16.0,
            y + 11.0,
            escape(path)
        );
        x += width;
    }
    y + 20.0 - TOP - HEIGHT
}

/// Ticks of both axes on round numbers.
fn axes(out: &mut String, top: f64, rate_step: f64, ms: f64) {
    let digits = (-rate_step.log10().floor()).max(1.0) as usize;
    for rate in ticks(top, rate_step) {
        let y = TOP + HEIGHT - rate / top * HEIGHT;
        let _ = writeln!(
            out,
            "<text class=\"y\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{rate:.digits$}</text>\
             <line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" \
             stroke=\"#ddd\" stroke-width=\"0.5\"/>",
            LEFT - 6.0,
            y + 4.0,
            LEFT + WIDTH,
        );
    }
    for at in ticks(ms, step(ms, 8.0)) {
        let _ = writeln!(
            out,
            "<text class=\"x\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{at:.0} ms</text>",
            LEFT + at / ms * WIDTH,
            TOP + HEIGHT + 16.0,
        );
    }
}

/// A line at each fault that came before the end, its name in dark letters on a light box.
fn faults(out: &mut String, faults: &[FaultLine], ms: f64) {
    // Boxes above all lines: a line through a name makes it hard to read.
    let mut boxes = String::new();
    for (number, fault) in faults.iter().filter(|fault| fault.at_ms <= ms).enumerate() {
        let x = LEFT + fault.at_ms / ms * WIDTH;
        let label = format!("{} {}", fault.place, fault.kind);
        let width = text_width(&label) + 8.0;
        let left = (x + 3.0).min(LEFT + WIDTH + RIGHT - width - 2.0);
        let y = TOP + 2.0 + (number % LABEL_ROWS) as f64 * 20.0;
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{}\" \
             stroke=\"#c00\" stroke-dasharray=\"4 3\"/>",
            TOP + HEIGHT,
        );
        let _ = writeln!(
            boxes,
            "<rect class=\"fault\" x=\"{left:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"17\" rx=\"2\" \
             fill=\"#fffbe6\" stroke=\"#c00\" stroke-width=\"0.5\"/>\
             <text x=\"{:.1}\" y=\"{}\" fill=\"#222\">{}</text>",
            left + 4.0,
            y + 13.0,
            escape(&label)
        );
    }
    out.push_str(&boxes);
}

fn bars(out: &mut String, bins: &[Bin], paths: &[&str], top: f64) {
    let step = WIDTH / bins.len().max(1) as f64;
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
}

/// What a picture shows.
pub struct Picture<'r> {
    /// What it is of, in one line.
    pub caption: String,
    /// Bars.
    pub bins: &'r [Bin],
    /// Lines across them.
    pub faults: &'r [FaultLine],
}

/// A timeline as an SVG document.
pub fn draw(picture: &Picture<'_>) -> String {
    let bins = picture.bins;
    let paths = paths(bins);
    let highest = bins.iter().map(|bin| bin.gb_s).fold(0.001, f64::max);
    let rate_step = step(highest, 6.0);
    // Up to a whole step, so that the topmost line has its number.
    let top = (highest / rate_step - 1e-9).ceil() * rate_step;
    let ms = bins.last().map_or(10.0, |bin| bin.t_ms + 10.0);
    let mut body = String::new();
    bars(&mut body, bins, &paths, top);
    axes(&mut body, top, rate_step, ms);
    faults(&mut body, picture.faults, ms);
    let below = legend(&mut body, &paths);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"18\">{}</text>\n\
         {body}</svg>\n",
        LEFT + WIDTH + RIGHT,
        TOP + HEIGHT + below,
        escape(&picture.caption)
    )
}

/// The timeline as text of at most `columns` blocks a row, coloured on a terminal only.
pub fn text(bins: &[Bin], columns: usize, colour: bool) -> String {
    let paths = paths(bins);
    let per_column = bins.len().div_ceil(columns.max(1)).max(1);
    let top = bins.iter().map(|bin| bin.gb_s).fold(0.001, f64::max);
    let head = format!("{top:.3} GB/s at full height, {} ms a column\n", per_column * 10);
    let mut out = String::new();
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
    let reset = if colour { "\x1b[0m" } else { "" };
    let name = |(number, path): (usize, &&str)| {
        let digit = char::from_digit(number as u32 % 36, 36).unwrap_or('?');
        let start = if colour { format!("\x1b[{}m", ANSI[number % ANSI.len()]) } else { String::new() };
        format!("{start}{digit} {path}{reset}")
    };
    let names: Vec<String> = paths.iter().enumerate().map(name).collect();
    format!("{head}{}{reset}\n{marks}\n{}", out.trim_end(), names.join("  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        for (top, want) in [(0.479, 0.1), (1.0, 0.2), (2.0, 0.5), (0.001, 0.0002), (6.1, 2.0), (88.0, 20.0)] {
            assert!((step(top, 6.0) - want).abs() < want * 1e-6, "{top}: {}", step(top, 6.0));
        }
        assert_eq!(ticks(1.0, 0.2).count(), 6);
    }
}
