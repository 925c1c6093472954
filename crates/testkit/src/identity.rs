//! Whom a TCP door asks who they are.

use std::sync::Arc;

use spindle_access::Access;
use spindle_engine::{ConnectionId, Door, Mailbox, Peer, Session};

use crate::{Letters, TokensFile};

/// Checks that a door, and its new sessions, lack an identity exactly where they must. Returns the
/// access of a door that requires one: it knows the token `known`, for all queues.
#[track_caller]
pub fn check_identity_is_required<D: Door>(door_with: impl Fn(Access) -> D) -> Access {
    let certificate =
        "[[token]]\nname='c'\ncertificate='c.example'\nroles=['work']\nqueues=['*']\n";
    let file = TokensFile::of(&(TokensFile::entry("known", "work", "*", "") + certificate));
    let access = file.access(true);
    for (is_required, name, lacks) in [
        (true, None, true),
        (true, Some("other.example"), true),
        (true, Some("c.example"), false),
        (false, None, false),
    ] {
        let door = door_with(access.required(is_required));
        assert_eq!(door.requires_identity(), is_required);
        assert_eq!(open_as(&door, name).lacks_identity(), lacks, "{is_required} {name:?}");
    }
    access
}

/// A session of a client on this machine that has shown the certificate of this name, or none.
pub fn open_as(door: &impl Door, certificate: Option<&str>) -> Box<dyn Session> {
    let mailbox: Arc<dyn Mailbox> = Arc::new(Letters::default());
    let certificate = certificate.map(Arc::from);
    let peer = Peer { certificate, ..Peer::plain(([127, 0, 0, 1], 1).into()) };
    door.open(ConnectionId(1), &peer, &mailbox)
}
