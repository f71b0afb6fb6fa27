//! What `SHUNT_QUEUES` comes to: in whose memory the queues of kernels lie. Pure.

use shunt_host::config::QueuesKind;

/// What carries the packets, as far as memory matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// NICs in software of this process.
    Software,
    /// NICs in software behind libibverbs.
    Interposed,
    /// Hardware.
    Hardware,
}

/// Where kernels run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelsOn {
    /// There are none.
    Nothing,
    /// As functions of the processor.
    Processor,
    /// On the GPU of that number.
    Gpu(u32),
}

/// Where their queues lie; with what opened the GPU's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Queues<M> {
    /// In the host's memory, with those of host calls.
    Host,
    /// In the GPU's.
    Gpu(M),
    /// In memory of their own that stands for a GPU's: the host copies to and from it, as it would.
    Simulated,
}

impl<M> Queues<M> {
    /// As all PEs of a job have to have it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Gpu(_) => "gpu",
            Self::Simulated => "simulated",
        }
    }

    /// `PeConfig::kernels_from`, where the channels from this one on are kernels'.
    pub fn kernels_from(&self, first: u32) -> Option<u32> {
        (!matches!(self, Self::Host)).then_some(first)
    }
}

/// They cannot lie where they were asked for, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("SHUNT_QUEUES: expected {expected}, got gpu")]
pub struct NoQueues {
    /// What can be, and why.
    pub expected: String,
}

/// Where queues are to lie, and the line that says so: none where nobody asked and nothing was to be chosen. `open`
/// takes a GPU's memory into use, or says what is in the way.
///
/// # Errors
/// They cannot lie where they were asked for.
pub fn choose<M>(
    asked: QueuesKind,
    kernels: KernelsOn,
    carrier: Carrier,
    open: impl FnOnce(u32) -> Result<M, String>,
) -> Result<(Queues<M>, Option<String>), NoQueues> {
    const NO_REACH: &str = "NICs in software do not reach a GPU's memory";
    let host = |why: &str| Ok((Queues::Host, Some(format!("queues: the host's memory, because {why}"))));
    let instead = |why: String| match asked {
        QueuesKind::Gpu => Err(NoQueues { expected: format!("auto or host, because {why}") }),
        _ => host(&why),
    };
    match (asked, kernels) {
        (QueuesKind::Gpu, KernelsOn::Nothing) => host("the program has no kernels"),
        (_, KernelsOn::Nothing) => Ok((Queues::Host, None)),
        (QueuesKind::Host, KernelsOn::Gpu(_)) => host("SHUNT_QUEUES=host asks for it"),
        (QueuesKind::Gpu, KernelsOn::Processor) if carrier == Carrier::Hardware => {
            instead("kernels run on the processor".to_owned())
        }
        (QueuesKind::Gpu, KernelsOn::Processor) => {
            let why = "because SHUNT_QUEUES=gpu asks for it and kernels run on the processor";
            Ok((Queues::Simulated, Some(format!("queues: memory that stands for a GPU's, {why}"))))
        }
        (_, KernelsOn::Processor) => Ok((Queues::Host, None)),
        (_, KernelsOn::Gpu(_)) if carrier != Carrier::Hardware => instead(NO_REACH.to_owned()),
        (_, KernelsOn::Gpu(gpu)) => match open(gpu) {
            Ok(memory) => {
                let said = format!("queues: memory of GPU {gpu}, which GDRCopy maps for the host");
                Ok((Queues::Gpu(memory), Some(said)))
            }
            Err(why) => instead(why),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use {Carrier::*, KernelsOn::*};

    fn found(
        asked: QueuesKind,
        kernels: KernelsOn,
        carrier: Carrier,
    ) -> Result<(Queues<u32>, Option<String>), NoQueues> {
        choose(asked, kernels, carrier, |gpu| if gpu == 9 { Err("no GDRCopy".into()) } else { Ok(gpu) })
    }

    #[test]
    fn by_themselves_queues_lie_where_kernels_nics_and_host_reach_them() {
        for carrier in [Software, Interposed, Hardware] {
            for kernels in [Nothing, Processor] {
                assert_eq!(found(QueuesKind::Auto, kernels, carrier), Ok((Queues::Host, None)));
            }
        }
        let said = |asked, kernels, carrier| {
            let (queues, said) = found(asked, kernels, carrier).unwrap();
            (queues, said.unwrap())
        };
        let on_gpu = (Queues::Gpu(2), "queues: memory of GPU 2, which GDRCopy maps for the host".to_owned());
        for asked in [QueuesKind::Auto, QueuesKind::Gpu] {
            assert_eq!(said(asked, Gpu(2), Hardware), on_gpu);
        }
        for (kernels, carrier, why) in [
            (Gpu(9), Hardware, "no GDRCopy"),
            (Gpu(2), Interposed, "NICs in software do not reach a GPU's memory"),
        ] {
            let want = (Queues::Host, format!("queues: the host's memory, because {why}"));
            assert_eq!(said(QueuesKind::Auto, kernels, carrier), want);
        }
        let (queues, why) = said(QueuesKind::Host, Gpu(2), Hardware);
        assert!(queues == Queues::Host && why.ends_with("because SHUNT_QUEUES=host asks for it"), "{why}");
    }

    #[test]
    fn memory_that_stands_for_a_gpus_is_there_for_software_alone() {
        for carrier in [Software, Interposed] {
            let (queues, said) = found(QueuesKind::Gpu, Processor, carrier).unwrap();
            assert!(queues == Queues::Simulated && said.unwrap().contains("stands for a GPU's"));
        }
        assert_eq!([None, Some(1)], [Queues::<()>::Host, Queues::Simulated].map(|all| all.kernels_from(1)));
    }

    #[test]
    fn what_was_asked_for_and_cannot_be_is_refused() {
        for (kernels, carrier, why) in [
            (Processor, Hardware, "kernels run on the processor"),
            (Gpu(0), Software, "NICs in software do not reach a GPU's memory"),
            (Gpu(9), Hardware, "no GDRCopy"),
        ] {
            let said = found(QueuesKind::Gpu, kernels, carrier).unwrap_err().to_string();
            assert_eq!(said, format!("SHUNT_QUEUES: expected auto or host, because {why}, got gpu"));
        }
    }
}
