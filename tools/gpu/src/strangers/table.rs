//! The table of what was compiled and linked, and why not.

use std::fmt::Write;

/// One source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub source: String,
    compiled: bool,
    linked: bool,
    reason: String,
}

impl Row {
    /// A source that was compiled, or was not for this reason.
    pub fn compiled(source: &str, reason: Option<String>) -> Self {
        let compiled = reason.is_none();
        Self { source: source.to_owned(), compiled, linked: false, reason: reason.unwrap_or_default() }
    }

    /// It was linked, or was not for this reason.
    pub fn link(&mut self, reason: Option<String>) {
        self.linked = reason.is_none();
        self.reason = reason.unwrap_or_default();
    }

    pub fn is_compiled(&self) -> bool {
        self.compiled
    }
}

/// All of them, with sums.
pub fn text(kind: &str, arch: &str, compiler: &str, rows: &[Row]) -> String {
    let count = |which: fn(&Row) -> bool| rows.iter().filter(|row| which(row)).count();
    let mut out = format!(
        "# {kind}: {} sources, {} compiled, {} linked ({arch}, {compiler})\n\n",
        rows.len(),
        count(|row| row.compiled),
        count(|row| row.linked)
    );
    out += "| source | compiled | linked | reason |\n| --- | --- | --- | --- |\n";
    let word = |yes: bool| if yes { "yes" } else { "no" };
    for row in rows {
        let reason = row.reason.replace('|', "\\|");
        let _ =
            writeln!(out, "| {} | {} | {} | {reason} |", row.source, word(row.compiled), word(row.linked));
    }
    out
}

/// The first line that tells why, without the folder of the file it is in.
pub fn first_reason(text: &str) -> String {
    let tells =
        ["error", "undefined reference", "Undefined reference", "No such file", "multiple definition"];
    let line = text.lines().find(|line| tells.iter().any(|word| line.contains(word)));
    let line = line.or_else(|| text.lines().next_back()).unwrap_or("it said nothing").trim();
    let (place, rest) = line.split_once(' ').unwrap_or(("", line));
    match place.rsplit_once('/') {
        Some((_, file)) => format!("{file} {rest}"),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_is_told_without_its_folder() {
        let text = "note\n/a/b/x.cu(12): error: identifier \"y\" is undefined\n/a/x.cu(13): error: more\n";
        assert_eq!(first_reason(text), "x.cu(12): error: identifier \"y\" is undefined");
        assert_eq!(
            first_reason("nvlink error   : Undefined reference to 'z'"),
            "nvlink error   : Undefined reference to 'z'"
        );
        assert_eq!(first_reason("one\ntwo"), "two");
        assert_eq!(first_reason(""), "it said nothing");
    }

    #[test]
    fn a_table_counts_what_was_compiled_and_linked() {
        let mut good = Row::compiled("a.cu", None);
        good.link(None);
        let mut open = Row::compiled("b.cu", None);
        open.link(Some("undefined symbol: x|y".into()));
        let text = text("pplx", "sm_90", "ptxas", &[good, open, Row::compiled("c.cu", Some("no".into()))]);
        assert!(text.starts_with("# pplx: 3 sources, 2 compiled, 1 linked (sm_90, ptxas)\n"), "{text}");
        assert!(text.contains("| b.cu | yes | no | undefined symbol: x\\|y |\n"), "{text}");
        assert!(text.contains("| c.cu | no | no | no |\n"), "{text}");
    }
}
