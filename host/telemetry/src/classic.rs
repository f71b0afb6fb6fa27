//! OpenMetrics text as Prometheus' classic text: readers that do not ask for the first know the second alone.

/// What a sample of a kind is called beyond its family, and the kind's classic name.
fn classic_kind(kind: &str) -> (&'static str, &str) {
    match kind {
        "counter" => ("_total", kind),
        "info" => ("_info", "gauge"),
        _ => ("", kind),
    }
}

/// The classic text of an OpenMetrics text: families are called as their samples are, and there is no end mark.
pub(super) fn classic(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let lines: Vec<&str> = text.lines().collect();
    let kind_of = |name: &str| {
        let kind =
            lines.iter().find_map(|line| line.strip_prefix("# TYPE ")?.strip_prefix(name)?.strip_prefix(' '));
        classic_kind(kind.unwrap_or("untyped"))
    };
    for line in &lines {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", name, help] => out += &format!("# HELP {name}{} {help}\n", kind_of(name).0),
            ["#", "TYPE", name, _] => {
                out += &format!("# TYPE {name}{} {}\n", kind_of(name).0, kind_of(name).1)
            }
            ["#", ..] => {}
            _ => out += &format!("{line}\n"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_called_as_their_samples_are() {
        let open = "# HELP a Things.\n# TYPE a counter\na_total{pe=\"0\"} 1\n# HELP a_b B.\n# TYPE a_b gauge\na_b 2\n\
                    # HELP s_seconds T.\n# TYPE s_seconds histogram\n# UNIT s_seconds seconds\ns_seconds_sum 1.0\n\
                    # HELP v V.\n# TYPE v info\nv_info{version=\"1\"} 1\n# EOF\n";
        let want = "# HELP a_total Things.\n# TYPE a_total counter\na_total{pe=\"0\"} 1\n# HELP a_b B.\n\
                    # TYPE a_b gauge\na_b 2\n# HELP s_seconds T.\n# TYPE s_seconds histogram\ns_seconds_sum 1.0\n\
                    # HELP v_info V.\n# TYPE v_info gauge\nv_info{version=\"1\"} 1\n";
        assert_eq!(classic(open), want);
    }
}
