//! Why a command line or the environment was refused.

/// Why a command line was refused. Exit status 2.
#[derive(Debug, thiserror::Error)]
pub enum Usage {
    /// clap's message; also `--help` and `--version`, which are no errors.
    #[error("{0}")]
    Clap(#[from] clap::Error),
    /// A value that cannot be, or goes badly with another.
    #[error("error: {0}")]
    Bad(String),
}

/// Refuses a value.
pub(crate) fn bad(text: String) -> Result<(), Usage> {
    Err(Usage::Bad(text))
}
