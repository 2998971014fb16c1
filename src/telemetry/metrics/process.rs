//! Process statistics from Linux's `/proc/self` (proc(5)); empty on other systems.

use std::fs;

/// Clock ticks per second in `/proc`, fixed for user space.
const TICKS_PER_SECOND: f64 = 100.0;

/// Current process statistics; `None` for unknown values.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct ProcessStats {
    /// User and system time in s.
    pub(super) cpu_s: Option<f64>,
    pub(super) resident_bytes: Option<u64>,
    pub(super) open_fds: Option<u64>,
    pub(super) max_fds: Option<u64>,
}

/// Reads the current statistics.
pub(super) fn read_stats() -> ProcessStats {
    let read = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    ProcessStats {
        cpu_s: cpu_s(&read("stat")),
        resident_bytes: resident_bytes(&read("status")),
        // Subtract the descriptor that reads the directory.
        open_fds: fs::read_dir("/proc/self/fd").ok().map(|all| (all.count() as u64).saturating_sub(1)),
        max_fds: max_fds(&read("limits")),
    }
}

/// Fields 14 and 15 of `stat`. The second field, the program's name, may contain any character but ends with the
/// last `)`.
fn cpu_s(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS_PER_SECOND)
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

fn max_fds(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_parsed() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 1 0 100 1 1";
        assert_eq!(cpu_s(stat), Some(2.0));
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t    2048 kB\n"), Some(2 << 20));
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 4096  files\n";
        assert_eq!(max_fds(limits), Some(1024));
        assert_eq!((cpu_s(""), resident_bytes("x"), max_fds("Max open files")), (None, None, None));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn own_process_stats_are_read() {
        let now = read_stats();
        assert!(now.cpu_s.is_some() && now.resident_bytes > Some(1 << 20), "{now:?}");
        assert!(now.open_fds > Some(2) && now.max_fds >= now.open_fds, "{now:?}");
    }
}
