//! A whole story, in the draft's own words: an application, and two workers.

use spindle_gearman::wire::draft::{JobKind, Reply, Request};

use crate::client::{TestServer, create};

#[test]
fn an_application_and_two_workers_have_a_full_conversation() {
    let server = TestServer::new();
    let mut application = server.client();

    // "Here's what I can do." "Got a job for me?" "No, sorry." "I'm about to sleep."
    let mut mailer = server.worker(&["mail", "bday"]);
    let mut resizer = server.worker(&["resize"]);
    for worker in [&mut mailer, &mut resizer] {
        assert_eq!(worker.job(), None);
        worker.send(&Request::WorkerSleep);
        worker.hears_nothing();
    }

    // "Create this new job." "Okay, here is its handle." Whoever can do it is woken, nobody else.
    let mail = application.create(JobKind::Handle, "mail", "", "to: brad");
    assert!(mail.starts_with(b"H:localhost:"));
    assert_eq!(mailer.hear(), Reply::Noop);
    resizer.hears_nothing();

    // "Got a job for me?" "Here's a job to do." "I'm 1/100 complete now."
    mailer.takes("mail", "to: brad");
    assert_eq!(application.status(&mail), (0, 0, 0));
    mailer.announce(1, 100, 60);
    mailer.hears_nothing();
    assert_eq!(application.status(&mail), (1, 100, 60));
    assert_eq!(application.completion(&mail), (0, 0, String::new()));

    // "I've completed my job." "Job completed as follows."
    server.pass(42_000);
    mailer.complete(0, "sent");
    mailer.hears_nothing();
    assert_eq!(application.completion(&mail), (42, 0, "sent".to_owned()));
    assert_eq!(application.status(&mail), (1, 1, 0));

    // A job that fails does so with the worker's own code.
    let thumb = application.create(JobKind::Handle, "resize", "uid-gallid-100-80", "images");
    assert_eq!(resizer.hear(), Reply::Noop);
    resizer.takes("resize", "images");
    let same = application.create(JobKind::Handle, "resize", "uid-gallid-100-80", "more images");
    assert_eq!(same, thumb);
    resizer.complete(7, "no such gallery");
    resizer.hears_nothing();
    assert_eq!(application.completion(&thumb), (1, 7, "no such gallery".to_owned()));

    // A job whose result no client wants.
    let nothing = application.create(JobKind::ThrowAway, "bday", "2026-11-21", "");
    assert!(nothing.is_empty());
    mailer.takes("bday", "");
    mailer.complete(0, "thrown away");

    // A job that is waited for: its progress and its result are streamed.
    application.send(&create(JobKind::Sync, "mail", "", "to: whitaker"));
    assert_eq!(application.hear(), Reply::JobCreated { handle: Default::default() });
    mailer.takes("mail", "to: whitaker");
    mailer.announce(1, 2, 3);
    assert_eq!(application.hear(), progress(1, 2, 3));
    mailer.announce(2, 2, 0);
    assert_eq!(application.hear(), progress(2, 2, 0));
    server.pass(1_999);
    mailer.complete(0, "sent too");
    assert_eq!(application.hears_completion(), (1, 0, "sent too".to_owned()));
    application.hears_nothing();

    // "Goodbye."
    mailer.send(&Request::WorkerDisconnect);
    mailer.is_closed();
}

fn progress(numerator: u32, denominator: u32, remaining_s: u32) -> Reply {
    use spindle_gearman::wire::draft::Progress;
    Reply::JobStatus(Progress { numerator, denominator, remaining_s })
}
