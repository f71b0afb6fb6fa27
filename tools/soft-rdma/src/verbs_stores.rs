//! Where the processes of a case find each other, and what becomes of that place.

use anyhow::{Context, Result, bail};
use shunt_task::{ports, sh};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `shunt store serve`.
    Served,
    /// A Redis server with a password, and a database that is not the first.
    Redis,
    /// A folder.
    Folder,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is there.
    Stays,
    /// It is gone once both ends are protected, and before the fault.
    Goes,
    /// It comes when both ends have looked for it.
    Late,
    /// It never was.
    Absent,
}

/// The text that is no secret, of the cases.
const SECRET: &str = "not a secret, for tests";
const PASSWORD: &str = "pass word";
/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);

/// The place of one case.
pub struct Keeper {
    kind: Kind,
    pub fate: Fate,
    port: u16,
    built: PathBuf,
    folder: PathBuf,
    server: Option<Child>,
}

/// Why such a place cannot be had here.
pub fn lacks(store: Option<(Kind, Fate)>) -> Option<String> {
    let found = || {
        let look = sh::command("sh").args(["-c", "command -v redis-server"]).output();
        look.is_ok_and(|found| found.status.success())
    };
    let missing = store.is_some_and(|(kind, _)| kind == Kind::Redis) && !found();
    missing.then(|| "redis-server needs the package redis-server".to_owned())
}

impl Keeper {
    /// Makes it, unless it is to be absent or late.
    pub fn open((kind, fate): (Kind, Fate), built: &Path, runtime: &Path) -> Result<Self> {
        let (built, folder) = (built.to_owned(), runtime.join("store"));
        let mut keeper = Self { kind, fate, port: ports::free(1)?, built, folder, server: None };
        if matches!(fate, Fate::Stays | Fate::Goes) {
            keeper.start()?;
        }
        Ok(keeper)
    }

    /// Variables of both ends.
    pub fn environment(&self) -> [(&'static str, String); 2] {
        let (port, folder) = (self.port, self.folder.display());
        let at = match self.kind {
            Kind::Served => format!("tcp://127.0.0.1:{port}"),
            Kind::Redis => format!("redis://:{}@127.0.0.1:{port}/1", PASSWORD.replace(' ', "%20")),
            Kind::Folder => format!("file://{folder}"),
        };
        [("SHUNT_VERBS_STORE", at), ("SHUNT_SECRET", SECRET.to_owned())]
    }

    /// Makes it.
    pub fn start(&mut self) -> Result<()> {
        let port = self.port.to_string();
        let mut command = match self.kind {
            Kind::Folder => return std::fs::create_dir(&self.folder).context("the folder of a store"),
            Kind::Served => {
                let mut command = Command::new(self.built.join("shunt"));
                let at = format!("127.0.0.1:{port}");
                command.args(["store", "serve", "--listen", &at]).env("SHUNT_SECRET", SECRET);
                command
            }
            Kind::Redis => {
                let mut command = Command::new("redis-server");
                command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
                command.args(["--requirepass", PASSWORD]);
                command
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.server = Some(command.spawn().with_context(|| format!("cannot start {command:?}"))?);
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if Instant::now() > until {
                bail!("{command:?}: expected one that listens, got none");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// It is gone from here on.
    pub fn end(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end();
    }
}
