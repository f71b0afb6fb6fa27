//! Where processes find each other, as `SHUNT_VERBS_STORE` says it. Pure.

use shunt_bootstrap::tcp::RootAddress;

/// Where processes find each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreAt {
    /// In this user's runtime directory: on one machine.
    Folder,
    /// At a store, between machines.
    Tcp(RootAddress),
}

impl StoreAt {
    /// Reads `unix:` or `tcp://HOST:PORT`. None for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix("tcp://") {
            Some(address) => address.parse().ok().map(Self::Tcp),
            None => (text == "unix:").then_some(Self::Folder),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_others_are_not() {
        let at = |text: &str| StoreAt::Tcp(text.parse().unwrap());
        assert_eq!(StoreAt::parse("tcp://10.0.0.1:7700"), Some(at("10.0.0.1:7700")));
        assert_eq!(StoreAt::parse("unix:"), Some(StoreAt::Folder));
        for text in ["ftp://x", "tcp://x", "unix", ""] {
            assert_eq!(StoreAt::parse(text), None, "{text}");
        }
    }
}
