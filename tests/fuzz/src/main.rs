//! libFuzzer over the target that `SHUNT_FUZZ` names. `SHUNT_FUZZ_SEEDS` is a folder that gets its seeds first.
#![no_main]

use shunt_fuzz::{Target, target};
use std::path::Path;
use std::sync::OnceLock;

static TARGET: OnceLock<&'static Target> = OnceLock::new();

fn begin() {
    let name = std::env::var("SHUNT_FUZZ").unwrap_or_default();
    let Some(found) = target(&name) else {
        eprintln!("SHUNT_FUZZ names no target: '{name}'");
        std::process::exit(2);
    };
    TARGET.get_or_init(|| found);
    if let Some(folder) = std::env::var_os("SHUNT_FUZZ_SEEDS") {
        for (n, seed) in (found.seeds)().iter().enumerate() {
            let path = Path::new(&folder).join(format!("seed-{n:03}"));
            if let Err(error) = std::fs::write(&path, seed) {
                eprintln!("{}: {error}", path.display());
                std::process::exit(2);
            }
        }
    }
}

libfuzzer_sys::fuzz_target!(init: begin(), |data: &[u8]| {
    if let Some(target) = TARGET.get() {
        (target.run)(data);
    }
});
