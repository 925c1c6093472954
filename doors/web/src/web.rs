//! What all pages share.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use spindle_access::Access;
use spindle_engine::Engine;
use spindle_http::EngineBridge;
use tokio::sync::watch;

use crate::assets::Assets;
use crate::form::Seal;
use crate::sessions::Sessions;

/// A setting in force, as the server's page shows it. Secrets are in files, so settings only name
/// those.
#[derive(Clone, Debug)]
pub struct SettingLine {
    /// Its name.
    pub name: &'static str,
    /// Its value, as it would be written.
    pub value: String,
    /// Where the value comes from; empty for the default.
    pub from: String,
}

/// The settings of the pages.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which clients are let in.
    pub access: Access,
    /// Whether there are tokens to log in with.
    pub has_tokens: bool,
    /// The machine's name, beside the server's.
    pub host: String,
    /// How long after its login a session ends.
    pub session_time: Duration,
    /// The server's settings, for its page.
    pub settings: Vec<SettingLine>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            access: Access::open(),
            has_tokens: false,
            host: "localhost".to_owned(),
            session_time: Duration::from_hours(12),
            settings: Vec::new(),
        }
    }
}

/// How pages learn that something has happened.
pub trait Pulse: Send + Sync {
    /// A higher number after each change.
    fn position(&self) -> u64;

    /// A receiver that is notified after each change from now on, or once soon after several.
    fn moves(&self) -> watch::Receiver<()>;
}

/// The pulse of one engine.
struct EnginePulse(EngineBridge);

impl Pulse for EnginePulse {
    fn position(&self) -> u64 {
        self.0.engine().durable().0
    }

    fn moves(&self) -> watch::Receiver<()> {
        self.0.moves()
    }
}

/// The web pages. Clones share one instance.
#[derive(Clone)]
pub struct Web(Arc<Shared>);

struct Shared {
    api: Router,
    bridge: EngineBridge,
    pulse: Arc<dyn Pulse>,
    options: Options,
    sessions: Sessions,
    seal: Seal,
    assets: Assets,
    stopping: watch::Sender<bool>,
}

impl Web {
    /// The pages of a server. `api` has the routes of its native API, which the pages ask; `engine`
    /// is asked only for the time, and whether something happened.
    ///
    /// # Panics
    ///
    /// The system has no random bytes.
    pub fn new(engine: Engine, api: Router, options: Options) -> Web {
        let pulse = Arc::new(EnginePulse(EngineBridge::new(engine.clone())));
        Web::with_pulse(engine, api, pulse, options)
    }

    /// The same where `api` answers for more than this engine: `pulse` tells when something happens
    /// in any part of it.
    ///
    /// # Panics
    ///
    /// The system has no random bytes.
    pub fn with_pulse(engine: Engine, api: Router, pulse: Arc<dyn Pulse>, options: Options) -> Web {
        let (stopping, _) = watch::channel(false);
        Web(Arc::new(Shared {
            api,
            bridge: EngineBridge::new(engine),
            pulse,
            sessions: Sessions::new(options.session_time),
            options,
            seal: Seal::random(),
            assets: Assets::new(),
            stopping,
        }))
    }

    /// The server stops: live feeds end.
    pub fn stop(&self) {
        self.0.stopping.send_replace(true);
    }

    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.0.stopping.subscribe()
    }

    pub(crate) fn api(&self) -> Router {
        self.0.api.clone()
    }

    pub(crate) fn pulse(&self) -> &dyn Pulse {
        &*self.0.pulse
    }

    pub(crate) fn bridge(&self) -> &EngineBridge {
        &self.0.bridge
    }

    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }

    pub(crate) fn seal(&self) -> &Seal {
        &self.0.seal
    }

    pub(crate) fn assets(&self) -> &Assets {
        &self.0.assets
    }
}
