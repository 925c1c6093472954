//! An identity: one entry of the tokens file.

use std::sync::Arc;
use std::time::SystemTime;

use spindle_core::glob;

use crate::denied::Denied;
use crate::role::{Role, Roles};

/// One entry of the tokens file, without the token or certificate that proves it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    name: Arc<str>,
    /// As the entry names them.
    granted: Vec<Role>,
    /// With all that they include.
    roles: Roles,
    patterns: Vec<String>,
    is_unlimited: bool,
    expires: Option<SystemTime>,
}

impl Identity {
    pub(crate) fn new(
        name: String,
        granted: Vec<Role>,
        patterns: Vec<String>,
        expires: Option<SystemTime>,
    ) -> Identity {
        let roles = granted.iter().copied().collect();
        let is_unlimited = patterns.iter().any(|pattern| pattern == "*");
        let name = name.into();
        Identity { name, granted, roles, patterns, is_unlimited, expires }
    }

    /// The roles its entry names.
    pub fn roles(&self) -> &[Role] {
        &self.granted
    }

    /// The patterns of the queues it may touch.
    pub fn queues(&self) -> &[String] {
        &self.patterns
    }

    /// Whether its time is over.
    pub fn has_expired(&self, now: SystemTime) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// What people call it: for logs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same, to count its requests by.
    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    /// Until when it is valid; none: without an end.
    pub fn expires(&self) -> Option<SystemTime> {
        self.expires
    }

    /// Whether it may touch all queues.
    pub fn is_unlimited(&self) -> bool {
        self.is_unlimited
    }

    /// Whether it has a role, and its time is not over. The clock is only read if the identity has
    /// an expiry.
    pub(crate) fn has(&self, role: Role, now: impl FnOnce() -> SystemTime) -> Result<(), Denied> {
        if self.expires.is_some_and(|expires| expires <= now()) {
            return Err(Denied::Expired);
        }
        if self.roles.include(role) { Ok(()) } else { Err(Denied::Role(role)) }
    }

    /// Whether a queue fits one of its patterns.
    pub(crate) fn may_touch(&self, queue: &[u8]) -> bool {
        self.is_unlimited
            || self.patterns.iter().any(|pattern| glob::fits(pattern.as_bytes(), queue))
    }
}
