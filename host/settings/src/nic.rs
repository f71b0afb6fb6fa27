//! `SHUNT_NIC`: what carries the packets. Pure.

use crate::{ConfigError, Lookup};

/// What `SHUNT_NIC` may ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum NicKind {
    /// RDMA devices where there is one with an active port, else NICs in software.
    #[default]
    Auto,
    /// RDMA devices through libibverbs and libmlx5: hardware, or soft NICs under `shunt soft-rdma run`.
    Mlx5,
    /// NICs in software, of this machine alone.
    Soft,
}

impl NicKind {
    /// The variable.
    pub const VARIABLE: &'static str = "SHUNT_NIC";

    /// What the variable holds; `None` where it is not set.
    ///
    /// # Errors
    /// Another word.
    pub fn from_lookup(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, ConfigError> {
        Lookup(lookup).parse(Self::VARIABLE, |text| match text {
            "auto" => Some(Self::Auto),
            "mlx5" => Some(Self::Mlx5),
            "soft" => Some(Self::Soft),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_words_and_no_other() {
        let with = |text: &'static str| NicKind::from_lookup(&move |_| Some(text.to_owned()));
        assert_eq!(with("mlx5"), Ok(Some(NicKind::Mlx5)));
        assert_eq!(with(" auto "), Ok(Some(NicKind::Auto)));
        assert_eq!(with("soft"), Ok(Some(NicKind::Soft)));
        assert_eq!(NicKind::from_lookup(&|_| None), Ok(None));
        let said = with("connectx").unwrap_err().to_string();
        assert_eq!(said, "SHUNT_NIC: expected auto, mlx5 or soft, got \"connectx\"");
        assert!(with("").is_err());
    }
}
