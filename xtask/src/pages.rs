//! The stage `pages`: what people look at. A run's page in headless Chromium, by its parts in the DOM and as a picture;
//! docs/ as a book.

use crate::python::emptied;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use shunt_task::sh;
use shunt_task::stages::Count;
use std::path::Path;
use std::process::Command;

/// A port goes down and comes back, so that there are switches to draw.
const RUN: &[&str] = &["-n", "0", "--duration", "3s", "--inject", "1s:0.0:down", "--inject", "1500ms:0.0:up"];
/// Width and height of the picture.
const WINDOW: (u32, u32) = (1200, 1600);
/// A blank picture of that size has a tenth of these bytes.
const LEAST_PICTURE: usize = 40_000;
/// What makes the book, where it is not installed: `cargo install` of this, once.
const MDBOOK: &[&str] = &["mdbook", "--version", "^0.4", "--no-default-features"];

pub fn stage() -> Result<Count> {
    let home = sh::target_dir().join("ci/pages");
    emptied(&home)?;
    let mut count = Count::told("book", &book()?);
    if !sh::exists("chromium") {
        if std::env::var_os("CI").is_some() {
            bail!("chromium is not installed: scripts/setup-debian.sh does that");
        }
        println!("  page                                 skipped: chromium is not installed");
        count += Count { skipped: 2, ..Count::default() };
        return Ok(count);
    }
    let report = run(&home)?;
    count += Count::told("page-of-a-run", &page(&home.join("run.html"), &report)?);
    count += Count::told("page-of-events", &viewed(&home)?);
    println!("    pictures: {}", home.display());
    Ok(count)
}

/// docs/ as a book; what is wrong with it.
fn book() -> Result<Vec<String>> {
    let mut build = sh::command(&sh::tool("mdbook", MDBOOK)?.to_string_lossy());
    let said = sh::capture(build.args(["build", "docs"]))?;
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    let mut wrong: Vec<String> = said
        .lines()
        .filter(|line| line.contains("WARN") || line.contains("ERROR"))
        .map(str::to_owned)
        .collect();
    for page in ["index.html", "FAILOVER.html", "how-to/verbs.html", "print.html"] {
        if !sh::target_dir().join("book").join(page).is_file() {
            wrong.push(format!("the book has no {page}"));
        }
    }
    Ok(wrong)
}

/// The main program with two faults; what its JSON says.
fn run(home: &Path) -> Result<Value> {
    let program = sh::target_dir().join("release/shmem_put_bw");
    let json = home.join("run.json");
    let mut run = sh::command(&program.to_string_lossy());
    run.args(RUN).arg("--report").arg(home.join("run.html")).arg("--json").arg(&json);
    sh::capture(run.env("SHUNT_EVENTS", home.join("events.jsonl")).env("SHUNT_NIC", "soft"))?;
    let text = std::fs::read_to_string(&json).with_context(|| format!("cannot read {}", json.display()))?;
    Ok(serde_json::from_str(&text)?)
}

/// `shunt view` of the same run's events.
fn viewed(home: &Path) -> Result<Vec<String>> {
    let page = home.join("events.html");
    let mut view = sh::command(&sh::target_dir().join("release/shunt").to_string_lossy());
    sh::capture(view.arg("view").arg(home.join("events.jsonl")).arg("-o").arg(&page))?;
    let dom = opened(&page)?;
    let mut wrong = picture(&page)?;
    wrong.extend(drawn(&dom, 2));
    Ok(wrong)
}

fn page(page: &Path, report: &Value) -> Result<Vec<String>> {
    let dom = opened(page)?;
    let mut wrong = picture(page)?;
    let switches = report["switches"].as_array().context("the JSON lists no switches")?.len();
    if switches == 0 {
        bail!("not exercised: the run switched no path");
    }
    wrong.extend(drawn(&dom, switches));
    let expect = |part: &str, what: &str, wrong: &mut Vec<String>| {
        if !dom.contains(part) {
            wrong.push(format!("{what}: expected {part:?} in the DOM"));
        }
    };
    let verdict = report["verdict"].as_str().unwrap_or_default();
    expect(&format!("id=\"verdict\" class=\"verdict good\">{verdict}<"), "verdict", &mut wrong);
    expect("id=\"legend\"", "topology: what each colour is", &mut wrong);
    expect("--inject 1s:0.0:down", "options", &mut wrong);
    let rows = between(&dom, "<table id=\"switches\">", "</table>").matches("<tr>").count();
    if rows != switches + 1 {
        wrong.push(format!("table of switches: expected {switches} rows and a head, got {rows}"));
    }
    let faults = between(&dom, "<table id=\"marks\">", "</table>").matches(" hits)").count();
    if faults != 2 {
        wrong.push(format!("table of faults: expected 2, got {faults}"));
    }
    Ok(wrong)
}

/// What is wrong with the picture of channels and rails: each switch has its stages on hover.
fn drawn(dom: &str, least_switches: usize) -> Vec<String> {
    let svg = between(dom, "<svg id=\"time\"", "</svg>");
    let count = |part: &str| svg.matches(part).count();
    let mut wrong = Vec::new();
    let mut at_least = |what: &str, met: usize, least: usize| {
        if met < least {
            wrong.push(format!("{what}: expected at least {least}, got {met}"));
        }
    };
    at_least("channels by time", count("class=\"channel\""), 2);
    at_least("rails by time", count("class=\"rail\""), 2);
    at_least("switches", count("class=\"switch\""), least_switches);
    at_least("switches with stages on hover", count("replay "), least_switches);
    wrong
}

fn between<'t>(text: &'t str, from: &str, to: &str) -> &'t str {
    let rest = text.split_once(from).map_or("", |(_, rest)| rest);
    rest.split_once(to).map_or(rest, |(inside, _)| inside)
}

fn chromium(page: &Path) -> Command {
    let mut chromium = sh::command("chromium");
    let (width, height) = WINDOW;
    chromium.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
    chromium.arg(format!("--window-size={width},{height}"));
    // A profile of its own: one that is open elsewhere is not shared.
    chromium.arg(format!("--user-data-dir={}", page.with_extension("profile").display()));
    chromium
}

fn address(page: &Path) -> String {
    format!("file://{}", page.display())
}

/// The DOM of a page as Chromium has it.
fn opened(page: &Path) -> Result<String> {
    let said = sh::capture(chromium(page).arg("--dump-dom").arg(address(page)))?;
    Ok(String::from_utf8_lossy(&said.stdout).into_owned())
}

/// Keeps a picture of a page beside it; what is wrong with that.
fn picture(page: &Path) -> Result<Vec<String>> {
    let file = page.with_extension("png");
    sh::capture(chromium(page).arg(format!("--screenshot={}", file.display())).arg(address(page)))?;
    let bytes = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let number =
        |at: usize| bytes.get(at..at + 4).map(|part| u32::from_be_bytes(part.try_into().unwrap_or_default()));
    let mut wrong = Vec::new();
    // PNG: eight bytes of signature, then the header's length and name, width and height.
    if (number(16), number(20)) != (Some(WINDOW.0), Some(WINDOW.1)) || bytes.len() < LEAST_PICTURE {
        wrong.push(format!("{}: expected a picture, got {} bytes", file.display(), bytes.len()));
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_without_stages_or_rails_is_wrong() {
        let channel =
            "<g class=\"channel\"><rect class=\"switch\"><title>fence 1, replay 2 us</title></rect></g>";
        let rail = "<g class=\"rail\"></g>";
        let page = |parts: &str| format!("<svg id=\"time\">{parts}</svg><p>replay replay</p>");
        let good = page(&(channel.repeat(2) + &rail.repeat(2)));
        assert!(drawn(&good, 2).is_empty());
        assert_eq!(drawn(&good, 3).len(), 2, "switches, and their stages");
        assert_eq!(drawn(&good.replace("replay", "again"), 2).len(), 1);
        assert_eq!(drawn(&good.replace("class=\"rail\"", ""), 2).len(), 1);
        assert_eq!(drawn(&page(""), 1).len(), 4);
        assert_eq!(drawn("", 1).len(), 4);
    }
}
