//! Words to stdout and stderr, and the exit status that goes with them.

use shunt_json::{Document, Kind};
use std::fmt::Display;
use std::io::{ErrorKind, Write};

/// Bad usage.
pub const USAGE: u8 = 2;

/// Says what is wrong and gives the status of bad usage.
pub fn usage(error: &dyn Display) -> u8 {
    shunt_host::complain!("error: {error}");
    USAGE
}

/// An object with its header, on several lines.
pub fn document<T: Kind>(body: T) -> String {
    Document::new(body).pretty() + "\n"
}

/// Writes to stdout; false if no reader is left, or if it cannot be written, which is told.
pub fn written(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if let Err(error) = &written
        && error.kind() != ErrorKind::BrokenPipe
    {
        shunt_host::complain!("error: stdout: {error}");
    }
    written.is_ok()
}

/// Writes to stdout. Words that are lost are not status 0, unless the reader has seen enough and closed the pipe.
pub fn stdout(text: &str, status: u8) -> u8 {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            shunt_host::complain!("error: stdout: {error}");
            1
        }
        _ => status,
    }
}

/// Text in columns, blanks between them, none at the ends of lines.
pub fn columns(rows: &[Vec<String>], indent: &str) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter(|row| row.len() > column + 1).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        out.push_str(format!("{indent}{}", cells.join("  ")).trim_end());
        out.push('\n');
    }
    out
}

/// Columns of the terminal that stdout is, or those that `COLUMNS` names; none where it is a file or a pipe.
pub fn width() -> Option<usize> {
    let named = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let size = || terminal_size::terminal_size_of(std::io::stdout());
    named.or_else(|| size().map(|(width, _)| width.0.into())).filter(|width| *width >= 40)
}

/// A long line broken at blanks; lines after the first are indented.
pub fn wrap(text: &str, first: &str, indent: &str) -> String {
    const WIDEST: usize = 110;
    wrap_to(width().map_or(WIDEST, |width| width.min(WIDEST)), text, first, indent)
}

/// [`wrap`], at a width.
pub fn wrap_to(widest: usize, text: &str, first: &str, indent: &str) -> String {
    let mut out = String::new();
    let mut line = first.to_owned();
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > widest {
            out.push_str(line.trim_end());
            out.push('\n');
            line = indent.to_owned();
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    out + line.trim_end() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_end_with_words() {
        let rows = [vec!["a".into(), "b".into(), String::new()], vec!["long".into(), "c".into(), "d".into()]];
        assert_eq!(columns(&rows, "  "), "  a     b\n  long  c  d\n");
    }

    #[test]
    fn long_lines_are_broken_at_blanks() {
        let text = "word ".repeat(40);
        let out = wrap_to(110, &text, "- ", "  ");
        assert!(out.lines().count() == 2 && out.lines().all(|line| line.len() <= 110), "{out}");
        assert!(out.lines().nth(1).unwrap().starts_with("  word"));
    }
}
