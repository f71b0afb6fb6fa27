//! `SHUNT_HEAP`: in which memory the symmetric heap lies. Pure.

use shunt::queues::Carrier;

/// What `SHUNT_HEAP` may ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeapKind {
    /// The GPU's memory, where kernels run on one and NICs reach it; else the host's.
    #[default]
    Auto,
    /// The host's memory.
    Host,
    /// The GPU's memory.
    Gpu,
    /// Memory that stands for a GPU's: for tests.
    Simulated,
}

impl HeapKind {
    /// The names, as the variable has them.
    pub const NAMES: &'static [&'static str] = &["auto", "host", "gpu", "simulated"];

    /// By its name.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Auto, Self::Host, Self::Gpu, Self::Simulated];
        let at = Self::NAMES.iter().position(|known| known.eq_ignore_ascii_case(name))?;
        all.get(at).copied()
    }
}

/// Where the heap lies; with what opened the GPU's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home<M> {
    /// The host's memory.
    Host,
    /// The GPU's.
    Gpu(M),
    /// Simulated.
    Simulated,
}

impl<M> Home<M> {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Gpu(_) => "gpu",
            Self::Simulated => "simulated",
        }
    }
}

/// Where the heap is to lie, and what is said of it. `gpu`: the GPU that kernels run on, if they do. `open` takes its
/// memory into use.
///
/// # Errors
/// It cannot lie where it was asked for, in a sentence.
pub fn choose<M>(
    asked: HeapKind,
    gpu: Option<u32>,
    carrier: Carrier,
    open: impl FnOnce(u32) -> Result<M, String>,
) -> Result<(Home<M>, Option<String>), String> {
    const NO_REACH: &str = "NICs in software do not reach a GPU's memory";
    let refuse = |expected: &str, got: &str| Err(format!("SHUNT_HEAP: expected {expected}, got {got}"));
    let host = |why: &str| Ok((Home::Host, Some(format!("heap: the host's memory, because {why}"))));
    match (asked, gpu) {
        (HeapKind::Host, _) | (HeapKind::Auto, None) => Ok((Home::Host, None)),
        (HeapKind::Simulated, Some(_)) => {
            refuse("auto, host or gpu for kernels on a GPU, which reaches no simulated memory", "simulated")
        }
        (HeapKind::Simulated, _) if carrier == Carrier::Hardware => {
            refuse("NICs in software (SHUNT_NIC=soft) for simulated memory", "hardware")
        }
        (HeapKind::Simulated, _) => Ok((Home::Simulated, None)),
        (HeapKind::Gpu, None) => refuse("auto or host for a program whose kernels run on no GPU", "gpu"),
        (HeapKind::Auto, Some(_)) if carrier != Carrier::Hardware => host(NO_REACH),
        (HeapKind::Gpu, Some(_)) if carrier != Carrier::Hardware => {
            refuse(&format!("auto or host, because {NO_REACH}"), "gpu")
        }
        (_, Some(gpu)) => match open(gpu) {
            Ok(memory) => Ok((Home::Gpu(memory), Some(format!("heap: memory of GPU {gpu}")))),
            Err(why) if asked == HeapKind::Auto => host(&why),
            Err(why) => Err(format!("SHUNT_HEAP=gpu: {why}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(
        asked: HeapKind,
        gpu: Option<u32>,
        carrier: Carrier,
    ) -> Result<(Home<u32>, Option<String>), String> {
        choose(asked, gpu, carrier, |gpu| if gpu == 9 { Err("no order of writes".into()) } else { Ok(gpu) })
    }

    #[test]
    fn by_itself_the_heap_lies_where_kernels_and_nics_reach_it() {
        use {Carrier::*, HeapKind::Auto};
        for (place, carrier) in [(None, Hardware), (None, Software), (None, Software)] {
            assert_eq!(found(Auto, place, carrier), Ok((Home::Host, None)));
        }
        let (home, said) = found(Auto, Some(2), Hardware).unwrap();
        assert_eq!((home, said.as_deref()), (Home::Gpu(2), Some("heap: memory of GPU 2")));
        for carrier in [Software, Interposed] {
            let (home, said) = found(Auto, Some(2), carrier).unwrap();
            let why = "heap: the host's memory, because NICs in software do not reach a GPU's memory";
            assert_eq!((home, said.as_deref()), (Home::Host, Some(why)));
        }
        let (home, said) = found(Auto, Some(9), Hardware).unwrap();
        let why = "heap: the host's memory, because no order of writes";
        assert_eq!((home, said.as_deref()), (Home::Host, Some(why)));
        assert_eq!(found(HeapKind::Host, Some(2), Hardware), Ok((Home::Host, None)));
    }

    #[test]
    fn what_was_asked_for_and_cannot_be_is_refused() {
        use {Carrier::*, HeapKind::*};
        for (asked, gpu, carrier, said) in [
            (Gpu, Some(9), Hardware, "SHUNT_HEAP=gpu: no order of writes"),
            (
                Gpu,
                Some(0),
                Software,
                "SHUNT_HEAP: expected auto or host, because NICs in software do not reach a GPU's memory, got gpu",
            ),
            (
                Gpu,
                None,
                Hardware,
                "SHUNT_HEAP: expected auto or host for a program whose kernels run on no GPU, got gpu",
            ),
            (
                Simulated,
                None,
                Hardware,
                "SHUNT_HEAP: expected NICs in software (SHUNT_NIC=soft) for simulated memory, got hardware",
            ),
            (
                Simulated,
                Some(0),
                Software,
                "SHUNT_HEAP: expected auto, host or gpu for kernels on a GPU, which reaches no simulated memory, got \
                 simulated",
            ),
        ] {
            assert_eq!(found(asked, gpu, carrier), Err(said.to_owned()));
        }
        for carrier in [Software, Interposed] {
            assert_eq!(found(Simulated, None, carrier), Ok((Home::Simulated, None)));
        }
        let named = HeapKind::NAMES.iter().map(|name| HeapKind::from_name(name).unwrap());
        assert_eq!(named.collect::<Vec<_>>(), [Auto, Host, Gpu, Simulated]);
        assert_eq!(HeapKind::from_name("device"), None);
    }
}
