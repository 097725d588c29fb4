//! This process and its disk as metrics, read when the page is made.

use std::path::Path;

use super::metrics::Page;

/// Adds what the system knows of this process. Where it has no `/proc`, nothing is added.
pub(super) fn render_process(page: &mut Page) {
    let help = "Always 1: the version and the commit of this process.";
    page.head("postrider_build_info", "gauge", help);
    let (version, commit) = (env!("CARGO_PKG_VERSION"), env!("POSTRIDER_COMMIT"));
    page.line(&format!("postrider_build_info{{version=\"{version}\",commit=\"{commit}\"}}"), &1);
    let Some(read) = Process::read() else { return };
    let help = "Processor time of this process, in user and system mode.";
    page.head("process_cpu_seconds_total", "counter", help);
    page.line("process_cpu_seconds_total", &format!("{:.2}", read.cpu_seconds));
    let help = "Memory of this process that is in RAM.";
    page.head("process_resident_memory_bytes", "gauge", help);
    page.line("process_resident_memory_bytes", &read.resident_bytes);
    page.head("process_open_fds", "gauge", "Open files and sockets of this process.");
    page.line("process_open_fds", &read.open_files);
    page.head("process_max_fds", "gauge", "The most files and sockets that it may have open.");
    page.line("process_max_fds", &read.files_max);
    let help = "When this process started, in seconds since the Unix epoch.";
    page.head("process_start_time_seconds", "gauge", help);
    page.line("process_start_time_seconds", &format!("{:.2}", read.started_at));
}

/// Adds the disk of the data directory.
pub(super) fn render_disk(page: &mut Page, data_dir: &Path) {
    let Ok(space) = rustix::fs::statvfs(data_dir) else { return };
    let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
    page.head(
        "postrider_disk_free_bytes",
        "gauge",
        "Bytes that are free on the data directory's disk.",
    );
    page.line("postrider_disk_free_bytes", &bytes(space.f_bavail));
    page.head("postrider_disk_total_bytes", "gauge", "Bytes of that disk.");
    page.line("postrider_disk_total_bytes", &bytes(space.f_blocks));
}

struct Process {
    cpu_seconds: f64,
    resident_bytes: u64,
    open_files: usize,
    files_max: u64,
    started_at: f64,
}

impl Process {
    #[expect(clippy::cast_precision_loss, reason = "seconds, for people")]
    fn read() -> Option<Process> {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        // The name of the program is in parentheses and may have spaces; the third field follows.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let boot = std::fs::read_to_string("/proc/stat").ok()?;
        let boot = boot.lines().find_map(|line| line.strip_prefix("btime "))?;
        let page_bytes = u64::try_from(rustix::param::page_size()).ok()?;
        Some(Process {
            cpu_seconds: (field(14)? + field(15)?) as f64 / ticks,
            resident_bytes: field(24)?.saturating_mul(page_bytes),
            open_files: std::fs::read_dir("/proc/self/fd").ok()?.count(),
            files_max: rlimit::Resource::NOFILE.get().ok()?.0,
            started_at: boot.trim().parse::<f64>().ok()? + field(22)? as f64 / ticks,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_knows_its_memory_files_and_age() {
        let read = Process::read().unwrap();
        assert!(read.resident_bytes > 1_000_000 && read.open_files >= 3);
        assert!(read.files_max >= 100 && read.started_at > 1.7e9, "{}", read.started_at);
    }
}
