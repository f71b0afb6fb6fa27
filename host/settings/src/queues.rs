//! `SHUNT_QUEUES`: in whose memory the queues of kernels lie. Pure.

use crate::{ConfigError, Lookup};

/// What `SHUNT_QUEUES` may ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueuesKind {
    /// The GPU's memory where kernels, NICs and the host all reach it, else the host's.
    #[default]
    Auto,
    /// The GPU's memory; on NICs in software, for kernels on the processor, memory that stands for it.
    Gpu,
    /// The host's memory.
    Host,
}

impl QueuesKind {
    /// The variable.
    pub const VARIABLE: &'static str = "SHUNT_QUEUES";

    /// By its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "auto" => Self::Auto,
            "gpu" => Self::Gpu,
            "host" => Self::Host,
            _ => return None,
        })
    }

    /// What the variable holds; `None` where it is not set.
    ///
    /// # Errors
    /// Another word.
    pub fn from_lookup(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, ConfigError> {
        Lookup(lookup).parse(Self::VARIABLE, Self::from_name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_words_and_no_other() {
        let with = |text: &'static str| QueuesKind::from_lookup(&move |_| Some(text.to_owned()));
        assert_eq!(with("gpu"), Ok(Some(QueuesKind::Gpu)));
        assert_eq!(with(" host "), Ok(Some(QueuesKind::Host)));
        assert_eq!(with("auto"), Ok(Some(QueuesKind::Auto)));
        assert_eq!(QueuesKind::from_lookup(&|_| None), Ok(None));
        let said = with("device").unwrap_err().to_string();
        assert_eq!(said, "SHUNT_QUEUES: expected auto, gpu or host, got \"device\"");
    }
}
