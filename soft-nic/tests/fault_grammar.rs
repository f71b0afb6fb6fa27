//! The one grammar of faults: every line of the list reads, prints itself, and is refused with a reason if bent.

use proptest::prelude::*;
use shunt_soft_nic::fault::{Fault, FaultInfo, Injection, ParseInjectionError, format_time, list};

/// Anything the grammar writes: each placeholder of a line of the list filled from `draw`.
fn fault_text(info: FaultInfo, optional: bool, mut draw: impl FnMut(u64) -> u64) -> String {
    let (fixed, rest) = info.syntax.split_once('[').unwrap_or((info.syntax, ""));
    let mut text = String::from(info.name());
    let mut fill = |placeholder: &str| match placeholder {
        "T" | "PERIOD" => {
            let shift = draw(59);
            format_time((draw(1 << 59) >> shift).max(2))
        }
        "N" | "COUNT" => (1 + draw(u64::from(u32::MAX) - 1)).to_string(),
        "P" => (draw(1 << 53) as f64 / (1u64 << 53) as f64).to_string(),
        "GBPS" => (f64::from_bits(1 + draw(0x7fe0_0000_0000_0000))).to_string(),
        "SYNDROME" => format!("{:#04x}", 1 + draw(255)),
        "COMMAND" => {
            let commands = ["ip link set eth0 down", "a:b.c,\"d\"; e=f/g", "x ", "Ω\\\n\t'"];
            commands[draw(commands.len() as u64) as usize].to_owned()
        }
        other => panic!("{}: what stands for {other}?", info.syntax),
    };
    if let Some((_, parameters)) = fixed.split_once('=') {
        let parts: Vec<String> = parameters.split('/').map(&mut fill).collect();
        text += &format!("={}", parts.join("/"));
    }
    if optional && let Some(parameter) = rest.strip_suffix(']') {
        let (sign, placeholder) = parameter.split_at(1);
        text += &format!("{sign}{}", fill(placeholder));
    }
    text
}

/// An arbitrary injection: any fault of the list with any parameters, any place, any time.
fn injections() -> impl Strategy<Value = Injection> {
    let infos: Vec<FaultInfo> = list().collect();
    let numbers = prop::collection::vec(any::<u64>(), 8);
    let place = (any::<u32>(), any::<u32>());
    let times = (0..=1_000_000_000_000_000_000u64, 0u32..60);
    (prop::sample::select(infos), any::<bool>(), numbers, place, times).prop_map(
        |(info, optional, numbers, (pe, rail), (at, shift))| {
            let mut numbers = numbers.into_iter();
            let draw = |bound: u64| numbers.next().expect("eight are enough") % bound;
            let text = fault_text(info, optional, draw);
            let fault: Fault = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(fault.name(), info.name());
            assert_eq!(fault.is_sabotage(), info.sabotage);
            assert_eq!(fault.hits_whole_pe(), info.whole_pe);
            let rail = (!info.whole_pe).then_some(rail);
            Injection { at_ns: at >> shift, pe, rail, fault }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn an_injection_survives_its_text(injection in injections()) {
        let text = injection.to_string();
        let read: Result<Injection, _> = text.parse();
        prop_assert_eq!(read.as_ref(), Ok(&injection), "{}", text);
    }

    #[test]
    fn random_text_never_panics(text in ".{0,60}") {
        let _ = text.parse::<Injection>();
        let _ = text.parse::<Fault>();
    }

    #[test]
    fn text_that_looks_like_a_fault_never_panics(
        text in "[0-9]{0,3}(ns|us|ms|s|m)?:[0-9.]{0,5}:[a-z-]{0,12}[=/0-9a-z.]{0,12}",
    ) {
        let _ = text.parse::<Injection>();
    }

    /// One character taken out, put in or changed: it still reads and then prints itself, or the error names a part
    /// of what was met.
    #[test]
    fn a_bent_injection_is_read_or_named(
        injection in injections(), at in any::<prop::sample::Index>(), how in 0..3, letter in any::<char>(),
    ) {
        let mut letters: Vec<char> = injection.to_string().chars().collect();
        let at = at.index(letters.len());
        match how {
            0 => drop(letters.remove(at)),
            1 => letters.insert(at, letter),
            _ => letters[at] = letter,
        }
        let text: String = letters.into_iter().collect();
        match text.parse::<Injection>() {
            Ok(read) => prop_assert_eq!(read.to_string().parse::<Injection>(), Ok(read)),
            Err(error) => {
                let message = error.to_string();
                let fault = text.splitn(3, ':').nth(2).unwrap_or(&text);
                let named = message.contains(&format!("{text:?}")) || message.contains(fault);
                prop_assert!(named, "{} is refused with: {}", text, message);
            }
        }
    }
}

/// What is refused, and what the error says would be right.
#[test]
fn errors_say_what_is_expected_and_what_came() {
    let table = [
        ("", &["\"\"", "<time>:<pe>.<rail>:<fault>"][..]),
        ("500ms", &["\"500ms\"", "500ms:0.0:down"]),
        ("500ms:0.0", &["\"500ms:0.0\"", "500ms:0.0:down"]),
        ("500:0.0:down", &["got \"500\"", "time in", "10ms"]),
        ("-5ms:0.0:down", &["got \"-5ms\"", "time in"]),
        ("0.5ns:0.0:down", &["got \"0.5ns\"", "time in"]),
        ("99999999999s:0.0:down", &["got \"99999999999s\"", "time in"]),
        ("1ms:x:down", &["got \"x\"", "place in", "0.1"]),
        ("1ms:0.x:down", &["got \"0.x\"", "place in"]),
        ("1ms:0.1.2:down", &["got \"0.1.2\"", "place in"]),
        ("1ms:+1.0:down", &["got \"+1.0\"", "place in"]),
        ("1ms:4294967296.0:down", &["got \"4294967296.0\"", "place in"]),
        ("1ms::down", &["got \"\"", "place in"]),
        ("1ms:0:down", &["expected one rail", "0.0:down"]),
        ("1ms:3:exec=true", &["expected one rail", "3.0:exec=true"]),
        ("1ms:0.1:peer-killed", &["expected a whole PE", "0:peer-killed"]),
        ("1ms:0.1:oob-cut=5ms", &["expected a whole PE", "0:oob-cut=5ms"]),
        ("1ms:0.0:dwon", &["`dwon`; ", "did you mean `down`?", "shmem_put_bw --list-faults"]),
        ("1ms:0.0:", &["``", "--list-faults"]),
        ("1ms:0:agent-stalled", &["`agent-stalled` needs a parameter", "`agent-stalled=T`"]),
        ("1ms:0:agent-stalled=1s/2s", &["`2s`", "`agent-stalled=T`"]),
        ("1ms:0:agent-dead", &["`agent-dead` needs a parameter", "`agent-dead=T`"]),
        ("1ms:0:agent-restart=1s", &["`1s`", "`agent-restart`"]),
        ("1ms:0:agent-killed=1s", &["`1s`", "`agent-killed`"]),
        ("1ms:0:clock-jump=soon", &["`soon`", "a time like 10ms"]),
        ("1ms:0:oob-cut=5", &["`5`", "`oob-cut[=T]`"]),
        ("1ms:0.0:exec", &["`exec` needs a parameter", "`exec=COMMAND`"]),
        ("1ms:0.0:exec= ", &["needs a parameter"]),
    ];
    for (text, parts) in table {
        let error: ParseInjectionError = text.parse::<Injection>().expect_err(text);
        let message = error.to_string();
        for part in parts {
            assert!(message.contains(part), "{text:?}: {message}\nlacks {part}");
        }
    }
}

#[test]
fn faults_that_do_nothing_are_told_from_those_that_do() {
    let nothing = ["drop=0", "dup=0", "delay=0ns", "late-cqe=0", "down=0ns", "delay=5us/0ns", "nic-gone=0"];
    for text in nothing.into_iter().chain(["agent-stalled=0", "agent-dead=0", "oob-cut=0ns", "clock-jump=0"])
    {
        assert!(text.parse::<Fault>().unwrap().does_nothing(), "{text}");
    }
    for text in ["drop=0.1", "down", "down=1ms", "up", "gid-change", "oob-cut", "peer-killed", "exec=true"] {
        assert!(!text.parse::<Fault>().unwrap().does_nothing(), "{text}");
    }
}

#[test]
fn names_are_unique() {
    let mut names: Vec<&str> = list().map(|info| info.name()).collect();
    names.sort();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}
