//! Memory, registered and taken back. Where NICs do that, only the thread that calls waits for them: the engine's
//! thread goes on with everything else.

use crate::asker::Asker;
use crate::error::CallError;
use shunt::host::gpu::OwnedSpan;
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_engine::region::{Mr, Rights};
use std::sync::Arc;
use std::time::Duration;

/// Pause between two looks at keys that are being taken back.
const LOOK: Duration = Duration::from_micros(200);

/// Registers memory on every rail.
pub(crate) fn register(asker: &Asker, memory: &Arc<OwnedSpan>, rights: Rights) -> Result<Mr, CallError> {
    let Some(registrar) = asker.ask(|engine, _| engine.domain.registrar())? else {
        let memory = memory.clone();
        return asker.ask(move |engine, _| engine.domain.register(&memory, rights))?;
    };
    let registered = registrar.register(memory, rights)?;
    asker.ask(move |engine, _| engine.domain.keep(registered))?.ok_or(CallError::Closed)
}

/// Has every rail take a region's key back.
pub(crate) fn deregister(asker: &Asker, region: &Mr) -> Result<(), CallError> {
    let mr = region.clone();
    let lent = asker.ask(move |engine, _| {
        if engine.is_used(&mr) {
            let (what, want) = ("a region to deregister", "one that no transfer of this end uses");
            let met = "one of a transfer that has not ended".to_owned();
            return Err(CallError::from(TransferError::Refused { what, want, met }));
        }
        match engine.domain.lend(&mr) {
            Some(registered) => Ok(Some(registered)),
            None => engine.domain.deregister(&mr).map(|()| None),
        }
    })??;
    if let Some(mut registered) = lent
        && let Err(error) = registered.take_back()
    {
        // It may be asked again.
        asker.ask(move |engine, _| engine.domain.keep(registered))?;
        return Err(error.into());
    }
    // A domain that does it by itself answers in its own time, with an error at last.
    loop {
        let mr = region.clone();
        if asker.ask(move |engine, _| engine.domain.deregistered(&mr))?? {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
}
