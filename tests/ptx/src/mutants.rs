//! Defects of assembly, put into the text: each must be found, and the function named. An edit that finds nothing to
//! change is an error.

/// A defect.
pub struct Mutant {
    /// Its name.
    pub name: &'static str,
    /// Where it is put.
    pub function: &'static str,
    /// True if only a memory that delays accesses can show it.
    pub relaxed: bool,
    edit: fn(&str) -> String,
}

/// All of them.
pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "fence-of-the-gpu-before-the-doorbell",
        function: "shunt_kernel_put_warp",
        relaxed: true,
        edit: |body| body.replace("fence.acq_rel.sys;", "fence.acq_rel.gpu;"),
    },
    Mutant {
        name: "segment-with-two-words-swapped",
        function: "shunt_kernel_put_warp",
        relaxed: false,
        edit: swap_in_segments,
    },
    Mutant {
        name: "barrier-in-one-arm",
        function: "shunt_kernel_get_block",
        relaxed: false,
        edit: |body| {
            body.replacen(
                "st.volatile.shared.b64 [shunt_block_word]",
                "barrier.sync 0;\n\tst.volatile.shared.b64 [shunt_block_word]",
                1,
            )
        },
    },
    Mutant {
        name: "aligned-barrier",
        function: "shunt_kernel_get_block",
        relaxed: false,
        edit: |body| body.replace("barrier.sync 0;", "bar.sync 0;"),
    },
];

/// Swaps the first two words of each segment of a WQE.
fn swap_in_segments(body: &str) -> String {
    let swap = |line: &str| {
        let Some((head, list)) = line.split_once("{").filter(|(head, _)| head.contains("no_allocate.v4.b32"))
        else {
            return line.to_owned();
        };
        let mut words: Vec<&str> = list.trim_end_matches("};").split(',').map(str::trim).collect();
        words.swap(0, 1);
        format!("{head}{{{}}};", words.join(", "))
    };
    body.lines().map(swap).collect::<Vec<_>>().join("\n")
}

impl Mutant {
    /// The text of a module with the defect in it.
    ///
    /// # Errors
    /// The function is not there, or has nothing to change.
    pub fn apply(&self, text: &str) -> Result<String, String> {
        let head = format!(".entry {}(", self.function);
        let at =
            text.find(&head).ok_or_else(|| format!("{}: no entry point {}", self.name, self.function))?;
        let end = text[at..].find("\n}").map_or(text.len(), |end| at + end);
        let body = (self.edit)(&text[at..end]);
        if body == text[at..end] {
            return Err(format!("{}: {} has nothing to change", self.name, self.function));
        }
        Ok([&text[..at], &body, &text[end..]].concat())
    }
}
