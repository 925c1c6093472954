use std::os::unix::fs::PermissionsExt;

use super::*;

const DIGEST: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn entry(more: &str) -> String {
    format!("[[token]]\nname = 'a'\nsha256 = '{DIGEST}'\nroles = ['submit']\n{more}\n")
}

fn whole() -> String {
    entry("queues = ['mail.*']")
}

#[test]
fn an_entry_says_who_may_do_what_until_when() {
    let text = format!(
        "{}expires = '2030-01-31T00:00:00+01:00'\n\
         [[token]]\nname = 'b'\ncertificate = 'b.example'\nroles = ['work', 'read']\nqueues = ['*']\n\
         expires = 2030-01-30T23:00:00Z\n",
        whole()
    );
    let tokens = Tokens::parse(&text).unwrap();
    let a = tokens.by_digest(Digest::of(b"abc").unwrap()).unwrap();
    let b = tokens.by_certificate("b.example").unwrap();
    assert_eq!((a.name(), b.name(), tokens.len()), ("a", "b", 2));
    assert_eq!((a.roles(), b.roles()), (&[Role::Submit][..], &[Role::Work, Role::Read][..]));
    assert!((a.is_unlimited(), b.is_unlimited()) == (false, true));
    assert!(a.may_touch(b"mail.x") && !a.may_touch(b"mail") && b.may_touch(b"\xff"));
    assert!(a.expires().is_some() && a.expires() == b.expires());
}

#[test]
fn what_is_wrong_is_named_with_its_line_and_without_what_stands_there() {
    let other = whole().replace("'a'", "'b'");
    let two = whole() + &other.replace(DIGEST, &DIGEST.replace('a', "b"));
    let certificate = "[[token]]\nname='c'\ncertificate='c'\nroles=['read']\nqueues=['*']\n";
    for (text, line, part) in [
        (String::new(), 0, "no entry"),
        ("sesame".to_owned(), 1, "TOML"),
        ("[[tokens]]\nname='sesame'\n".to_owned(), 1, "TOML"),
        ("token = 'sesame'".to_owned(), 1, "TOML"),
        (whole() + "owner = 'sesame'", 6, "nothing else"),
        (entry(""), 1, "no queues"),
        (entry("queues = 'sesame'"), 5, "queues is a list"),
        (entry("queues = []"), 5, "queues is a list"),
        (entry("queues = ['']"), 5, "queues are"),
        (entry("queues = [7]"), 5, "queues is a list"),
        (whole().replace("'submit'", "'sesame'"), 4, "roles are read, inspect"),
        (whole().replace("['submit']", "[]"), 4, "roles is a list"),
        (whole().replace(DIGEST, "sesame"), 3, "64 hexadecimal digits"),
        (whole().replace(&format!("'{DIGEST}'"), "7"), 3, "sha256 is a text"),
        (whole().replace("sha256", "certificate") + "sha256='sesame'", 1, "either"),
        (whole().replace(&format!("sha256 = '{DIGEST}'"), ""), 1, "either"),
        (whole().replace("name = 'a'", ""), 1, "no name"),
        (whole().replace("'a'", "''"), 2, "name has"),
        (whole().replace("'a'", "\"a\\n\""), 2, "name has"),
        (whole() + "expires = 'sesame'", 6, "expires is"),
        (whole() + "expires = 2030-01-31", 6, "expires is"),
        (whole() + &other, 8, "this sha256"),
        (two.replace("'b'", "'a'"), 7, "this name"),
        (certificate.to_owned() + &certificate.replace("name='c'", "name='d'"), 8, "certificate"),
    ] {
        let (at, reason) = Tokens::parse(&text).map(|_| ()).unwrap_err();
        assert!(reason.contains(part), "{text}: {reason}");
        assert_eq!(at, line, "{text}: {reason}");
        assert!(!reason.contains("sesame"), "{reason}");
    }
    assert!(Tokens::parse(&two).is_ok());
}

#[test]
fn limits_hold_at_the_limit_and_one_above() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens");
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let queues = |count: usize, len: usize| {
        let pattern = format!("'{}'", "q".repeat(len));
        entry(&format!("queues = [{}]", vec![pattern; count].join(",")))
    };
    let name = |len: usize| whole().replace("'a'", &format!("'{}'", "n".repeat(len)));
    for more in [0, 1] {
        let is_right = more == 0;
        assert_eq!(Tokens::parse(&queues(PATTERNS_MAX + more, 1)).is_ok(), is_right);
        assert_eq!(Tokens::parse(&queues(1, PATTERN_BYTES_MAX + more)).is_ok(), is_right);
        assert_eq!(Tokens::parse(&name(NAME_CHARS_MAX + more)).is_ok(), is_right);
        let bytes = usize::try_from(FILE_BYTES_MAX).unwrap() + more - whole().len();
        let text = whole() + &"#".repeat(bytes);
        assert_eq!(Tokens::parse(&text).is_ok(), is_right);
        // Anything beyond the size limit is not read, but that is no reason to accept the rest.
        fs::write(&path, text).unwrap();
        assert_eq!(Tokens::of_file(&path).is_ok(), is_right);
    }
    let certificates = |count: usize| {
        let one = |number| {
            format!(
                "[[token]]\nname='{number}'\ncertificate='{number}'\nroles=['read']\nqueues=['*']\n"
            )
        };
        (0..count).map(one).collect::<String>()
    };
    assert_eq!(Tokens::parse(&certificates(ENTRIES_MAX)).unwrap().len(), ENTRIES_MAX);
    assert!(Tokens::parse(&certificates(ENTRIES_MAX + 1)).is_err());
}
