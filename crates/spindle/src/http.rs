//! The HTTP door of a running server: its routes, its listener, its end.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::AtomicUsize},
    time::Instant,
};

use anyhow::Context;
use axum::Router;
use spindle_api::{Api, Options};
use spindle_engine::Engine;
use spindle_http::{
    Names,
    listen::{self, Handle, Limits},
    site,
};
use spindle_net::BindError;

use crate::config::Config;

/// The HTTP door at work. Dropping it closes it at once.
pub struct Http {
    api: Api,
    handle: Handle,
}

impl Http {
    /// Claims the address and serves it.
    pub fn open(
        engine: Engine,
        addr: SocketAddr,
        host: String,
        config: &Config,
        not_bound: impl FnOnce(BindError) -> anyhow::Error,
    ) -> anyhow::Result<Http> {
        let bound = listen::bind(addr)
            .map_err(|source| not_bound(BindError { door: "http", addr, source }))?;
        let connections = Arc::<AtomicUsize>::default();
        let options = Options { host, connections: Arc::clone(&connections), ..Options::default() };
        let api = Api::new(engine, options);
        let routes = Router::new().merge(api.router());
        let routes = site(routes, Names::new(bound.local_addr().ip()));
        let limits = Limits { connections_max: config.connections_max, ..Limits::default() };
        let handle =
            bound.start(routes, limits, connections).context("http: cannot start serving")?;
        Ok(Http { api, handle })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.handle.local_addr()
    }

    /// Begins the orderly end: event streams end, answers under way are given. Does not wait.
    pub fn begin_shutdown(&self) {
        self.api.stop();
        self.handle.begin_shutdown();
    }

    /// Waits for the orderly end until the deadline. True when nothing was left.
    pub fn finish(&self, deadline: Instant) -> bool {
        self.handle.finish(deadline)
    }

    /// Closes everything now, unanswered.
    pub fn abort(&self) {
        self.handle.abort();
    }
}
