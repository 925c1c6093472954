//! File descriptors: as many as the system gives, and how many of them connections may have.
//!
//! Room is kept for the descriptors that a server cannot do without (segments of the log, listening
//! sockets, what its threads sleep on, queries, webhooks). So a flood of connections takes no
//! descriptor from the log, which needs a new one for each segment.

use std::fs;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::config::Config;

/// Raises the limit of this process to what the system lets it have: most systems start programs
/// with 1,024. To be called before threads start.
pub fn raise_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::warn!(%error, "cannot raise the limit of open files from {soft} to {hard}");
    }
}

/// How many connections there may be of those wanted, once the log is open. Says in the log if that
/// is fewer, and what to do.
pub fn connections(wanted: usize, each: Connection) -> usize {
    let Ok((limit, _)) = getrlimit(Resource::RLIMIT_NOFILE) else { return wanted };
    let room = (room(limit, in_use()) / each.files()).max(1);
    if room >= wanted {
        return wanted;
    }
    tracing::warn!(
        "only {limit} files may be open: beside the log and the server's own there is room for \
         {room} of the {wanted} connections of --connections-max; raise the limit (LimitNOFILE= \
         of a systemd service, ulimit -n) or lower the setting"
    );
    room
}

/// What one connection of a client is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// Its socket.
    Direct,
    /// Its socket, and the connection between nodes of a cluster that the client is handed on through; an encrypted
    /// one needs a pair of sockets more.
    HandedOn { encrypted: bool },
}

impl Connection {
    /// As the settings have it.
    pub fn of(config: &Config) -> Connection {
        let encrypted = config.cluster_ca_file.is_some();
        if config.log.is_some() { Connection::HandedOn { encrypted } } else { Connection::Direct }
    }

    fn files(self) -> usize {
        match self {
            Connection::Direct => 1,
            Connection::HandedOn { encrypted: false } => 2,
            Connection::HandedOn { encrypted: true } => 4,
        }
    }
}

/// How many files a server must be allowed to have open for this many connections, with the log of a small
/// server.
pub fn limit_for(connections: usize, each: Connection) -> u64 {
    let connections = connections.saturating_mul(each.files());
    let (mut low, mut high) = (0, (connections as u64).saturating_mul(2) + (1 << 10));
    while low < high {
        let middle = u64::midpoint(low, high);
        if room(middle, IN_USE) >= connections {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// What this process has open.
fn in_use() -> u64 {
    let listed = fs::read_dir("/proc/self/fd").map(|entries| entries.count() as u64);
    // Where there is no /proc.
    listed.unwrap_or(IN_USE)
}

/// How many descriptors are left for connections.
fn room(limit: u64, in_use: u64) -> usize {
    let later = (limit / 8).clamp(LATER_MIN, LATER_MAX);
    let left = limit.saturating_sub(in_use + DOORS + later);
    usize::try_from(left).unwrap_or(usize::MAX).max(1)
}

/// What a server with a small log has open.
const IN_USE: u64 = 64;
/// What the doors open besides connections: sockets that listen, what their threads sleep on.
const DOORS: u64 = 48;
/// What comes later: segments of a log that grows, queries, webhooks, jobs that are pushed.
const LATER_MIN: u64 = 32;
const LATER_MAX: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_have_what_the_server_itself_leaves() {
        for (limit, in_use, left) in [
            (256, 20, 156),
            (1024, 20, 828),
            (4096, 200, 3336),
            (1 << 20, 20, (1 << 20) - 20 - DOORS - LATER_MAX),
            // Nothing is left: one client may try.
            (256, 250, 1),
            (64, 20, 1),
        ] {
            assert_eq!(room(limit, in_use), usize::try_from(left).unwrap(), "{limit} {in_use}");
        }
        assert!(room(u64::MAX, 20) > 1 << 40);
    }

    #[test]
    fn the_limit_for_connections_has_room_for_them_and_not_for_one_more() {
        for connections in [2, 156, 10_000, 20_000, 30_000, 1 << 20] {
            let limit = limit_for(connections, Connection::Direct);
            assert_eq!(room(limit, IN_USE), connections, "{limit}");
            assert!(room(limit - 1, IN_USE) < connections, "{limit}");
            for (encrypted, files) in [(false, 2), (true, 4)] {
                let each = Connection::HandedOn { encrypted };
                let limit = limit_for(connections, each);
                assert_eq!(limit, limit_for(files * connections, Connection::Direct));
                assert_eq!(room(limit, IN_USE) / each.files(), connections);
            }
        }
    }
}
