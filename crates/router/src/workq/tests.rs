//! A session whose shards are played by the tests.

mod moves;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use spindle_access::{Access, Login};
use spindle_engine::door::{Flow, Outbox, Peer, Session};
use spindle_engine::{Answer, Gate, Gated};
use spindle_testkit::check_identity_is_required;
use spindle_workq::wire::{Limits, Uuid};

use super::WorkqRouter;
use super::session::WorkqSession;
use crate::{Came, Network, Placement, Shard, Wake, Way, Ways};

const SHARDS: u8 = 3;

/// What was sent on the ways, and what will come on them.
#[derive(Default)]
struct Played {
    /// By shard.
    sent: [Vec<u8>; SHARDS as usize],
    came: VecDeque<(Way, Came)>,
    finished: Vec<Shard>,
    closed: Vec<Shard>,
    unsent: usize,
    /// Everything sent has left.
    is_quick: bool,
    wakes: usize,
}

#[derive(Clone, Default)]
struct PlayedWays(Arc<Mutex<Played>>);

impl Ways for PlayedWays {
    fn send(&mut self, way: Way, bytes: Bytes) {
        let mut played = self.0.lock();
        if !played.is_quick {
            played.unsent += bytes.len();
        }
        played.sent[usize::from(way.shard.0)].extend_from_slice(&bytes);
    }

    fn unsent_bytes(&self) -> usize {
        self.0.lock().unsent
    }

    fn finish(&mut self, way: Way) {
        self.0.lock().finished.push(way.shard);
    }

    fn close(&mut self, way: Way) {
        self.0.lock().closed.push(way.shard);
    }

    fn receive(&mut self) -> Option<(Way, Came)> {
        self.0.lock().came.pop_front()
    }

    fn wake_later(&mut self) {
        self.0.lock().wakes += 1;
    }
}

impl Network for PlayedWays {
    fn ways(&self, _door: &'static str, _client: &Peer, _wake: Wake) -> Box<dyn Ways> {
        Box::new(self.clone())
    }
}

/// A session between a client and three shards, all of which the test plays.
struct Scene {
    ways: PlayedWays,
    session: WorkqSession,
    input: BytesMut,
    out: Outbox,
}

impl Scene {
    fn new() -> Scene {
        Scene::of(Access::open().login(None))
    }

    fn of(login: Login) -> Scene {
        let ways = PlayedWays::default();
        let placement = Placement::over(SHARDS);
        let limits = Limits::default();
        let session = WorkqSession::new(Box::new(ways.clone()), placement, limits, login);
        Scene { ways, session, input: BytesMut::new(), out: Outbox::default() }
    }

    /// The client sends this.
    fn send(&mut self, text: &str) -> Flow {
        self.input.extend_from_slice(text.as_bytes());
        self.session.on_bytes(&mut self.input, &mut self.out)
    }

    /// The client sends no more.
    fn end(&mut self) -> Flow {
        self.session.on_end_of_input(&mut self.input, &mut self.out)
    }

    /// A shard sends this, and the session hears of it.
    fn reply(&mut self, shard: u8, text: &str) -> Flow {
        self.replies(&[(shard, text)])
    }

    /// Shards send this before the session hears of it.
    fn replies(&mut self, replies: &[(u8, &str)]) -> Flow {
        for (shard, text) in replies {
            let came = Came::Bytes(Bytes::copy_from_slice(text.as_bytes()));
            self.ways.0.lock().came.push_back((Way::to(Shard(*shard)), came));
        }
        self.wake()
    }

    /// A shard's way ends.
    fn lose(&mut self, shard: u8) -> Flow {
        self.ways.0.lock().came.push_back((Way::to(Shard(shard)), Came::Ended));
        self.wake()
    }

    fn wake(&mut self) -> Flow {
        let room = Gated::new(Answer::Room, Gate::OPEN);
        self.session.on_answer(Wake::TICKET, room, &mut self.out)
    }

    /// What was sent to a shard since it was asked for last.
    fn sent(&self, shard: u8) -> String {
        let sent = std::mem::take(&mut self.ways.0.lock().sent[usize::from(shard)]);
        String::from_utf8(sent).unwrap()
    }

    /// What the client has heard since it was asked for last.
    fn heard(&mut self) -> String {
        let heard = String::from_utf8(self.out.released(Gate::OPEN).to_vec()).unwrap();
        self.out.advance(heard.len());
        heard
    }

    /// Presents a token. Returns the shard that was asked.
    fn log_in(&mut self) -> u8 {
        self.send("auth token\r\n");
        let shard = (0..SHARDS).find(|shard| !self.sent(*shard).is_empty()).unwrap();
        self.reply(shard, "+OK\r\n");
        assert_eq!(self.heard(), "+OK\r\n");
        shard
    }
}

/// A queue on this shard.
fn queue(shard: u8) -> String {
    let mut names = (0..).map(|at| format!("q{at}"));
    names.find(|name| Placement::over(SHARDS).of(name.as_bytes()) == Shard(shard)).unwrap()
}

fn id(number: u128) -> Uuid {
    Uuid::from_bytes((number | 1 << 100).to_be_bytes())
}

fn add(number: u128, shard: u8) -> String {
    format!("add {} {} 1000 60000 1\r\nx\r\n", id(number), queue(shard))
}

fn leased(number: u128, shard: u8) -> String {
    format!("+OK 1\r\n{} {} 1000 1\r\nx\r\n", id(number), queue(shard))
}

/// A lease of one queue on each of these shards.
fn lease(shards: &[u8], wait_ms: u32) -> String {
    let queues: Vec<String> = shards.iter().map(|shard| queue(*shard)).collect();
    format!("lease {} {wait_ms}\r\n", queues.join(" "))
}

/// A client that waits at these two shards: each has been asked, and has nothing.
fn waiting() -> Scene {
    let mut scene = Scene::new();
    assert_eq!(scene.send(&lease(&[0, 1], 60_000)), Flow::Wait);
    let first = u8::from(scene.sent(0).is_empty());
    scene.reply(first, "-TIMEOUT\r\n");
    scene.reply(1 - first, "-TIMEOUT\r\n");
    for shard in [0, 1] {
        assert!(scene.sent(shard).contains(&format!("offer {} ", queue(shard))));
    }
    assert_eq!(scene.heard(), "");
    scene
}

#[test]
fn answers_leave_in_the_order_of_the_requests() {
    let mut scene = Scene::new();
    let asked = [add(1, 2), "what\r\n".to_owned(), add(2, 0), add(3, 2), add(4, 1)].concat();
    assert_eq!(scene.send(&asked), Flow::Continue);
    assert_eq!(scene.sent(2), add(1, 2) + &add(3, 2), "sent together");
    assert_eq!(scene.sent(0) + &scene.sent(1), add(2, 0) + &add(4, 1));
    scene.reply(1, "-CLIENT-ERROR d\r\n");
    scene.reply(0, "-CLIENT-ERROR b\r\n");
    assert_eq!(scene.heard(), "");
    scene.reply(2, "-CLIENT-ERROR a\r\n-CLIENT");
    assert_eq!(
        scene.heard(),
        "-CLIENT-ERROR a\r\n-CLIENT-ERROR Unknown command\r\n-CLIENT-ERROR b\r\n"
    );
    scene.reply(2, "-ERROR c\r\n");
    assert_eq!(scene.heard(), "-CLIENT-ERROR c\r\n-CLIENT-ERROR d\r\n");
    assert!(!scene.session.is_engaged());
}

#[test]
fn a_request_that_is_alone_waits_for_those_before_it_and_holds_those_behind_it() {
    let mut scene = Scene::new();
    let asked = add(1, 0) + &lease(&[1], 1000) + &add(2, 0);
    assert_eq!(scene.send(&asked), Flow::Wait);
    assert_eq!((scene.sent(0), scene.sent(1)), (add(1, 0), String::new()));
    assert_eq!(scene.reply(0, "+OK\r\n"), Flow::Wait);
    assert_eq!((scene.sent(0), scene.sent(1)), (String::new(), lease(&[1], 1000)));
    assert!(scene.session.is_engaged());
    assert_eq!(scene.reply(1, "-TIMEOUT\r\n"), Flow::Continue);
    scene.send("");
    assert_eq!((scene.sent(0), scene.heard().as_str()), (add(2, 0), "+OK\r\n-TIMEOUT\r\n"));
}

#[test]
fn no_more_requests_are_taken_than_may_be_owed() {
    let mut scene = Scene::new();
    let asked: String = (0..1500).map(|number| add(number, 0)).collect();
    assert_eq!(scene.send(&asked), Flow::Wait);
    assert_eq!(scene.sent(0).matches("add").count(), 1024);
    assert_eq!(scene.reply(0, &"+OK\r\n".repeat(24)), Flow::Continue);
    assert_eq!(scene.send(""), Flow::Wait);
    assert_eq!(scene.sent(0).matches("add").count(), 24);
}

#[test]
fn no_requests_are_taken_while_much_has_not_left() {
    let mut scene = Scene::new();
    scene.ways.0.lock().unsent = 1024 * 1024 + 1;
    assert_eq!(scene.send(&add(1, 0)), Flow::Wait);
    assert_eq!(scene.sent(0), "");
    scene.ways.0.lock().unsent = 1024;
    assert_eq!(scene.wake(), Flow::Continue);
    // Requests that are gathered in one go count too.
    let payload = "x".repeat(600 * 1024);
    let large = format!("add {} {} 1 1 {}\r\n{payload}\r\n", id(1), queue(0), payload.len());
    assert_eq!(scene.send(&(large.clone() + &large + &large)), Flow::Wait);
    // The one before came to the front with them.
    assert_eq!(scene.sent(0).matches("add").count(), 3);
    scene.ways.0.lock().unsent = 0;
    assert_eq!(scene.send(""), Flow::Continue);
    assert_eq!(scene.sent(0).matches("add").count(), 1);
}

#[test]
fn what_was_gathered_and_leaves_at_once_holds_nobody() {
    let mut scene = Scene::new();
    scene.ways.0.lock().is_quick = true;
    let payload = "x".repeat(600 * 1024);
    let large = format!("add {} {} 1 1 {}\r\n{payload}\r\n", id(1), queue(0), payload.len());
    assert_eq!(scene.send(&large.repeat(5)), Flow::Continue);
    assert_eq!(scene.sent(0).matches("add").count(), 5);
}

#[test]
fn nothing_more_is_received_or_asked_while_the_client_does_not_read() {
    let mut scene = Scene::new();
    let text = format!("-SERVER-ERROR {}\r\n", "x".repeat(30_000));
    scene.send(&(0..5).map(|number| add(number, 0)).collect::<String>());
    assert_eq!(scene.sent(0).matches("add").count(), 5);
    let pieces: Vec<(u8, &str)> = (0..5).map(|_| (0, &text[..])).collect();
    assert_eq!(scene.replies(&pieces), Flow::Continue);
    let left = |scene: &Scene| {
        let played = scene.ways.0.lock();
        (played.came.len(), played.wakes)
    };
    assert_eq!(left(&scene), (2, 1));
    scene.send(&add(6, 1));
    assert_eq!(scene.sent(1), "");
    scene.wake();
    assert_eq!(left(&scene), (2, 2));
    assert_eq!(scene.heard(), text.repeat(3));
    scene.wake();
    assert_eq!(left(&scene), (0, 2));
    scene.send("");
    assert_eq!((scene.heard(), scene.sent(1)), (text.repeat(2), add(6, 1)));
}

#[test]
fn shards_are_asked_one_after_the_other_and_the_first_job_is_the_answer() {
    let mut scene = Scene::new();
    scene.send(&lease(&[0, 1, 2], 60_000));
    let asked = |scene: &Scene| -> Vec<(u8, String)> {
        let sent = (0..SHARDS).map(|shard| (shard, scene.sent(shard)));
        sent.filter(|(_, sent)| !sent.is_empty()).collect()
    };
    let [(first, sent)] = &asked(&scene)[..] else { panic!("one is asked") };
    assert_eq!(*sent, lease(&[*first], 0));
    scene.reply(*first, "-TIMEOUT\r\n");
    let [(second, sent)] = &asked(&scene)[..] else { panic!("one is asked") };
    assert_eq!(*sent, lease(&[*second], 0));
    assert_eq!(scene.reply(*second, &leased(1, *second)), Flow::Continue);
    assert_eq!(scene.heard(), leased(1, *second));
    // It is known where the job is.
    scene.send(&format!("delete {}\r\n", id(1)));
    assert_eq!(asked(&scene), [(*second, format!("delete {}\r\n", id(1)))]);
}

#[test]
fn who_does_not_wait_is_not_offered_anything() {
    let mut scene = Scene::new();
    scene.send(&lease(&[0, 1], 0));
    let first = u8::from(scene.sent(0).is_empty());
    scene.reply(first, "-TIMEOUT\r\n");
    assert_eq!(scene.reply(1 - first, "-TIMEOUT\r\n"), Flow::Continue);
    assert_eq!(scene.heard(), "-TIMEOUT\r\n");
}

#[test]
fn the_first_offer_is_taken_and_the_others_are_passed_on() {
    let mut scene = waiting();
    // Both come at once: the client may have one.
    assert_eq!(scene.replies(&[(1, &leased(1, 1)), (0, &leased(2, 0))]), Flow::Wait);
    assert_eq!((scene.sent(1), scene.heard()), (format!("take {}\r\n", id(1)), String::new()));
    assert_eq!(scene.sent(0), "pass\r\n");
    assert_eq!(scene.reply(1, "+OK\r\n"), Flow::Continue);
    assert_eq!(scene.heard(), leased(1, 1));
    // The answers to what was passed on are nobody's.
    scene.send(&add(3, 0));
    scene.reply(0, "+OK\r\n+OK\r\n");
    assert_eq!(scene.heard(), "+OK\r\n");
}

#[test]
fn an_offer_that_is_gone_is_looked_for_again() {
    let mut scene = waiting();
    scene.reply(1, &leased(1, 1));
    scene.reply(0, "-TIMEOUT\r\n+OK\r\n");
    let _ = (scene.sent(0), scene.sent(1));
    assert_eq!(scene.reply(1, "-NOT-FOUND\r\n"), Flow::Wait);
    let first = u8::from(scene.sent(0).is_empty());
    assert_eq!(scene.heard(), "");
    scene.reply(first, &leased(2, first));
    assert_eq!(scene.heard(), leased(2, first));
}

#[test]
fn the_first_shard_whose_wait_ends_ends_the_lease() {
    for said in ["-TIMEOUT\r\n", "-SERVER-ERROR too many wait\r\n"] {
        let mut scene = waiting();
        assert_eq!(scene.reply(0, said), Flow::Continue);
        assert_eq!((scene.heard().as_str(), scene.sent(1).as_str()), (said, "pass\r\n"));
    }
}

#[test]
fn a_client_that_sends_no_more_waits_no_longer() {
    let mut scene = waiting();
    scene.send(&add(7, 1));
    scene.send("inspect");
    assert_eq!(scene.end(), Flow::Wait);
    assert_eq!(scene.heard(), "-TIMEOUT\r\n");
    assert_eq!(
        (scene.sent(0).as_str(), scene.sent(1)),
        ("pass\r\n", "pass\r\n".to_owned() + &add(7, 1))
    );
    scene.reply(1, &(leased(1, 1) + "+OK\r\n+OK\r\n"));
    assert_eq!((scene.heard().as_str(), scene.wake()), ("+OK\r\n", Flow::Close));
    // And at one shard: its wait ends when it hears no more.
    let mut scene = Scene::new();
    scene.send(&(lease(&[2], 60_000) + &add(1, 2) + &lease(&[0], 60_000)));
    assert_eq!(scene.sent(2), lease(&[2], 60_000));
    assert_eq!(scene.end(), Flow::Wait);
    assert_eq!(scene.ways.0.lock().finished, [Shard(2)]);
    assert_eq!(scene.reply(2, "-TIMEOUT\r\n"), Flow::Wait);
    assert_eq!((scene.heard().as_str(), scene.sent(2).as_str()), ("-TIMEOUT\r\n", ""));
    assert_eq!(scene.lose(2), Flow::Continue);
    assert_eq!(scene.end(), Flow::Wait);
    assert_eq!(scene.sent(2), add(1, 2));
    scene.reply(2, "+OK\r\n");
    assert_eq!(scene.sent(0), lease(&[0], 0), "it may not begin to wait");
    assert_eq!(scene.reply(0, "-TIMEOUT\r\n"), Flow::Continue);
    assert_eq!((scene.end(), scene.heard().as_str()), (Flow::Close, "+OK\r\n-TIMEOUT\r\n"));
}

#[test]
fn the_end_of_the_input_is_seen_when_all_of_it_is_there() {
    let mut scene = Scene::new();
    scene.send(&lease(&[2], 60_000));
    let (first, second) = (add(1, 0), add(2, 0));
    let (before, behind) = second.split_at(20);
    scene.input.extend_from_slice(format!("{first}{second}").as_bytes());
    assert_eq!(scene.end(), Flow::Wait);
    scene.reply(2, "-TIMEOUT\r\n");
    assert_eq!(scene.lose(2), Flow::Continue);
    // What is left the reactor may give in pieces.
    scene.input.clear();
    assert_eq!(scene.send(&(first + before)), Flow::Wait);
    assert_eq!(scene.reply(0, "+OK\r\n"), Flow::Continue);
    scene.input.extend_from_slice(behind.as_bytes());
    assert_eq!(scene.end(), Flow::Wait);
    assert_eq!(scene.reply(0, "+OK\r\n"), Flow::Close);
    assert_eq!(scene.heard(), "-TIMEOUT\r\n+OK\r\n+OK\r\n");
}

#[test]
fn a_lost_shard_that_owes_something_ends_the_connection_behind_what_is_there() {
    let mut scene = Scene::new();
    scene.send(&(add(1, 0) + &add(2, 1) + &add(3, 0)));
    scene.reply(0, "+OK\r\n+OK\r\n");
    assert_eq!(scene.lose(1), Flow::Close);
    assert_eq!(scene.heard(), "+OK\r\n");
    assert_eq!(scene.ways.0.lock().closed, [Shard(0)]);
    // One that makes no sense is as good as lost.
    let mut scene = Scene::new();
    scene.send(&add(1, 0));
    assert_eq!(scene.reply(0, "HTTP/1.1 400 Bad Request\r\n"), Flow::Close);
    assert_eq!(scene.heard(), "");
}

#[test]
fn a_lost_shard_that_owes_nothing_is_asked_again_when_it_is_needed() {
    let mut scene = Scene::new();
    let shard = (scene.log_in() + 1) % SHARDS;
    for _ in 0..2 {
        scene.send(&add(1, shard));
        assert_eq!(scene.sent(shard), "auth token\r\n".to_owned() + &add(1, shard));
        scene.reply(shard, "+OK\r\n+OK\r\n");
        assert_eq!((scene.heard().as_str(), scene.lose(shard)), ("+OK\r\n", Flow::Continue));
    }
    // What it says unasked is not for the client, and it closes behind it.
    scene.send(&add(1, shard));
    scene.reply(shard, "+OK\r\n+OK\r\n-SERVER-ERROR too much\r\n");
    assert_eq!(scene.heard(), "+OK\r\n");
    assert_eq!(scene.ways.0.lock().closed, [Shard(shard)]);
}

#[test]
fn each_way_hears_the_last_token_first() {
    let mut scene = Scene::new();
    scene.log_in();
    scene.send(&(add(1, 0) + &add(2, 1) + &add(3, 2)));
    let sent = [0, 1, 2].map(|shard| scene.sent(shard));
    let logins = sent.iter().filter(|sent| sent.starts_with("auth token\r\nadd")).count();
    assert_eq!(logins, 2, "{sent:?}");
    for (shard, sent) in (0..).zip(&sent) {
        scene.reply(shard, if sent.starts_with("auth") { "+OK\r\n+OK\r\n" } else { "+OK\r\n" });
    }
    assert_eq!(scene.heard(), "+OK\r\n".repeat(3));
    // A wrong one binds too.
    scene.send("auth other\r\n");
    assert_eq!([0, 1, 2].map(|shard| scene.sent(shard)), ["auth other\r\n"; 3]);
    scene.replies(&[(2, "-CLIENT-ERROR 2\r\n"), (1, "-CLIENT-ERROR 1\r\n"), (0, "+OK\r\n")]);
    assert_eq!(scene.heard(), "-CLIENT-ERROR 1\r\n");
    scene.lose(0);
    scene.send(&add(4, 0));
    assert_eq!(scene.sent(0), "auth other\r\n".to_owned() + &add(4, 0));
}

#[test]
fn of_a_job_that_may_be_anywhere_the_shard_that_has_it_answers() {
    let complete = format!("complete {} 1\r\nx\r\n", id(9));
    let (missing, failed) = ("-NOT-FOUND\r\n", "-SERVER-ERROR x\r\n");
    for (replies, answer) in [
        ([missing, missing, "+OK\r\n"], "+OK\r\n"),
        ([failed, "+OK\r\n", missing], "+OK\r\n"),
        (
            ["-CLIENT-ERROR Duplicate result\r\n", failed, missing],
            "-CLIENT-ERROR Duplicate result\r\n",
        ),
        ([missing, failed, "-TIMEOUT\r\n"], "-TIMEOUT\r\n"),
        ([missing, failed, missing], failed),
        (["-CLIENT-ERROR 0\r\n", "-CLIENT-ERROR 1\r\n", missing], "-CLIENT-ERROR 0\r\n"),
        (["-CLIENT-ERROR x\r\n", "-TIMEOUT\r\n", missing], "-CLIENT-ERROR x\r\n"),
        ([missing; 3], missing),
    ] {
        let mut scene = Scene::new();
        assert_eq!(scene.send(&complete), Flow::Wait);
        assert_eq!([0, 1, 2].map(|shard| scene.sent(shard)), [complete.as_str(); 3]);
        for (shard, reply) in (0..3).zip(replies).rev() {
            scene.reply(shard, reply);
        }
        assert_eq!(scene.heard(), answer, "{replies:?}");
        assert!(!scene.session.is_engaged());
    }
}

#[test]
fn who_did_it_answers_at_once_and_is_remembered() {
    let mut scene = Scene::new();
    let request = format!("inspect job {}\r\n", id(9));
    scene.send(&request);
    let shown = format!("+OK 1\r\n{} 0\r\n", id(9));
    assert_eq!(scene.reply(1, &shown), Flow::Continue);
    assert_eq!(scene.heard(), shown);
    let _ = [0, 1, 2].map(|shard| scene.sent(shard));
    scene.send(&request);
    assert_eq!([0, 1, 2].map(|shard| scene.sent(shard)), ["", &request, ""]);
    // It is there no more.
    scene.replies(&[(1, "-NOT-FOUND\r\n"), (0, "-NOT-FOUND\r\n"), (2, "-NOT-FOUND\r\n")]);
    assert_eq!(scene.heard(), "-NOT-FOUND\r\n");
    scene.send(&request);
    assert_eq!([0, 1, 2].map(|shard| scene.sent(shard)), [request.as_str(); 3]);
}

#[test]
fn a_shutdown_ends_waits_and_lets_a_run_go_on_until_it_must_end() {
    let mut scene = waiting();
    scene.send(&add(1, 0));
    assert_eq!(scene.session.on_shutdown(false, &mut scene.out), Flow::Close);
    assert_eq!((scene.heard().as_str(), scene.sent(1).as_str()), ("-TIMEOUT\r\n", "pass\r\n"));
    let mut scene = Scene::new();
    let run = format!("run {} {} 1000 1000 0\r\n\r\n", id(1), queue(0));
    scene.send(&run);
    assert_eq!(scene.session.on_shutdown(false, &mut scene.out), Flow::Wait);
    assert_eq!(scene.session.on_shutdown(true, &mut scene.out), Flow::Close);
    assert_eq!(scene.heard(), "-TIMEOUT\r\n");
    let mut scene = Scene::new();
    scene.send(&add(1, 0));
    assert_eq!(scene.session.on_shutdown(false, &mut scene.out), Flow::Wait);
    assert_eq!((scene.reply(0, "+OK\r\n"), scene.heard().as_str()), (Flow::Close, "+OK\r\n"));
}

#[test]
fn what_speaks_another_protocol_is_closed_unanswered() {
    for first in ["GET / HTTP/1.1\r\n", "\u{16}\u{3}\u{1}", "add\n"] {
        let mut scene = Scene::new();
        assert_eq!((scene.send(first), scene.heard().as_str()), (Flow::Close, ""), "{first:?}");
    }
    // Behind requests that are owed.
    let mut scene = Scene::new();
    assert_eq!(scene.send(&(add(1, 0) + "add\n")), Flow::Wait);
    assert_eq!((scene.reply(0, "+OK\r\n"), scene.heard().as_str()), (Flow::Close, "+OK\r\n"));
}

#[test]
fn offers_are_for_routers_only() {
    let mut scene = Scene::new();
    let all = format!("offer q 0\r\ntake {}\r\npass\r\n", id(1));
    assert_eq!(scene.send(&all), Flow::Continue);
    assert_eq!(scene.heard(), "-CLIENT-ERROR Unknown command\r\n".repeat(3));
}

#[test]
fn the_shard_that_is_asked_first_is_drawn_by_lot() {
    let mut scene = Scene::new();
    let mut first = [0; 2];
    for _ in 0..64 {
        scene.send(&lease(&[0, 1], 0));
        let shard = u8::from(scene.sent(0).is_empty());
        first[usize::from(shard)] += 1;
        scene.reply(shard, &leased(1, shard));
        let _ = scene.sent(1);
    }
    assert!(first.iter().all(|count| *count > 8), "{first:?}");
}

#[test]
fn a_client_that_sends_no_more_is_not_offered_anything() {
    let mut scene = Scene::new();
    scene.send(&lease(&[0, 1], 60_000));
    let first = u8::from(scene.sent(0).is_empty());
    assert_eq!(scene.end(), Flow::Wait);
    scene.reply(first, "-TIMEOUT\r\n");
    assert_eq!(scene.reply(1 - first, "-TIMEOUT\r\n"), Flow::Continue);
    assert_eq!(scene.heard(), "-TIMEOUT\r\n");
}

#[test]
fn where_a_job_was_added_or_leased_is_remembered() {
    let mut scene = Scene::new();
    let asked = |scene: &mut Scene, number| {
        scene.send(&format!("delete {}\r\n", id(number)));
        let asked = [0, 1, 2].map(|shard| !scene.sent(shard).is_empty());
        (0..SHARDS).filter(|shard| asked[usize::from(*shard)]).for_each(|shard| {
            scene.reply(shard, "+OK\r\n");
        });
        asked
    };
    scene.send(&(add(1, 2) + &add(2, 1)));
    scene.replies(&[(2, "+OK\r\n"), (1, "-CLIENT-ERROR Invalid Time\r\n")]);
    let _ = [0, 1, 2].map(|shard| scene.sent(shard));
    assert_eq!(asked(&mut scene, 1), [false, false, true]);
    // That one may be anywhere.
    assert_eq!(asked(&mut scene, 2), [true; 3]);
    scene.send(&lease(&[1], 0));
    scene.reply(1, &leased(3, 1));
    let _ = scene.sent(1);
    assert_eq!(asked(&mut scene, 3), [false, true, false]);
}

#[test]
fn nobody_waits_on_for_a_result_that_is_there() {
    let mut scene = Scene::new();
    scene.send(&format!("result {} 60000\r\n", id(1)));
    let result = format!("+OK 1\r\n{} 1 0\r\n\r\n", id(1));
    assert_eq!(scene.replies(&[(0, "-NOT-FOUND\r\n"), (1, &result)]), Flow::Wait);
    assert_eq!((scene.heard(), &scene.ways.0.lock().finished[..]), (result, &[Shard(2)][..]));
    scene.reply(2, "-TIMEOUT\r\n");
    assert_eq!((scene.lose(2), scene.heard().as_str()), (Flow::Continue, ""));
}

#[test]
fn a_client_lacks_an_identity_until_it_presents_a_token_or_a_certificate_that_is_known() {
    let access = check_identity_is_required(|access| {
        let network = Arc::new(PlayedWays::default());
        WorkqRouter::new(network, Placement::over(SHARDS), Limits::default()).with_access(access)
    });
    for (token, lacks) in [("wrong", true), ("known", false)] {
        let mut scene = Scene::of(access.login(None));
        assert!(scene.session.lacks_identity());
        scene.send(&format!("auth {token}\r\n"));
        assert_eq!(scene.session.lacks_identity(), lacks, "{token}");
    }
}
