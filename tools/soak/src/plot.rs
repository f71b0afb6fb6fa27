//! Memory, descriptors and threads over time as SVG: a panel each, a line a process.

use crate::leak::{Sample, Series};
use std::fmt::Write;

/// They differ in lightness too.
const COLOURS: [&str; 6] = ["#1b6ca8", "#e07b00", "#3a9a50", "#b03a6f", "#6a51a3", "#636363"];
const LEFT: f64 = 70.0;
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 150.0;
const GAP: f64 = 40.0;
/// Points of a line at most: the picture stays small.
const POINTS: usize = 600;

/// What of a sample is drawn.
type Figure = fn(&Sample) -> f64;

/// A panel's heading, and what of a sample is drawn.
const PANELS: [(&str, Figure); 3] = [
    ("memory of its own, MiB", |sample| sample.memory as f64 / 1024.0),
    ("descriptors", |sample| sample.descriptors as f64),
    ("threads", |sample| sample.threads as f64),
];

/// Draws all of them.
pub fn svg(series: &[Series], title: &str) -> String {
    let end = series.iter().flat_map(|one| &one.samples).fold(1.0, |end: f64, sample| end.max(sample.at));
    let rows = PANELS.len() as f64;
    let bottom = GAP + rows * (HEIGHT + GAP);
    let (width, height) = (LEFT + WIDTH + 30.0, bottom + 20.0 * (series.len() as f64 + 1.0));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    text(&mut out, LEFT, 18.0, "start", title);
    for (number, (heading, of)) in PANELS.iter().enumerate() {
        panel(&mut out, series, GAP + number as f64 * (HEIGHT + GAP), end, heading, *of);
    }
    for (number, one) in series.iter().enumerate() {
        let y = bottom + 20.0 * number as f64;
        let colour = COLOURS[number % COLOURS.len()];
        let _ = writeln!(
            out,
            "<rect x=\"{LEFT}\" y=\"{}\" width=\"14\" height=\"4\" fill=\"{colour}\"/>",
            y - 5.0
        );
        text(&mut out, LEFT + 20.0, y, "start", &one.name);
    }
    out + "</svg>\n"
}

fn panel(out: &mut String, series: &[Series], top: f64, end: f64, heading: &str, of: Figure) {
    let values = || series.iter().flat_map(|one| &one.samples).map(of);
    let most = values().fold(1.0, f64::max) * 1.1;
    let floor = top + HEIGHT;
    text(out, LEFT, top - 6.0, "start", heading);
    for part in 0..=2 {
        let (y, value) = (floor - HEIGHT * f64::from(part) / 2.0, most * f64::from(part) / 2.0);
        let right = LEFT + WIDTH;
        let _ = writeln!(out, "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#dddddd\" fill=\"none\"/>");
        text(out, LEFT - 6.0, y + 4.0, "end", &format!("{value:.0}"));
    }
    for part in 0..=6 {
        let x = LEFT + WIDTH * f64::from(part) / 6.0;
        text(out, x, floor + 14.0, "middle", &format!("{:.1} min", end * f64::from(part) / 360.0));
    }
    for (number, one) in series.iter().enumerate() {
        let every = one.samples.len().div_ceil(POINTS).max(1);
        let points: Vec<String> = one
            .samples
            .chunks(every)
            .map(|chunk| {
                let highest = chunk.iter().map(of).fold(0.0, f64::max);
                format!("{:.1},{:.1}", LEFT + WIDTH * chunk[0].at / end, floor - HEIGHT * highest / most)
            })
            .collect();
        let colour = COLOURS[number % COLOURS.len()];
        let points = points.join(" ");
        let _ = writeln!(
            out,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
        );
    }
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_has_a_line_in_each_panel() {
        let samples = (0..5000)
            .map(|n| Sample { at: f64::from(n), memory: 2048, descriptors: 7, threads: 3 })
            .collect();
        let one = Series { name: "a <b>".to_owned(), pid: 7, samples };
        let picture = svg(&[one.clone(), one], "t");
        assert_eq!(picture.matches("<polyline").count(), 6);
        assert!(picture.contains("a &lt;b&gt;") && !picture.contains("a <b>"));
        assert!(picture.len() < 200_000, "{}", picture.len());
        assert!(svg(&[], "nothing").ends_with("</svg>\n"));
    }
}
