//! What an identity may do in general.

use std::fmt;

macro_rules! roles {
    ($($(#[$about:meta])* $Role:ident $name:literal $bit:literal includes $($bits:literal)*;)*) => {
        /// A kind of permission. Each request of a door needs one of them.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Role {
            $($(#[$about])* $Role,)*
        }

        impl Role {
            /// All of them, as they are listed in documents.
            pub const ALL: &[Role] = &[$(Role::$Role,)*];

            /// As it stands in the tokens file.
            pub fn name(self) -> &'static str {
                match self { $(Role::$Role => $name,)* }
            }

            fn bit(self) -> u8 {
                match self { $(Role::$Role => 1 << $bit,)* }
            }

            /// Itself, and what it includes.
            fn grants(self) -> u8 {
                match self { $(Role::$Role => self.bit() $(| 1 << $bits)*,)* }
            }
        }
    };
}

roles! {
    /// Queues, states and numbers: everything but payloads and results.
    Read "read" 0 includes;
    /// Jobs in full, with payloads and results.
    Inspect "inspect" 1 includes 0;
    /// New jobs.
    Submit "submit" 2 includes;
    /// Taking jobs, working on them and ending their attempts.
    Work "work" 3 includes;
    /// Other people's jobs, queues and constraints: delete, retry, pause, purge.
    Manage "manage" 4 includes 0 1;
    /// The server itself, and everything else.
    Admin "admin" 5 includes 0 1 2 3 4;
}

impl Role {
    /// The role of that name.
    pub fn named(name: &str) -> Option<Role> {
        Role::ALL.iter().copied().find(|role| role.name() == name)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The roles of an identity, with all that they include.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Roles(u8);

impl Roles {
    /// Whether a role is among them, or included in one.
    pub fn include(self, role: Role) -> bool {
        self.0 & role.bit() != 0
    }
}

impl FromIterator<Role> for Roles {
    fn from_iter<T: IntoIterator<Item = Role>>(roles: T) -> Roles {
        Roles(roles.into_iter().fold(0, |all, role| all | role.grants()))
    }
}

impl fmt::Debug for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(Role::ALL.iter().filter(|role| self.include(**role))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_include_what_the_documentation_says() {
        for (role, included) in [
            (Role::Read, "read"),
            (Role::Inspect, "read inspect"),
            (Role::Submit, "submit"),
            (Role::Work, "work"),
            (Role::Manage, "read inspect manage"),
            (Role::Admin, "read inspect submit work manage admin"),
        ] {
            let roles: Roles = [role].into_iter().collect();
            let all = Role::ALL.iter().filter(|other| roles.include(**other));
            let all: Vec<&str> = all.map(|other| other.name()).collect();
            assert_eq!(all.join(" "), included, "{role}");
            assert_eq!(Role::named(role.name()), Some(role));
        }
        assert!(!Roles::default().include(Role::Read));
        assert_eq!(Role::named("Read"), None);
    }
}
