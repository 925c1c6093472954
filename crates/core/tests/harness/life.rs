//! Random lives of a server, and properties that hold in any of them.
//!
//! A life is a list of moves, and a move is a list of choices that it may draw from. A property
//! that fails is tried on shorter lives with smaller choices until none fails any more; that one is
//! printed, command by command. The lives are the same in every run.

use std::cell::Cell;
use std::panic;
use std::sync::Once;

use bytes::Bytes;
use proptest::array::uniform24;
use proptest::collection::vec;
use proptest::num::u32::ANY;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use spindle_core::{Command, Event, JobId, JobImage, Rejection};

use super::{Draw, Server, command};

const LIVES: u32 = 60;
const MOVES: usize = 400;
/// A life that fails is made smaller for about this long.
const SHRINK_MS: u32 = 20_000;

/// The choices that one command, and the time before it, are drawn from. No command draws more.
pub type Move = [u32; 24];

/// What a check sees of each step: the server before and after, the command, and its outcome.
pub struct Step<'a> {
    pub server: &'a Server,
    pub before: &'a [JobImage],
    pub paused: &'a [Bytes],
    pub command: &'a Command,
    pub outcome: &'a Result<Vec<Event>, Rejection>,
}

/// Tries a property on many lives. It fails by a panic.
#[track_caller]
pub fn in_any_life(property: impl Fn(&[Move])) {
    let config = Config {
        cases: LIVES,
        failure_persistence: None,
        max_shrink_iters: 1_000_000,
        max_shrink_time: SHRINK_MS,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let lives = vec(uniform24(ANY), 1..=MOVES);
    let outcome = quietly(|| {
        TestRunner::new_with_rng(config, rng).run(&lives, |life| {
            property(&life);
            Ok(())
        })
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, life)) => panic!("{why} in this life:\n{}", described(&life)),
        Err(error) => panic!("{error}"),
    }
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Shrinking fails thousands of times: only the last of these failures is worth its text.
fn quietly<T>(run: impl FnOnce() -> T) -> T {
    static HOOKED: Once = Once::new();
    HOOKED.call_once(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                loud(panic);
            }
        }));
    });
    QUIET.set(true);
    let outcome = run();
    QUIET.set(false);
    outcome
}

/// The commands of a life, one a line, with what became of them.
fn described(life: &[Move]) -> String {
    let mut text = String::new();
    random_life(life, |step| {
        let (now_ms, command) = (step.server.now_ms, step.command);
        let outcome = match step.outcome {
            Ok(events) => format!("{events:?}"),
            Err(rejection) => format!("refused: {rejection}"),
        };
        text += &format!("{now_ms} {command:?}\n    {outcome}\n");
    });
    text
}

/// Lives a life, with restarts, and shows every step of it to a check.
pub fn random_life(life: &[Move], mut check: impl FnMut(&Step<'_>)) -> Server {
    let mut server = Server::new();
    let mut next_id = 0;
    for choices in life {
        let mut draw = Draw::from(choices);
        match draw.below(50) {
            44.. => {
                let ms = draw.pick(&[1, 40, 700, 20_000]);
                server.pass(draw.below(ms));
            }
            43 if draw.one_in(3) => server.restart(),
            _ => {}
        }
        server.tick();
        let before = live_images(&server);
        let paused: Vec<Bytes> = server
            .state
            .queues_from(b"", false)
            .filter(|queue| queue.paused)
            .map(|queue| queue.name)
            .collect();
        let command = command(&mut draw, &server, &mut next_id);
        let outcome = server.when(command.clone());
        check(&Step {
            server: &server,
            before: &before,
            paused: &paused,
            command: &command,
            outcome: &outcome,
        });
    }
    server
}

/// Every unfinished job, whole.
pub fn live_images(server: &Server) -> Vec<JobImage> {
    server.state.jobs_from(JobId(0)).filter_map(|job| server.state.image(job.id())).collect()
}
