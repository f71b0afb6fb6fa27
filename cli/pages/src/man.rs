//! Manual pages: clap's sections, then what a program says after its options, each part under the heading that readers
//! of manual pages look for.

use std::io;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use roff::{Roff, roman};

/// The page of one command.
///
/// # Errors
///
/// Those of writing, of which a vector has none.
pub fn page(command: Command) -> io::Result<Vec<u8>> {
    let after = command.get_after_long_help().or_else(|| command.get_after_help());
    let after = after.map(ToString::to_string).unwrap_or_default();
    let command = command.after_help(None::<&str>).after_long_help(None::<&str>);
    let mut out = Vec::new();
    Man::new(command).render(&mut out)?;
    let mut roff = Roff::new();
    for (heading, lines) in sections(&after) {
        roff.control("SH", [heading]);
        // Examples keep their lines.
        let kept = lines.iter().any(|line| line.starts_with(' '));
        if kept {
            roff.control("nf", []);
        }
        for line in lines {
            roff.text([roman(line)]);
        }
        if kept {
            roff.control("fi", []);
        }
    }
    roff.to_writer(&mut out)?;
    Ok(out)
}

/// Writes the page of `command` and those of its commands into `folder`.
///
/// # Errors
///
/// Those of writing the files.
pub fn write(command: Command, folder: &Path) -> io::Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write_built(command, folder)
}

fn write_built(command: Command, folder: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_built(below.clone(), folder)?;
    }
    let file = Man::new(command.clone()).get_filename();
    std::fs::write(folder.join(file), page(command)?)
}

/// The text after the options, cut where a line begins with what has a heading of its own.
fn sections(after: &str) -> Vec<(&'static str, Vec<&str>)> {
    const HEADINGS: [(&str, &str); 4] = [
        ("Exit status:", "EXIT STATUS"),
        ("Examples:", "EXAMPLES"),
        ("Example:", "EXAMPLES"),
        ("Faults:", "FAULTS"),
    ];
    let mut sections: Vec<(&'static str, Vec<&str>)> = Vec::new();
    for line in after.lines() {
        let named =
            HEADINGS.iter().find_map(|(word, heading)| Some((*heading, line.strip_prefix(word)?.trim())));
        match named {
            Some((heading, rest)) => {
                sections.push((heading, if rest.is_empty() { vec![] } else { vec![rest] }));
            }
            None => {
                if sections.is_empty() {
                    sections.push(("NOTES", Vec::new()));
                }
                let last = sections.last_mut().expect("one was pushed");
                last.1.push(line);
            }
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_the_options_stands_under_its_heading() {
        let after = "Looks twice.\nExamples:\n  mover --count 3\nExit status: 0 done,\n2 bad usage.";
        assert_eq!(
            sections(after),
            [
                ("NOTES", vec!["Looks twice."]),
                ("EXAMPLES", vec!["  mover --count 3"]),
                ("EXIT STATUS", vec!["0 done,", "2 bad usage."]),
            ]
        );
        let page = page(Command::new("mover").after_help(after)).expect("a page");
        let page = String::from_utf8(page).expect("text");
        assert!(page.contains(".SH \"EXIT STATUS\"\n0 done,\n2 bad usage."), "{page}");
        assert!(page.contains(".nf\n  mover \\-\\-count 3\n.fi") && !page.contains("EXTRA"), "{page}");
    }
}
