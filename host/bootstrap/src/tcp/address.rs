//! Where rank 0 listens: HOST:PORT as it is typed, and the socket addresses it stands for.

use super::error::JoinError;
use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use thiserror::Error;

/// What a root address looks like.
pub use shunt_settings::syntax::ROOT as SYNTAX;

/// Where rank 0 of a job listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootAddress {
    /// Name or number.
    host: String,
    port: u16,
}

/// Text that is no root address.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("root address: expected {}, got {met:?}", SYNTAX)]
pub struct AddressError {
    /// What was met.
    pub met: String,
}

impl FromStr for RootAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let error = || AddressError { met: text.to_owned() };
        if let Ok(socket) = text.parse::<SocketAddr>() {
            return Ok(socket.into());
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(error)?;
        let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
        let port = port.parse().ok().filter(|_| digits).ok_or_else(error)?;
        // A number that is none (300.1.1.1, ::1 without brackets) is a slip, not a name to look up.
        let letters = host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        let numeric = host.rsplit('.').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()));
        if host.is_empty() || host.len() > 253 || !letters || numeric {
            return Err(error());
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

impl From<SocketAddr> for RootAddress {
    fn from(socket: SocketAddr) -> Self {
        Self { host: socket.ip().to_string(), port: socket.port() }
    }
}

impl fmt::Display for RootAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl RootAddress {
    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The same host with another port.
    pub fn with_port(&self, port: u16) -> Self {
        Self { host: self.host.clone(), port }
    }

    /// True if it is certainly this machine alone that can reach it.
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    /// The socket addresses it stands for, at least one. The resolver is given `patience`: it has none of its own.
    pub fn resolve(&self, patience: Duration) -> Result<Vec<SocketAddr>, JoinError> {
        let error = |detail: String| JoinError::Resolve { root: self.to_string(), detail };
        if let Ok(ip) = self.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, self.port)]);
        }
        let (sender, answer) = channel();
        let (host, port) = (self.host.clone(), self.port);
        std::thread::spawn(move || {
            let _ = sender.send((host.as_str(), port).to_socket_addrs().map(Vec::from_iter));
        });
        match answer.recv_timeout(patience) {
            Ok(Ok(found)) if !found.is_empty() => Ok(found),
            Ok(Ok(_)) => Err(error("the name has no address".to_owned())),
            Ok(Err(detail)) => Err(error(detail.to_string())),
            Err(RecvTimeoutError::Timeout) => Err(error(format!("no answer within {patience:?}"))),
            Err(RecvTimeoutError::Disconnected) => Err(error("the resolver ended".to_owned())),
        }
    }
}

/// Between two questions for a name that has no address yet.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// Asks until there is an answer, or the patience is over: the name of a pod appears with the pod. The caller is told
/// of each answer that is none.
pub(super) fn ask<T, E>(
    patience: Duration,
    mut question: impl FnMut(Duration) -> Result<T, E>,
    mut tell: impl FnMut(&E),
) -> Result<T, E> {
    let until = Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let error = match question(left) {
            Ok(answer) => return Ok(answer),
            Err(error) if left <= ASK_AGAIN => return Err(error),
            Err(error) => error,
        };
        tell(&error);
        std::thread::sleep(ASK_AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks of a Kubernetes job that started before the pod of index 0 ended at once: its name had no address yet.
    #[test]
    fn a_name_may_get_its_address_later() {
        let mut asked = 0;
        let mut answer = |_| {
            asked += 1;
            if asked < 3 { Err("no address") } else { Ok(7) }
        };
        let mut told = 0;
        assert_eq!(ask(Duration::from_secs(60), &mut answer, |_| told += 1), Ok(7));
        assert_eq!((asked, told), (3, 2));
        let never = ask(Duration::ZERO, |_| Err::<(), _>("no address"), |_| unreachable!());
        assert_eq!(never, Err("no address"));
    }

    use proptest::prelude::*;

    #[test]
    fn what_is_an_address_and_what_is_not() {
        for (text, loopback) in [
            ("127.0.0.1:7000", true),
            ("127.3.2.1:1", true),
            ("[::1]:7000", true),
            ("localhost:65535", true),
            ("10.0.0.1:7000", false),
            ("[fd00::1]:7000", false),
            ("node-7.cluster:9", false),
            ("0.0.0.0:9", false),
        ] {
            let root: RootAddress = text.parse().unwrap();
            assert_eq!((root.to_string().as_str(), root.is_loopback()), (text, loopback));
        }
        for text in [
            "",
            ":1",
            "host",
            "host:",
            "host:65536",
            "host:+1",
            "300.1.1.1:5",
            "::1:5",
            "a b:1",
            "1.2:3",
            "h/x:1",
        ] {
            let error = text.parse::<RootAddress>().unwrap_err();
            assert!(error.to_string().contains("HOST:PORT"), "{text}");
        }
    }

    #[test]
    fn a_name_that_does_not_exist_is_said_so() {
        let root: RootAddress = "no-such-host.invalid:1".parse().unwrap();
        let error = root.resolve(Duration::from_secs(20)).unwrap_err();
        assert!(error.to_string().contains("no-such-host.invalid:1"), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "\\PC{0,40}|[a-z0-9.:\\[\\]]{0,20}:[0-9]{0,6}") {
            if let Ok(root) = text.parse::<RootAddress>() {
                prop_assert_eq!(root.to_string().parse::<RootAddress>().unwrap(), root);
            }
        }
    }
}
