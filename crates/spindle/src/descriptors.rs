//! File descriptors: as many as the system gives, and how many of them connections may have.
//!
//! Room is kept for the descriptors that a server cannot do without (segments of the log, listening
//! sockets, what its threads sleep on, queries, webhooks). So a flood of connections takes no
//! descriptor from the log. The log needs a new one for each segment: as it grows, there are as many fewer places for
//! connections.

use std::{
    fs,
    sync::{
        Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use spindle_limits::Places;
use spindle_log::Log;

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

/// How many connections there may be of those wanted, beside a log that keeps no files. Says in the log if that is
/// fewer, and what to do.
pub fn connections(wanted: usize, each: Connection) -> usize {
    Room::now(wanted, each, 0).map_or(wanted, |room| room.connections(0))
}

/// The places for connections beside a log that is open: fewer while it has more files.
pub fn places(config: &Config, log: Weak<dyn Log>) -> Places {
    let files = move || log.upgrade().map_or(0, |log| log.open_files() as u64);
    let (wanted, each) = (config.connections_max, Connection::of(config));
    let Some(room) = Room::now(wanted, each, files()) else {
        return Places::new(config.place_limits(wanted));
    };
    // So that it is said at the start.
    room.connections(files());
    let config = config.clone();
    Places::with_limits_of(move || config.place_limits(room.connections(files())))
}

/// What a server's connections have to fit into.
struct Room {
    /// How many files may be open.
    limit: u64,
    /// How many are, beside the log's and connections.
    in_use: u64,
    wanted: usize,
    each: Connection,
    /// It was said that not all of them fit.
    said: AtomicBool,
}

impl Room {
    /// That of this process, which has no connection yet; the log has so many files open.
    fn now(wanted: usize, each: Connection, log_files: u64) -> Option<Room> {
        let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
        let in_use = in_use().saturating_sub(log_files);
        Some(Room { limit, in_use, wanted, each, said: AtomicBool::new(false) })
    }

    /// How many connections there may be. Says in the log, once, if that is fewer than wanted.
    fn connections(&self, log_files: u64) -> usize {
        let Room { limit, wanted, each, .. } = *self;
        let room = left(limit, self.in_use + log_files) / each.files();
        if room >= wanted {
            return wanted;
        }
        let room = room.max(PLACES_MIN).min(wanted);
        if !self.said.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "only {limit} files may be open: beside the log's {log_files} and the server's own there is room for \
                 {room} of the {wanted} connections of --connections-max, and for fewer as the log grows; raise the \
                 limit (LimitNOFILE= of a systemd service, ulimit -n) or lower the setting"
            );
        }
        room
    }
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

/// How many files a server must be allowed to have open for this many connections, with a log of so many files.
pub fn limit_for(connections: usize, each: Connection, log_files: u64) -> u64 {
    let connections = connections.saturating_mul(each.files());
    let in_use = IN_USE + log_files;
    let (mut low, mut high) = (0, (connections as u64).saturating_mul(2) + in_use + (1 << 10));
    while low < high {
        let middle = u64::midpoint(low, high);
        if left(middle, in_use) >= connections {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// With how many files a server cannot even start on such a log, or does without a door.
pub fn least_for(log_files: u64) -> u64 {
    OWN_MIN + log_files
}

/// What this process has open.
fn in_use() -> u64 {
    let listed = fs::read_dir("/proc/self/fd").map(|entries| entries.count() as u64);
    // Where there is no /proc.
    listed.unwrap_or(IN_USE)
}

/// How many descriptors are left for connections.
fn left(limit: u64, in_use: u64) -> usize {
    let later = (limit / 8).clamp(LATER_MIN, LATER_MAX);
    usize::try_from(limit.saturating_sub(in_use + DOORS + later)).unwrap_or(usize::MAX)
}

/// So many connections there may be in any case: without one, nobody could look at the server. They take what is kept
/// for later.
const PLACES_MIN: usize = 16;
/// What a server opens at its start at the very least, beside its log.
const OWN_MIN: u64 = 32;
/// What a server with a small log has open.
const IN_USE: u64 = 64;
/// What the doors open besides connections: sockets that listen, what their threads sleep on.
const DOORS: u64 = 48;
/// What comes later: segments of a log that grows beside connections that stay, queries, webhooks, jobs that are pushed.
const LATER_MIN: u64 = 32;
const LATER_MAX: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_have_what_the_server_itself_leaves() {
        for (limit, in_use, expected) in [
            (256, 20, 156),
            (1024, 20, 828),
            (4096, 200, 3336),
            (1 << 20, 20, (1 << 20) - 20 - DOORS - LATER_MAX),
            (256, 176, 0),
            (256, 250, 0),
            (64, 20, 0),
        ] {
            assert_eq!(left(limit, in_use), usize::try_from(expected).unwrap(), "{limit} {in_use}");
        }
        assert!(left(u64::MAX, 20) > 1 << 40);
    }

    #[test]
    fn a_log_that_grows_takes_places_down_to_a_floor() {
        let room = |wanted| Room {
            limit: 256,
            in_use: 20,
            wanted,
            each: Connection::Direct,
            said: AtomicBool::new(false),
        };
        let all = room(200);
        for (files, expected) in [(0, 156), (1, 155), (140, 16), (141, 16), (500, 16), (1, 155)] {
            assert_eq!(all.connections(files), expected, "{files}");
        }
        assert!(all.said.into_inner());
        let few = room(100);
        assert_eq!((few.connections(0), few.connections(56)), (100, 100));
        assert!(!few.said.load(Ordering::Relaxed));
        assert_eq!(few.connections(57), 99);
        assert!(few.said.into_inner());
        assert_eq!(room(3).connections(500), 3);
    }

    #[test]
    fn the_limit_for_connections_has_room_for_them_and_not_for_one_more() {
        for (connections, files) in [2, 156, 10_000, 20_000, 30_000, 1 << 20]
            .into_iter()
            .flat_map(|connections| [(connections, 0), (connections, 445)])
        {
            let limit = limit_for(connections, Connection::Direct, files);
            assert_eq!(left(limit, IN_USE + files), connections, "{limit}");
            assert!(left(limit - 1, IN_USE + files) < connections, "{limit}");
            for (encrypted, each_files) in [(false, 2), (true, 4)] {
                let each = Connection::HandedOn { encrypted };
                let limit = limit_for(connections, each, files);
                assert_eq!(limit, limit_for(each_files * connections, Connection::Direct, files));
                assert_eq!(left(limit, IN_USE + files) / each.files(), connections);
            }
        }
    }
}
