//! Files on disk are private, and a store belongs to the key ring that it was created with.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Receiver, Start, run, stderr};

/// All paths below a directory, including itself.
fn tree(root: &Path) -> Vec<PathBuf> {
    let mut all = vec![root.to_owned()];
    if root.is_dir() {
        let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
        all.extend(entries.flat_map(|path| tree(&path)));
    }
    all
}

/// Checks that all files and directories are private; returns their number.
fn assert_private(root: &Path) -> usize {
    let all = tree(root);
    for path in &all {
        let mode = fs::metadata(path).unwrap().mode() & 0o777;
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, expected, "{} has mode {mode:o}", path.display());
    }
    all.len()
}

fn shared_directory(path: &Path) {
    fs::create_dir(path).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn files_are_private_whatever_the_umask_and_whoever_made_the_directory() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (data, copy, restored) = (at("data"), at("copy"), at("restored"));
    for path in [&data, &copy, &restored] {
        shared_directory(path);
    }
    let receiver = Receiver::start(200);
    let open = ["sh", "-c", "umask 0; exec \"$0\" \"$@\""];
    let server = Start::dev().under(&open).at(&data);
    server.subscribe(&receiver.url());
    server.send(20);
    receiver.wait_for(20);
    let files = assert_private(&data);
    let backup = ["backup", "--server", &format!("http://{}", server.address), "--data-dir"];
    let words = [&backup[..], &[data.to_str().unwrap(), "--to", copy.to_str().unwrap()]].concat();
    let told = run(&words);
    assert!(told.status.success(), "{}", stderr(&told));
    let copied = assert_private(&copy);
    // A copy that an older version made.
    for path in tree(&copy).iter().filter(|path| path.is_file()) {
        fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
    }
    let told = run(&[
        "restore",
        "--from",
        copy.to_str().unwrap(),
        "--data-dir",
        restored.to_str().unwrap(),
    ]);
    assert!(told.status.success(), "{}", stderr(&told));
    assert!(assert_private(&restored) >= copied);
    println!(
        "modes: {files} files and directories with umask 0, {copied} of a backup, all private"
    );
}

#[test]
fn data_directory_that_others_can_read_is_closed_and_logged() {
    let server = Start::dev().fresh();
    let data = server.data_dir.clone();
    let mut server = server;
    server.kill();
    for path in tree(&data).iter().filter(|path| !path.ends_with("keyring")) {
        let mode = if path.is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let mut server = server.succeeded_by(Start::dev());
    server.wait_for_line(|line| line.contains("others could read the data directory"));
    assert_private(&data);
}

#[test]
fn key_ring_that_others_can_read_is_refused() {
    let mut server = Start::dev().fresh();
    server.kill();
    let ring = server.data_dir.join("keyring");
    fs::set_permissions(&ring, Permissions::from_mode(0o644)).unwrap();
    let output = Start::dev().command(&server.data_dir).output().unwrap();
    let words = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains("(mode 0644); run: chmod 600"), "{words}");
}

#[test]
fn key_ring_of_another_store_is_refused_also_where_nothing_is_sealed_yet() {
    let (mut one, mut other) = (Start::dev().fresh(), Start::dev().fresh());
    one.kill();
    other.kill();
    let (ring, foreign) = (one.data_dir.join("keyring"), other.data_dir.join("keyring"));
    let own = fs::read(&ring).unwrap();
    fs::copy(&foreign, &ring).unwrap();
    let output = Start::dev().command(&one.data_dir).output().unwrap();
    let words = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains("is the key ring of another store"), "{words}");
    fs::write(&ring, own).unwrap();
    one.succeeded_by(Start::dev()).get("/v1/ledger");
}

#[test]
fn server_that_cannot_start_on_a_full_disk_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display();
    let script = format!("mount -t tmpfs -o size=1m none {place} && exec \"$0\" \"$@\"");
    let mut mount = Command::new("unshare");
    mount.args(["-m", "mount", "-t", "tmpfs", "none", "/mnt"]);
    let may_mount = mount.output().is_ok_and(|output| output.status.success());
    if !may_mount {
        return println!("disk full at start: skipped, this user may not mount");
    }
    let start = Start::dev().under(&["unshare", "-m", "sh", "-c", &script]);
    let output = start.command(&folder.path().join("data")).output().unwrap();
    let words = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains("make room in") && words.contains("and start again"), "{words}");
    assert!(!words.contains("resumes by itself"), "{words}");
}
