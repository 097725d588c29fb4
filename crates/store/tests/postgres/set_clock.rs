//! A preloaded library that shifts the time of day of a process, and no other clock, by the seconds
//! in a file. The file may change while the process runs.

use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long skew(void) {
    char text[32];
    const char *path = getenv("TEST_SKEW_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return 0;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    text[length > 0 ? length : 0] = 0;
    return atol(text);
}
int clock_gettime(clockid_t id, struct timespec *at) {
    int result = syscall(SYS_clock_gettime, id, at);
    if (result == 0 && id == CLOCK_REALTIME) at->tv_sec += skew();
    return result;
}
int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    (void) zone;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"#;

/// The library and its file.
pub(crate) struct SetClock {
    folder: tempfile::TempDir,
    library: String,
    file: String,
}

impl SetClock {
    /// Builds the library. The offset is zero at first.
    pub(crate) fn new() -> SetClock {
        let folder = tempfile::tempdir().unwrap();
        let text = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (library, file) = (text("skew.so"), text("seconds"));
        let skew = SetClock { folder, library, file };
        std::fs::write(skew.path("skew.c"), SOURCE).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(skew.path("skew.so"));
        let built = cc.arg(skew.path("skew.c")).status().unwrap();
        assert!(built.success(), "cc, which every build here needs");
        // PostgreSQL runs as another user.
        let open = Command::new("chmod").arg("755").arg(skew.folder.path()).status().unwrap();
        assert!(open.success());
        skew.set(0);
        skew
    }

    /// Sets the time of day to `seconds` after the real one.
    pub(crate) fn set(&self, seconds: i64) {
        // Replace the file atomically: the library may read it at any moment.
        std::fs::write(self.path("new"), seconds.to_string()).unwrap();
        std::fs::rename(self.path("new"), self.path("seconds")).unwrap();
    }

    /// The environment variables that a process needs.
    pub(crate) fn variables(&self) -> [(&str, &str); 2] {
        [("LD_PRELOAD", &self.library), ("TEST_SKEW_FILE", &self.file)]
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
