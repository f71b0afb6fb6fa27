//! Packets into a file.

use super::StartError;
use shunt_soft_nic::{Clock, Fabric};
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// In a name: the number of the process.
const PROCESS: &str = "%p";

/// The file of this process.
fn own(path: &Path) -> PathBuf {
    match path.to_str() {
        Some(text) => text.replace(PROCESS, &std::process::id().to_string()).into(),
        None => path.into(),
    }
}

/// Has every packet written down from now on. One that is there already is rewritten, unless another process is at
/// it.
pub(super) fn start(fabric: &mut Fabric, path: &Path, clock: Clock) -> Result<(), StartError> {
    let path = own(path);
    let failed = |cause| StartError::Capture { path: path.clone(), cause };
    let file = File::options().write(true).create(true).truncate(false).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(StartError::CaptureTaken(path)),
        Err(TryLockError::Error(cause)) => return Err(failed(cause)),
    }
    // What cannot be made shorter, as a pipe, is empty.
    match file.set_len(0) {
        Err(cause) if cause.kind() != io::ErrorKind::InvalidInput => return Err(failed(cause)),
        _ => {}
    }
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let origin = (since_1970.as_nanos() as u64).saturating_sub(clock.now_ns());
    fabric.capture(Box::new(file), origin).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_hold_the_process() {
        assert_eq!(own(Path::new("/tmp/a.pcap")), Path::new("/tmp/a.pcap"));
        assert_eq!(
            own(Path::new("/tmp/%p.pcap")),
            PathBuf::from(format!("/tmp/{}.pcap", std::process::id()))
        );
    }
}
