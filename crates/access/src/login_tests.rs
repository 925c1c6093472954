use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use parking_lot::Mutex;
use tempfile::TempDir;

use super::*;
use crate::access::Look;
use crate::secret::SecretError;
use crate::token::Token;
use crate::tokens::TokensError;

/// A tokens file that a test writes again and again.
struct Folder(TempDir);

impl Folder {
    fn new(text: &str) -> Folder {
        let folder = Folder(TempDir::new().unwrap());
        folder.write(text, 0o600);
        folder
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("tokens")
    }

    /// Replaces the file in one step, as an editor or a deployment does.
    fn write(&self, text: &str, mode: u32) {
        let new = self.0.path().join("new");
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(mode)).unwrap();
        fs::rename(new, self.path()).unwrap();
    }

    fn access(&self) -> Access {
        Access::of_file(&self.path()).unwrap()
    }
}

fn entry(token: &str, roles: &str, queues: &str, more: &str) -> String {
    let digest = Digest::of(token.as_bytes()).unwrap();
    format!(
        "[[token]]\nname = '{token}'\nsha256 = '{digest}'\nroles = [{roles}]\nqueues = [{queues}]\n\
         {more}\n"
    )
}

fn mail() -> String {
    entry("sesame", "'submit', 'read'", "'mail.*', 'sms'", "")
}

fn allowed(login: &mut Login, role: Role, queue: &str) -> Result<(), Denied> {
    login.authorize(role, Target::Queue(queue.as_bytes()))
}

#[test]
fn without_tokens_everything_is_allowed_to_who_presents_none() {
    let mut login = Access::open().login(None);
    assert_eq!(allowed(&mut login, Role::Admin, "mail"), Ok(()));
    assert_eq!(login.authorize(Role::Read, Target::AllQueues), Ok(()));
    assert!(!login.is_limited());
    assert_eq!(login.present(b"sesame"), Err(Denied::UnknownToken));
    assert_eq!(allowed(&mut login, Role::Read, "mail"), Err(Denied::UnknownToken));
}

#[test]
fn the_audit_log_has_the_name_of_who_is_known_and_never_what_was_presented() {
    let folder = Folder::new(&mail());
    let address = "::ffff:192.0.2.7".parse().unwrap();
    let actor = |login: Login| login.at(address).actor(Origin::Workq);
    let nobody = Actor::new(ActorKind::Nobody, "", "192.0.2.7", Origin::Workq);
    assert_eq!(actor(Access::open().login(None)), nobody);
    for (token, name) in [("sesame", "sesame"), ("wrong", "")] {
        let mut login = folder.access().login(None);
        login.present(token.as_bytes()).ok();
        let kind = if name.is_empty() { ActorKind::Nobody } else { ActorKind::Token };
        assert_eq!(actor(login), Actor { kind: kind as i32, name: name.into(), ..nobody.clone() });
    }
}

#[test]
fn a_token_binds_to_its_roles_and_queues() {
    let folder = Folder::new(&mail());
    for access in [folder.access(), folder.access().required(true)] {
        let mut login = access.login(None);
        assert_eq!(login.present(b"sesame"), Ok(()));
        assert_eq!((login.name(), login.is_limited()), (Some("sesame"), true));
        for (role, queue, expected) in [
            (Role::Submit, "mail.a", Ok(())),
            (Role::Read, "sms", Ok(())),
            (Role::Submit, "mail", Err(Denied::Queue)),
            (Role::Inspect, "mail.a", Err(Denied::Role(Role::Inspect))),
            // Roles come first: nothing is said of the queue.
            (Role::Admin, "other", Err(Denied::Role(Role::Admin))),
        ] {
            assert_eq!(allowed(&mut login, role, queue), expected, "{role} {queue}");
        }
        assert_eq!(login.authorize(Role::Read, Target::AllQueues), Err(Denied::AllQueues));
        assert_eq!(login.authorize(Role::Read, Target::Server), Ok(()));
        let mut all = |queues: &[&'static [u8]]| {
            login.authorize(Role::Read, Target::Queues(&mut queues.iter().copied()))
        };
        assert_eq!(all(&[b"sms", b"mail.x"]), Ok(()));
        assert_eq!(all(&[b"sms", b"x"]), Err(Denied::Queue));
        let mut job = |queue: Option<&[u8]>| {
            login.authorize(Role::Read, Target::Job(&mut || queue.map(Bytes::copy_from_slice)))
        };
        assert_eq!(job(Some(b"sms")), Ok(()));
        assert_eq!((job(Some(b"x")), job(None)), (Err(Denied::Job), Err(Denied::Job)));
    }
}

#[test]
fn a_job_is_looked_up_for_limited_identities_with_the_role_only() {
    let folder = Folder::new(&(mail() + &entry("all", "'manage'", "'*'", "")));
    let access = folder.access();
    for (token, role) in [("all", Role::Manage), ("all", Role::Work), ("sesame", Role::Manage)] {
        let mut login = access.login(None);
        login.present(token.as_bytes()).unwrap();
        let mut look = || -> Option<Bytes> { panic!("{token} {role} looked") };
        let answer = login.authorize(role, Target::Job(&mut look));
        assert_eq!(answer.is_ok(), (token, role) == ("all", Role::Manage));
    }
}

#[test]
fn a_door_that_asks_everybody_refuses_who_says_nothing() {
    let folder = Folder::new(&mail());
    let mut login = folder.access().required(true).login(None);
    assert_eq!(allowed(&mut login, Role::Read, "sms"), Err(Denied::NoToken));
    let mut login = folder.access().login(None);
    assert_eq!(allowed(&mut login, Role::Admin, "sms"), Ok(()));
}

#[test]
fn wrong_tokens_are_refused_and_bind_to_nothing() {
    let folder = Folder::new(&mail());
    let longest = "s".repeat(Token::BYTES_MAX);
    let wrong = ["", "sesam", "sesame ", "Sesame", &longest, &(longest.clone() + "s")];
    for required in [true, false] {
        for token in wrong {
            let mut login = folder.access().required(required).login(None);
            login.present(b"sesame").unwrap();
            assert_eq!(login.present(token.as_bytes()), Err(Denied::UnknownToken), "{token}");
            assert_eq!(allowed(&mut login, Role::Submit, "sms"), Err(Denied::UnknownToken));
            login.present(b"sesame").unwrap();
            assert_eq!(allowed(&mut login, Role::Submit, "sms"), Ok(()));
        }
    }
}

#[test]
fn a_certificate_is_who_its_entry_says() {
    let certificate =
        "[[token]]\nname='c'\ncertificate='c.example'\nroles=['work']\nqueues=['*']\n";
    let folder = Folder::new(&(mail() + certificate));
    let (known, stranger) = (Arc::from("c.example"), Arc::from("d.example"));
    let access = folder.access().required(true);
    let mut login = access.login(Some(&known));
    assert_eq!(login.authorize(Role::Work, Target::AllQueues), Ok(()));
    assert_eq!(allowed(&mut login, Role::Submit, "x"), Err(Denied::Role(Role::Submit)));
    // A token takes its place.
    login.present(b"sesame").unwrap();
    assert_eq!(allowed(&mut login, Role::Submit, "sms"), Ok(()));
    assert_eq!(allowed(&mut access.login(Some(&stranger)), Role::Read, "x"), Err(Denied::NoToken));
    let mut open = access.required(false).login(Some(&stranger));
    assert_eq!(allowed(&mut open, Role::Read, "x"), Ok(()));
}

#[test]
fn an_expired_token_stops_working_on_open_connections() {
    let past = entry("old", "'submit'", "'*'", "expires = '2020-01-01T00:00:00Z'");
    let future = entry("new", "'submit'", "'*'", "expires = '2120-01-01T00:00:00Z'");
    let folder = Folder::new(&(past + &future));
    let mut login = folder.access().login(None);
    assert_eq!(login.present(b"old"), Err(Denied::Expired));
    assert_eq!(allowed(&mut login, Role::Submit, "x"), Err(Denied::Expired));
    login.present(b"new").unwrap();
    assert_eq!(allowed(&mut login, Role::Submit, "x"), Ok(()));
    let Standing::Known(identity) = &login.standing else { panic!("it is known") };
    let expires = identity.expires().unwrap();
    let time = Arc::new(Mutex::new(expires - Duration::from_nanos(1)));
    let shown = Arc::clone(&time);
    let mut login = folder.access().with_clock(move || *shown.lock()).login(None);
    login.present(b"new").unwrap();
    assert_eq!(allowed(&mut login, Role::Submit, "x"), Ok(()));
    *time.lock() = expires;
    assert_eq!(allowed(&mut login, Role::Submit, "x"), Err(Denied::Expired));
    assert_eq!(login.present(b"new"), Err(Denied::Expired));
}

#[test]
fn an_identity_is_lacking_where_one_is_required_until_one_is_known() {
    let past = entry("old", "'submit'", "'*'", "expires = '2020-01-01T00:00:00Z'");
    let certificate =
        "[[token]]\nname='c'\ncertificate='c.example'\nroles=['work']\nqueues=['*']\n";
    let folder = Folder::new(&(mail() + &past + certificate));
    let access = folder.access().required(true);
    let mut login = access.login(None);
    assert!(login.lacks_identity());
    for wrong in ["wrong", "old", &"s".repeat(Token::BYTES_MAX + 1)] {
        login.present(wrong.as_bytes()).unwrap_err();
        assert!(login.lacks_identity(), "{wrong}");
    }
    login.present(b"sesame").unwrap();
    assert!(!login.lacks_identity());
    // Whatever comes after that.
    login.present(b"wrong").unwrap_err();
    assert!(!login.lacks_identity());
    let [known, stranger] = ["c.example", "d.example"].map(Arc::from);
    assert!(!access.login(Some(&known)).lacks_identity());
    let mut waiting = access.login(Some(&stranger));
    assert!(waiting.lacks_identity());
    for certificate in [None, Some(&stranger)] {
        let mut open = access.required(false).login(certificate);
        assert!(!open.lacks_identity());
        open.present(b"wrong").unwrap_err();
        assert!(!open.lacks_identity(), "the door does not ask");
    }
    // The file changes: who was known stays, and who has an entry now is known.
    let mut gone = access.login(Some(&known));
    folder.write(&certificate.replace("c.example", "d.example"), 0o600);
    assert!(matches!(access.look_again(), Look::Read(1)));
    assert_eq!(allowed(&mut gone, Role::Work, "x"), Err(Denied::NoToken));
    assert!(!gone.lacks_identity());
    assert!(!waiting.lacks_identity());
}

#[test]
fn changes_of_the_file_reach_open_connections() {
    let folder = Folder::new(&mail());
    let access = folder.access();
    let mut login = access.login(None);
    login.present(b"sesame").unwrap();
    assert!(matches!(access.look_again(), Look::Unchanged));
    folder.write(&entry("sesame", "'work'", "'*'", ""), 0o640);
    assert!(matches!(access.look_again(), Look::Read(1)));
    assert_eq!(allowed(&mut login, Role::Submit, "sms"), Err(Denied::Role(Role::Submit)));
    assert_eq!(allowed(&mut login, Role::Work, "other"), Ok(()));
    folder.write(&entry("other", "'work'", "'*'", ""), 0o600);
    assert!(matches!(access.look_again(), Look::Read(1)));
    assert_eq!(allowed(&mut login, Role::Work, "other"), Err(Denied::UnknownToken));
}

#[test]
fn a_file_that_cannot_be_used_leaves_the_old_one_in_force() {
    let folder = Folder::new(&mail());
    let access = folder.access();
    let mut login = access.login(None);
    login.present(b"sesame").unwrap();
    let mut still_works = |look: Look, part: &str| {
        let Look::Kept(error) = look else { panic!("{part}: {look:?}") };
        assert!(error.to_string().contains(part), "{error}");
        assert_eq!(allowed(&mut login, Role::Submit, "sms"), Ok(()));
    };
    folder.write("not TOML", 0o600);
    still_works(access.look_again(), "line 1");
    // It is said once.
    assert!(matches!(access.look_again(), Look::Unchanged));
    folder.write("", 0o600);
    still_works(access.look_again(), "no entry");
    folder.write(&mail(), 0o604);
    still_works(access.look_again(), "chmod 600");
    fs::remove_file(folder.path()).unwrap();
    still_works(access.look_again(), "cannot read");
    folder.write(&mail(), 0o600);
    assert!(matches!(access.look_again(), Look::Read(1)));
}

#[test]
fn a_file_that_others_may_touch_is_refused_at_the_start() {
    let folder = Folder::new(&mail());
    for mode in [0o604, 0o602, 0o601, 0o644, 0o777] {
        folder.write(&mail(), mode);
        let error = Access::of_file(&folder.path()).unwrap_err();
        assert!(
            matches!(error, TokensError::File(SecretError::Exposed { .. })),
            "{mode:o}: {error}"
        );
    }
    for mode in [0o400, 0o600, 0o640, 0o660] {
        folder.write(&mail(), mode);
        assert!(Access::of_file(&folder.path()).is_ok(), "{mode:o}");
    }
    let missing = Access::of_file(&folder.0.path().join("none")).unwrap_err();
    assert!(matches!(missing, TokensError::File(SecretError::Unreadable { .. })));
}

#[test]
fn nothing_shows_what_was_presented() {
    let folder = Folder::new(&mail());
    let mut login = folder.access().login(None);
    login.present(b"sesame2").unwrap_err();
    assert!(!format!("{login:?}").contains("sesame"), "{login:?}");
}

#[test]
fn another_node_knows_by_the_digest_who_it_is_and_nobody_by_anything_else() {
    let folder = Folder::new(&mail());
    let access = folder.access();
    let mut shown = access.login(None);
    assert_eq!(shown.digest(), "", "nothing was presented");
    shown.present(b"sesame").unwrap();
    let mut told = access.login(None);
    told.present_digest(&shown.digest());
    assert_eq!(told.name(), Some("sesame"));
    assert_eq!(allowed(&mut told, Role::Submit, "sms"), Ok(()));
    assert_eq!(allowed(&mut told, Role::Work, "sms"), allowed(&mut shown, Role::Work, "sms"));
    let mut too_long = access.login(None);
    too_long.present(&[b'x'; Token::BYTES_MAX + 1]).unwrap_err();
    for digest in [too_long.digest(), "sesame".to_owned(), "0".repeat(64)] {
        let mut told = access.login(None);
        told.present_digest(&digest);
        assert_eq!(allowed(&mut told, Role::Submit, "sms"), Err(Denied::UnknownToken), "{digest}");
    }
}
