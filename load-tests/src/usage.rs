//! The resource usage of processes, as reported by the kernel in `/proc`.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::time::Duration;

/// The unit of times in `/proc/PID/stat` on Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns the user and system time of a process so far, including its children that have ended.
///
/// # Errors
/// If there is no such process.
pub fn cpu(pid: u32) -> io::Result<Duration> {
    let ticks: f64 = stat(pid)?.iter().skip(11).take(4).filter_map(|field| field.parse::<f64>().ok()).sum();
    Ok(Duration::from_secs_f64(ticks / TICKS_PER_SECOND))
}

/// Returns the memory of a process in bytes, with its share of shared memory.
///
/// # Errors
/// If there is no such process, or it belongs to another user.
pub fn memory(pid: u32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kilobytes.unwrap_or(0) * 1024)
}

/// Returns the processes that listen on a port of loopback; empty if that cannot be determined.
pub fn listening_on(port: u16) -> Vec<u32> {
    let Some(socket) = socket(port) else { return Vec::new() };
    let holds = |pid: &u32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.map(|file| fs::read_link(file.path())).any(|link| link.is_ok_and(|link| link.to_string_lossy() == socket))
    };
    pids().into_iter().filter(holds).collect()
}

/// Returns processes with all their current descendants.
pub fn family(of: &[u32]) -> Vec<u32> {
    let (all, mut family) = (pids(), HashSet::<u32>::from_iter(of.iter().copied()));
    loop {
        let parent = |pid: &u32| stat(*pid).ok()?.get(1)?.parse::<u32>().ok();
        let more =
            all.iter().filter(|pid| !family.contains(pid) && parent(pid).is_some_and(|pid| family.contains(&pid)));
        let more: Vec<u32> = more.copied().collect();
        if more.is_empty() {
            return family.into_iter().collect();
        }
        family.extend(more);
    }
}

/// Returns the link target of an open descriptor of the socket that listens on a port.
fn socket(port: u16) -> Option<String> {
    const LISTENING: &str = "0A";
    let table = fs::read_to_string("/proc/net/tcp").ok()? + &fs::read_to_string("/proc/net/tcp6").unwrap_or_default();
    // Addresses in the kernel's format: words in native byte order.
    let loopback = format!("{:08X}", u32::from_ne_bytes([127, 0, 0, 1]));
    let [any, any_6, loopback_6] =
        ["0".repeat(8), "0".repeat(32), format!("{:024}{:08X}", 0, u32::from_ne_bytes([0, 0, 0, 1]))];
    let ours = [loopback, any, any_6, loopback_6].map(|address| format!("{address}:{port:04X}"));
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let found =
            ours.iter().any(|local| Some(local.as_str()) == fields.get(1).copied()) && *fields.get(3)? == LISTENING;
        found.then(|| Some(format!("socket:[{}]", fields.get(9)?)))?
    })
}

fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the fields after the name, which is in parentheses and may contain spaces: state, parent, ..
fn stat(pid: u32) -> io::Result<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    Ok(after_name.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_memory_and_port_are_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let found = listening_on(listener.local_addr().unwrap().port());
        assert!(found.contains(&std::process::id()), "{found:?}");
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        assert!(family(&found).contains(&child.id()));
        child.kill().and_then(|()| child.wait()).unwrap();
        assert!(memory(std::process::id()).unwrap() > 100_000);
        assert!(cpu(std::process::id()).is_ok() && cpu(u32::MAX).is_err());
    }
}
