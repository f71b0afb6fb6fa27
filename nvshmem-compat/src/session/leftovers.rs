//! What a job leaves on the machine, and who removes it.

/// A fabric that the last process of a job removes, once its NICs are gone.
pub(super) struct Leftovers(pub Option<String>);

impl Drop for Leftovers {
    fn drop(&mut self) {
        if let Some(name) = &self.0 {
            // While another process of the job is there it stays, and that one removes it.
            let _ = shunt_soft_nic::uplink::remove_unused_fabric(name);
        }
    }
}
