//! What Debian's tools read of a package. Pure.

use std::fmt::Write;

/// The control file of a package.
pub struct Control<'a> {
    pub name: &'a str,
    pub version: &'a str,
    /// Name and address, as `Maintainer` has them.
    pub maintainer: &'a str,
    /// As `dpkg --print-architecture` has it.
    pub architecture: &'a str,
    pub section: &'a str,
    /// What must be there, with versions; empty for nothing.
    pub depends: &'a str,
    /// What most people want beside it.
    pub recommends: &'a str,
    /// Bytes of its files.
    pub bytes: u64,
    /// A line of at most 80 characters.
    pub summary: &'a str,
    /// Paragraphs.
    pub description: &'a [&'a str],
}

impl Control<'_> {
    /// The text of `DEBIAN/control`.
    pub fn text(&self) -> String {
        let mut text = format!(
            "Package: {}\nVersion: {}\nArchitecture: {}\nMaintainer: {}\nSection: {}\n\
             Priority: optional\nInstalled-Size: {}\n",
            self.name,
            self.version,
            self.architecture,
            self.maintainer,
            self.section,
            self.bytes.div_ceil(1024)
        );
        for (field, value) in [("Depends", self.depends), ("Recommends", self.recommends)] {
            if !value.is_empty() {
                let _ = writeln!(text, "{field}: {value}");
            }
        }
        let _ = writeln!(text, "Description: {}", self.summary);
        for (number, paragraph) in self.description.iter().enumerate() {
            if number > 0 {
                text += " .\n";
            }
            for line in wrapped(paragraph, 78) {
                let _ = writeln!(text, " {line}");
            }
        }
        text
    }
}

/// The value that `dpkg-shlibdeps -O` prints for the variable `shlibs:Depends`.
pub fn shared_libraries(printed: &str) -> Option<&str> {
    printed.lines().find_map(|line| line.strip_prefix("shlibs:Depends=")).filter(|value| !value.is_empty())
}

/// The changelog that a package must have; `date` is RFC 2822's.
pub fn changelog(name: &str, version: &str, maintainer: &str, date: &str) -> String {
    format!(
        "{name} ({version}) unstable; urgency=medium\n\n  * See CHANGELOG.md.gz.\n\n -- {maintainer}  {date}\n"
    )
}

/// Lines of at most `width` characters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_file_has_what_dpkg_asks_for() {
        let control = Control {
            name: "shunt",
            version: "0.1.0",
            maintainer: "A <a@b.c>",
            architecture: "amd64",
            section: "net",
            depends: "libc6 (>= 2.34)",
            recommends: "",
            bytes: 2049,
            summary: "words",
            description: &["one two", "three"],
        };
        assert_eq!(
            control.text(),
            "Package: shunt\nVersion: 0.1.0\nArchitecture: amd64\nMaintainer: A <a@b.c>\n\
             Section: net\nPriority: optional\nInstalled-Size: 3\nDepends: libc6 (>= 2.34)\nDescription: words\n \
             one two\n .\n three\n"
        );
    }

    #[test]
    fn libraries_are_read_from_what_debians_tool_prints() {
        assert_eq!(shared_libraries("shlibs:Depends=libc6 (>= 2.34)\n"), Some("libc6 (>= 2.34)"));
        assert_eq!(shared_libraries("shlibs:Depends=\n"), None);
        assert_eq!(shared_libraries(""), None);
    }

    #[test]
    fn long_paragraphs_are_wrapped() {
        let lines = wrapped(&"word ".repeat(40), 20);
        assert!(lines.iter().all(|line| line.len() <= 20) && lines.len() == 10, "{lines:?}");
    }
}
