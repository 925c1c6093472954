//! The real server and the clients people have, unmodified.
//!
//! - `across`: jobs that go from Workq's door to Gearman's and back
//! - `settings`: what the API sets for a queue, and Gearman's jobs in it
//! - `languages`: client libraries of C, Perl, PHP, Python and Node, each as worker and as client
//! - `tools`: `gearman` and `gearadmin`
//!
//! The programs in `clients/` are one worker and one client in each language. The worker can do
//! PREFIX-reverse (turns text around), PREFIX-steps (tells 1/2, the piece `part`, and `end`) and
//! PREFIX-boom (an exception). The client asks for all of it in the foreground, reverses once more
//! in the background until the job is known no more, puts jobs of all priorities and two with one
//! unique into a queue nobody works for, and prints a line for each. What they need is installed
//! by `cargo xtask test`; what is missing fails the test.

#[cfg(test)]
mod across;
#[cfg(test)]
mod languages;
#[cfg(test)]
mod server;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod tools;
