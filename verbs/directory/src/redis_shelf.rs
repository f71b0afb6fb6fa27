//! A Redis server as the place of entries. What a process does not renew goes by itself.

use super::shelf::Shelf;
use super::store_at::RedisAt;
use redis::{Client, Connection, ErrorKind, FromRedisValue, RedisError};
use std::io;
use std::time::Duration;

/// How long the server may take, for one answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Seconds that an entry stays when its process is gone.
const LEASE_SECONDS: u64 = 60;
/// Names of other programs in the same database stay apart.
const PREFIX: &str = "shunt:verbs:";

/// The server.
pub struct RedisShelf {
    at: RedisAt,
    connection: Option<Connection>,
}

fn told(error: RedisError) -> io::Error {
    match error.kind() {
        ErrorKind::AuthenticationFailed => {
            io::Error::other(format!("expected a user and password that it takes, got refused: {error}"))
        }
        _ => io::Error::other(format!("expected a Redis server, got: {error}")),
    }
}

impl RedisShelf {
    /// One that is not reached yet.
    pub const fn new(at: RedisAt) -> Self {
        Self { at, connection: None }
    }

    fn ask<T: FromRedisValue>(&mut self, words: &[&[u8]]) -> io::Result<T> {
        let connection = self.connection.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let mut command = redis::Cmd::new();
        words.iter().for_each(|word| _ = command.arg(*word));
        command.query(connection).map_err(told)
    }
}

impl Shelf for RedisShelf {
    fn place(&self) -> String {
        self.at.to_string()
    }

    fn connect(&mut self) -> io::Result<()> {
        let info = self.at.info().ok_or(io::ErrorKind::InvalidInput)?;
        let client = Client::open(info).map_err(told)?;
        let connection = client.get_connection_with_timeout(PATIENCE).map_err(told)?;
        connection.set_read_timeout(Some(PATIENCE)).map_err(told)?;
        connection.set_write_timeout(Some(PATIENCE)).map_err(told)?;
        self.connection = Some(connection);
        Ok(())
    }

    fn put(&mut self, key: &str, value: &[u8]) -> io::Result<()> {
        let (key, lease) = (format!("{PREFIX}{key}"), LEASE_SECONDS.to_string());
        self.ask(&[b"SET", key.as_bytes(), value, b"EX", lease.as_bytes()])
    }

    fn get(&mut self, key: &str) -> io::Result<Option<Vec<u8>>> {
        let key = format!("{PREFIX}{key}");
        self.ask(&[b"GET", key.as_bytes()])
    }

    fn remove(&mut self, key: &str) -> io::Result<()> {
        let key = format!("{PREFIX}{key}");
        self.ask(&[b"DEL", key.as_bytes()])
    }

    fn renewal(&self) -> Duration {
        Duration::from_secs(LEASE_SECONDS / 3)
    }
}
