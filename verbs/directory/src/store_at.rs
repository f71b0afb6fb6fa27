//! Where processes find each other, as `SHUNT_VERBS_STORE` says it. Pure.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
use shunt_bootstrap::tcp::RootAddress;
use std::fmt;
use std::path::{Path, PathBuf};

/// Where processes find each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreAt {
    /// In this user's runtime directory: on one machine.
    Folder,
    /// At what `shunt store serve` keeps, between machines.
    Tcp(RootAddress),
    /// At a Redis server.
    Redis(RedisAt),
    /// In a folder that all machines mount.
    Shared(PathBuf),
}

/// A Redis server. Its password is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisAt {
    /// As the user wrote it, with the password.
    url: String,
    /// Where it listens.
    pub root: RootAddress,
}

impl fmt::Debug for RedisAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for RedisAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "redis://{}", self.root)
    }
}

impl RedisAt {
    fn parse(text: &str) -> Option<Self> {
        let info = text.into_connection_info().ok()?;
        // The port is not guessed, and nothing may follow the database.
        let (_, behind) = text.split_once("://")?;
        let (place, database) = behind.split_once('/').unwrap_or((behind, ""));
        let root: RootAddress = place.rsplit('@').next()?.parse().ok()?;
        let digits = database.bytes().all(|byte| byte.is_ascii_digit());
        let tcp = matches!(info.addr(), ConnectionAddr::Tcp(..));
        (tcp && digits).then(|| Self { url: text.to_owned(), root })
    }

    /// What the client library connects by.
    pub(crate) fn info(&self) -> Option<ConnectionInfo> {
        self.url.as_str().into_connection_info().ok()
    }
}

impl StoreAt {
    /// Reads `unix:`, `tcp://HOST:PORT`, `redis://[USER:PASSWORD@]HOST:PORT[/DB]` or `file:///FOLDER`. None for
    /// anything else.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "unix:" {
            return Some(Self::Folder);
        }
        let (scheme, rest) = text.split_once("://")?;
        match scheme {
            "tcp" => rest.parse().ok().map(Self::Tcp),
            "redis" => RedisAt::parse(text).map(Self::Redis),
            "file" => (rest.len() > 1 && Path::new(rest).is_absolute()).then(|| Self::Shared(rest.into())),
            _ => None,
        }
    }

    /// A text that makes no sense, to be printed: without what may be a password.
    pub fn without_password(text: &str) -> String {
        let Some((head, tail)) = text.rsplit_once('@') else { return text.to_owned() };
        let scheme = head.split_once("://").map_or(String::new(), |(scheme, _)| format!("{scheme}://"));
        format!("{scheme}..@{tail}")
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
        assert_eq!(StoreAt::parse("file:///shared/x"), Some(StoreAt::Shared("/shared/x".into())));
        let bad = ["ftp://x", "tcp://x", "unix", "", "file://shared", "file:///", "file:/shared"];
        for text in bad {
            assert_eq!(StoreAt::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_redis_server_is_read_and_its_password_is_not_printed() {
        for (text, root) in [
            ("redis://10.0.0.1:6379", "10.0.0.1:6379"),
            ("redis://head:7000/3", "head:7000"),
            ("redis://:pass%40word@[::1]:6379", "[::1]:6379"),
            ("redis://user:secret@10.0.0.1:6379/0", "10.0.0.1:6379"),
        ] {
            let Some(StoreAt::Redis(at)) = StoreAt::parse(text) else { panic!("{text}") };
            assert_eq!(at.root, root.parse().unwrap(), "{text}");
            assert!(at.info().is_some(), "{text}");
            assert_eq!(format!("{at:?}"), format!("redis://{root}"));
        }
        let bad = ["redis://x", "redis://10.0.0.1", "redis://10.0.0.1:6379/x", "redis://10.0.0.1:6379/0?a=b"];
        for text in bad.into_iter().chain(["rediss://10.0.0.1:6379", "redis+unix:///run/redis.sock"]) {
            assert_eq!(StoreAt::parse(text), None, "{text}");
        }
        let told = StoreAt::without_password("redis://me:secret@x");
        assert_eq!(told, "redis://..@x");
        assert_eq!(StoreAt::without_password("ftp://x"), "ftp://x");
    }
}
