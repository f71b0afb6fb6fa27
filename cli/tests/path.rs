//! `shunt path` against a page and a socket of this process.

use shunt_host::events::control::Control;
use shunt_host::events::page::{PageWriter, zeroed};
use shunt_layout::status::{STATUS_VERSION, StatusPage};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// In the temporary folder: the path of a socket is short.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("shunt-path-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

fn page(pe: u32) -> Box<StatusPage> {
    let mut page = zeroed();
    (page.version, page.bytes) = (STATUS_VERSION, size_of::<StatusPage>() as u32);
    (page.pid, page.pe, page.pe_count, page.rails) = (std::process::id(), pe, 2, 2);
    page
}

fn path(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
    let output = command.arg("path").args(arguments).arg("--dir").arg(folder).output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn an_order_is_heard_and_its_answer_told() {
    let folder = folder("heard");
    let page = PageWriter::create(&folder, &page(1)).expect("a page");
    let control = Control::open(page.path()).expect("a socket");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let heard = scope.spawn(|| {
            let mut heard = Vec::new();
            while !over.load(Ordering::Acquire) {
                if let Some((order, from)) = control.next_order() {
                    let order = order.expect("the program checks what it sends").to_string();
                    let answer =
                        if order.starts_with("retire") { Ok("done".into()) } else { Err("not now".into()) };
                    control.answer(&from, &answer);
                    heard.push(order);
                }
                std::thread::yield_now();
            }
            heard
        });
        let done = path(&folder, &["retire", "1.0>0.1"]);
        let refused = path(&folder, &["readmit", "1.0"]);
        over.store(true, Ordering::Release);
        assert_eq!(done, (Some(0), "1.0>0.1: done\n".into(), String::new()));
        assert_eq!(refused, (Some(1), String::new(), "error: not now\n".into()));
        assert_eq!(heard.join().expect("it ends"), ["retire 1.0>0.1", "readmit 1.0"]);
    });
    drop(control);
    let left = std::fs::read_dir(&folder).expect("the folder").count();
    assert_eq!(left, 1, "the page alone");
}

#[test]
fn nobody_there_is_said() {
    let folder = folder("no-process");
    let (code, _, error) = path(&folder, &["retire", "0.1"]);
    assert!(
        code == Some(1)
            && error.contains("no PE 0 with a status page in")
            && error.contains("`shunt status` lists"),
        "{error}"
    );
    let _page = PageWriter::create(&folder, &page(0)).expect("a page");
    let (code, _, error) = path(&folder, &["retire", "0.1"]);
    assert!(code == Some(1) && error.contains("no agent takes orders"), "{error}");
    let (code, _, error) = path(&folder, &["retire", "0.1", "--pid", "1"]);
    assert!(code == Some(1) && error.contains("process 1 has no PE 0"), "{error}");
    let (code, _, error) = path(&folder, &["retire", "zero"]);
    assert!(code == Some(2) && error.contains("PE.RAIL>PE.RAIL"), "{error}");
    assert_eq!(path(&folder, &["retire"]).0, Some(2));
}
