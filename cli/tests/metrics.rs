//! `SHUNT_METRICS` with several ranks on one machine: every one is read, by a client of ours and by Prometheus itself.

use crate::launchers::found;
use crate::nvshmem::{USUAL, folder, text};
use serde_json::Value;
use shunt_task::ports;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Ranks of these jobs.
const RANKS: u16 = 4;
/// Nothing here takes as long, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);

/// The answer to a GET, its header left out; `None` where nobody answers.
fn get(port: u16, path: &str, accept: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let ask = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n");
    stream.write_all(ask.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}

/// Asks again until there is an answer that will do.
fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(since.elapsed() < PATIENCE, "{what}: nothing for {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A job that goes on until it is told to end.
struct Job {
    launcher: Option<Child>,
    end: PathBuf,
}

impl Job {
    fn start(end: PathBuf, port: u16, more: &[&str]) -> Self {
        let _ = fs::remove_file(&end);
        let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
        command.args(["run", "-n", &RANKS.to_string(), "--fabric", &format!("metrics-{port}"), "--"]);
        command.arg(folder().join("linger")).arg(&end).args(more);
        command.envs(USUAL).env("SHUNT_METRICS", format!("127.0.0.1:{port}"));
        let launcher = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self { launcher: Some(launcher), end }
    }

    /// Its exit status, and all that it said.
    fn stop(&mut self) -> Option<(Option<i32>, String)> {
        let launcher = self.launcher.take()?;
        fs::write(&self.end, "").unwrap();
        let output = launcher.wait_with_output().unwrap();
        Some((output.status.code(), text(&output.stdout) + &text(&output.stderr)))
    }

    fn end(mut self) {
        let (code, said) = self.stop().expect("it runs");
        assert_eq!(code, Some(0), "{said}");
        assert!(!said.contains("no metrics") && !said.contains("are left"), "{said}");
    }
}

impl Drop for Job {
    /// A test that failed leaves no job behind, and shows what the job said.
    fn drop(&mut self) {
        if let Some((code, said)) = self.stop() {
            eprintln!("the job ended with {code:?}: {said}");
        }
    }
}

/// A sample's value: the first whose line begins so and has these words.
fn sample(page: &str, name: &str, words: &str) -> Option<u64> {
    let line = page.lines().find(|line| line.starts_with(&format!("{name}{{")) && line.contains(words))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// PE `n` is at the port `n` above the first, counts what it does, and says who it is.
#[test]
fn every_rank_has_a_port_of_its_own() {
    let port = ports::free(RANKS).unwrap();
    let job = Job::start(folder().join("metrics-end"), port, &[]);
    for pe in 0..RANKS {
        let own = format!("pe=\"{pe}\"");
        let page = until("operations", || {
            let page = get(port + pe, "/metrics", "*/*")?;
            let counted =
                sample(&page, "shunt_operations_total", "rail=\"0\"").is_some_and(|count| count > 100);
            counted.then_some(page)
        });
        assert!(
            sample(&page, "shunt_rail_sent_bytes_total", "rail=\"0\"").is_some_and(|bytes| bytes > 100),
            "{page}"
        );
        let samples = page.lines().filter(|line| !line.starts_with('#') && line.contains("pe="));
        assert!(samples.clone().count() > 50 && samples.clone().all(|line| line.contains(&own)), "{page}");
        let job = format!("shunt_job=\"metrics-{port}\"");
        assert!(page.lines().filter(|line| !line.starts_with('#')).all(|line| line.contains(&job)), "{page}");
        assert!(page.contains("\nshunt_build_info{") && page.contains("host=\""), "{page}");
        assert!(page.contains("# TYPE shunt_events_total counter") && !page.contains("# EOF"), "{page}");
        let open = get(port + pe, "/metrics", "application/openmetrics-text").unwrap();
        assert!(open.contains("# TYPE shunt_events counter") && open.ends_with("# EOF\n"), "{open}");
        if pe == 0 && found("promtool", "prometheus") {
            checked(&page);
        }
    }
    job.end();
}

/// `promtool check metrics` finds nothing.
fn checked(page: &str) {
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().unwrap();
    promtool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{said}");
}

/// Prometheus, on a port and with a folder of its own. It ends with the test.
struct Prometheus(Child);

impl Prometheus {
    fn start(folder: &Path, port: u16, first: u16) -> Self {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).unwrap();
        let targets: Vec<String> = (0..RANKS).map(|pe| format!("'127.0.0.1:{}'", first + pe)).collect();
        let targets = targets.join(", ");
        let configuration = folder.join("prometheus.yml");
        let lines = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{}']\n\
             scrape_configs:\n- job_name: shunt\n  static_configs:\n  - targets: [{targets}]\n",
            monitoring("alerts.yml").display(),
        );
        fs::write(&configuration, lines).unwrap();
        let log = fs::File::create(folder.join("log")).unwrap();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", configuration.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        Self(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A file that operators load.
fn monitoring(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/monitoring").join(file)
}

/// The answer to a query; a query that Prometheus refuses is a fault of its writer.
fn asked(port: u16, query: &str) -> Option<Value> {
    let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let answer: Value =
        serde_json::from_str(&get(port, &format!("/api/v1/query?query={encoded}"), "*/*")?).ok()?;
    assert_eq!(answer["status"], "success", "{query}: {answer}");
    Some(answer["data"]["result"].clone())
}

/// What a query comes to.
fn query(port: u16, query: &str) -> Option<f64> {
    asked(port, query)?[0]["value"][1].as_str()?.parse().ok()
}

/// Every query of the dashboard, by the title of its panel, with its variables replaced.
fn dashboard() -> Vec<(String, String)> {
    let dashboard: Value =
        serde_json::from_str(&fs::read_to_string(monitoring("grafana.json")).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| {
        panel["targets"].as_array().unwrap().iter().map(|target| (&panel["title"], &target["expr"]))
    });
    let notes = dashboard["annotations"]["list"].as_array().unwrap().iter();
    let all = targets.chain(notes.map(|note| (&note["name"], &note["expr"])));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let filled = |query: String| {
        let query = query.replace("$__rate_interval", "1m");
        query.replace("$job", ".*").replace("$pe", ".*")
    };
    all.map(|(title, query)| (text(title), filled(text(query)))).collect()
}

/// The dashboard shows something in each of its panels while a port is down and once it is back, and the rules that
/// page an operator are evaluated.
#[test]
fn the_dashboard_and_the_alerts_are_answered() {
    if !found("prometheus", "prometheus") {
        return;
    }
    let (port, own, folder) = (ports::free(RANKS).unwrap(), ports::free(1).unwrap(), folder());
    let start = folder.join("dashboard-fault");
    let _ = fs::remove_file(&start);
    let job = Job::start(folder.join("dashboard-end"), port, &[start.to_str().unwrap(), "down=3s"]);
    let _prometheus = Prometheus::start(&folder.join("dashboard"), own, port);
    let all = f64::from(RANKS);
    until("all ranks", || query(own, "count(shunt_rail_up == 1)").filter(|met| *met == 2.0 * all));
    fs::write(&start, "").unwrap();
    until("an alert", || query(own, "ALERTS{alertname=\"ShuntPortDown\",alertstate=\"pending\"}"));
    until("the way back", || query(own, "sum(shunt_switchbacks_total)").filter(|met| *met > 0.0));
    let queries = dashboard();
    assert!(queries.len() > 20, "{queries:?}");
    for (title, query) in queries {
        until(&format!("{title}: {query}"), || {
            asked(own, &query).filter(|met| met.as_array().is_some_and(|series| !series.is_empty()))
        });
    }
    let rules: Value = serde_json::from_str(&get(own, "/api/v1/rules", "*/*").unwrap()).unwrap();
    let rules = rules["data"]["groups"][0]["rules"].as_array().unwrap().clone();
    assert!(rules.len() >= 8 && rules.iter().all(|rule| rule["health"] == "ok"), "{rules:?}");
    job.end();
}

/// Each rule fires for what it is there for, and for nothing less.
#[test]
fn the_alerts_fire_when_they_should() {
    if !found("promtool", "prometheus") {
        return;
    }
    let mut promtool = Command::new("promtool");
    let output = promtool.args(["test", "rules"]).arg(monitoring("alerts_test.yml")).output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn prometheus_reads_all_ranks() {
    if !found("prometheus", "prometheus") {
        return;
    }
    let (port, own) = (ports::free(RANKS).unwrap(), ports::free(1).unwrap());
    let job = Job::start(folder().join("prometheus-end"), port, &[]);
    let _prometheus = Prometheus::start(&folder().join("prometheus"), own, port);
    let all = f64::from(RANKS);
    for wanted in ["count(up==1)", "count(shunt_build_info)", "count(sum(shunt_operations_total)by(pe)>100)"]
    {
        until(wanted, || query(own, wanted).filter(|met| *met == all));
    }
    job.end();
}
