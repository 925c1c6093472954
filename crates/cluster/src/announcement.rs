//! What nodes tell each other outside the log.

use serde::{Deserialize, Serialize};
use spindle_log::ANNOUNCEMENT_BYTES_MAX;

/// The version of the format. Announcements of a newer one are read as far as they are understood.
pub(crate) const FORMAT: u32 = 1;

/// The longest name of a node.
pub(crate) const NAME_BYTES_MAX: usize = 64;
/// The longest address.
const ADDRESS_BYTES_MAX: usize = 300;

/// What a node does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It folds the records that another node appends.
    Follower,
    /// It has asked the log to lead.
    Campaigning,
    /// It appends, and answers clients.
    Leader,
    /// It led, and ends that in order.
    SteppingDown,
    /// It led, and appends nothing more: any other node may lead at once.
    SteppedDown,
}

impl Role {
    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Role::Follower => "follower",
            Role::Campaigning => "campaigning",
            Role::Leader => "leader",
            Role::SteppingDown => "stepping-down",
            Role::SteppedDown => "stepped-down",
        }
    }
}

/// What one node announces, a few hundred bytes of JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Announcement {
    pub format: u32,
    /// The node's name, which no other node of the cluster has.
    pub node: String,
    /// The process: another one after each start.
    pub run: String,
    /// Rises with each announcement of a process.
    pub number: u64,
    pub role: Role,
    /// The epoch that it leads or led, else the highest that it has folded.
    pub epoch: u64,
    /// The position behind the last record that it has folded, or that is durable where it leads.
    pub position: u64,
    /// Where other nodes reach it: `host:port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertise: Option<String>,
    /// The key that followers present to be let in: only readers of the log's announcements know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass_key: Option<String>,
    /// Other nodes are to encrypt what they say there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub encrypts: bool,
    /// The newest version of the log's records that it can read.
    #[serde(default = "first_version")]
    pub reads: u8,
    /// The program's version.
    pub version: String,
}

/// The version that a node reads whose announcement does not say one.
fn first_version() -> u8 {
    1
}

impl Announcement {
    /// The bytes, unless they are too many.
    pub fn write(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok().filter(|bytes| bytes.len() <= ANNOUNCEMENT_BYTES_MAX)
    }

    /// Reads what another process has announced. None if it makes no sense.
    pub fn read(bytes: &[u8]) -> Option<Announcement> {
        if bytes.len() > ANNOUNCEMENT_BYTES_MAX {
            return None;
        }
        let read: Announcement = serde_json::from_slice(bytes).ok()?;
        let is_short = |text: &Option<String>| {
            text.as_ref().is_none_or(|text| text.len() <= ADDRESS_BYTES_MAX)
        };
        let is_sound = is_name(&read.node)
            && read.run.len() <= NAME_BYTES_MAX
            && read.version.len() <= NAME_BYTES_MAX
            && is_short(&read.advertise)
            && is_short(&read.pass_key);
        is_sound.then_some(read)
    }
}

/// Whether a text can be a node's name: letters, digits, `-`, `_` and `.`, at most 64.
pub(crate) fn is_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && text.bytes().all(is_allowed)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn of(node: &str, role: Role, epoch: u64) -> Announcement {
        Announcement {
            format: FORMAT,
            node: node.to_owned(),
            run: format!("run of {node}"),
            number: 1,
            role,
            epoch,
            position: 7,
            advertise: Some("10.0.0.1:9931".to_owned()),
            pass_key: None,
            encrypts: false,
            reads: 1,
            version: "0.1.0".to_owned(),
        }
    }

    #[test]
    fn an_announcement_reads_back_and_newer_fields_are_passed_over() {
        let told = of("a", Role::SteppedDown, 3);
        let bytes = told.write().unwrap();
        assert_eq!(Announcement::read(&bytes), Some(told));
        let newer =
            String::from_utf8(bytes).unwrap().replace("\"format\":1", "\"format\":2,\"new\":[1]");
        assert_eq!(Announcement::read(newer.as_bytes()).map(|read| read.format), Some(2));
    }

    #[test]
    fn what_makes_no_sense_is_not_heard() {
        let mut told = of("a b", Role::Leader, 1);
        assert_eq!(Announcement::read(&told.write().unwrap()), None);
        told.node = "a".to_owned();
        told.version = "v".repeat(ANNOUNCEMENT_BYTES_MAX);
        assert_eq!(told.write(), None);
        for bytes in [&b""[..], b"{}", b"null", &[0xff; 40], &[b' '; ANNOUNCEMENT_BYTES_MAX + 1]] {
            assert_eq!(Announcement::read(bytes), None);
        }
    }
}
