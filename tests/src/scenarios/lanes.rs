//! Warps whose lanes work in groups of any size, on channels they share. H10, scenario 19.

use super::kit::{Wrongs, both_ways, brisk, judged, wrong_if};
use super::scenario::Scenario;
use crate::cluster::Cluster;
use crate::sim::{ActorOptions, Task};
use crate::traffic::Traffic;
use crate::warp::spawn_warp;
use crate::workload::Report;

pub const SCENARIOS: &[Scenario] =
    &[Scenario { name: "mixed_lanes_on_mixed_channels", seeds: 6, run: mixed_lanes }];

/// Lanes of a group: a thread alone, parts of a warp as a mask leaves them, a whole one.
const GROUPS: [u32; 7] = [1, 32, 3, 12, 31, 2, 17];

/// On each channel groups of all sizes send and receive; a put is more pieces than a small group has lanes, and fewer
/// than a large one has. A port goes and comes back meanwhile.
fn mixed_lanes(seed: u64) -> Wrongs {
    judged(|| {
        let mut spec = brisk(both_ways(seed, &["300us:0.0:down", "4ms:0.0:up"]));
        (spec.channels, spec.warps, spec.log_depth, spec.log2_chunk) = (2, 3, 5, 12);
        let (slots, slot_bytes) = (3, 20_480);
        spec.traffic =
            Traffic { messages: 40, slots, slot_bytes, puts: 2, gets: 8, pace_ns: 0, ..spec.traffic };
        let cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let mut tasks: Vec<Task<Report>> = Vec::new();
        for stream in cluster.streams().iter().copied() {
            cluster.watch(stream.to, stream.signal());
            let group =
                |side: u64| GROUPS[((u64::from(stream.id) + seed + side) % GROUPS.len() as u64) as usize];
            let (sender, receiver) = (cluster.kernel(stream.from), cluster.kernel(stream.to));
            let (traffic, again) = (spec.traffic.clone(), spec.traffic.clone());
            let (send, receive) = (format!("send{}", stream.id), format!("receive{}", stream.id));
            let options = ActorOptions::kernel();
            tasks.extend(spawn_warp(&cluster.sim, &send, group(0), options.clone(), move |lane| {
                sender.send(lane, stream, &traffic)
            }));
            tasks.extend(spawn_warp(&cluster.sim, &receive, group(3), options, move |lane| {
                receiver.receive(lane, stream, &again)
            }));
        }
        let reports = cluster.sim.finish_all(&tasks);
        cluster.sim.run_for(100_000_000);
        let bad =
            reports.iter().find(|report| report.fault.is_some() || report.messages != spec.traffic.messages);
        let mut wrongs: Wrongs = bad.map(|report| format!("{report:?}")).into_iter().collect();
        wrongs.extend(wrong_if(cluster.oracle.total() > 0, || cluster.oracle.describe()));
        for stream in cluster.streams() {
            let writes = cluster.watched(stream.to, stream.signal()).writes;
            wrongs
                .extend(wrong_if(writes != spec.traffic.messages, || format!("{stream}: {writes} signals")));
        }
        wrongs.extend(wrong_if(cluster.records().len() < 2, || "nothing was switched".into()));
        wrongs
    })
}
