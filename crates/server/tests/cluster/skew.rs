//! Shifts the time of day of a process, and no other clock.

use std::path::{Path, PathBuf};
use std::process::Command;

const SKEW: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *at) {
    int result = syscall(SYS_clock_gettime, id, at);
    const char *skew = getenv("TEST_SKEW_SECONDS");
    if (result == 0 && id == CLOCK_REALTIME && skew) at->tv_sec += atol(skew);
    return result;
}
int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"#;

/// The environment variable with the shift.
pub(crate) const SECONDS: &str = "TEST_SKEW_SECONDS";

/// Builds the library for `LD_PRELOAD`.
pub(crate) fn library(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("skew.c"), folder.join("skew.so"));
    std::fs::write(&source, SKEW).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source);
    assert!(cc.status().unwrap().success(), "cc, which every build here needs");
    // PostgreSQL runs as another user.
    let mut open = Command::new("chmod");
    assert!(open.arg("755").arg(folder).arg(&library).status().unwrap().success());
    library
}
