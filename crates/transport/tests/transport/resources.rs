//! Running out of resources is our own fault.

use std::fs::File;
use std::process::Command;

use postrider_domain::attempt::OwnFaultKind;

use crate::support::*;

#[test]
fn without_free_files_the_fault_is_ours() {
    let this = std::env::current_exe().unwrap();
    let limited = "ulimit -n 64 && exec \"$0\" --exact resources::with_few_files --ignored";
    let child = Command::new("sh").args(["-c", limited]).arg(this).output().unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
}

#[tokio::test]
#[ignore = "runs with few files, as a child of the test above"]
async fn with_few_files() {
    let receiver = Receiver::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let transport = transport();
    let mut files = Vec::new();
    while files.len() < 1000
        && let Ok(file) = File::open("/dev/null")
    {
        files.push(file);
    }
    if files.len() == 1000 {
        println!("files are not limited: nothing to see");
        return;
    }
    let finished = post(&transport, &receiver.url("/")).await;
    assert_eq!(own_fault(&finished), OwnFaultKind::Resources);
    drop(files);
    assert_eq!(answer(&post(&transport, &receiver.url("/")).await).status, 200);
}
