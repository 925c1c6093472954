//! What the test harnesses of Spindle's crates share. No product crate depends on it; they list it
//! under `dev-dependencies`, with the features that their tests need. The simulator, the fuzz targets
//! and the load generator, which are tests too, depend on it as well.
//!
//! A test of Spindle works at one of six distances from the code, and each has a starting point
//! here. A test should use the nearest one that can show the behaviour:
//!
//! | what the test drives | start with | feature |
//! |---|---|---|
//! | a log, on a disk that fails when and as a seed says, or behind a network that does | `disk::SimDisk`, `FlightStore`, `log_conformance` | `log` |
//! | the engine, step by step: no thread runs, and no time passes, unless the test says so | `ManualEngine`, `submit_to`, `lease_from`, `take` | `engine` |
//! | sessions of a TCP door, byte by byte, without sockets | `Sessions` | `engine` |
//! | a TCP door behind its reactor, over loopback | `TcpServer` | `net` |
//! | an HTTP door behind the guard of all of them, without sockets | `HttpDoor`, `Reply` | `http` |
//! | a program as people start it | [`Program`], [`SpindleServer`], [`Said`] | |
//!
//! What they share is here too:
//!
//! - **Waiting.** A test never sleeps in the hope that something has happened. It waits for a
//!   condition ([`wait_until`], `wait_until_async`), and fails after [`PATIENCE`]. No condition of
//!   a sound program takes nearly that long, so the limit says nothing about speed.
//! - **Durability.** `HeldLog` is a log in memory that a test can hold back: what the engine has
//!   decided is not durable until the test lets go, so a test sees which answers wait for the disk.
//! - **A network.** `FlightLog` is a log at the other end of one: several records are on their way, and
//!   they and their answers come late, in any order, or not at all.
//! - **Nodes.** `shared_log::SharedMemoryLog` is a log in memory that several nodes share; a test cuts
//!   one of them off, holds its acknowledgements, or lets its appends arrive late.
//! - **Time.** It stands still until a test moves the `ManualClock`.
//! - **Deliveries.** `Letters` is a mailbox that a test reads; `caller` is a client that never
//!   reads its own.
//! - **Access.** `TokensFile` has a token for every role, for all queues and for some;
//!   `check_identity_is_required` says whether a TCP door asks for one.
//! - **The audit log.** `Audited` sees what a request leaves there.
//! - **TLS.** `Certificates` is an authority with a server and clients, and connects to the server.
//! - **Spans.** `Collector` keeps what an exporter of traces sends (feature `otlp`).
//! - **NATS.** `NatsServers` are servers with JetStream, alone or as a cluster (feature `nats`).
//! - **jobd.** `JobdMaster` is a master, and `JobdWorker` a worker for one (feature `jobd`).
//! - **PostgreSQL.** `PostgresServer` is a private server, or its standby (feature `pgsql`).
//! - **Networks.** Both can run in network namespaces (`Place`), between which connections can be cut.
//! - **Webhooks.** [`HookReceiver`] receives alerts, and keeps them.
//! - **Requests over a socket.** [`HttpRequest`] sends one HTTP request and reads its answer.
//!
//! A harness (`tests/*/harness.rs` of a crate) adds the words of its own protocol to these. A helper
//! that one crate alone needs stays in that crate's harness.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[cfg(any(feature = "nats", feature = "pgsql"))]
mod attached;
#[cfg(feature = "engine")]
mod audit;
#[cfg(feature = "tls")]
mod certificates;
#[cfg(feature = "otlp")]
mod collector;
#[cfg(feature = "log")]
pub mod disk;
#[cfg(feature = "engine")]
mod engine;
#[cfg(feature = "log")]
mod flight_log;
#[cfg(feature = "engine")]
mod held_log;
mod hook_receiver;
#[cfg(feature = "http")]
mod http_door;
mod http_request;
#[cfg(all(feature = "access", feature = "engine"))]
mod identity;
#[cfg(feature = "jobd")]
mod jobd_master;
#[cfg(feature = "jobd")]
mod jobd_worker;
#[cfg(feature = "engine")]
mod letters;
#[cfg(feature = "log")]
pub mod log_conformance;
#[cfg(feature = "engine")]
mod manual_clock;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "pgsql")]
mod postgres_server;
mod program;
#[cfg(feature = "log")]
mod random;
mod said;
#[cfg(feature = "engine")]
mod sessions;
#[cfg(feature = "log")]
pub mod shared_log;
mod spindle_server;
#[cfg(feature = "net")]
mod tcp_server;
#[cfg(feature = "access")]
mod tokens_file;
mod wait;
#[cfg(feature = "net")]
mod waiting_requests;

#[cfg(any(feature = "nats", feature = "pgsql"))]
pub use attached::{Place, ServerProcess};
#[cfg(feature = "engine")]
pub use audit::Audited;
#[cfg(feature = "tls")]
pub use certificates::{Certificates, TlsClient};
#[cfg(feature = "otlp")]
pub use collector::{Collected, Collector};
#[cfg(feature = "engine")]
pub use engine::{
    ManualEngine, caller, commit_all, lease_from, new_job, opened, spawn, submit_to, take,
};
#[cfg(feature = "log")]
pub use flight_log::{FlightLog, FlightStore, Weather};
#[cfg(feature = "engine")]
pub use held_log::HeldLog;
pub use hook_receiver::HookReceiver;
#[cfg(feature = "http")]
pub use http_door::{HttpDoor, Reply, on_serving_thread, wait_until_async};
pub use http_request::HttpRequest;
#[cfg(all(feature = "access", feature = "engine"))]
pub use identity::{check_identity_is_required, open_as};
#[cfg(feature = "jobd")]
pub use jobd_master::JobdMaster;
#[cfg(feature = "jobd")]
pub use jobd_worker::JobdWorker;
#[cfg(feature = "engine")]
pub use letters::Letters;
#[cfg(feature = "engine")]
pub use manual_clock::ManualClock;
#[cfg(feature = "nats")]
pub use nats::{NatsServers, NatsSetup, nats_program};
#[cfg(feature = "pgsql")]
pub use postgres_server::PostgresServer;
pub use program::{Program, await_exit, free_address, succeeds, write_script};
pub use said::Said;
#[cfg(feature = "engine")]
pub use sessions::Sessions;
pub use spindle_server::SpindleServer;
#[cfg(feature = "net")]
pub use tcp_server::TcpServer;
#[cfg(feature = "access")]
pub use tokens_file::{TokensFile, is_enough};
pub use wait::{PATIENCE, wait_until, wait_within};
#[cfg(feature = "net")]
pub use waiting_requests::check_waiting_requests;
